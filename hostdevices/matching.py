"""How one value is compared with what a configuration says: texts as globs, numbers and versions also by order.

Globs are translated to expressions without nested repetition, so that no pattern can blow up.
"""

import operator
import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, TypeAlias

from hostdevices.device import AttributeValue, Version

Accepted: TypeAlias = bool | int | str
"""What an attribute is compared with: a value, a glob, a comparison (`>=2`) or a range (`2..7`)."""


@lru_cache(maxsize=4096)
def path_pattern(glob: str) -> re.Pattern[str]:
    """Translate a path glob; the groups of a match are what its wildcards stand for.

    `*` and `?` do not cross `/`, `[...]` is a set of characters, `**` as a whole component is any number of folders.
    """
    parts: list[str] = []
    position = 0
    while position < len(glob):
        character = glob[position]
        closing = glob.find("]", position + 2) if character == "[" else -1
        if glob.startswith("**/", position) and (position == 0 or glob[position - 1] == "/"):
            parts.append("((?:[^/]+/)*)")
            position += 2
        elif character == "*":
            parts.append("([^/]*)")
        elif character == "?":
            parts.append("([^/])")
        elif closing > 0:
            parts.append(f"((?!/){_character_set(glob[position + 1 : closing])})")
            position = closing
        else:
            parts.append(re.escape(character))
        position += 1
    return re.compile("".join(parts), re.DOTALL)


def _character_set(inside: str) -> str:
    negated = "^" if len(inside) > 1 and inside[0] in "!^" else ""
    inside = inside[len(negated) :]
    parts: list[str] = []
    position = 0
    while position < len(inside):
        if inside[position + 1 : position + 2] == "-" and position + 2 < len(inside):
            low, high = sorted((inside[position], inside[position + 2]))
            parts.append(f"{re.escape(low)}-{re.escape(high)}")
            position += 3
        else:
            parts.append(re.escape(inside[position]))
            position += 1
    return f"[{negated}{''.join(parts)}]"


def accepts(wanted: Accepted, value: AttributeValue) -> bool:
    """Tell whether an attribute's value is what is wanted; a number never equals a text or a truth."""
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
    """Return a key in the order of semver.org: missing numbers are zeros, build metadata does not count."""
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
    """Take `>=2`, `2..7` or `2.1` apart to operators and operands."""
    low, dots, high = wanted.partition("..")
    if dots:
        return (operator.ge, low), (operator.le, high)
    sign = next((sign for sign in _OPERATORS if wanted.startswith(sign)), "")
    return ((_OPERATORS[sign or "="], wanted[len(sign) :].strip()),)
