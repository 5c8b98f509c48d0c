"""Read YAML as Kubernetes does: the types of plain scalars, and the limits on nesting and aliases.

The values are those of `sigs.k8s.io/yaml`: times stay strings, `y` is true, 1:59 is a string, 010 is eight, 1e3 is
1000. Documents nested deeper than `MAX_DEPTH`, and aliases that repeat more than `MAX_REPEATED` bytes, are refused.
Upstream's limits are higher. The reader does not recurse, and it stops at the first fault.
"""

import base64
import binascii
import contextlib
import math
import re
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

import yaml

from resourceapi.objects.json_value import MAX_DEPTH
from resourceapi.objects.strict import Members

try:
    from yaml.cyaml import CSafeLoader
except ImportError:  # PyYAML without libyaml
    _Loader: Any = yaml.SafeLoader
else:
    _Loader = CSafeLoader

MAX_REPEATED = 2**20
"""The most bytes that the aliases of one document can stand for; each value counts as its characters plus 16."""

_VALUE_COST = 16
_CORE = "tag:yaml.org,2002:"
_WORDS: dict[str, object] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_INTEGER = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_MAX_DIGITS = 400  # the smallest and the largest float have fewer
_MIN_EXPONENT_FORM = 1e21  # from here on Go writes a float with an exponent
_BASES = {"x": 16, "o": 8, "b": 2}


class ManifestError(ValueError):
    """The text is not YAML, or not YAML that Kubernetes accepts. The message names the line if it is known.

    `in_go` is the message of Kubernetes' own reader, which does not number the first line.
    """

    def __init__(self, text: str, in_go: str = "") -> None:
        super().__init__(text)
        self.in_go = in_go or text


def read_yaml(data: bytes | str) -> Any:
    """Return the value of the first document of a YAML or JSON text; its objects are `Members`.

    Raises ManifestError.
    """
    return next(_documents(data), None)


def read_documents(data: bytes | str) -> list[Any]:
    """Return the values of all documents of a text. Raises ManifestError."""
    return list(_documents(data))


class _Anchored(NamedTuple):
    value: Any
    cost: int


class _OpenCollection:
    """A list or a mapping whose end event has not been read."""

    def __init__(self, anchor: str | None, *, is_list: bool) -> None:
        self.anchor = anchor
        self.is_list = is_list
        self.items: list[Any] = []  # in a mapping: keys and values alternate
        self.cost = _VALUE_COST
        self.merges: set[int] = set()  # indexes in `items` of the keys `<<`

    def add(self, value: Any, cost: int) -> None:
        self.items.append(value)
        self.cost += cost

    def value(self, line: int) -> Any:
        if self.is_list:
            return self.items
        pairs: list[tuple[str, Any]] = []
        for at in range(0, len(self.items), 2):
            key, item = self.items[at : at + 2]
            if at in self.merges:
                pairs += _merged(item, line)
            else:
                pairs.append((_key(key, line), item))
        return Members(pairs)


def _documents(data: bytes | str) -> Iterator[Any]:
    try:
        events: Generator[yaml.Event, None, None] = yaml.parse(data, Loader=_Loader)  # type: ignore[assignment]
        with contextlib.closing(events):
            for event in events:
                if isinstance(event, yaml.DocumentStartEvent):
                    yield _Document(events).read()
    except yaml.MarkedYAMLError as error:
        mark, problem = error.problem_mark, error.problem or ""
        line = max(1, mark.line + (mark.column > 0)) if mark else 1
        if "expected the node content" in problem:  # wording of PyYAML's pure Python parser
            problem = "did not find expected node content"
        raise ManifestError(f"line {line}: {problem}", _in_go(error, problem)) from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise ManifestError(str(error).splitlines()[0]) from None


def _in_go(error: yaml.MarkedYAMLError, problem: str) -> str:
    marks = (mark.line for mark in (error.context_mark, error.problem_mark) if mark is not None)
    line = next(filter(None, marks), 0)  # Go numbers lines from 0 here, and from 1 in scanner errors
    if not line:
        return problem
    return f"line {line + isinstance(error, yaml.scanner.ScannerError)}: {problem}"


class _Document:
    """One document, built from the parser's events up to the document's end."""

    def __init__(self, events: Iterator[yaml.Event]) -> None:
        self._events = events
        self._open: list[_OpenCollection] = []
        self._anchors: dict[str, _Anchored | None] = {}  # None: the anchored value has not ended yet
        self._repeated = 0
        self._root: Any = None

    def read(self) -> Any:
        for event in self._events:
            if isinstance(event, yaml.ScalarEvent):
                self._scalar(event)
            elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                self._begin(event)
            elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                done = self._open.pop()
                self._add(done.value(_line(event)), done.cost, done.anchor)
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event)
            else:
                break
        return self._root

    def _add(self, value: Any, cost: int, anchor: str | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = _Anchored(value, cost)
        if self._open:
            self._open[-1].add(value, cost)
        else:
            self._root = value

    def _begin(self, event: Any) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise ManifestError(f"line {_line(event)}: exceeded max depth of {MAX_DEPTH}")
        is_list = isinstance(event, yaml.SequenceStartEvent)
        _check_tag(event, "seq" if is_list else "map")
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._open.append(_OpenCollection(event.anchor, is_list=is_list))

    def _alias(self, event: yaml.AliasEvent) -> None:
        if event.anchor not in self._anchors:
            raise ManifestError(f"unknown anchor '{event.anchor}' referenced")
        found = self._anchors[event.anchor]
        if found is None:
            raise ManifestError(f"anchor '{event.anchor}' value contains itself")
        self._repeated += found.cost
        if self._repeated > MAX_REPEATED:
            raise ManifestError(f"line {_line(event)}: document contains excessive aliasing")
        self._check_alias_depth(found.value, event)
        self._add(found.value, found.cost, None)

    def _check_alias_depth(self, value: Any, event: yaml.AliasEvent) -> None:
        """Raise ManifestError if the alias's value exceeds `MAX_DEPTH` at the alias's position."""
        level, depth = [value], len(self._open)
        while level:
            level = [x for each in level for x in _children(each)]
            depth += 1
            if depth > MAX_DEPTH + 1:
                raise ManifestError(f"line {_line(event)}: exceeded max depth of {MAX_DEPTH}")

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        top = self._open[-1] if self._open else None
        is_plain = event.implicit[0]
        if is_plain and event.value == "<<" and top is not None and not top.is_list and len(top.items) % 2 == 0:
            top.merges.add(len(top.items))
        value = _value(event.value, _line(event)) if is_plain else _tagged(event)
        self._add(value, len(event.value) + _VALUE_COST, event.anchor)


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _value(text: str, line: int) -> Any:
    """Return the value of a plain (unquoted, untagged) scalar."""
    if text in _WORDS:
        value = _WORDS[text]
        if isinstance(value, float):
            shown = "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
            raise ManifestError(f"line {line}: json: unsupported value: {shown}")
        return value
    if text[0] not in "+-.0123456789":
        return text
    digits = text.replace("_", "")
    if len(digits) > _MAX_DIGITS:
        return text
    if _INTEGER.fullmatch(digits) and (number := _integer(digits)) is not None:
        return number
    if _FLOAT.fullmatch(digits):
        return _go_number(float(digits), text)
    return text


def _integer(digits: str) -> int | None:
    """Return the integer by Go's rules for prefixes; None if it does not fit 64 bits."""
    bare = digits.lstrip("+-").lower()
    base = _BASES.get(bare[1:2], 8 if len(bare) > 1 else 10) if bare[0] == "0" else 10
    number = int(bare[2:] if bare[1:2] in _BASES else bare, base)
    if digits[0] == "-":
        number = -number
    return number if -(2**63) <= number < 2**64 else None


def _go_number(number: float, text: str) -> Any:
    """Return a number without a fraction as an int, below 1e21; a number beyond a float's range stays text."""
    if math.isinf(number):
        return text
    return int(number) if number.is_integer() and abs(number) < _MIN_EXPONENT_FORM else number


def _tagged(event: yaml.ScalarEvent) -> Any:
    """Return the value of a quoted or tagged scalar."""
    tag = _check_tag(event, "str", "int", "float", "bool", "null", "binary", "timestamp")
    if tag in ("", "str", "timestamp"):
        return event.value
    if tag == "binary":
        try:
            return base64.b64decode(event.value).decode("utf-8", "replace")
        except binascii.Error:
            raise ManifestError("!!binary value contains invalid base64 data") from None
    value = _value(event.value, _line(event))
    wanted: dict[str, type | tuple[type, ...]] = {"int": int, "float": (int, float), "bool": bool, "null": type(None)}
    if not isinstance(value, wanted[tag]) or (tag in ("int", "float") and isinstance(value, bool)):
        raise ManifestError(f"cannot decode !!str `{event.value}` as a !!{tag}")
    return value


def _check_tag(event: Any, *known: str) -> str:
    """Return the tag's short name, empty if there is none. Raises ManifestError for a tag that is not in `known`."""
    tag: str = event.tag or "!"
    name = tag.removeprefix(_CORE)
    if tag == "!":
        return ""
    if name == tag or name not in known:
        raise ManifestError(f"line {_line(event)}: the tag {tag} is not supported; leave it out")
    return name


def _merged(item: Any, line: int) -> list[tuple[str, Any]]:
    """Return the members that `<<` adds. If several mappings have a member, the first mapping's wins."""
    several = list(reversed(item)) if isinstance(item, list) else [item]
    if not all(isinstance(each, Members) for each in several):
        raise ManifestError(f"line {line}: map merge requires map or sequence of maps as the value")
    members: dict[str, Any] = {}
    for each in several:
        members.update(each)
    return list(members.items())


def _key(key: Any, line: int) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int | float):
        return str(key)
    shown = "<nil>" if key is None else "map" if isinstance(key, dict) else "list"
    raise ManifestError(f"line {line}: unsupported map key of type: {shown}")


def _line(event: yaml.Event) -> int:
    return int(event.start_mark.line) + 1 if event.start_mark else 1
