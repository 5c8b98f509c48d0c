"""Protobuf's wire format: tags, varints and the values between them.

The error texts are those of the decoders that upstream generates.
"""

from collections.abc import Iterator

VARINT, FIXED64, LENGTH, START_GROUP, END_GROUP, FIXED32 = range(6)
_UINT64 = 2**64
_FIXED = {FIXED64: 8, FIXED32: 4}


class ProtobufError(ValueError):
    """The bytes are not a valid message."""


def varint(number: int) -> bytes:
    """Return a number as a varint, negative numbers in two's complement of 64 bits."""
    number %= _UINT64
    if number < 0x80:
        return bytes((number,))
    result = bytearray()
    while number >= 0x80:
        result.append(number & 0x7F | 0x80)
        number >>= 7
    result.append(number)
    return bytes(result)


def tag(number: int, wire_type: int) -> bytes:
    """Return the tag of a field, which precedes its value."""
    return varint(number << 3 | wire_type)


def sized(data: bytes) -> bytes:
    """Return bytes preceded by their length."""
    return varint(len(data)) + data


def signed(number: int, bits: int) -> int:
    """Return the value of a varint for a signed field of so many bits."""
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a position, and the position after it. Raises ProtobufError."""
    number = shift = 0
    while True:
        if shift >= 64:
            raise ProtobufError("proto: integer overflow")
        if at >= len(data):
            raise ProtobufError("unexpected EOF")
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number % _UINT64, at


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield the fields of a message as number, wire type and value: a number, or bytes. Groups are skipped.

    Raises ProtobufError.
    """
    at = depth = 0
    while at < len(data):
        key, at = read_varint(data, at)
        number, wire_type = key >> 3, key & 7
        value: int | bytes = b""
        if wire_type == VARINT:
            value, at = read_varint(data, at)
        elif wire_type in (LENGTH, FIXED64, FIXED32):
            size = _FIXED.get(wire_type)
            if size is None:
                size, at = read_varint(data, at)
            if at + size > len(data):
                raise ProtobufError("unexpected EOF")
            value, at = data[at : at + size], at + size
        elif wire_type == START_GROUP:
            depth += 1
            continue
        elif wire_type == END_GROUP:
            if not depth:
                raise ProtobufError("proto: unexpected end of group")
            depth -= 1
            continue
        else:
            raise ProtobufError(f"proto: illegal wireType {wire_type}")
        if not 0 < number < 1 << 29:
            raise ProtobufError(f"proto: illegal tag {number} (wire type {wire_type})")
        if not depth:
            yield number, wire_type, value
    if depth:
        raise ProtobufError("unexpected EOF")
