"""Migrations of the schema: each runs once, in order, is recorded, and is atomic."""

import sqlite3
from collections.abc import Iterator

import pytest

from checkpoint.migrations import APPLICATION_ID, MIGRATIONS, Migration, migrate, version

NEXT = Migration("notes on leases", ("ALTER TABLE lease ADD COLUMN note TEXT NOT NULL DEFAULT ''",))
BROKEN = Migration("half of it works", ("CREATE TABLE extra (x)", "CREATE TABLE lease (x)"))


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    opened = sqlite3.connect(":memory:", isolation_level=None)
    yield opened
    opened.close()


def test_empty_database_gets_all_migrations_and_their_record(connection: sqlite3.Connection) -> None:
    assert version(connection) == 0
    migrate(connection)
    assert version(connection) == len(MIGRATIONS)
    assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    recorded = connection.execute("SELECT version, name FROM migration ORDER BY version").fetchall()
    assert recorded == [(number, step.name) for number, step in enumerate(MIGRATIONS, start=1)]


def test_only_missing_migration_runs_and_rows_are_kept(connection: sqlite3.Connection) -> None:
    migrate(connection)
    connection.execute("INSERT INTO record VALUES (x'00', x'')")
    row = "1, 'r', 'dra', 'u', 'claim/1', '[]', '[]', '', '[]', x'00', 'done', 'b', 1.0, x''"
    connection.execute(f"INSERT INTO lease VALUES ({row})")
    migrate(connection, (*MIGRATIONS, NEXT))
    assert version(connection) == len(MIGRATIONS) + 1
    assert connection.execute("SELECT unit, note FROM lease").fetchall() == [("u", "")]


def test_failed_migration_leaves_no_trace(connection: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.OperationalError, match="lease already exists"):
        migrate(connection, (*MIGRATIONS, BROKEN))
    assert version(connection) == len(MIGRATIONS)
    assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'extra'").fetchone() == (0,)
    assert not connection.in_transaction
    migrate(connection, (*MIGRATIONS, NEXT))
    assert version(connection) == len(MIGRATIONS) + 1


def test_current_schema_is_not_changed(connection: sqlite3.Connection) -> None:
    migrate(connection)
    before = connection.total_changes
    migrate(connection)
    assert connection.total_changes == before


def test_leases_of_schema_version_1_are_kept_and_get_owners(connection: sqlite3.Connection) -> None:
    migrate(connection, MIGRATIONS[:1])
    connection.execute("INSERT INTO answer VALUES (x'00', x'01'), (x'02', x'03')")
    for resource, api, unit, holder, since in (
        ("a.com/r", "device-plugin", "usb-1", "pod/x/y/z", 3.0),
        ("a.com/s", "device-plugin", "misc-fuse.3", "", 2.0),
        ("b.com/r", "dra", "gpu-0", "claim/1", 1.0),
    ):
        connection.execute(
            "INSERT INTO lease VALUES (?, ?, ?, '[\"x\"]', '[]', ?, x'00', 'done', 'boot', ?)",
            (resource, api, unit, holder, since),
        )
    connection.execute("PRAGMA foreign_keys = ON")
    migrate(connection)
    rows = connection.execute("SELECT unit, owner, exclusive, holder, record, granted_at FROM lease").fetchall()
    assert rows == [
        ("gpu-0", "claim/1", '["x"]', "claim/1", b"\x00", 1.0),
        ("misc-fuse.3", "a.com/s=misc-fuse/0", '["x"]', "", b"\x00", 2.0),
        ("usb-1", "a.com/r=usb-1", '["x"]', "pod/x/y/z", b"\x00", 3.0),
    ]
    connection.execute("DELETE FROM lease")
    assert connection.execute("SELECT digest FROM record").fetchall() == [(b"\x02",)]
