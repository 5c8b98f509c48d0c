"""The wheel holds all that the program needs outside the checkout."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_wheel_runs_outside_the_checkout(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    subprocess.run([*build, str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    assert not (site / "tests").exists()
    # -I and a path of its own: nothing of the checkout can be imported, the libraries come from this environment
    program = (
        "import sys; sys.path.insert(0, sys.argv.pop(1));"
        "import nodeplug.config, hostdevices; assert hostdevices.__file__.startswith(sys.path[0]);"
        "from nodeplug.cli import main; main()"
    )
    for arguments in (["discover", "-o", "json"], ["demo"]):
        done = subprocess.run(
            [sys.executable, "-I", "-c", program, str(site), *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout
