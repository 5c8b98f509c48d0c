"""A made-up libnvidia-ml.so.1 (library.c), compiled, and the file that controls it."""

import shutil
import subprocess
from pathlib import Path

import pytest


def build_library(path: Path) -> None:
    """Compile the library to `path`; skip the test without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    path.parent.mkdir(parents=True, exist_ok=True)
    source = Path(__file__).with_name("library.c")
    options = ("-shared", "-fPIC", "-w", "-Wl,-soname,libnvidia-ml.so.1", "-o")
    subprocess.run([compiler, *options, path, source], check=True)


class LibraryControl:
    """The commands for the library, in library.c's format. It reads the file that FAKE_NVML names."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.set_commands()

    def set_commands(self, *lines: str) -> None:
        """Replace the library's commands by these."""
        new = self.path.with_suffix(".new")
        new.write_text("".join(f"{line}\n" for line in lines))
        new.rename(self.path)
