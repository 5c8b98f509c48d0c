"""Errors of SQLite and the kernel, as messages with what to do.

Source: SQLite, os_unix.c (unixWrite): ENOSPC is SQLITE_FULL, any other error, EDQUOT included, SQLITE_IOERR_WRITE.
"""

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from checkpoint.reserve import allocate

_NO_ROOM: Final = (sqlite3.SQLITE_IOERR_SHMSIZE,)  # beside SQLITE_FULL: for the index of the write-ahead log
_SOME: Final = 64 * 1024  # bytes; SQLite asks for a page at a time


def code_of(error: Exception) -> int:
    """Return SQLite's primary result code, 0 where the error is not SQLite's own."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


@contextlib.contextmanager
def saying_quota(directory: Path) -> Iterator[None]:
    """Raise the kernel's OSError where SQLite's stands for a quota of the directory's that is used up.

    What SQLite does not say is asked of the kernel: whether it gives a file without a name some blocks.
    """
    try:
        yield
    except sqlite3.Error as error:
        if code_of(error) == sqlite3.SQLITE_IOERR and (refusal := _why_no_blocks(directory)) is not None:
            raise refusal from error
        raise


def is_full(error: Exception) -> bool:
    """Tell whether the disk has no room, for data or for files."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return code_of(error) == sqlite3.SQLITE_FULL or getattr(error, "sqlite_errorcode", 0) in _NO_ROOM


def lacks_names(error: Exception, directory: Path) -> bool:
    """Tell whether an error in a directory is for want of inodes, which SQLite does not say of its log and index."""
    if not (is_full(error) or code_of(error) == sqlite3.SQLITE_CANTOPEN):
        return False
    try:
        found = os.statvfs(directory)
    except OSError:
        return False
    return found.f_files > 0 == found.f_ffree


def _why_no_blocks(directory: Path) -> OSError | None:
    try:
        descriptor = os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            allocate(descriptor, 0, _SOME)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        return error if error.errno == errno.EDQUOT else None
    return None


def in_words(error: Exception) -> str:
    """Say what was refused, and what can be done about it."""
    if is_full(error):
        quota = " or raise the quota" if getattr(error, "errno", 0) == errno.EDQUOT else ""
        return f"the disk is full; free some space{quota}"
    if isinstance(error, OSError):
        says = f"{error.strerror or error} ({error.filename})" if error.filename else str(error.strerror or error)
        owner = f"; it must belong to user {os.geteuid()}, which nodeplug runs as"
        return says + owner if isinstance(error, PermissionError) else says
    if isinstance(error, sqlite3.Error):
        code = code_of(error)
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            return f"{error}; make the directory and the file writable for user {os.geteuid()}"
        if code == sqlite3.SQLITE_BUSY:
            return f"{error}; another program has locked it"
    return str(error)
