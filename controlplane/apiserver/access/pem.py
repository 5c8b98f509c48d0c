"""Reads PEM: base64 between a BEGIN and an END line, as Go's encoding/pem reads it.

Time is linear in the size of the text, which clients choose. Source: RFC 7468, RFC 1421 (headers).
"""

import base64
import binascii
from collections.abc import Iterator
from typing import NamedTuple

_BEGIN, _END, _DASHES = b"-----BEGIN ", b"-----END ", b"-----"


class Block(NamedTuple):
    """A PEM block."""

    type: str
    has_headers: bool
    data: bytes


def pem_blocks(text: bytes) -> Iterator[Block]:
    """Return the blocks of a text, without malformed ones. An END line ends the block of the last BEGIN before it."""
    lines = [line.rstrip(b" \t\r") for line in text.split(b"\n")]
    begin: int | None = None
    for number, line in enumerate(lines):
        if line.startswith(_BEGIN):
            begin = number
        elif line.startswith(_END) and begin is not None:
            block = _block(lines[begin : number + 1])
            begin = None
            if block is not None:
                yield block


def _block(lines: list[bytes]) -> Block | None:
    """The block of these lines, from its BEGIN to its END; None if it is malformed."""
    first, *inside, last = lines
    kind = first.removeprefix(_BEGIN)
    if not kind.endswith(_DASHES) or last != _END + kind:
        return None
    headers = next((index for index, line in enumerate(inside) if b":" not in line), len(inside))
    if headers and headers == len(inside):
        return None
    try:
        data = base64.b64decode(b"".join(inside[headers:]).translate(None, b" \t\r"), validate=True)
    except binascii.Error:
        return None
    return Block(kind.removesuffix(_DASHES).decode("utf-8", "replace"), headers > 0, data)
