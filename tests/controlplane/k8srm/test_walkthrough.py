"""docs/k8srm.md, command by command: with a real kubectl, the outputs agree with the page."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
AGE = re.compile(r"^(\S+ +)\d+s$", re.MULTILINE)


class Step(NamedTuple):
    """A command of the document with its expected output."""

    command: str
    output: str


def steps() -> list[Step]:
    """The commands of all console blocks."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", (ROOT / "docs" / "k8srm.md").read_text(), re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append(Step(command, output))
    return found


def test_commands_print_documented_output(kubectl: str, tmp_path: Path) -> None:
    folder, programs = tmp_path / "k8srm", tmp_path / "bin"
    shutil.copytree(ROOT / "examples" / "k8srm", folder)
    programs.mkdir()
    (programs / "kubectl").symlink_to(kubectl)
    nodeplug = programs / "nodeplug"
    nodeplug.write_text(f'#!/bin/sh\nexec {sys.executable} -m nodeplug "$@"\n')
    nodeplug.chmod(0o755)
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    start, *rest = steps()
    assert start.command == "nodeplug k8srm apiserver &"
    with running([str(nodeplug), "k8srm", "apiserver", "--port", "0"], folder, environment) as first_line:
        assert first_line.startswith("serving on http://127.0.0.1:")
        for step in rest:
            done = subprocess.run(
                ["/bin/sh", "-c", step.command],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
            assert done.returncode == 0, f"{step.command}: {done.stderr}"
            assert AGE.sub(r"\1AGE", done.stdout) == AGE.sub(r"\1AGE", step.output), step.command


@contextmanager
def running(command: list[str], folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """A program in the background, after its first line of output."""
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline()
        finally:
            process.terminate()
