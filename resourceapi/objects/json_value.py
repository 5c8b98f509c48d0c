"""JSON values as Python holds them: when two are the same, and how deep one is.

Python's `==` takes 1, 1.0 and true for the same value; JSON, and who compares objects by it, does not.
"""

from typing import Any

import msgspec

MAX_DEPTH = 200
"""Objects and lists in one another that a server takes. Kubernetes' own have about 30; upstream takes 10,000."""


class TooDeep(ValueError):
    """A value that is nested deeper than `MAX_DEPTH`; the text is Go's."""

    def __init__(self) -> None:
        super().__init__("exceeded max depth")


def canonical(value: Any) -> bytes:
    """A text that two values have in common if and only if they are the same, whatever the order of members."""
    return msgspec.json.encode(value, order="deterministic")


def json_equal(one: Any, other: Any) -> bool:
    """Whether two values are the same value of JSON: 1, 1.0 and true are three."""
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
