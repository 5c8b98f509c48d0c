"""A made-up libnvidia-ml.so.1 (library.c), compiled, and a file that tells it what to do."""

import shutil
import subprocess
from pathlib import Path

import pytest


def build_library(path: Path) -> None:
    """Compile it to `path`; without a compiler the test is skipped."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    path.parent.mkdir(parents=True, exist_ok=True)
    source = Path(__file__).with_name("library.c")
    options = ("-shared", "-fPIC", "-w", "-Wl,-soname,libnvidia-ml.so.1", "-o")
    subprocess.run([compiler, *options, path, source], check=True)


class Told:
    """What the library is told: lines as library.c has them. It reads the file that FAKE_NVML names."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tell()

    def tell(self, *lines: str) -> None:
        """Tell it this, and nothing of before."""
        new = self.path.with_suffix(".new")
        new.write_text("".join(f"{line}\n" for line in lines))
        new.rename(self.path)
