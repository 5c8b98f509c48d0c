"""Ledgers as programs before this one left them, one for each version of the schema, with the same two leases."""

import contextlib
import sqlite3
from pathlib import Path

from checkpoint.database import FILE_NAME
from checkpoint.lease import Api
from checkpoint.migrations import MIGRATIONS, migrate

OLDER = range(1, len(MIGRATIONS))
LEASED: frozenset[tuple[Api, str]] = frozenset({("device-plugin", "misc-fuse"), ("dra", "misc-kvm")})
_ROWS = {
    1: (
        "INSERT INTO answer VALUES (x'00', x'7b7d')",
        """INSERT INTO lease VALUES
            ('example.com/fuse', 'device-plugin', 'misc-fuse', '["misc-fuse"]', '[]', 'pod/x/y/z', x'00', 'done', '',
             1),
            ('example.com/kvm', 'dra', 'misc-kvm', '["misc-kvm"]', '[]', 'claim/1', x'00', 'done', '', 2)""",
    ),
    2: (
        "INSERT INTO record VALUES (x'00', x'7b7d')",
        """INSERT INTO lease VALUES
            (1, 'example.com/fuse', 'device-plugin', 'misc-fuse', 'example.com/fuse=misc-fuse', '["misc-fuse"]', '[]',
             'pod/x/y/z', '[]', x'00', 'done', 'b', 1),
            (2, 'example.com/kvm', 'dra', 'misc-kvm', 'claim/1', '["misc-kvm"]', '[]', 'claim/x/y/1', '[]', x'00',
             'done', 'b', 2)""",
    ),
}


def write_older(directory: Path, version: int) -> None:
    """Make the state directory of a program whose schema had this version."""
    directory.mkdir(mode=0o700, exist_ok=True)
    with contextlib.closing(sqlite3.connect(directory / FILE_NAME, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        migrate(connection, MIGRATIONS[:version])
        for statement in _ROWS[max(each for each in _ROWS if each <= version)]:
            connection.execute(statement)
