"""Ledgers of older programs, one for each version of the schema, with the same two leases."""

import contextlib
import sqlite3
from pathlib import Path

from checkpoint.database import FILE_NAME
from checkpoint.lease import Api
from checkpoint.migrations import CHECKSUMS_SINCE, MIGRATIONS, migrate

OLDER = range(1, len(MIGRATIONS))
LEASED: frozenset[tuple[Api, str]] = frozenset({("device-plugin", "misc-fuse"), ("dra", "misc-kvm")})
_DIGEST = "x'2afb9b83f9314e5d029766197f539792'"  # of the record {}
_ROWS = {
    1: (
        f"INSERT INTO answer VALUES ({_DIGEST}, x'7b7d')",
        f"""INSERT INTO lease VALUES
            ('example.com/fuse', 'device-plugin', 'misc-fuse', '["misc-fuse"]', '[]', 'pod/x/y/z', {_DIGEST}, 'done',
             'boot', 1),
            ('example.com/kvm', 'dra', 'misc-kvm', '["misc-kvm"]', '[]', 'claim/1', {_DIGEST}, 'done', 'boot', 2)""",
    ),
    2: (
        f"INSERT INTO record VALUES ({_DIGEST}, x'7b7d')",
        f"""INSERT INTO lease
            (sequence, resource, api, unit, owner, exclusive, shared, holder, pods, record, phase, boot_id, granted_at)
            VALUES
            (1, 'example.com/fuse', 'device-plugin', 'misc-fuse', 'example.com/fuse=misc-fuse', '["misc-fuse"]', '[]',
             'pod/x/y/z', '[]', {_DIGEST}, 'done', 'boot', 1),
            (2, 'example.com/kvm', 'dra', 'misc-kvm', 'claim/1', '["misc-kvm"]', '[]', 'claim/x/y/1', '[]', {_DIGEST},
             'done', 'boot', 2)""",
    ),
}


def write_older(directory: Path, version: int) -> None:
    """Create the state directory of a program with this schema version."""
    directory.mkdir(mode=0o700, exist_ok=True)
    with contextlib.closing(sqlite3.connect(directory / FILE_NAME, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        migrate(connection, MIGRATIONS[:version])
        for statement in _ROWS[max(each for each in _ROWS if each <= version)]:
            connection.execute(statement)
        if version >= CHECKSUMS_SINCE:
            connection.execute(MIGRATIONS[CHECKSUMS_SINCE - 1].statements[-1])
