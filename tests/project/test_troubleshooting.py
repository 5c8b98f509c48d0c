"""docs/troubleshooting.md: each quoted message of nodeplug exists in its code."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/troubleshooting.md").read_text()
OTHERS = {
    "status=226/NAMESPACE",
    "UnexpectedAdmissionError",
    "FailedPrepareDynamicResources",
    "FailedScheduling",
    "permission denied",
}
"""Messages of the kubelet and the kernel."""
PACKAGES = [path.parent for path in ROOT.glob("*/py.typed") if path.parent.name not in ("kubelet", "controlplane")]


def strings(text: ast.AST) -> Iterator[str]:
    """Yield every string of a module, with `...` for values."""
    for node in ast.walk(text):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.sub(r"%[-.0-9]*[a-z]", "...", node.value)


QUOTED = [
    quoted
    for row in re.findall(r"(?m)^\| (.*?) \| .* \|$", PAGE)
    for quoted in re.findall(r"`([^`]+)`", row)
    if not quoted.startswith(("nodeplug ", "kubectl ")) and quoted not in OTHERS
]


@pytest.fixture(scope="module")
def texts() -> set[str]:
    files = [file for package in PACKAGES for file in package.rglob("*.py")]
    return {text for file in files for text in strings(ast.parse(file.read_text()))}


def test_page_quotes_messages() -> None:
    assert len(QUOTED) > 20


@pytest.mark.parametrize("quoted", QUOTED)
def test_quoted_message_exists_in_the_code(quoted: str, texts: set[str]) -> None:
    parts = [part.strip() for part in quoted.split("...")]
    assert any(occur_in_order(parts, text) for text in texts), f"nothing here says: {quoted}"


def occur_in_order(parts: list[str], text: str) -> bool:
    at = 0
    for part in parts:
        found = text.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return True
