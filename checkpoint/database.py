"""The ledger's file: opened or set aside, loaded, written. Blocking; used by one thread only.

Rules:
1. One process per state directory: a lock on the directory itself, which a full or read-only disk cannot prevent.
2. A file that is not sound (truncated, garbage, somebody else's, written by a newer version) is renamed, never deleted,
   and a fresh one takes its place: a node must come up again. `Ledger.reconcile` then names what the kubelet still
   holds without a lease.
3. Memory is the truth once it was loaded: after any failure the file is opened again and made equal to it.
4. A write-ahead log, synced with each transaction: one fsync, and what was acknowledged survives a power cut.
"""

import contextlib
import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from checkpoint.errors import LedgerUnavailable, StateLocked
from checkpoint.lease import Book, Lease
from checkpoint.migrations import APPLICATION_ID, MIGRATIONS, migrate, version
from checkpoint.quarantine import Withheld

log = logging.getLogger(__name__)

FILE_NAME = "ledger.sqlite3"
_COMPANIONS = ("", "-wal", "-shm", "-journal")  # what SQLite keeps beside a database
_NOT_SOUND = {
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_ERROR,  # the tables are not those that the record of migrations promises
    0,  # the error is the Python module's own: text that is not UTF-8
}
_WAIT_FOR_READER = 2.0  # seconds that a tool may hold the file before a write is refused


class State(Struct, frozen=True):
    """What is on record: leases, and withheld devices by id."""

    book: Book
    withheld: dict[str, Withheld]


class Writes(Struct, frozen=True):
    """What one transaction does, in this order: leases and withheld devices that go, then those that come."""

    ended: tuple[Lease, ...] = ()
    begun: tuple[Lease, ...] = ()
    readmitted: tuple[str, ...] = ()
    withheld: tuple[Withheld, ...] = ()

    def __bool__(self) -> bool:
        """Tell whether there is anything to write."""
        return bool(self.ended or self.begun or self.readmitted or self.withheld)


class SetAside(Struct, frozen=True):
    """A file that was renamed because it was not sound."""

    path: Path
    reason: str


class _Unsound(Exception):
    """The file cannot be used; the words say why, the label becomes part of its new name."""

    def __init__(self, label: str, reason: str) -> None:
        super().__init__(reason)
        self.label = label


class Database:
    """The SQLite file in one state directory."""

    def __init__(self, directory: Path) -> None:
        """Prepare; nothing is touched yet."""
        self.path = directory / FILE_NAME
        self.commits = 0  # transactions with leases or withheld devices that reached the disk
        self.set_aside: list[SetAside] = []
        self._directory = directory
        self._lock: int | None = None
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None  # device and inode of the open file

    def load(self) -> State:
        """Take the lock, open the file, return what it holds. Raises `StateLocked` or `LedgerUnavailable`."""
        with self._translated():
            return self._open()

    def write(self, before: State, writes: Sequence[Writes]) -> None:
        """Turn `before` into the next state in one durable transaction. Raises `LedgerUnavailable`: nothing changed."""
        with self._translated():
            if self._connection is None or not self._in_place():
                self._close_file()
                if self._open() != before:
                    assert self._connection is not None
                    with _transaction(self._connection):
                        _erase(self._connection)
                        everything = Writes(begun=tuple(before.book), withheld=tuple(before.withheld.values()))
                        _apply(self._connection, everything)
            assert self._connection is not None
            with _transaction(self._connection):
                for each in writes:
                    _apply(self._connection, each)
            self.commits += 1

    def close(self) -> None:
        """Close the file and give the lock back. Idempotent."""
        self._close_file()
        self._unlock()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn errors of the disk into words. The file is closed: the next call starts from a clean connection."""
        try:
            yield
        except (OSError, sqlite3.Error, _Unsound) as error:
            self._close_file()
            raise LedgerUnavailable(
                f"no lease can be recorded in {self.path}: {_in_words(error)}; nothing is handed out until it can"
            ) from error

    def _open(self) -> State:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._take_lock()
        try:
            return self._open_sound()
        except _Unsound as unsound:
            self._close_file()
            self._rename(unsound)
        return self._open_sound()

    def _open_sound(self) -> State:
        empty = _size(self.path) == 0
        if empty and _size(self.path.with_name(FILE_NAME + "-wal")):
            # SQLite would delete it
            raise _Unsound("corrupt", "its write-ahead log is there, the database itself is missing or empty")
        if empty:
            self._create()
        try:
            connection = self._connection = sqlite3.connect(
                self.path, timeout=_WAIT_FOR_READER, isolation_level=None, cached_statements=16
            )
            stat = os.stat(self.path)
            self._identity = (stat.st_dev, stat.st_ino)
            connection.execute("PRAGMA cache_size = -512")  # KiB
            _check(connection)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = EXTRA")  # is FULL, and safe where a file system allows no WAL
            connection.execute("PRAGMA foreign_keys = ON")
            migrate(connection)
            return _load(connection)
        except sqlite3.DatabaseError as error:
            if _code(error) in _NOT_SOUND:
                raise _Unsound("corrupt", str(error)) from error
            raise

    def _create(self) -> None:
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        for folder in (self._directory, self._directory.parent):
            _sync_folder(folder)

    def _rename(self, unsound: _Unsound) -> None:
        """Rename the file and its companions alike, so that SQLite still opens them together for whoever looks."""
        stem = f"{FILE_NAME}.{unsound.label}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
        names = (stem, *(f"{stem}.{n}" for n in range(2, 1000)))
        target = next(name for name in names if not any((self._directory / (name + x)).exists() for x in _COMPANIONS))
        for companion in _COMPANIONS:
            with contextlib.suppress(FileNotFoundError):
                os.rename(self._directory / (FILE_NAME + companion), self._directory / (target + companion))
        _sync_folder(self._directory)
        aside = SetAside(self._directory / target, str(unsound))
        self.set_aside.append(aside)
        log.error(
            "the ledger %s cannot be used: %s; it is kept as %s, and a new one begins without its leases",
            self.path,
            aside.reason,
            aside.path.name,
        )

    def _in_place(self) -> bool:
        """Tell whether the open file is still the one at its path: one that was deleted takes writes to nowhere."""
        try:
            stat = os.stat(self.path)
        except FileNotFoundError:
            return False
        return self._identity == (stat.st_dev, stat.st_ino)

    def _take_lock(self) -> None:
        if self._lock is not None:
            if os.path.samestat(os.fstat(self._lock), os.stat(self._directory)):
                return
            self._unlock()  # the directory was replaced, the lock is on the old one
        lock = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            if isinstance(error, BlockingIOError):
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
        connection, self._connection, self._identity = self._connection, None, None
        if connection is not None:
            # a failing checkpoint on close loses nothing: the log stays and is read by the next open
            with contextlib.suppress(sqlite3.Error):
                connection.close()


def _check(connection: sqlite3.Connection) -> None:
    """Raise `_Unsound` unless the database is sound, ours (or empty) and not newer than this program."""
    ((finding,),) = connection.execute("PRAGMA quick_check(1)").fetchall()
    if finding != "ok":
        raise _Unsound("corrupt", finding)
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID and (tables or application):
        raise _Unsound("foreign", f"another program's database (application id {application:#x})")
    if version(connection) > len(MIGRATIONS):
        reason = f"schema version {version(connection)}, this nodeplug knows up to {len(MIGRATIONS)}"
        raise _Unsound("newer", reason)


def _load(connection: sqlite3.Connection) -> State:
    """Read everything. A row that makes no sense makes the file unsound: half a truth would hand devices out twice."""
    # fetchall: a half-read cursor would keep the file open while it is renamed
    bodies = dict(connection.execute("SELECT digest, body FROM answer").fetchall())
    columns = "resource, api, unit, occupies, touches, holder, answer, phase, boot_id, since"
    rows = connection.execute(f"SELECT {columns} FROM lease ORDER BY since, unit").fetchall()  # noqa: S608 - constant
    kept_back = connection.execute("SELECT device, reason, since FROM withheld ORDER BY since").fetchall()
    try:
        leases = [
            msgspec.convert(
                {
                    "resource": resource,
                    "api": api,
                    "unit": unit,
                    "occupies": msgspec.json.decode(occupies),
                    "touches": msgspec.json.decode(touches),
                    "holder": holder,
                    "answer": bodies[answer],
                    "phase": phase,
                    "boot_id": boot_id,
                    "since": since,
                },
                Lease,
            )
            for resource, api, unit, occupies, touches, holder, answer, phase, boot_id, since in rows
        ]
        withheld = [
            msgspec.convert({"device": device, "reason": reason, "since": since}, Withheld)
            for device, reason, since in kept_back
        ]
    except (msgspec.MsgspecError, KeyError, TypeError) as error:
        raise _Unsound("corrupt", f"a record makes no sense: {error}") from error
    return State(Book(leases), {each.device: each for each in withheld})


def _apply(connection: sqlite3.Connection, writes: Writes) -> None:
    # Deletions first: the trigger drops answers that nobody refers to any more, and a new lease may bring the same one.
    connection.executemany(
        "DELETE FROM lease WHERE resource = ? AND api = ? AND unit = ?", [lease.key for lease in writes.ended]
    )
    answers = {_digest(body): body for body in {lease.answer for lease in writes.begun}}
    connection.executemany("INSERT OR IGNORE INTO answer VALUES (?, ?)", answers.items())
    digests = {body: digest for digest, body in answers.items()}
    connection.executemany(
        "INSERT INTO lease VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (_row(lease, digests[lease.answer]) for lease in writes.begun),
    )
    connection.executemany("DELETE FROM withheld WHERE device = ?", [(device,) for device in writes.readmitted])
    connection.executemany(
        "INSERT OR REPLACE INTO withheld VALUES (?, ?, ?)", [(x.device, x.reason, x.since) for x in writes.withheld]
    )


def _row(lease: Lease, answer: bytes) -> tuple[Any, ...]:
    return (
        lease.resource,
        lease.api,
        lease.unit,
        _json(lease.occupies),
        _json(lease.touches),
        lease.holder,
        answer,
        lease.phase,
        lease.boot_id,
        lease.since,
    )


def _erase(connection: sqlite3.Connection) -> None:
    for table in ("lease", "answer", "withheld"):
        connection.execute(f"DELETE FROM {table}")  # noqa: S608 - our own table names


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).digest()


def _json(devices: Iterable[str]) -> str:
    return msgspec.json.encode(sorted(devices)).decode()


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


def _code(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code, 0 where the error is not SQLite's own."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _in_words(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror or error} ({error.filename})" if error.filename else str(error.strerror or error)
    if isinstance(error, sqlite3.Error):
        code = _code(error)
        if code == sqlite3.SQLITE_FULL:
            return "the disk is full, free some space"
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            return f"{error}, make the directory and the file writable for user {os.geteuid()}"
        if code == sqlite3.SQLITE_BUSY:
            return f"{error}, another program holds it"
    return str(error)
