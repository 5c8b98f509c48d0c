"""Reads DER: values with a tag and a length, in a row. Source: X.690."""

from collections.abc import Iterator

SEQUENCE, SET = 0x30, 0x31
"""Tags of values that contain values."""


def parts(data: bytes, wanted: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Return the values with their tags, one by one.

    Raises ValueError if one is malformed, or its tag is not `wanted`.
    """
    at = 0
    while at < len(data):
        tag, size = data[at], data[at + 1]
        at += 2
        if size >= 0x80:
            digits = size & 0x7F
            if not 0 < digits <= 4:
                raise ValueError("indefinite length found (not DER)")
            size = int.from_bytes(data[at : at + digits], "big")
            at += digits
        if wanted is not None and tag != wanted:
            raise ValueError("tags don't match")
        if at + size > len(data):
            raise ValueError("data truncated")
        yield tag, data[at : at + size]
        at += size
