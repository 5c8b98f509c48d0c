"""The rows of the ledger's tables: leases, their records, withheld devices; each lease with a checksum.

Transactions and files are in database.py.
"""

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from sys import intern
from typing import Any

import msgspec

from checkpoint.checksums import record_digest, row_checksum
from checkpoint.lease import Book, Change, Lease
from checkpoint.migrations import CHECKSUMS_SINCE, WITHHELD_SINCE, version
from checkpoint.withheld import Withheld

_COLUMNS = "resource, api, unit, owner, exclusive, shared, holder, pods, record, phase, boot_id, granted_at"
_INSERT = f"INSERT INTO lease ({_COLUMNS}, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - constant
_RENEW = f"""{_INSERT} ON CONFLICT (resource, api, unit) DO UPDATE SET holder = excluded.holder, pods = excluded.pods,
    phase = excluded.phase, boot_id = excluded.boot_id, granted_at = excluded.granted_at,
    checksum = excluded.checksum"""
_RENEW_RECORD = f"{_RENEW}, record = excluded.record"  # also writes the column's index, even if the record is the same


class InvalidRow(Exception):
    """A row differs from what was written, or is invalid; the text names it."""


def load(connection: sqlite3.Connection) -> Book:
    """Read everything.

    Raises `InvalidRow` if any row is invalid: with missing leases devices would be allocated twice.
    """
    # fetchall: a half-read cursor would keep the file open while it is renamed
    bodies = dict(connection.execute("SELECT digest, body FROM record").fetchall())
    is_checked = version(connection) >= CHECKSUMS_SINCE
    checksum = "checksum" if is_checked else "x''"
    found = connection.execute(f"SELECT {checksum}, {_COLUMNS} FROM lease ORDER BY sequence").fetchall()  # noqa: S608 - constant
    rows = [row for _, *row in found]
    held_back = (
        connection.execute("SELECT device, reason, since FROM withheld ORDER BY since, device").fetchall()
        if version(connection) >= WITHHELD_SINCE
        else ()
    )
    try:
        if is_checked:
            _verify(bodies, found)
        withheld = [
            msgspec.convert({"device": device, "reason": reason, "since": since}, Withheld)
            for device, reason, since in held_back
        ]
        leases = [
            msgspec.convert(
                {
                    "resource": intern(resource),  # few different values, in one text object per row
                    "api": api,
                    "unit": unit,
                    "owner": owner,
                    "exclusive": msgspec.json.decode(exclusive),
                    "holder": holder,
                    "record": bodies[record],
                    "phase": phase,
                    "boot_id": intern(boot_id),
                    "granted_at": granted_at,
                    # an empty set takes 216 bytes, the default none
                    **({"shared": msgspec.json.decode(shared)} if shared != "[]" else {}),
                    **({"pods": msgspec.json.decode(pods)} if pods != "[]" else {}),
                },
                Lease,
            )
            for resource, api, unit, owner, exclusive, shared, holder, pods, record, phase, boot_id, granted_at in rows
        ]
    except (msgspec.MsgspecError, KeyError, TypeError, RecursionError) as error:
        raise InvalidRow(f"a record cannot be decoded: {error}") from error
    return Book(leases, withheld)


def _verify(bodies: Mapping[bytes, bytes], rows: Iterable[Sequence[Any]]) -> None:
    """Raise `InvalidRow` for the first row that differs from what was written; `rows` begin with their checksums."""
    for digest, body in bodies.items():
        if record_digest(body) != digest:
            raise InvalidRow(f"the answer {digest.hex()} is not as it was written: its digest differs")
    for checksum, *row in rows:
        if row_checksum(*row) != checksum:
            resource, api, unit = row[:3]
            raise InvalidRow(f"the lease {unit} of {resource} ({api}) is not as it was written: its checksum differs")


def rewrite(connection: sqlite3.Connection, book: Book) -> None:
    """Make the file equal to memory, whatever it contained."""
    for table in ("lease", "record", "withheld"):
        connection.execute(f"DELETE FROM {table}")  # noqa: S608 - constants
    _insert(connection, tuple(book))
    _withhold(connection, book.withheld.values())


def apply(connection: sqlite3.Connection, changes: Iterable[Change]) -> None:
    """Write the changes of requests, in their order."""
    for change in changes:
        _apply(connection, change)


def _apply(connection: sqlite3.Connection, change: Change) -> None:
    # Ends first: the trigger deletes unreferenced records, and a new lease can have the same record.
    if change.ended:
        connection.executemany(
            "DELETE FROM lease WHERE resource = ? AND api = ? AND unit = ?", [lease.key for lease in change.ended]
        )
    if change.begun:
        _insert(connection, change.begun)
    if change.renewed:
        _renew(connection, change.renewed)
    if change.updated:
        digests = _digests(lease.record for _, lease in change.updated)
        connection.executemany(
            "UPDATE lease SET holder = ?, pods = ?, checksum = ? WHERE resource = ? AND api = ? AND unit = ?",
            [
                (lease.holder, _json(lease.pods), row_checksum(*_row(lease, digests[lease.record])), *lease.key)
                for _, lease in change.updated
            ],
        )
    if change.readmitted:
        connection.executemany("DELETE FROM withheld WHERE device = ?", [(each.device,) for each in change.readmitted])
    _withhold(connection, change.withheld)


def _withhold(connection: sqlite3.Connection, devices: Iterable[Withheld]) -> None:
    if rows := [(each.device, each.reason, each.since) for each in devices]:
        connection.executemany("INSERT INTO withheld VALUES (?, ?, ?)", rows)


def _insert(connection: sqlite3.Connection, leases: Sequence[Lease]) -> None:
    digests = _insert_records(connection, (lease.record for lease in leases))
    connection.executemany(_INSERT, [_checked_row(lease, digests[lease.record]) for lease in leases])


def _renew(connection: sqlite3.Connection, renewed: Sequence[tuple[Lease, Lease]]) -> None:
    """Write leases into the rows of those that they renew, so that fewer pages change."""
    before, after = {old.record for old, _ in renewed}, {new.record for _, new in renewed}
    if before == after and len(after) == 1:
        statement, digests = _RENEW, _digests(after)
    else:
        statement, digests = _RENEW_RECORD, _insert_records(connection, after)
    connection.executemany(statement, [_checked_row(new, digests[new.record]) for _, new in renewed])
    if unused := [(record_digest(body),) for body in before - after]:
        connection.executemany(
            "DELETE FROM record WHERE digest = ? AND NOT EXISTS (SELECT 1 FROM lease WHERE record = digest)", unused
        )


def _insert_records(connection: sqlite3.Connection, bodies: Iterable[bytes]) -> dict[bytes, bytes]:
    """Write records that are not stored yet; return the digests of all."""
    digests = _digests(bodies)
    rows = [(digest, body) for body, digest in digests.items()]
    connection.executemany("INSERT OR IGNORE INTO record VALUES (?, ?)", rows)
    return digests


def _digests(bodies: Iterable[bytes]) -> dict[bytes, bytes]:
    """Return the key of each record; leases of one call have the same record, which is hashed once."""
    return {body: record_digest(body) for body in set(bodies)}


def _checked_row(lease: Lease, record: bytes) -> tuple[Any, ...]:
    row = _row(lease, record)
    return (*row, row_checksum(*row))


def _row(lease: Lease, record: bytes) -> tuple[Any, ...]:
    return (
        *lease.key,
        lease.owner,
        _json(lease.exclusive),
        _json(lease.shared),
        lease.holder,
        _json(lease.pods),
        record,
        lease.phase,
        lease.boot_id,
        lease.granted_at,
    )


def _json(devices: Collection[str]) -> str:
    return msgspec.json.encode(sorted(devices)).decode() if devices else "[]"
