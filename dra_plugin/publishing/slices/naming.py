"""Names of ResourceSlices. They begin with the index, so that the order of names is the order of slices.

`<index in hexadecimal, padded>-<driver>-<owner>-`, to which the API server appends random characters. Names of older
libraries have no such index: these slices are replaced. Source: DRA node specification, 3.4 and 3.5.
"""

import re

_MIN_LENGTH = 5
_HEXADECIMAL = re.compile(r"[0-9a-f]+")
_MAX_INT64 = 2**63 - 1


class NoIndex(ValueError):
    """The name does not begin with an index of the expected length."""


def index_length(count: int) -> int:
    """Return how many digits the index of each of `count` slices has."""
    return max(_MIN_LENGTH, len(f"{max(count - 1, 0):x}"))


def generate_name(index: int, length: int, driver: str, owner: str = "") -> str:
    """Return the `generateName` of a new slice."""
    return f"{index:0{length}x}-{driver}-" + (f"{owner}-" if owner else "")


def index_of(name: str, length: int) -> int:
    """Return the index in a slice's name; raises NoIndex."""
    if name.find("-") != length:
        raise NoIndex("invalid index length or missing separator")
    digits = name[:length]
    if not _HEXADECIMAL.fullmatch(digits) or (index := int(digits, 16)) > _MAX_INT64:
        raise NoIndex("failed to parse index")
    return index
