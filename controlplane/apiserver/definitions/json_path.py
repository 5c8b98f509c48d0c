"""JSONPath for the printer columns of definitions: fields, indexes, slices, wildcards and filters.

    .status.conditions[?(@.type=="Ready")].status
    .metadata.labels.topology\\.kubernetes\\.io/zone

Rules:
1. A missing field is not an error: the result is empty. An operation on a value of the wrong type is an error, such as
   an index on an object, or `<` between a string and a number.
2. `[?(PATH)]` selects the items for which PATH has a result.
3. The work is limited (`_MAX_VISITS`): paths such as `..*..*` grow exponentially. Lists are evaluated in a thread,
   but single objects and watch events on the event loop.

Source: k8s.io/client-go/util/jsonpath, without its templates (text around paths, `range`).
"""

import operator
import re
from collections.abc import Callable
from typing import Any

_MAX_VISITS = 100_000
"""The most values that one evaluation visits, in all steps and filters together: some tens of milliseconds."""
_MAX_INDEX_DIGITS = 18  # digits
_ENDS_FIELD = frozenset(" \t\r\n.,[]$@{}")
_KEY = re.compile(r"'([^']*)'")
_SLICE = re.compile(r"(-?[0-9]*)(:-?[0-9]*)?(:-?[0-9]*)?")
_COMPARISON = re.compile(r"([^!<>=]+)([!<>=]+)(.+)")
_NUMBER = re.compile(r"[+-]?[0-9.]*")
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class JsonPathError(Exception):
    """The text is not a valid path, or the path cannot be evaluated on the value."""


class _Visits:
    """The number of values that an evaluation can still visit."""

    def __init__(self) -> None:
        self._left = _MAX_VISITS

    def count(self, values: int) -> None:
        """Count values before they are visited. Raises JsonPathError."""
        self._left -= values
        if self.is_exhausted:
            raise JsonPathError(f"visits more than {_MAX_VISITS} values")

    @property
    def is_exhausted(self) -> bool:
        return self._left < 0


Step = Callable[[list[Any], _Visits], list[Any]]


class JsonPath:
    """A parsed path."""

    def __init__(self, text: str) -> None:
        """Parse a path. Raises JsonPathError."""
        self._steps = _Parser(text).steps()

    def find(self, value: Any) -> list[Any]:
        """Return the results for a JSON value, in order. Raises JsonPathError."""
        return _walk([value], self._steps, _Visits())


def _walk(values: list[Any], steps: list[Step], visits: _Visits) -> list[Any]:
    for step in steps:
        visits.count(len(values) + 1)
        values = step(values, visits)
    return values


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def steps(self) -> list[Step]:
        found: list[Step] = []
        was_recursive = False
        while self._at < len(self._text) and self._text[self._at] != "}":
            is_recursive = self._text.startswith("..", self._at)
            if is_recursive and was_recursive:
                raise JsonPathError("invalid multiple recursive descent")
            found += self._recursive() if is_recursive else self._next()
            was_recursive = is_recursive and found[-1] is _recursive
        return found

    def _next(self) -> list[Step]:
        if self._text.startswith("[?(", self._at):
            return [self._filter()]
        first = self._text[self._at]
        if first in "+-" or first.isdigit():
            return [_constant(self._number())]
        if first == "_" or first.isalpha():
            return [self._identifier()]
        self._at += 1
        if first in " @$":  # the current value
            return []
        if first == ".":
            return [self._field()]
        if first == "[":
            return self._array()
        if first in "\"'":
            return [_text(self._quoted(first))]
        raise JsonPathError(f"unrecognized character in action: {first!r}")

    def _until_terminator(self) -> str:
        start = self._at
        while self._at < len(self._text) and self._text[self._at] not in _ENDS_FIELD:
            self._at += 2 if self._text[self._at] == "\\" else 1
        if self._at > len(self._text):
            raise JsonPathError("unclosed action")
        return self._text[start : self._at]

    def _field(self) -> Step:
        name = self._until_terminator()
        return _wildcard if name == "*" else _field(name.replace("\\", ""))

    def _recursive(self) -> list[Step]:
        self._at += 2
        following = self._text[self._at : self._at + 1]
        return [_recursive, self._field()] if following == "_" or following.isalnum() else [_recursive]

    def _identifier(self) -> Step:
        name = self._until_terminator()
        return _constant(name == "true") if name in ("true", "false") else _unknown(name)

    def _number(self) -> int | float:
        match = _NUMBER.match(self._text, self._at)
        text = match.group() if match else ""
        self._at += len(text)
        try:
            return _integer(text) if "." not in text else float(text)
        except ValueError:
            raise JsonPathError(f"cannot parse number {text}") from None

    def _quoted(self, quote: str) -> str:
        start = self._at
        while (end := self._text.find(quote, self._at)) > 0 and self._text[end - 1] == "\\":
            self._at = end + 1
        if end < 0:
            raise JsonPathError("unterminated quoted string")
        self._at = end + 1
        return re.sub(r"\\(.)", r"\1", self._text[start:end])

    def _array(self) -> list[Step]:
        end = self._text.find("]", self._at)
        if end < 0:
            raise JsonPathError("unterminated array")
        inside, self._at = self._text[self._at : end], end + 1
        if "," in inside:
            return [_union([_Parser(f"[{each.strip(' ')}]").steps() for each in inside.split(",")])]
        if key := _KEY.fullmatch(inside):
            return _Parser(f".{key[1]}").steps()
        match = _SLICE.fullmatch(":" if inside == "*" else inside)
        if match is None:
            raise JsonPathError(f"invalid array index {inside}")
        try:
            return [
                _slice(
                    *(_integer(each.lstrip(":")) if each and each != ":" else None for each in match.groups()),
                    is_index=match[2] is None,
                )
            ]
        except ValueError:
            raise JsonPathError(f"array index {inside} is not a number") from None

    def _filter(self) -> Step:
        self._at += len("[?(")
        start, quote, is_quoted = self._at, "", False
        while True:
            if self._at >= len(self._text) or self._text[self._at] == "\n":
                raise JsonPathError("unterminated filter")
            each = self._text[self._at]
            if each == ")" and not is_quoted:
                break
            if each in "\"'" and not quote:
                quote, is_quoted = each, True
            elif each == quote and self._text[self._at - 1] != "\\":
                is_quoted = False
            self._at += 1
        text = self._text[start : self._at]
        self._at += 2
        if self._text[self._at - 1 : self._at] != "]":
            raise JsonPathError("unclosed array expect ]")
        if (match := _COMPARISON.fullmatch(text)) is None:
            return _existence_filter(_Parser(text).steps())
        return _comparison_filter(_Parser(match[1]).steps(), match[2], _Parser(match[3]).steps())


def _integer(text: str) -> int:
    if len(text) > _MAX_INDEX_DIGITS:
        raise ValueError(text)
    return int(text)


def _constant(value: Any) -> Step:
    return lambda values, _: [value] * len(values)


def _text(value: str) -> Step:
    return lambda _values, _visits: [value]


def _unknown(name: str) -> Step:
    def step(_values: list[Any], _visits: _Visits) -> list[Any]:
        raise JsonPathError(f"unrecognized identifier {name}")

    return step


def _field(name: str) -> Step:
    return lambda values, _: [each[name] for each in values if isinstance(each, dict) and name in each]


def _below(value: Any, visits: _Visits) -> list[Any]:
    if not isinstance(value, dict | list | str):
        return []
    visits.count(len(value))
    if isinstance(value, dict):
        return [value[name] for name in sorted(value)]
    return list(value.encode()) if isinstance(value, str) else value  # a string's bytes, like upstream


def _wildcard(values: list[Any], visits: _Visits) -> list[Any]:
    return [below for each in values for below in _below(each, visits)]


def _recursive(values: list[Any], visits: _Visits) -> list[Any]:
    found: list[Any] = []
    pending = values[::-1]
    while pending:
        value = pending.pop()
        if below := _below(value, visits):
            found.append(value)
            pending += below[::-1]
    return found


def _union(paths: list[list[Step]]) -> Step:
    return lambda values, visits: [found for steps in paths for found in _walk(values, steps, visits)]


def _slice(first: int | None, last: int | None, step: int | None, *, is_index: bool) -> Step:
    def of(value: Any, visits: _Visits) -> list[Any]:
        if value is None:
            return []
        if not isinstance(value, list):
            raise JsonPathError(f"{type(value).__name__} is not array or slice")
        length = len(value)
        begin = first or 0
        end = begin + 1 if is_index else length if last is None else last
        begin += length if begin < 0 else 0
        end += length if end < 0 or (end == 0 and is_index) else 0
        if begin == end:
            return []
        if not (0 <= begin < length and 0 <= end <= length and begin < end):
            raise JsonPathError(f"array index out of bounds: index {begin}, length {length}")
        if step is not None and step <= 0:
            raise JsonPathError("step must be > 0")
        visits.count(len(range(begin, end, step or 1)))
        return value[begin : end : step or 1]

    return lambda values, visits: [found for each in values for found in of(each, visits)]


def _items(values: list[Any], visits: _Visits) -> list[Any]:
    for each in values:
        if not isinstance(each, list):
            raise JsonPathError("only an array or a slice can be filtered")
        visits.count(len(each))
    return [item for each in values for item in each]


def _existence_filter(steps: list[Step]) -> Step:
    def has(item: Any, visits: _Visits) -> bool:
        try:
            return bool(_walk([item], steps, visits))
        except JsonPathError:
            if visits.is_exhausted:
                raise
            return True  # like upstream, which keeps the value from before the error

    return lambda values, visits: [item for item in _items(values, visits) if has(item, visits)]


def _comparison_filter(left: list[Step], sign: str, right: list[Step]) -> Step:
    def passes(item: Any, visits: _Visits) -> bool:
        both: list[Any] = []
        for steps in (left, right):
            found = _walk([item], steps, visits)
            if len(found) > 1:
                raise JsonPathError("can only compare one element at a time")
            if not found:
                return False
            both += found
        if sign not in _COMPARISONS:
            raise JsonPathError(f"unrecognized filter operator {sign}")
        one, other = both
        is_order = sign not in ("==", "!=")
        if (
            type(one) is not type(other)
            or not isinstance(one, str | int | float)
            or (is_order and isinstance(one, bool))
        ):
            raise JsonPathError("incompatible types for comparison")
        return _COMPARISONS[sign](one, other)

    return lambda values, visits: [item for item in _items(values, visits) if passes(item, visits)]
