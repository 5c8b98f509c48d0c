"""Changes on disk: SQLite, with one transaction for all changes that arrived during the previous one.

A thread writes. `flush` returns when all earlier changes are on disk (`synchronous=FULL`, write-ahead log).
"""

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import msgspec

from controlplane.apiserver.kinds import Key, Plain

FORMAT = 1
_SCHEMA = """
CREATE TABLE objects (kind TEXT, namespace TEXT, name TEXT, object BLOB, PRIMARY KEY (kind, namespace, name))
WITHOUT ROWID;
CREATE TABLE counter (version INTEGER);
INSERT INTO counter VALUES (0);
"""


class JournalError(Exception):
    """The file is not a journal, or cannot be used."""


class FileJournal:
    """A journal in a file, which is created if it is missing. Raises JournalError."""

    def __init__(self, path: Path) -> None:
        try:
            self._connection = _opened(path)
        except sqlite3.Error as error:
            raise JournalError(f"{path}: {error}") from error
        self._pending: list[tuple[int, str, Key, Plain | None]] = []
        self._last_put = self._last_written = 0
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._running: asyncio.Task[None] | None = None

    def version(self) -> int:
        """Return the last version that was written."""
        found: int = self._connection.execute("SELECT version FROM counter").fetchone()[0]
        return found

    def objects(self) -> Iterator[tuple[str, Key, Plain]]:
        """Return all objects, with the ids of their kinds."""
        for kind, namespace, name, text in self._connection.execute("SELECT * FROM objects"):
            yield kind, (namespace, name), json.loads(text)

    def put(self, version: int, kind_id: str, key: Key, obj: Plain | None) -> None:
        """Keep a change in memory until the next flush."""
        self._pending.append((version, kind_id, key, obj))
        self._last_put = version

    async def flush(self) -> None:
        """Wait until all earlier changes are on disk. Raises sqlite3.Error; the next flush tries again."""
        wanted = self._last_put
        while self._last_written < wanted:
            if self._running is None or self._running.done():
                self._running = asyncio.create_task(self._write_pending())
            await asyncio.shield(self._running)

    def close(self) -> None:
        """Write the pending changes, and close the file."""
        self._writer.shutdown()
        if self._pending:
            self._write(self._pending)
        self._connection.close()

    async def _write_pending(self) -> None:
        batch, self._pending = self._pending, []
        try:
            await asyncio.get_running_loop().run_in_executor(self._writer, self._write, batch)
        except sqlite3.Error:
            self._pending = batch + self._pending
            raise
        self._last_written = batch[-1][0]

    def _write(self, batch: list[tuple[int, str, Key, Plain | None]]) -> None:
        cursor = self._connection.cursor()
        if self._connection.in_transaction:  # the previous transaction failed half-way
            cursor.execute("ROLLBACK")
        cursor.execute("BEGIN IMMEDIATE")
        for _, kind, (namespace, name), obj in batch:
            if obj is None:
                cursor.execute("DELETE FROM objects WHERE kind=? AND namespace=? AND name=?", (kind, namespace, name))
            else:
                values = (kind, namespace, name, msgspec.json.encode(obj))
                cursor.execute("INSERT OR REPLACE INTO objects VALUES (?,?,?,?)", values)
        cursor.execute("UPDATE counter SET version=?", (batch[-1][0],))
        cursor.execute("COMMIT")


def _opened(path: Path) -> sqlite3.Connection:
    """Open a file; initialize it if it is empty. Raises sqlite3.Error, or JournalError if it is another program's."""
    with ExitStack() as refused:
        connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=0.1)
        refused.callback(connection.close)
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        if found == 0 and not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            connection.executescript(f"BEGIN;{_SCHEMA}PRAGMA user_version={FORMAT};COMMIT;")
        elif found != FORMAT:
            raise JournalError(f"{path}: not a data file of this API server (format {found}, not {FORMAT})")
        refused.pop_all()
    return connection
