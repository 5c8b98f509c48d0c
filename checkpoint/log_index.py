"""Space for the index of the write-ahead log, which SQLite maps into memory.

SQLite allocates blocks by writing one byte to each 4 KiB of the file. If blocks are smaller, as mkfs makes them on an
ext4 below 512 MiB, the rest are holes. On a full disk the kernel kills a process that writes into a hole (SIGBUS): at
the first read of the database, or with the first transaction after it. So the file has its space before the first read,
and an empty transaction fills each hole at once. A database in exclusive locking mode needs no such file, but then no
other process could read leases, as the newer instance does during an update.

Source: SQLite, os_unix.c (unixShmMap), wal.c (walIndexAppend); mke2fs.conf(5).
"""

import errno
import os
import sqlite3
from pathlib import Path
from typing import Final

from checkpoint.migrations import APPLICATION_ID
from checkpoint.reserve import allocate

SIZE: Final = 32 * 1024
"""The size of an index for some thousand pages of the log, in bytes, while the database is open."""

_STEP: Final = 4096  # SQLite writes one byte in each of these
_MARGIN: Final = 16 * 1024  # bytes for the file system's own needs, and for a page in the log


def check_space(path: Path) -> None:
    """Raise OSError (ENOSPC) if opening the database with the index `path` could kill the process for lack of space.

    This is tested by allocation, because parts of a file system's free space are reserved for itself and for root.
    """
    if os.statvfs(path.parent).f_frsize >= _STEP:
        return
    try:
        nameless = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            allocate(nameless, 0, SIZE + _MARGIN - _allocated(path))
        finally:
            os.close(nameless)
    except OSError as error:  # SQLite will report other errors
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise


def fill(path: Path, connection: sqlite3.Connection) -> None:
    """Fill all holes in the index at `path`, by a transaction that changes nothing. Raises `sqlite3.Error`."""
    if _allocated(path) < SIZE and os.statvfs(path.parent).f_frsize < _STEP:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def _allocated(path: Path) -> int:
    """Return the allocated bytes; the index that a killed process left is used again."""
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:
        return 0
