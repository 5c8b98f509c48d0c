"""Header compression (RFC 7541).

`Decoder` keeps the dynamic table that the other end writes, of at most 4,096 bytes. Sent blocks use only the static
table and plain strings, so that the other end stores nothing and whole blocks can be prepared. The first block of each
stream begins with `NO_TABLE`: this size is within any limit that the other end sets for its table.

Fields are checked once, when their text is received, and not when a table refers to them again. Names and values must
be those that RFC 9113, section 8.2, allows, except for spaces around values, which grpc-go sends in `grpc-message`. The
limit of a list is checked for every field, before the list grows.
"""

import re
from typing import Final, TypeAlias

from grpcunix.http2 import huffman
from grpcunix.http2.frames import ErrorCode, Fault

Field: TypeAlias = tuple[bytes, bytes]
_Entry: TypeAlias = tuple[Field, int]  # and its size in a table and in a list, in bytes

TABLE_SIZE: Final = 4_096  # bytes; the protocol's default
FIELD_OVERHEAD: Final = 32  # bytes that a field counts besides its text
NO_TABLE: Final = b"\x20"  # at the start of a block: sets the table's size to 0

_STATIC_TEXT: Final = """
    :authority :method=GET :method=POST :path=/ :path=/index.html :scheme=http :scheme=https :status=200 :status=204
    :status=206 :status=304 :status=400 :status=404 :status=500 accept-charset accept-encoding=gzip,_deflate
    accept-language accept-ranges accept access-control-allow-origin age allow authorization cache-control
    content-disposition content-encoding content-language content-length content-location content-range content-type
    cookie date etag expect expires from host if-match if-modified-since if-none-match if-range if-unmodified-since
    last-modified link location max-forwards proxy-authenticate proxy-authorization range referer refresh retry-after
    server set-cookie strict-transport-security transfer-encoding user-agent vary via www-authenticate
"""


def _entry(name: bytes, value: bytes) -> _Entry:
    return (name, value), len(name) + len(value) + FIELD_OVERHEAD


_STATIC: Final[list[_Entry]] = [
    _entry(name.encode(), value.replace("_", " ").encode())
    for name, _, value in (word.partition("=") for word in _STATIC_TEXT.split())
]
_LAST_STATIC: Final = len(_STATIC)
_INDEX_OF: Final = {field: index for index, (field, _) in enumerate(_STATIC, 1)}
_INDEX_OF_NAME: Final = {name: index for (name, _), index in reversed(_INDEX_OF.items())}
_NAME: Final = re.compile(rb":?[!#$%&'*+\-.^_`|~0-9a-z]+").fullmatch
_BAD_VALUE: Final = re.compile(rb"[\0\r\n]").search


class Decoder:
    """Decodes the header blocks of one connection, in their order."""

    def __init__(self, list_limit: int) -> None:
        """Start with an empty table; `list_limit` is the limit of a list in bytes."""
        self._list_limit = list_limit
        self._dynamic: list[_Entry] = []  # the newest is the last
        self._size = 0  # bytes of the dynamic table
        self._limit = TABLE_SIZE

    def decode(self, block: bytes) -> list[Field]:
        """Decode a block. Raises `Fault`; the connection must end then, because the tables differ."""
        fields: list[Field] = []
        left, position, end = self._list_limit, 0, len(block)
        static, dynamic = _STATIC, self._dynamic
        try:
            while position < end:
                byte = block[position]
                if byte & 0x80:
                    index = byte & 0x7F
                    position += 1
                    if index == 0x7F:
                        index, position = _continued(index, block, position)
                    if index > _LAST_STATIC:
                        field, size = dynamic[_LAST_STATIC - index]
                    elif index:
                        field, size = static[index - 1]
                    else:
                        raise IndexError
                elif byte & 0x40:
                    (field, size), position = self._literal(block, position, 0x3F)
                    self._insert((field, size))
                elif byte & 0x20:
                    position = self._resize(block, position, is_first=not fields)
                    continue
                else:
                    (field, size), position = self._literal(block, position, 0x0F)
                left -= size
                if left < 0:
                    raise Fault(ErrorCode.ENHANCE_YOUR_CALM, f"a header list is longer than {self._list_limit} bytes")
                fields.append(field)
        except IndexError:
            text = "a header block ends within a field, or names one that is in no table"
            raise Fault(ErrorCode.COMPRESSION_ERROR, text) from None
        return fields

    def _literal(self, block: bytes, position: int, mask: int) -> tuple[_Entry, int]:
        index = block[position] & mask
        position += 1
        if index == mask:
            index, position = _continued(index, block, position)
        if index > _LAST_STATIC:
            (name, _), _ = self._dynamic[_LAST_STATIC - index]
        elif index:
            (name, _), _ = _STATIC[index - 1]
        else:
            name, position = _string(block, position)
            if not _NAME(name):
                raise Fault(ErrorCode.PROTOCOL_ERROR, "a header name has characters that names must not have")
        value, position = _string(block, position)
        if _BAD_VALUE(value):
            raise Fault(ErrorCode.PROTOCOL_ERROR, "a header value has characters that values must not have")
        return _entry(name, value), position

    def _insert(self, entry: _Entry) -> None:
        self._dynamic.append(entry)
        self._size += entry[1]
        self._evict()

    def _resize(self, block: bytes, position: int, is_first: bool) -> int:
        size = block[position] & 0x1F
        position += 1
        if size == 0x1F:
            size, position = _continued(size, block, position)
        if size > TABLE_SIZE or not is_first:
            raise Fault(ErrorCode.COMPRESSION_ERROR, "a header table cannot have this size, or not at this place")
        self._limit = size
        self._evict()
        return position

    def _evict(self) -> None:
        while self._size > self._limit:
            _, size = self._dynamic.pop(0)
            self._size -= size


def _continued(number: int, block: bytes, position: int) -> tuple[int, int]:
    """Return a number that does not fit into its prefix, and the position after it."""
    shift = 0
    while True:
        byte = block[position]
        position += 1
        number += (byte & 0x7F) << shift
        if not byte & 0x80:
            return number, position
        shift += 7
        if shift > 21:
            raise Fault(ErrorCode.COMPRESSION_ERROR, "a number in a header block is longer than any that it could be")


def _string(block: bytes, position: int) -> tuple[bytes, int]:
    first = block[position]
    length = first & 0x7F
    position += 1
    if length == 0x7F:
        length, position = _continued(length, block, position)
    end = position + length
    if end > len(block):
        raise IndexError
    text = block[position:end]
    return (huffman.decode(text) if first & 0x80 else text), end


def encode(fields: list[Field]) -> bytes:
    """Encode a block that adds nothing to a table."""
    block = bytearray()
    for name, value in fields:
        index = _INDEX_OF.get((name, value))
        if index is not None:
            block.append(0x80 | index)
            continue
        index = _INDEX_OF_NAME.get(name, 0)
        _append_number(block, index, 0x0F)
        if index == 0:
            _append_number(block, len(name), 0x7F)
            block += name
        _append_number(block, len(value), 0x7F)
        block += value
    return bytes(block)


def _append_number(block: bytearray, number: int, mask: int) -> None:
    """Append a number with a prefix of as many bits as `mask` has; the bits before it are 0."""
    if number < mask:
        block.append(number)
        return
    block.append(mask)
    number -= mask
    while number > 0x7F:
        block.append(number & 0x7F | 0x80)
        number >>= 7
    block.append(number)
