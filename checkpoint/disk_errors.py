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

_FULL_CODES: Final = (sqlite3.SQLITE_IOERR_SHMSIZE,)  # besides SQLITE_FULL: for the index of the write-ahead log
_PROBE_SIZE: Final = 64 * 1024  # bytes; SQLite allocates a page at a time


def code_of(error: Exception) -> int:
    """Return SQLite's primary result code; 0 if the error is not from SQLite."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


@contextlib.contextmanager
def quota_as_os_error(directory: Path) -> Iterator[None]:
    """Replace SQLite's error by the kernel's OSError if the directory's quota is used up.

    SQLite does not report that, so the kernel is asked to allocate blocks for a nameless file.
    """
    try:
        yield
    except sqlite3.Error as error:
        if code_of(error) == sqlite3.SQLITE_IOERR and (refusal := _quota_error(directory)) is not None:
            raise refusal from error
        raise


def is_full(error: Exception) -> bool:
    """Return whether the disk has no space, for data or for files."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return code_of(error) == sqlite3.SQLITE_FULL or getattr(error, "sqlite_errorcode", 0) in _FULL_CODES


def has_no_free_inodes(error: Exception, directory: Path) -> bool:
    """Return whether an error in a directory is a lack of inodes, which SQLite does not report for log and index."""
    if not (is_full(error) or code_of(error) == sqlite3.SQLITE_CANTOPEN):
        return False
    try:
        found = os.statvfs(directory)
    except OSError:
        return False
    return found.f_files > 0 == found.f_ffree


def _quota_error(directory: Path) -> OSError | None:
    try:
        descriptor = os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            allocate(descriptor, 0, _PROBE_SIZE)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        return error if error.errno == errno.EDQUOT else None
    return None


def describe(error: Exception) -> str:
    """Return what was refused, and what to do."""
    if is_full(error):
        quota = " or raise the quota" if getattr(error, "errno", 0) == errno.EDQUOT else ""
        return f"the disk is full; free some space{quota}"
    if isinstance(error, OSError):
        text = f"{error.strerror or error} ({error.filename})" if error.filename else str(error.strerror or error)
        owner = f"; it must belong to user {os.geteuid()}, which nodeplug runs as"
        return text + owner if isinstance(error, PermissionError) else text
    if isinstance(error, sqlite3.Error):
        code = code_of(error)
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            return f"{error}; make the directory and the file writable for user {os.geteuid()}"
        if code == sqlite3.SQLITE_BUSY:
            return f"{error}; another program has locked it"
    return str(error)
