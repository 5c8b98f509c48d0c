"""Checksums of the ledger's rows: a disk that returns other bytes than were written must not decide who has a device.

SQLite checks the structure of its pages, not their contents. Each row has a checksum of its columns, and each record
is stored under the digest of its bytes.
"""

import struct

try:
    from _blake2 import blake2b  # as random.py does: hashlib loads all of OpenSSL
except ImportError:
    from hashlib import blake2b


def record_digest(body: bytes) -> bytes:
    """Return the key under which a record is stored."""
    return blake2b(body, digest_size=16).digest()


def row_checksum(*columns: str | bytes | float) -> bytes:
    """Return the checksum of a row's columns, in their order. It is stored on disks, so it must never change."""
    digest = blake2b(digest_size=8)
    for column in columns:
        if isinstance(column, str):
            contents = column.encode()
        else:
            contents = column if isinstance(column, bytes) else struct.pack(">d", float(column))
        digest.update(len(contents).to_bytes(4, "big") + contents)
    return digest.digest()
