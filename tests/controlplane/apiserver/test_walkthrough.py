"""docs/kubectl-walkthrough.md: its files and commands are used, and the outputs must agree."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.controlplane.apiserver.running import Running

_PAGE = Path(__file__).parents[3] / "docs/kubectl-walkthrough.md"


def _blocks() -> Iterator[tuple[str, str]]:
    for match in re.finditer(r"^```(\w+)\n(.*?)^```", _PAGE.read_text(), re.MULTILINE | re.DOTALL):
        yield match[1], match[2]


def _commands(block: str) -> Iterator[tuple[str, str]]:
    """The commands with their expected output."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def _normalized(text: str) -> str:
    text = re.sub(r"\b\d+s$", "<age>", text, flags=re.MULTILINE)
    text = re.sub(r'" deleted from \w+ namespace$', '" deleted', text, flags=re.MULTILINE)  # since kubectl 1.34
    return re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)


def test_commands_print_documented_output(kubectl: str, tmp_path: Path) -> None:
    """Every command prints the output that the page shows."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "kubectl").symlink_to(kubectl)
    (programs / "nodeplug").write_text(f'#!/bin/sh\nexec {sys.executable} -m nodeplug "$@"\n')
    (programs / "nodeplug").chmod(0o755)
    ran = 0
    with Running() as running:
        environment = os.environ | {
            "KUBECONFIG": str(running.kubeconfig(tmp_path / "config")),
            "HOME": str(tmp_path),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(_PAGE.parents[1]),
        }
        for kind, block in _blocks():
            if kind == "yaml":
                name = block.partition("\n")[0].removeprefix("# ")
                (tmp_path / name).write_text(block)
            for command, output in _commands(block) if kind == "console" else ():
                done = subprocess.run(
                    ["/bin/sh", "-c", command],
                    cwd=tmp_path,
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    timeout=30,
                    check=False,
                )
                assert _normalized(done.stdout) == _normalized(output), command
                ran += 1
    assert ran > 10
