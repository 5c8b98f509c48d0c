"""Flips one bit of a ledger: the leases are then read unchanged, or the ledger is rejected."""

import random
from pathlib import Path

from checkpoint import LedgerUnavailable
from checkpoint.database import FILE_NAME, Database


def flip(whole: Path, folder: Path, source: random.Random) -> bool:
    """Copy the ledger in `whole` to `folder` and flip one bit of the copy; return whether the ledger was rejected."""
    content = bytearray((whole / FILE_NAME).read_bytes())
    content[source.randrange(len(content))] ^= 1 << source.randrange(8)
    for left in folder.iterdir():
        left.unlink()
    (folder / FILE_NAME).write_bytes(content)
    try:
        book = Database(folder).peek()
    except LedgerUnavailable:
        return True
    assert list(book) == list(Database(whole).peek())
    return False
