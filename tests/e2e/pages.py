"""The commands and files of a documentation page in order, and a user who runs them."""

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def steps(page: str) -> Iterator[tuple[str, str]]:
    """Yield the blocks of a page: `("sh", one command)` for each line, or `("yaml", the file)`."""
    for kind, block in re.findall(r"(?ms)^```(sh|yaml)\n(.*?)^```", (DOCS / page).read_text()):
        if kind == "yaml":
            yield kind, block
            continue
        for line in block.replace("\\\n", " ").splitlines():
            yield kind, line


class PageUser:
    """Runs the commands of a page. `run` runs a command as root."""

    def __init__(self, run: Callable[[str], subprocess.CompletedProcess[str]]) -> None:
        self.asks = run

    def types(self, command: str) -> str:
        """Return the output of a command."""
        begun = time.monotonic()
        done = self.asks(command.replace("sudo ", ""))
        print(f"[{time.monotonic() - begun:5.1f} s] $ {command}\n{done.stdout}")
        assert done.returncode == 0, f"{command}: {done.stdout}"
        return done.stdout

    def until(self, command: str, text: str) -> str:
        """Repeat a command until its output contains `text`."""
        deadline = time.monotonic() + 30
        while text not in (output := self.asks(command).stdout):
            assert time.monotonic() < deadline, f"{command} does not say {text!r}: {output}"
            time.sleep(0.2)
        return output
