"""`nodeplug bundle`: its content, and what it must not contain."""

import asyncio
import io
import json
import stat
import tarfile
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from nodeplug.cli import main
from nodeplug.report import bundle
from nodeplug.report.redaction import REMOVED
from tests.deviceplugin.host import MadeUpHost
from tests.nodeplug.control.conftest import FUSE, DaemonUnderTest

NAMES = {"versions.json", "configuration.yaml", "doctor.json", "status.json", "events.json", "metrics.txt", "log.txt"}


@pytest.fixture(autouse=True)
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A journal with a line that contains a credential."""
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "journalctl"
    program.write_text('#!/bin/sh\necho "$*: password=hunter2"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return program


async def bundled(path: Path, *words: str | Path) -> Result:
    arguments = ["bundle", *map(str, words), "--config", str(path), "--root", str(path.parent / "host")]
    return await asyncio.to_thread(CliRunner().invoke, main, arguments)


def files(content: bytes) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        found = {}
        for entry in archive:
            file = archive.extractfile(entry)
            assert file is not None
            folder, _, name = entry.name.partition("/")
            assert folder.startswith("nodeplug-bundle-20")
            found[name] = file.read().decode()
    return found


@pytest.mark.parametrize("is_named", [False, True])
async def test_configuration_defaults_to_the_file_of_the_running_daemon(
    daemon: DaemonUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_named: bool
) -> None:
    await daemon.start(FUSE)
    words = ["--root", str(daemon.root)]
    if is_named:
        words += ["--state", str(daemon.state)]
    else:
        monkeypatch.setattr("nodeplug.commands.running_daemon.STATE_DIRECTORY", daemon.state)
    file = tmp_path / "report.tar.gz"
    result = await daemon.run_as_is("bundle", str(file), *words)
    assert result.exit_code == 0, result.output
    assert "example.com/fuse" in files(file.read_bytes())["configuration.yaml"]
    examined = await daemon.run_as_is("doctor", *words)
    assert f"ok    configuration  {daemon.path} can be used" in examined.stdout


async def test_state_option_finds_a_daemon_whose_file_is_invalid(daemon: DaemonUnderTest, tmp_path: Path) -> None:
    await daemon.start(FUSE)
    daemon.path.write_text("resources: 3")  # the state directory is no longer known from the file
    file = tmp_path / "report.tar.gz"
    result = await bundled(daemon.path, file, "--state", daemon.state)
    assert result.exit_code == 0, result.output
    found = files(file.read_bytes())
    assert json.loads(found["status.json"])["resources"][0]["name"] == "example.com/fuse"
    findings = {(x["outcome"], x["subject"]) for x in json.loads(found["doctor.json"])["findings"]}
    assert ("ok", "daemon") in findings
    assert ("wrong", "configuration") in findings


async def test_bundle_of_a_running_daemon_is_complete_and_redacted(daemon: DaemonUnderTest, tmp_path: Path) -> None:
    await daemon.start({**FUSE, "env": {"KEY": "hunter2"}})
    daemon.telemetry.events.record("refused", "Authorization: Bearer hunter2hunter2")
    file = tmp_path / "report.tar.gz"
    result = await bundled(daemon.path, file)
    assert result.exit_code == 0, result.output
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    found = files(file.read_bytes())
    assert found.keys() == NAMES | {"missing.txt"}
    assert found["missing.txt"] == ""
    assert not [name for name, text in found.items() if "hunter2" in text]
    assert yaml.safe_load(found["configuration.yaml"])["resources"][0]["env"] == {"KEY": REMOVED}
    assert json.loads(found["status.json"])["resources"][0]["name"] == "example.com/fuse"
    assert json.loads(found["events.json"])["events"][0]["kind"] == "refused"
    assert "daemon" in {x["subject"] for x in json.loads(found["doctor.json"])["findings"]}
    assert "nodeplug_build_info" in found["metrics.txt"]
    assert "-u nodeplug.service" in found["log.txt"]
    assert json.loads(found["versions.json"])["libraries"]["msgspec"]
    again = await bundled(daemon.path, file)
    words = f"Error: {file} exists already and is not changed; name a new file\n"
    assert (again.exit_code, again.stderr) == (1, words)


async def test_bundle_without_a_daemon_lists_what_is_missing(
    tmp_path: Path, journal: Path, made_up: MadeUpHost
) -> None:
    journal.unlink()
    path = tmp_path / "config.yaml"
    path.write_text("resources: [\n")
    assert path.parent == made_up.root.parent
    result = await bundled(path, "-")
    assert result.exit_code == 0, result.output
    found = files(result.stdout_bytes)
    assert found.keys() == {"versions.json", "doctor.json", "missing.txt"}
    assert "cannot be used" in found["missing.txt"]
    assert "missing: status.json: there is no " in result.stderr


async def test_configuration_path_error_does_not_prevent_the_bundle(tmp_path: Path, made_up: MadeUpHost) -> None:
    """For example, on a failing disk; here its name is too long."""
    assert made_up.root.parent == tmp_path
    result = await bundled(tmp_path / ("x" * 300), "-")
    assert result.exit_code == 0, result.output
    found = files(result.stdout_bytes)
    assert "File name too long" in found["missing.txt"]
    assert "File name too long" in found["doctor.json"]


async def test_oversized_and_recursive_files_are_left_out(tmp_path: Path, made_up: MadeUpHost) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("resources: &all [*all]\n")
    (made_up.root / "etc").mkdir()
    (made_up.root / "etc/os-release").write_text("x" * 5000)
    result = await bundled(path, "-")
    assert result.exit_code == 0, result.output
    found = files(result.stdout_bytes)
    assert json.loads(found["versions.json"])["system"] == ""
    assert "configuration.yaml" not in found
    assert "aliases are not supported" in found["doctor.json"]


def test_long_file_is_cut_to_its_last_bytes() -> None:
    text = "x" * bundle.MAX_BYTES + "the end"
    content, missing = bundle.pack(iter([bundle.Member("log.txt", text)]))
    found = files(content)["log.txt"]
    assert (len(found), found[-7:]) == (bundle.MAX_BYTES, "the end")
    assert missing == ["log.txt: all but its last 4 MiB"]
