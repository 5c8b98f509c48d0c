"""One bit of a ledger flipped: what is read then is what was written, or it is not read at all."""

import random
from pathlib import Path

from checkpoint import LedgerUnavailable
from checkpoint.database import FILE_NAME, Database


def flip(whole: Path, folder: Path, source: random.Random) -> bool:
    """Flip a bit in a copy, in `folder`, of the ledger in `whole`; return whether it was noticed."""
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
