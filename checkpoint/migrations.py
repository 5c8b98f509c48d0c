"""The ledger's schema: forward-only steps, each recorded in the transaction that performs it.

A released step is never edited; a change of the schema is a new step at the end.
"""

import sqlite3
import time
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from checkpoint.checksums import row_checksum

APPLICATION_ID = 0x6E706C67  # "nplg", in the file's header: identifies nodeplug's databases


class Migration(Struct, frozen=True):
    """One step; its version is its position in the list, from 1."""

    name: str
    statements: tuple[str, ...]


_CHECKSUMS: Final = Migration(
    "checksums of leases",
    (
        "ALTER TABLE lease ADD COLUMN checksum BLOB NOT NULL DEFAULT x''",
        """UPDATE lease SET checksum = row_checksum(
            resource, api, unit, owner, exclusive, shared, holder, pods, record, phase, boot_id, granted_at)""",
    ),
)
_WITHHELD: Final = Migration(
    "withheld devices",
    ("CREATE TABLE withheld (device TEXT PRIMARY KEY, reason TEXT NOT NULL, since REAL NOT NULL) WITHOUT ROWID",),
)
MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        "leases and withheld devices",
        (
            "CREATE TABLE answer (digest BLOB PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID",
            # One answer covers all units of a container: stored once, instead of once for each of up to 10,000 units.
            """CREATE TABLE lease (
                resource TEXT NOT NULL,
                api TEXT NOT NULL,
                unit TEXT NOT NULL,
                occupies TEXT NOT NULL,
                touches TEXT NOT NULL,
                holder TEXT NOT NULL,
                answer BLOB NOT NULL REFERENCES answer (digest),
                phase TEXT NOT NULL DEFAULT 'done',
                boot_id TEXT NOT NULL,
                since REAL NOT NULL,
                PRIMARY KEY (resource, api, unit)
            ) WITHOUT ROWID""",
            "CREATE INDEX lease_answer ON lease (answer)",
            """CREATE TRIGGER answer_without_lease AFTER DELETE ON lease
                WHEN NOT EXISTS (SELECT 1 FROM lease WHERE answer = OLD.answer)
                BEGIN DELETE FROM answer WHERE digest = OLD.answer; END""",
            "CREATE TABLE withheld (device TEXT PRIMARY KEY, reason TEXT NOT NULL, since REAL NOT NULL)",
        ),
    ),
    Migration(
        "owners instead of parties, pods, the order of grants; no withheld devices",
        (
            # The number of shares was not recorded: until such a lease ends, no other owner gets the device.
            """CREATE TABLE granted (
                sequence INTEGER PRIMARY KEY,
                resource TEXT NOT NULL,
                api TEXT NOT NULL,
                unit TEXT NOT NULL,
                owner TEXT NOT NULL,
                exclusive TEXT NOT NULL,
                shared TEXT NOT NULL,
                holder TEXT NOT NULL,
                pods TEXT NOT NULL,
                record BLOB NOT NULL REFERENCES record (digest),
                phase TEXT NOT NULL,
                boot_id TEXT NOT NULL,
                granted_at REAL NOT NULL,
                UNIQUE (resource, api, unit)
            )""",
            "CREATE TABLE record (digest BLOB PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID",
            "INSERT INTO record SELECT digest, body FROM answer",
            """INSERT INTO granted
                (resource, api, unit, owner, exclusive, shared, holder, pods, record, phase, boot_id, granted_at)
                SELECT resource, api, unit,
                    CASE WHEN api = 'dra' THEN holder
                         WHEN instr(unit, '.') THEN resource || '=' || substr(unit, 1, instr(unit, '.') - 1) || '/0'
                         ELSE resource || '=' || unit END,
                    occupies, touches, holder, '[]', answer, phase, boot_id, since
                FROM lease ORDER BY since, unit""",
            "DROP TABLE lease",  # with its index and trigger
            "DROP TABLE answer",
            "DROP TABLE withheld",
            "ALTER TABLE granted RENAME TO lease",
            "CREATE INDEX lease_record ON lease (record)",
            """CREATE TRIGGER record_without_lease AFTER DELETE ON lease
                WHEN NOT EXISTS (SELECT 1 FROM lease WHERE record = OLD.record)
                BEGIN DELETE FROM record WHERE digest = OLD.record; END""",
        ),
    ),
    _CHECKSUMS,
    _WITHHELD,
)
LEASES_SINCE: Final = 2
"""The first version whose leases this program can read in a file of an older program."""
CHECKSUMS_SINCE: Final = MIGRATIONS.index(_CHECKSUMS) + 1
"""The first version in which each lease has a checksum."""
WITHHELD_SINCE: Final = MIGRATIONS.index(_WITHHELD) + 1
"""The first version in which devices can be withheld."""


def version(connection: sqlite3.Connection) -> int:
    """Return the schema's version, 0 for an empty database."""
    known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'migration'").fetchone()
    if known is None:
        return 0
    return int(connection.execute("SELECT coalesce(max(version), 0) FROM migration").fetchone()[0])


def migrate(connection: sqlite3.Connection, steps: Sequence[Migration] = MIGRATIONS) -> None:
    """Perform the steps that `connection` (in autocommit mode) lacks. Raises sqlite3.Error; a failed step is undone."""
    connection.create_function("row_checksum", -1, row_checksum, deterministic=True)
    for number, step in enumerate(steps[version(connection) :], start=version(connection) + 1):
        connection.execute("BEGIN IMMEDIATE")
        try:
            if number == 1:
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(
                    "CREATE TABLE migration (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied REAL NOT NULL)"
                )
            for statement in step.statements:
                connection.execute(statement)
            connection.execute("INSERT INTO migration VALUES (?, ?, ?)", (number, step.name, time.time()))
            connection.execute("COMMIT")
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
