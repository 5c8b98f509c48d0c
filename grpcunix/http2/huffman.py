"""Huffman strings of HPACK (RFC 7541, section 5.2 and appendix B). Only decoding: sent strings are short and plain.

The code is canonical: codes of one length follow each other in the order of their symbols, so the lengths define it.
"""

from bisect import bisect_right
from typing import Final

from grpcunix.http2.frames import ErrorCode, Fault

# bits of each byte's code; the last one is the end of the string, which must never be sent
_LENGTHS: Final = bytes.fromhex(
    """
    0d 17 1c 1c 1c 1c 1c 1c 1c 18 1e 1c 1c 1e 1c 1c 1c 1c 1c 1c 1c 1c 1e 1c 1c 1c 1c 1c 1c 1c 1c 1c
    06 0a 0a 0c 0d 06 08 0b 0a 0a 08 0b 08 06 06 06 05 05 05 06 06 06 06 06 06 06 07 08 0f 06 0c 0a
    0d 06 07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 08 07 08 0d 13 0d 0e 06
    0f 05 06 05 06 05 06 06 06 05 07 07 06 06 06 05 06 07 06 05 05 06 07 07 07 07 07 0f 0b 0e 0d 1c
    14 16 14 14 16 16 16 17 16 17 17 17 17 17 18 17 18 18 16 17 18 17 17 17 17 15 16 17 16 17 17 18
    16 15 14 16 16 17 17 15 17 16 16 18 15 16 17 17 15 15 16 15 17 16 17 17 14 16 16 16 17 16 16 17
    1a 1a 14 13 16 17 16 19 1a 1a 1a 1b 1b 1a 18 19 13 15 1a 1b 1b 1a 1b 18 15 15 1a 1a 1c 1b 1b 1b
    14 18 14 15 16 15 15 17 16 16 19 19 18 18 1a 17 1a 1b 1a 1a 1b 1b 1b 1b 1b 1c 1b 1b 1b 1b 1b 1a
    1e
    """
)
_END: Final = 256
_MAX_BITS: Final = 30  # bits
_SYMBOLS: Final = sorted(range(len(_LENGTHS)), key=lambda symbol: (_LENGTHS[symbol], symbol))


def _code_table() -> tuple[list[int], list[tuple[int, int, int]], list[tuple[int, int]]]:
    """Return the tables that find the code at the front of a string.

    For each length: the first code, extended to 30 bits, and (length, first code, position in `_SYMBOLS`). For each
    possible next byte: (symbol, length); the length is 0 if the code is longer than the byte.
    """
    starts: list[int] = []
    lengths: list[tuple[int, int, int]] = []
    by_byte = [(0, 0)] * 256
    code = previous = 0
    for place, symbol in enumerate(_SYMBOLS):
        length = _LENGTHS[symbol]
        code <<= length - previous
        if length != previous:
            starts.append(code << _MAX_BITS - length)
            lengths.append((length, code, place))
        if length <= 8:
            first, count = code << 8 - length, 1 << 8 - length
            by_byte[first : first + count] = [(symbol, length)] * count
        code, previous = code + 1, length
    return starts, lengths, by_byte


_STARTS, _BY_LENGTH, _BY_BYTE = _code_table()


def decode(data: bytes) -> bytes:
    """Decode a string.

    Raises `Fault` if it contains its end symbol, or its padding exceeds 7 bits or is not all ones.
    """
    text = bytearray()
    window = bits = 0  # the bits that are not decoded yet
    for byte in data:
        window, bits = (window << 8 | byte) & 0x3F_FFFF_FFFF, bits + 8
        while bits >= 8:
            symbol, length = _BY_BYTE[window >> bits - 8 & 0xFF]
            if length == 0:
                symbol, length = _long_code(window, bits)
                if length > bits:
                    break
            text.append(symbol)
            bits -= length
    while 0 < bits < 8:
        symbol, length = _BY_BYTE[(window << 8 | 0xFF) >> bits & 0xFF]
        if length == 0 or length > bits:
            break
        text.append(symbol)
        bits -= length
    if bits >= 8 or ~window & (1 << bits) - 1:
        raise Fault(ErrorCode.COMPRESSION_ERROR, "a Huffman string is not padded with ones up to its last byte")
    return bytes(text)


def _long_code(window: int, bits: int) -> tuple[int, int]:
    """Return the symbol of a code of more than 8 bits, and its length, which exceeds `bits` if it is incomplete."""
    front = (window << _MAX_BITS | (1 << _MAX_BITS) - 1) >> bits & (1 << _MAX_BITS) - 1
    length, first, place = _BY_LENGTH[bisect_right(_STARTS, front) - 1]
    symbol = _SYMBOLS[place + (front >> _MAX_BITS - length) - first]
    if length <= bits and symbol == _END:
        raise Fault(ErrorCode.COMPRESSION_ERROR, "a Huffman string names its own end")
    return symbol, length
