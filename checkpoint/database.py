"""The ledger's file: it is opened or set aside, loaded and written. Blocking; used by one thread at a time.

Rules:
1. One process per state directory. A lock on a file in it, which only root can open, ensures this.
2. A file that is not sound (truncated, garbage, a wrong checksum, another program's, written by a newer version), or
   that replaced the one in use, is renamed and never deleted. A new file replaces it, because a node must start again.
   The reconciler then restores the leases of what pods have (reconciler.py).
3. After the load, memory is authoritative. After a failure the file is opened again and made equal to memory; after a
   failure for want of space it is equal already. The same applies if another program wrote to it, such as a backup.
4. A write-ahead log is synced with each transaction: one fsync, and a power cut loses no acknowledged lease. The log is
   kept short and reused (`compact_log`), also before the database grows.
5. Every granted lease can end, even if other programs fill the disk at any moment. An end writes each page at most once
   to the log, and the pages may not be in the database yet. That much space is in reserve before a grant is committed
   (reserve.py). If an end finds no space, the reserve becomes part of the database and the log, and stays there.
"""

import contextlib
import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from checkpoint import log_index
from checkpoint.disk_errors import code_of, describe, has_no_free_inodes, is_full, quota_as_os_error
from checkpoint.errors import LedgerUnavailable, StateLocked
from checkpoint.lease import Book, Change
from checkpoint.migrations import APPLICATION_ID, LEASES_SINCE, MIGRATIONS, migrate, version
from checkpoint.reserve import SIZE, Reserve, allocate_available
from checkpoint.rows import InvalidRow, apply, load, rewrite
from checkpoint.tracked_files import Identity, TrackedFiles, identity
from folderwatch import path_exists

log = logging.getLogger(__name__)

FILE_NAME = "ledger.sqlite3"
_LOCK_NAME = "lock"
_UNRESTORED_NAME = "unrestored"  # exists from the creation of an empty ledger until what pods have is recorded
_COMPANIONS = ("", "-wal", "-shm", "-journal")  # suffixes of SQLite's files of a database
_CORRUPTION_CODES = {
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_ERROR,  # the tables are not those of the recorded migrations
    0,  # raised by Python's module itself: text that is not UTF-8
}
_SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)  # the latter if a message quotes bytes that are not text
_WAIT_FOR_READER = 2.0  # seconds that another program can lock the file before a write is refused
_MIN_LOG_LIMIT = 512 * 1024  # bytes that the write-ahead log of a small database keeps after a checkpoint
_SLACK = 64 * 1024  # bytes: the log's headers, and what a file system needs for itself when files change
_COMPACT_AFTER = 16  # commits: some 100 pages of the write-ahead log


class SetAside(Struct, frozen=True):
    """A file that was renamed because it was not sound."""

    path: Path
    reason: str


class _Unsound(Exception):
    """The file cannot be used; the text states the reason, the label becomes part of its new name."""

    def __init__(self, label: str, reason: str) -> None:
        super().__init__(reason)
        self.label = label


_DATABASE_ERRORS = (OSError, *_SQLITE_ERRORS, _Unsound)
_Change: TypeAlias = Callable[[sqlite3.Connection], None]


class Database:
    """The SQLite file in one state directory."""

    def __init__(self, directory: Path) -> None:
        """Prepare; no file is touched yet."""
        self.path = directory / FILE_NAME
        self.commits = 0  # transactions that reached the disk
        self.set_aside: list[SetAside] = []
        self.was_empty = False  # there was no usable ledger: pods might hold devices that are not in it
        self._directory = directory
        self._log_path = directory / f"{FILE_NAME}-wal"
        self._index_path = directory / f"{FILE_NAME}-shm"
        self._reserve = Reserve(directory)
        self._unrestored = directory / _UNRESTORED_NAME
        self._commits_in_log = 0  # commits since `compact_log`
        self._must_grow = False  # the log has pages for which the database has no space yet
        self._lock: int | None = None
        self._connection: sqlite3.Connection | None = None
        self._identity: Identity | None = None  # of the file in use
        self._page = 0  # bytes
        self._size = 0  # bytes of the file, which grows only with `compact_log`
        self._latest_length = 0  # the last result of `_length`
        self._tracked_files: TrackedFiles | None = None  # the file, its log and the lock
        self._is_taken_over = False  # another process took the lock while this one had leases in memory

    def peek(self) -> Book:
        """Return what is recorded, without the lock and without any change; an empty book if there is no file.

        Raises `LedgerUnavailable` for a file that cannot be read or is not of this version.
        """
        try:
            if not _size(self.path):
                return Book()
            try:
                log_index.check_space(self._index_path)
                return _read_only(self.path)
            except (OSError, sqlite3.OperationalError) as error:
                if not (is_full(error) or code_of(error) == sqlite3.SQLITE_CANTOPEN) or _size(self._log_path):
                    raise
                return _read_only(self.path, "&immutable=1")  # not even a log can be written to this disk
        except _DATABASE_ERRORS as error:
            raise self._unavailable("read", error) from error

    def load(self) -> Book:
        """Take the lock, open the file, return its content. Raises `StateLocked` or `LedgerUnavailable`."""
        try:
            try:
                book = self._open()
            except _DATABASE_ERRORS as error:
                self._close_file()
                if not ((is_full(error) or has_no_free_inodes(error, self._directory)) and self._reserve.release()):
                    raise
                book = self._open()  # otherwise the recorded leases could not end
                self._extend_log()
        except _DATABASE_ERRORS as error:
            raise self._unavailable("open", error) from error
        with contextlib.suppress(OSError, sqlite3.Error):  # the first grant reports the error
            length = self._length()
            if length > self._size:  # it is new
                self.compact_log()
            self._reserve.make(_reserve_size(length))
        return book

    def write(self, book: Book, changes: Sequence[Change]) -> None:
        """Write `changes`, which `book` already contains, in one transaction.

        Raises `LedgerUnavailable` if nothing was written.
        """
        change = partial(apply, changes=changes)
        grows = any(map(_grows, changes))
        ends = not grows and not any(each.renewed for each in changes)
        try:
            try:
                self._write(change, book, ends=ends, grows=grows)
            except _DATABASE_ERRORS as error:
                if not is_full(error):
                    raise
                self._write_on_a_full_disk(change, book, ends=ends)
        except _DATABASE_ERRORS as error:
            raise self._unavailable("write", error) from error
        self.commits += 1
        self._commits_in_log += 1

    def check(self, book: Book) -> None:
        """Write the content once more. Raises `LedgerUnavailable` if there is no space even for that."""
        try:
            self._write(partial(rewrite, book=book), book, ends=False)
        except _DATABASE_ERRORS as error:
            raise self._unavailable("write", error) from error
        self.compact_log()

    def rewrite_if_replaced(self, book: Book) -> None:
        """Write everything again if another file has replaced the one in use. Raises `LedgerUnavailable`.

        If there is no file, the next write creates one, or the next process, which asks what pods have.
        """
        try:
            is_another = self._connection is not None and not self._in_place() and path_exists(self.path)
        except OSError as error:
            raise self._unavailable("read", error) from error
        if is_another:
            self.check(book)

    def _write_on_a_full_disk(self, change: _Change, book: Book, *, ends: bool) -> None:
        try:
            self.compact_log()  # the log's own blocks are space for the end of a lease
            self._write(change, book, ends=ends)
        except _DATABASE_ERRORS as error:
            if not ends or not is_full(error) or not self._reserve.release():
                raise
            self.compact_log()
            self._extend_log()
            self._write(change, book, ends=True)
            self.compact_log()  # a database that was written again can only grow now

    def _write(self, change: _Change, book: Book, *, ends: bool, grows: bool = True) -> None:
        """Commit `change`, or all of `book` if the file is not the one that was open."""
        if self._connection is not None and self._in_place():
            self._commit(change, ends=ends, grows=grows)
            return
        was_open = self._connection is not None
        self._close_file()
        try:
            self._open()
            self._commit(partial(rewrite, book=book), ends=ends)
        except BaseException:
            self._close_file()  # its content differs from memory
            raise
        if was_open:
            words = "another program removed or changed the lease database %s or its log: all leases are written again"
            log.error(words, self.path)

    def _commit(self, change: _Change, *, ends: bool, grows: bool = True) -> None:
        """Commit `change`.

        If it only `ends` leases, no reserve is made; otherwise there must be space to end all leases.

        If nothing `grows`, that is as much as last time.
        """
        connection = self._connection
        assert connection is not None
        connection.execute("BEGIN IMMEDIATE")
        try:
            with quota_as_os_error(self._directory):
                change(connection)
                if not ends:
                    length = self._length() if grows else self._latest_length
                    self._reserve.make(_reserve_size(length))
                    self._must_grow = length > self._size
                connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def compact_log(self) -> None:
        """Write the log into the database (a checkpoint); a disk error is reported by the next write.

        The log keeps as many blocks as the end of every lease needs, because others can fill the disk.
        """
        self._commits_in_log, self._must_grow = 0, False
        if self._connection is not None and self._tracked_files is not None:
            with contextlib.suppress(OSError, sqlite3.Error):
                # otherwise foreign writes would be mixed with the log's; the next write reports it
                if self._tracked_files.are_in_place():
                    self._checkpoint_log(self._connection, self._tracked_files)

    def _checkpoint_log(self, connection: sqlite3.Connection, held: TrackedFiles) -> None:
        limit = max(_MIN_LOG_LIMIT, _log_size(self._length()))
        connection.execute(f"PRAGMA journal_size_limit = {limit}").fetchall()
        try:
            connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        finally:
            held.note_written()  # possibly only in part, if there was no space
        self._size = _size(self.path)

    @property
    def needs_compaction(self) -> bool:
        """Return whether `compact_log` is due: after some commits, or when the database can grow only now."""
        return self._commits_in_log >= _COMPACT_AFTER or self._must_grow

    def _length(self) -> int:
        """Return the size of the database in bytes, including pages that are only in the log; 0 if it is closed."""
        if self._connection is None:
            return 0
        (pages,) = self._connection.execute("PRAGMA page_count").fetchone()
        self._latest_length = int(pages) * self._page
        return self._latest_length

    def _extend_log(self) -> None:
        """Allocate the log's blocks that the end of every lease needs, as far as possible; SQLite ignores the excess.

        Closing the descriptor releases no lock, because a log's locks are on its index.
        """
        with contextlib.suppress(OSError, sqlite3.Error):
            wanted = _log_size(self._length())
            log_file = os.open(self._log_path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                allocate_available(log_file, os.fstat(log_file).st_size, wanted)
            finally:
                os.close(log_file)

    def note_restored(self) -> None:
        """Record for the next process that no lease is missing; if the disk refuses, that process checks again."""
        with contextlib.suppress(OSError):
            os.unlink(self._unrestored)

    def close(self) -> None:
        """Close the file and release the lock. Idempotent."""
        self._close_file()
        self._unlock()

    def _unavailable(self, verb: str, error: Exception) -> LedgerUnavailable:
        """Return the disk's refusal in words, and close the file: the next call starts with a new connection.

        Except after a transaction without space: it was rolled back, and others could take the blocks of a closed log.
        """
        if not (verb == "write" and is_full(error)):
            self._close_file()
        words = (
            "the file system has no room for another file; remove some files"
            if has_no_free_inodes(error, self._directory)
            else describe(error)
        )
        refused = "" if verb == "read" else "; Allocate and NodePrepareResources are refused until this is fixed"
        return LedgerUnavailable(f"cannot {verb} the lease database {self.path}: {words}{refused}")

    def _open(self) -> Book:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._take_lock()
        with quota_as_os_error(self._directory):
            try:
                return self._open_sound()
            except _Unsound as unsound:
                self._close_file()
                self._rename(unsound)
            return self._open_sound()

    def _open_sound(self) -> Book:
        empty = _size(self.path) == 0
        if empty and _size(self._log_path):
            # SQLite would delete it
            raise _Unsound("corrupt", "its write-ahead log exists, but the database is missing or empty")
        if empty:
            self._create()
        log_index.check_space(self._index_path)
        try:
            connection = self._connection = sqlite3.connect(
                self.path, timeout=_WAIT_FOR_READER, isolation_level=None, cached_statements=32, check_same_thread=False
            )
            os.chmod(self.path, 0o600)  # a file that was copied here can be readable for others
            found_there = identity(os.fspath(self.path))
            connection.execute("PRAGMA cache_size = -512")  # KiB
            _check(connection)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA wal_autocheckpoint = 0")  # see `compact_log`
            connection.execute("PRAGMA synchronous = EXTRA")  # like FULL, and also safe on file systems without WAL
            # To check a foreign key, SQLite reads the whole record, once for each lease: megabytes each time if one
            # container has thousands of units. rows.py writes lease and record together, and rejects a lease without
            # its record.
            connection.execute("PRAGMA foreign_keys = OFF")
            migrate(connection)
            log_index.fill(self._index_path, connection)
            (self._page,) = connection.execute("PRAGMA page_size").fetchone()
            found = _load(connection)
        except _SQLITE_ERRORS as error:
            if code_of(error) in _CORRUPTION_CODES:
                raise _Unsound("corrupt", str(error)) from error
            raise
        if self._identity not in (None, found_there) and len(found):
            raise _Unsound("replaced", "another database replaced the one in use")
        if self._identity is None:
            self.was_empty = path_exists(self._unrestored)
        self._identity = found_there
        self._tracked_files = TrackedFiles((self.path, self._directory / _LOCK_NAME), self._log_path)
        self._size = _size(self.path)
        return found

    def _create(self) -> None:
        if self._identity is None:  # otherwise memory has the leases
            os.close(os.open(self._unrestored, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        for folder in (self._directory, self._directory.parent):
            _sync_folder(folder)

    def _rename(self, unsound: _Unsound) -> None:
        """Rename the file and its companions alike, so that SQLite can still open them together."""
        stem = f"{FILE_NAME}.{unsound.label}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
        names = (stem, *(f"{stem}.{n}" for n in range(2, 1000)))
        target = next(name for name in names if not any(path_exists(self._directory / (name + x)) for x in _COMPANIONS))
        for companion in _COMPANIONS:
            with contextlib.suppress(FileNotFoundError):
                os.rename(self._directory / (FILE_NAME + companion), self._directory / (target + companion))
        _sync_folder(self._directory)
        aside = SetAside(self._directory / target, str(unsound))
        self.set_aside.append(aside)
        log.error(
            "the lease database %s cannot be used: %s; it is kept as %s, and a new one is created",
            self.path,
            aside.reason,
            aside.path.name,
        )

    def _in_place(self) -> bool:
        """Return whether the open files are still those at their paths, unchanged by others.

        Writes to deleted files are lost, and another process can have its own lock if the lock file was replaced.
        """
        return self._tracked_files is not None and self._tracked_files.are_in_place()

    def _has_lock(self) -> bool:
        if self._lock is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._lock), os.stat(self._directory / _LOCK_NAME))
        except FileNotFoundError:
            return False

    def _take_lock(self) -> None:
        if self._is_taken_over:  # it might have granted what is not in memory here
            raise StateLocked(
                f"{self._directory}: another nodeplug took over this state directory; stop it and restart this one"
            )
        if self._has_lock():
            return
        self._unlock()  # the lock, or the directory, was replaced
        path = self._directory / _LOCK_NAME
        os.chmod(self._directory, 0o700)  # a hostPath is created readable for all
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fchmod(lock, 0o600)  # only with the lock: the owner checks the file's time of change (`TrackedFiles`)
        except OSError as error:
            os.close(lock)
            if isinstance(error, BlockingIOError):
                self._is_taken_over = self._identity is not None
                raise StateLocked(
                    f"{self._directory}: another nodeplug uses this state directory; stop it or choose another one"
                ) from None
            raise
        self._lock = lock

    def _unlock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def _close_file(self) -> None:
        if self._tracked_files is not None:
            self._tracked_files.close()
            self._tracked_files = None
        connection, self._connection = self._connection, None
        if connection is not None:
            # a checkpoint that fails here loses nothing: the log stays, and the next open reads it
            with contextlib.suppress(sqlite3.Error):
                connection.close()
            with contextlib.suppress(OSError):  # the log's size, which can be all that was left of the reserve
                self._reserve.save(_log_size(_size(self.path)) + log_index.SIZE)


def _check(connection: sqlite3.Connection) -> None:
    """Raise `_Unsound` unless the database is sound, nodeplug's (or empty) and not newer than this program."""
    # not quick_check: with an index that does not match its table the ending lease would not be found
    ((finding,),) = connection.execute("PRAGMA integrity_check(1)").fetchall()
    if finding != "ok":
        raise _Unsound("corrupt", finding)
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID and (tables or application):
        raise _Unsound("foreign", f"another program's database (application id {application:#x})")
    if version(connection) > len(MIGRATIONS):
        reason = f"schema version {version(connection)}, this nodeplug supports at most {len(MIGRATIONS)}"
        raise _Unsound("newer", reason)


def _grows(change: Change) -> bool:
    """Return whether a change can need new pages; a lease that is renewed unchanged has its row."""
    return bool(change.begun or change.updated or change.withheld or change.rerecorded)


def _read_only(path: Path, option: str = "") -> Book:
    uri = f"{path.absolute().as_uri()}?mode=ro{option}"
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=_WAIT_FOR_READER)) as connection:
        _check(connection)
        if version(connection) < LEASES_SINCE:
            raise _Unsound("older", f"schema version {version(connection)}, this nodeplug uses {len(MIGRATIONS)}")
        return _load(connection)


def _load(connection: sqlite3.Connection) -> Book:
    try:
        return load(connection)
    except InvalidRow as error:
        raise _Unsound("corrupt", str(error)) from error


def _log_size(length: int) -> int:
    """Return the size of a log that contains each page of a database of `length` bytes once."""
    return length + length // 128 + _SLACK  # each page has a header of 24 bytes there


def _reserve_size(length: int) -> int:
    """Return the bytes that ensure that all leases in a database of `length` bytes can end, in whole steps."""
    return -(-(length + _log_size(length) + log_index.SIZE) // SIZE) * SIZE


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
