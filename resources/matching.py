"""How one value is compared with the configuration: texts as globs, numbers and versions also by order."""

import operator
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, TypeAlias

from hostdevices.device import AttributeValue, Version

Accepted: TypeAlias = bool | int | str
"""The condition on an attribute: a value, a glob, a comparison (`>=2`) or a range (`2..7`)."""


def accepts(wanted: Accepted, value: AttributeValue) -> bool:
    """Return whether an attribute's value matches; a number never equals a text or a boolean."""
    if isinstance(value, bool) or isinstance(wanted, bool):
        return value is wanted
    if isinstance(wanted, int):
        return value == wanted
    if isinstance(value, str):
        return fnmatchcase(value, wanted)
    if isinstance(value, Version):
        key = version_key(value.text)
        return all(test(key, version_key(text)) for test, text in _conditions(wanted))
    try:
        return all(test(value, int(text)) for test, text in _conditions(wanted))
    except ValueError:
        return False


def version_key(text: str) -> tuple[tuple[int, ...], bool, tuple[tuple[int, int, str], ...]]:
    """Return a sort key in the order of semver.org: missing numbers are zeros, build metadata does not count."""
    numbers, dash, suffix = text.strip().lstrip("vV").partition("+")[0].partition("-")
    fields = [int(field) if field.isdecimal() else 0 for field in numbers.split(".")]
    while fields and not fields[-1]:
        fields.pop()
    identifiers = tuple((0, int(x), "") if x.isdecimal() else (1, 0, x) for x in suffix.split("."))
    return tuple(fields), not dash, identifiers


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
}


@lru_cache(maxsize=4096)
def _conditions(wanted: str) -> tuple[tuple[Callable[[Any, Any], bool], str], ...]:
    """Split `>=2`, `2..7` or `2.1` into operators and operands."""
    low, dots, high = wanted.partition("..")
    if dots:
        return (operator.ge, low), (operator.le, high)
    sign = next((sign for sign in _OPERATORS if wanted.startswith(sign)), "")
    return ((_OPERATORS[sign or "="], wanted[len(sign) :].strip()),)
