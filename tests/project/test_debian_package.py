"""The Debian package. Running its program needs the libraries, which `make deb` downloads."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deploy import debian_package

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package whose library prints its arguments."""
    if not shutil.which("dpkg-deb"):
        pytest.skip("no dpkg-deb on this machine")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    program = tmp_path / "site/nodeplug/__main__.py"
    program.parent.mkdir(parents=True)
    program.write_text("def main():\n    import sys\n    print(__file__, *sys.argv[1:])\n")
    built = []
    for name, mode in (("one", 0o644), ("two", 0o600)):  # modes of libraries with different umasks
        (tmp_path / name).mkdir()
        program.touch()
        program.chmod(mode)
        built.append(debian_package.write(tmp_path / "site", tmp_path / name, "amd64", "1.2.3"))
    assert built[0].read_bytes() == built[1].read_bytes()
    return built[0]


def test_package_contains_program_unit_and_configuration(package: Path, tmp_path: Path) -> None:
    assert package.name == "nodeplug_1.2.3_amd64.deb"
    root = tmp_path / "root"
    subprocess.run(["dpkg-deb", "-R", package, root], check=True)
    assert (root / "DEBIAN/conffiles").read_text() == "/etc/nodeplug/config.yaml\n"
    control = (root / "DEBIAN/control").read_text()
    assert "\nDepends: python3 (>= 3.11), python3 (<< 3.15)\n" in control
    for ours, there in (
        ("systemd/nodeplug.service", "lib/systemd/system/nodeplug.service"),
        ("systemd/config.yaml", "etc/nodeplug/config.yaml"),
        ("systemd/drop-ins/dra.conf", "usr/share/doc/nodeplug/drop-ins/dra.conf"),
        ("docs/operating.md", "usr/share/doc/nodeplug/operating.md"),
    ):
        assert (root / there).read_text() == (ROOT / ours).read_text()
    subprocess.run(["bash", "-n", root / "usr/share/bash-completion/completions/nodeplug"], check=True)
    for script in ("postinst", "prerm", "postrm"):
        subprocess.run(["sh", "-n", root / "DEBIAN" / script], check=True)
    launcher = (root / "opt/nodeplug/bin/nodeplug").read_text()
    here = launcher.replace("/opt/nodeplug/lib", str(root / "opt/nodeplug/lib"))
    # -S: without the checkout that this environment adds to the path
    started = subprocess.run([sys.executable, "-IS", "-c", here, "run"], capture_output=True, text=True, check=True)
    assert started.stdout == f"{root}/opt/nodeplug/lib/nodeplug/__main__.py run\n"


def test_packaged_pages_link_only_to_packaged_pages(package: Path, tmp_path: Path) -> None:
    subprocess.run(["dpkg-deb", "-x", package, tmp_path / "root"], check=True)
    pages = {page.name: page.read_text() for page in (tmp_path / "root/usr/share/doc/nodeplug").glob("*.md")}
    links = {(name, to) for name, text in pages.items() for to in re.findall(r"\]\(([a-z0-9-]+\.md)", text)}
    assert {"start-edge-box.md", "install.md", "migration.md", "commands.md"} <= pages.keys()
    assert not {(name, to) for name, to in links if to not in pages}


def test_unit_runs_the_installed_program() -> None:
    unit = (ROOT / "systemd/nodeplug.service").read_text()
    assert "ExecStart=/opt/nodeplug/bin/nodeplug run --config /etc/nodeplug/config.yaml\n" in unit


def test_example_configuration_is_valid() -> None:
    command = [sys.executable, "-m", "nodeplug", "check", str(ROOT / "systemd/config.yaml")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "nodeplug.dev/usb-serial" in done.stdout
