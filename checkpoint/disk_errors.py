"""What SQLite and the kernel refuse, and how that is said."""

import errno
import os
import sqlite3
from pathlib import Path
from typing import Final

_NO_ROOM: Final = (sqlite3.SQLITE_IOERR_SHMSIZE,)  # beside SQLITE_FULL: for the index of the write-ahead log


def code_of(error: Exception) -> int:
    """Return SQLite's primary result code, 0 where the error is not SQLite's own."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


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


def in_words(error: Exception) -> str:
    """Say what was refused, and what can be done about it."""
    if is_full(error):
        return "the disk is full, free some space"
    if isinstance(error, OSError):
        says = f"{error.strerror or error} ({error.filename})" if error.filename else str(error.strerror or error)
        owner = f", it must belong to user {os.geteuid()}, as whom this runs"
        return says + owner if isinstance(error, PermissionError) else says
    if isinstance(error, sqlite3.Error):
        code = code_of(error)
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            return f"{error}, make the directory and the file writable for user {os.geteuid()}"
        if code == sqlite3.SQLITE_BUSY:
            return f"{error}, another program holds it"
    return str(error)
