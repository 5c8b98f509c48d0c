"""The wheel of the pytest plugin is reproducible."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_wheel_is_reproducible(tmp_path: Path) -> None:
    built = []
    for name, umask in (("one", 0o022), ("another", 0o077)):
        tree = tmp_path / name / "nodeplug-pytest"
        shutil.copytree(ROOT / "nodeplug-pytest", tree, copy_function=shutil.copyfile)  # with the current time as mtime
        words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / name)]
        environment = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
        subprocess.run(words, cwd=tree, env=environment, umask=umask, check=True, capture_output=True)
        (wheel,) = (tmp_path / name).glob("*.whl")
        built.append(wheel.read_bytes())
    assert built[0] == built[1]
