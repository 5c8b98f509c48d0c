"""nodeplug.pyz: the program as one file. Its libraries need the network, as in `make dist`."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from deploy.pyz.__main__ import write

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = [x.parent.name for x in ROOT.glob("*/py.typed")]
LIBRARY = Path(msgspec.__file__).parent


def content(*, is_compiled: bool) -> dict[str, bytes]:
    files = [x for package in PACKAGES for x in (ROOT / package).rglob("*") if x.suffix in (".py", ".yaml")]
    found = {str(x.relative_to(ROOT)): x.read_bytes() for x in files}
    found |= {f"msgspec/{x.name}": x.read_bytes() for x in LIBRARY.glob("*.py")}
    if is_compiled:
        (core,) = LIBRARY.glob("_core.*.so")
        found[f"compiled/{sys.implementation.cache_tag}-{platform.machine()}.so"] = core.read_bytes()
    return found


def run(archive: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run it outside the checkout; other libraries come from this environment."""
    libraries = next(path for path in sys.path if path.endswith("site-packages"))
    program = [sys.executable, "-S", str(archive), *words]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": libraries}
    return subprocess.run(program, cwd=archive.parent, env=environment, capture_output=True, text=True, check=False)


def test_archive_runs_alone_and_is_reproducible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    write(tmp_path / "one.pyz", {"a": b"1", "b": b"2"})
    write(tmp_path / "other.pyz", {"b": b"2", "a": b"1"})
    assert (tmp_path / "one.pyz").read_bytes() == (tmp_path / "other.pyz").read_bytes()
    archive = tmp_path / "nodeplug.pyz"
    write(archive, content(is_compiled=True))
    assert archive.stat().st_mode & 0o111
    done = run(archive, "check", str(ROOT / "systemd/config.yaml"))
    assert done.returncode == 0, done.stderr
    assert "nodeplug.dev/usb-serial" in done.stdout


def test_unsupported_python_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "nodeplug.pyz", content(is_compiled=False))
    done = run(tmp_path / "nodeplug.pyz", "discover")
    assert done.returncode == 1
    assert done.stderr.startswith("nodeplug.pyz is for CPython 3.11 to 3.14 on x86_64 and aarch64, not ")
