"""Where recorded answers lie and how their files are read: JSON, or one JSON value a line (.jsonl), also gzipped."""

import gzip
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]
_BESIDE = CHECKOUT.parent / "shared/cases"
_OWN = CHECKOUT / "tests/data/recorded"


class UnreadableError(Exception):
    """The file is not there or not JSON."""


def recorded_at(path: str) -> Path:
    """Where a file or folder of recorded answers is, or would be.

    $NODEPLUG_CASES has them, if it is set; else a folder beside the checkout, which has also what is made from the data
    of other projects; else the repository, which has what was recorded for this one.
    """
    if root := os.environ.get("NODEPLUG_CASES"):
        return Path(root) / path
    return next((x for x in (_BESIDE / path, _OWN / path) if x.exists()), _BESIDE / path)


class Document(NamedTuple):
    """A file's content. For .jsonl files it is the list of the lines' values."""

    path: Path
    content: Any

    @property
    def cases(self) -> list[dict[str, Any]]:
        """The entries of a table `{"cases": [...]}`, or the lines of a .jsonl file; empty for anything else."""
        content = self.content
        entries = content.get("cases") if isinstance(content, dict) else content
        if not isinstance(entries, list):
            return []
        return [entry for entry in entries if isinstance(entry, dict)]

    def has_cases_with(self, *keys: str) -> bool:
        """Whether this is a table whose entries have these members."""
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
