"""`nodeplug discover` and `nodeplug capture`, as run by a user."""

import json
import os
import pty
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from hostdevices import Host, scan
from nodeplug.cli import main
from tests.hostdevices.tree import Tree
from tests.small_disk import fill, mounted

FUSE = {
    "id": "misc-fuse",
    "kind": "misc",
    "name": "fuse",
    "syspath": "/sys/devices/virtual/misc/fuse",
    "devnodes": [{"path": "/dev/fuse", "type": "c", "major": 10, "minor": 229}],
    "numaNodes": [],
    "attributes": {"bus": "virtual", "name": "fuse"},
    "within": [],
    "health": {"healthy": True, "reason": ""},
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    tree = Tree(tmp_path / "root")
    tree.device("/sys/devices/virtual/misc/fuse", group="class/misc", node="fuse", numbers="10:229")
    function = tree.pci("0000:3b:00.0", vendor="15b3", driver="mlx5_core", numa_node=1)
    tree.child(function, "net/eth0", group="class/net", address="02:00:00:00:00:01", type="1")
    return tree.root


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def discover(root: Path, *words: str) -> dict[str, Any]:
    result = run("discover", "--root", root, "-o", "json", *words)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def on_a_terminal(columns: int, *words: str | Path) -> list[str]:
    """Run the command on a terminal; return the lines without colours."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "LINES": "50", "TERM": "dumb", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "nodeplug", *map(str, words)]
    with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment) as process:
        os.close(follower)
        output = b""
        try:
            while data := os.read(leader, 65536):
                output += data
        except OSError:
            pass  # Linux reports EIO when the other end of a terminal is closed
        os.close(leader)
        assert process.wait() == 0, output
    return output.decode().splitlines()


class TestJsonAndYaml:
    """Output for scripts."""

    def test_json_has_stable_names(self, root: Path) -> None:
        found = discover(root)
        assert set(found) == {"devices", "problems"}
        assert [device["id"] for device in found["devices"]] == ["misc-fuse", "nic-0000-3b-00-0", "pci-0000-3b-00-0"]
        assert found["devices"][0] == FUSE
        assert found["devices"][1]["numaNodes"] == [1]
        assert found["devices"][1]["within"] == ["pci-0000-3b-00-0"]

    def test_yaml_equals_json(self, root: Path) -> None:
        result = run("discover", "--root", root, "-o", "yaml")
        assert yaml.safe_load(result.stdout) == discover(root)

    def test_problems_have_place_and_reason(self, root: Path) -> None:
        (root / "sys/devices/virtual/misc/fuse/uevent").write_bytes(b"\xff\0")
        (problem,) = discover(root)["problems"]
        assert problem["where"] == "/sys/devices/virtual/misc/fuse"
        assert "binary content" in problem["reason"]

    def test_version_attributes_are_distinct_from_text(self, root: Path) -> None:
        (root / "sys/class/infiniband/mlx5_0").mkdir(parents=True)
        (root / "sys/class/infiniband/mlx5_0/fw_ver").write_text("20.31.1014\n")
        (device,) = discover(root, "--kind", "rdma")["devices"]
        assert device["attributes"]["firmware"] == {"version": "20.31.1014"}


class TestWide:
    """One device per line, with all columns."""

    def test_every_column_and_attribute_is_printed(self, root: Path) -> None:
        header, *lines = run("discover", "--root", root, "-o", "wide").stdout.splitlines()
        assert header.split() == ["KIND", "ID", "NAME", "NODES", "NUMA", "HEALTH", "WITHIN", "PATH", "ATTRIBUTES"]
        assert [line.split()[1] for line in lines] == ["misc-fuse", "nic-0000-3b-00-0", "pci-0000-3b-00-0"]
        nic = discover(root, "--kind", "nic")["devices"][0]
        assert all(f"{name}=" in lines[1] for name in nic["attributes"] if name != "name")
        assert "pci-0000-3b-00-0  /sys/devices" in lines[1]


class TestFilters:
    """The options --kind and --id."""

    def test_kind_option_filters_devices(self, root: Path) -> None:
        assert {device["kind"] for device in discover(root, "--kind", "nic", "--kind", "misc")["devices"]} == {
            "nic",
            "misc",
        }
        assert discover(root, "--kind", "gpu")["devices"] == []

    def test_unknown_kind_is_a_usage_error_with_a_suggestion(self, root: Path) -> None:
        result = run("discover", "--root", root, "--kind", "nics")
        assert result.exit_code == 2
        assert "no such kind: 'nics'; did you mean 'nic'?" in result.stderr

    def test_preset_instead_of_a_kind_is_explained(self, root: Path) -> None:
        """Configurations contain `select: usb-serial`, which users try here as well."""
        errors = run("discover", "--root", root, "--kind", "usb-serial").stderr
        assert "no such kind: 'usb-serial'; it is a preset, for devices of kind tty\n" in errors

    def test_unknown_kind_without_a_similar_one_lists_all_kinds(self, root: Path) -> None:
        error = run("discover", "--root", root, "--kind", "zigbee").stderr
        assert "no such kind: 'zigbee'; known are accel, block, " in error
        assert error.endswith(", watchdog\n")

    def test_id_option_selects_the_device(self, root: Path) -> None:
        assert discover(root, "--id", "misc-fuse")["devices"] == [FUSE]

    def test_id_option_prints_the_details_of_the_device(self, root: Path) -> None:
        lines = run("discover", "--root", root, "--id", "pci-0000-3b-00-0").stdout.splitlines()
        assert lines[0] == "pci-0000-3b-00-0"
        words = [line.split() for line in lines[1:]]
        assert ["numa", "1"] in words
        assert ["driver", "mlx5_core"] in words
        assert ["path", "/sys/devices/pci0000:00/0000:3b:00.0"] in words

    def test_unknown_id_is_an_error_with_a_suggestion(self, root: Path) -> None:
        result = run("discover", "--root", root, "--id", "misc-fuss")
        assert result.exit_code == 1
        assert result.stderr == "no device 'misc-fuss' here; did you mean 'misc-fuse'?\n"


class TestTable:
    """Output for people."""

    def test_piped_output_has_one_line_for_each_device(self, root: Path) -> None:
        lines = [line.split() for line in run("discover", "--root", root).stdout.splitlines()]
        assert lines[0] == ["KIND", "ID", "NAME", "NODES", "NUMA", "HEALTH", "ATTRIBUTES"]
        assert lines[1][:6] == ["misc", "misc-fuse", "fuse", "/dev/fuse", "-", "ok"]
        assert lines[2][:6] == ["nic", "nic-0000-3b-00-0", "eth0", "-", "1", "ok"]
        assert len(lines) == 4

    @pytest.mark.parametrize("columns", [40, 80, 120, 200])
    def test_terminal_output_keeps_ids_whole_and_fits_the_width(self, root: Path, columns: int) -> None:
        lines = on_a_terminal(columns, "discover", "--root", root)
        assert max(map(len, lines)) <= columns
        words = {word for line in lines for word in line.split()}
        assert {"misc-fuse", "nic-0000-3b-00-0", "pci-0000-3b-00-0", "mac=02:00:00:00:00:01", "/dev/fuse"} <= words

    def test_control_characters_in_device_names_are_escaped(self, root: Path) -> None:
        tree = root / "sys/devices/virtual/misc/\x1b[31mred"
        tree.mkdir(parents=True)
        (tree / "uevent").write_text("DEVNAME=evil\n")
        (tree / "dev").write_text("10:99\n")
        (root / "dev/evil").write_text("c 10:99")
        (root / "sys/class/misc/\x1b[31mred").symlink_to("../../devices/virtual/misc/\x1b[31mred")
        for output in ("table", "json", "yaml"):
            text = run("discover", "--root", root, "-o", output).stdout
            assert "[31mred" in text
            assert "\x1b" not in text
        assert not any("\x1b[31m" in line for line in on_a_terminal(120, "discover", "--root", root))

    def test_empty_host_has_no_devices(self, tmp_path: Path) -> None:
        (tmp_path / "sys").mkdir()
        assert on_a_terminal(80, "discover", "--root", tmp_path) == ["no devices"]


class TestCapture:
    """Captures, and reading them."""

    def test_capture_is_accepted_as_root(self, root: Path, tmp_path: Path) -> None:
        result = run("capture", tmp_path / "node.jsonl.gz", "--root", root)
        assert result.exit_code == 0
        assert "--mask replaces them" in result.stderr
        assert discover(tmp_path / "node.jsonl.gz") == discover(root)

    def test_masked_capture_contains_no_address(self, root: Path, tmp_path: Path) -> None:
        result = run("capture", tmp_path / "node.jsonl.gz", "--root", root, "--mask")
        assert result.stderr.rstrip().endswith("masked")
        assert discover(tmp_path / "node.jsonl.gz")["devices"][1]["attributes"]["mac"] == "00:00:00:00:00:01"

    def test_existing_capture_is_not_overwritten(self, root: Path, tmp_path: Path) -> None:
        file = tmp_path / "node.jsonl.gz"
        assert run("capture", file, "--root", root).exit_code == 0
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        before = file.read_bytes()
        result = run("capture", file, "--root", root, "--mask")
        words = f"Error: {file} exists already and is not changed; name a new file\n"
        assert (result.exit_code, result.stderr) == (1, words)
        assert file.read_bytes() == before
        assert run("capture", "-", "--root", root).stdout_bytes == before

    def test_partial_capture_is_removed_when_the_disk_is_full(self, root: Path, tmp_path: Path) -> None:
        (tmp_path / "disk").mkdir()
        with mounted(tmp_path / "disk", "size=1m") as disk:
            fill(disk)
            result = run("capture", disk / "node.gz", "--root", root)
            assert (result.exit_code, result.stderr) == (1, f"Error: {disk}/node.gz: No space left on device\n")
            assert os.listdir(disk) == ["rest"]

    def test_missing_folder_and_missing_root_are_errors(self, root: Path, tmp_path: Path) -> None:
        result = run("capture", tmp_path / "missing/node.gz", "--root", root)
        assert (result.exit_code, result.stderr) == (
            1,
            f"Error: {tmp_path}/missing/node.gz: No such file or directory\n",
        )
        result = run("discover", "--root", tmp_path / "missing")
        assert (result.exit_code, result.stderr[:6]) == (1, "Error:")
        assert "there is no such file or folder" in result.stderr

    @pytest.mark.parametrize("command", ["discover", "topology", "doctor", "demo"])
    def test_unreadable_root_is_an_error_without_a_traceback(self, command: str, tmp_path: Path) -> None:
        (tmp_path / "itself").symlink_to("itself")
        for root, why in ((tmp_path / ("a" * 300), "File name too long"), (tmp_path / "itself", "")):
            result = run(command, "--root", root)
            assert (result.exit_code, result.stderr[:6], "Traceback" in result.stderr) == (1, "Error:", False)
            assert str(root) in result.stderr
            assert why in result.stderr

    @pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
    def test_ordinary_user_captures_and_discovers_this_machine(self, tmp_path: Path) -> None:
        done = subprocess.run([sys.executable, "-c", _AS_NOBODY, tmp_path], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        ids = {device["id"] for device in json.loads(done.stdout)["devices"]}
        assert stable_ids(Host()) <= ids
        assert stable_ids(Host(tmp_path / "node.jsonl.gz")) == stable_ids(Host())


def stable_ids(host: Host) -> set[str]:
    """Return the ids of devices that do not change while tests run."""
    return {device.id for device in scan(host).devices.values() if device.kind in ("misc", "pci")}


# Imported before the user changes: the interpreter can be in a folder that only root can read.
_AS_NOBODY = """
import difflib, os, sys  # the first one is imported by click for each short option
from nodeplug.commands import capture as capture_cli, discover as discover_cli
os.chown(sys.argv[1], 65534, 65534)
os.chdir(sys.argv[1])
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
capture_cli.capture.main(["node.jsonl.gz"], standalone_mode=False)
discover_cli.discover.main(["-o", "json"], standalone_mode=False)
"""


def test_health_fault_is_shown_by_discover_and_check(root: Path, tmp_path: Path) -> None:
    """The same fault that the daemon reports for a new device; `check` reports it for a resource's devices."""
    tree = Tree(root)
    gaudi = tree.pci("0000:b3:00.0", vendor="1da3", driver="habanalabs", status="malfunction")
    tree.child(gaudi, "accel/accel0", group="class/accel", node="accel/accel0")
    reason = "its state is malfunction, not operational"
    (card,) = discover(root, "--kind", "accel")["devices"]
    assert card["health"] == {"healthy": False, "reason": reason}
    file = tmp_path / "node.yaml"
    file.write_text("resources: [{name: example.com/gaudi, select: accel}]")
    assert f"unhealthy: {reason}" in run("check", file, "--root", root).stdout
