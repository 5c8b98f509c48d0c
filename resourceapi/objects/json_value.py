"""Equality and nesting depth of JSON values in Python.

Python's `==` treats 1, 1.0 and true as equal. In JSON, and for clients that compare objects, they differ.
"""

from typing import Any

import msgspec

MAX_DEPTH = 200
"""The deepest nesting of objects and lists that a server accepts.

Kubernetes' own objects have about 30 levels; upstream accepts 10,000.
"""


class TooDeep(ValueError):
    """A value is nested deeper than `MAX_DEPTH`; the message is Go's."""

    def __init__(self) -> None:
        super().__init__("exceeded max depth")


def canonical(value: Any) -> bytes:
    """Return a text that is the same for two values if and only if they are equal; the order of members is ignored."""
    return msgspec.json.encode(value, order="deterministic")


def json_equal(one: Any, other: Any) -> bool:
    """Return whether two values are the same JSON value; 1, 1.0 and true all differ."""
    return bool(one == other) and canonical(one) == canonical(other)


def check_depth(value: Any) -> None:
    """Raise TooDeep for a value that is nested deeper than `MAX_DEPTH`."""
    level = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                below += [item for item in each.values() if isinstance(item, dict | list)]
            elif isinstance(each, list):
                below += [item for item in each if isinstance(item, dict | list)]
        if not below:
            return
        level = below
    raise TooDeep
