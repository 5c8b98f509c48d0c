"""What a page of the documentation has somebody type and write, in its order."""

import re
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def steps(page: str) -> Iterator[tuple[str, str]]:
    """Yield each block of a page: `("sh", one command)` for each of its lines, `("yaml", the file)`."""
    for kind, block in re.findall(r"(?ms)^```(sh|yaml)\n(.*?)^```", (DOCS / page).read_text()):
        if kind == "yaml":
            yield kind, block
            continue
        for line in block.replace("\\\n", " ").splitlines():
            yield kind, line
