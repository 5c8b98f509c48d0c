"""The paths and formats of recorded answers: JSON, or one JSON value per line (.jsonl), optionally gzipped."""

import gzip
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]
_BESIDE = CHECKOUT.parent / "shared/cases"
_OWN = CHECKOUT / "tests/data/recorded"


class UnreadableError(Exception):
    """The file does not exist or is not JSON."""


def recorded_at(path: str) -> Path:
    """The path of a file or folder of recorded answers, which need not exist.

    The folder is $NODEPLUG_CASES if it is set. Otherwise it is a folder beside the checkout, which also contains
    answers derived from the data of other projects. The last choice is the repository, which contains the answers that
    were recorded for this project.
    """
    if root := os.environ.get("NODEPLUG_CASES"):
        return Path(root) / path
    return next((x for x in (_BESIDE / path, _OWN / path) if x.exists()), _BESIDE / path)


class Document(NamedTuple):
    """A file's content. For .jsonl files it is a list with one value per line."""

    path: Path
    content: Any

    @property
    def cases(self) -> list[dict[str, Any]]:
        """The entries of a table `{"cases": [...]}`, or the lines of a .jsonl file; empty for any other document."""
        content = self.content
        entries = content.get("cases") if isinstance(content, dict) else content
        if not isinstance(entries, list):
            return []
        return [entry for entry in entries if isinstance(entry, dict)]

    def has_cases_with(self, *keys: str) -> bool:
        """Return whether this is a table whose entries have these fields."""
        return bool(self.cases) and all(key in entry for entry in self.cases for key in keys)


def read_document(path: Path) -> Document:
    """Read one file; raises UnreadableError."""
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        if ".jsonl" in path.suffixes:
            return Document(path, [json.loads(line) for line in data.splitlines() if line.strip()])
        return Document(path, json.loads(data))
    except (OSError, EOFError, ValueError) as error:
        raise UnreadableError(f"{path}: {error}") from error
