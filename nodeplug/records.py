"""Small JSON files that one daemon leaves in the state directory for the next, which can be of another version."""

from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")
_MAX_BYTES = 16 * 1024 * 1024


class InvalidRecord(ValueError):
    """The file is not such a record: a power cut, another program or another version can leave anything."""


def read_record(path: Path, kind: type[T]) -> T:
    """Return the record in a file. Raises OSError and InvalidRecord."""
    with path.open("rb") as file:
        content = file.read(_MAX_BYTES)
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRecord(str(error)) from error
