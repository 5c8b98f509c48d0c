"""Inputs derived from valid ones: bytes are flipped, removed, repeated and inserted, and pieces of two are joined."""

from collections.abc import Sequence
from random import Random

MAX_LENGTH = 4096  # bytes
_NUMBERS = (b"0", b"-1", b"1e999", b"9" * 30, b"\x7f\xff\xff\xff", b"\xff" * 8, b"\0" * 4, b"4294967296")


def mutated(source: Random, seeds: Sequence[bytes], words: Sequence[bytes] = ()) -> bytes:
    """Return an input of at most 4 KiB."""
    data = bytearray(source.choice(seeds))
    for _ in range(source.choice((0, 1, 1, 2, 3, 5, 12))):
        at = source.randrange(len(data) + 1)
        end = min(len(data), at + source.choice((1, 1, 2, 4, 16, 100)))
        match source.randrange(7):
            case 0 if data:
                data[min(at, len(data) - 1)] ^= 1 << source.randrange(8)
            case 1:
                del data[at:end]
            case 2:
                data[at:at] = data[at:end] * source.choice((1, 2, 50))
            case 3:
                data[at:end] = source.randbytes(source.randrange(1, 6))
            case 4:
                data[at:at] = source.choice(words or _NUMBERS)
            case 5:
                data[at:end] = source.choice(words or _NUMBERS)
            case _:
                other = source.choice(seeds)
                begin = source.randrange(len(other) + 1)
                data[at:] = other[begin:]
    return bytes(data[:MAX_LENGTH])
