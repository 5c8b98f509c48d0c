"""Netlink messages: a header, a fixed part, attributes that can contain attributes. In native byte order."""

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

NEWLINK, DELLINK, GETLINK, SETLINK = 16, 17, 18, 19
NEWADDR, DELADDR, GETADDR = 20, 21, 22
NEWROUTE, GETROUTE = 24, 26
NEWNEXTHOP, GETNEXTHOP = 104, 106
NEWNSID, DELNSID, GETNSID = 88, 89, 90
ERROR, DONE = 2, 3
REQUEST, ACK, ROOT_AND_MATCH, EXCL_AND_CREATE = 0x1, 0x4, 0x300, 0x600
INTERRUPTED = 0x10  # NLM_F_DUMP_INTR: the list changed meanwhile; entries can be missing or duplicate

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ATTRIBUTE = struct.Struct("=HH")  # length, type
_TYPE = 0x3FFF  # without the flags "nested" and "network byte order"


class Message(NamedTuple):
    """One message, without its header."""

    type: int
    flags: int
    sequence: int
    body: bytes


def message(kind: int, flags: int, sequence: int, body: bytes) -> bytes:
    """Return a message for the kernel."""
    return _HEADER.pack(_HEADER.size + len(body), kind, flags | REQUEST, sequence, 0) + body


def messages(data: bytes) -> Iterator[Message]:
    """Yield the messages of a datagram."""
    while len(data) >= _HEADER.size:
        length, kind, flags, sequence, _ = _HEADER.unpack_from(data)
        if not _HEADER.size <= length <= len(data):
            return
        yield Message(kind, flags, sequence, data[_HEADER.size : length])
        data = data[_aligned(length) :]


def attribute(kind: int, value: bytes | int | str) -> bytes:
    """Return an attribute; a number has 32 bits, a text ends with a zero byte."""
    if isinstance(value, int):
        value = struct.pack("=I", value)
    elif isinstance(value, str):
        value = value.encode() + b"\0"
    length = _ATTRIBUTE.size + len(value)
    return _ATTRIBUTE.pack(length, kind) + value + bytes(_aligned(length) - length)


def attributes(data: bytes) -> dict[int, bytes]:
    """Return attributes by type; the last one of each type."""
    return dict(each_attribute(data))


def each_attribute(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield attributes in their order, each with its type."""
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        if not _ATTRIBUTE.size <= length <= len(data):
            return
        yield kind & _TYPE, data[_ATTRIBUTE.size : length]
        data = data[_aligned(length) :]


def number(found: Mapping[int, bytes], kind: int) -> int:
    """Return a number of 32 bits; 0 if it is absent."""
    value = found.get(kind, b"")
    return int(struct.unpack_from("=I", value)[0]) if len(value) >= 4 else 0


def text(found: Mapping[int, bytes], kind: int) -> str:
    """Return a text; empty if it is absent."""
    return found.get(kind, b"").split(b"\0")[0].decode(errors="replace")


def _aligned(length: int) -> int:
    return (length + 3) & ~3
