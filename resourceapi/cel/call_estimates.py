"""Estimates of calls by function: Kubernetes' libraries, cel-go's extensions, the standard functions that read strings.

The counterpart of cost.py before the run. A rule whose target or arguments are missing gives no estimate; the call then
counts as one unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from resourceapi.cel.ast import Literal, Node
from resourceapi.cel.ranges import UNKNOWN, UNLIMITED, ZERO, Range, add, fixed, scale, scale_range, times
from resourceapi.cel.types import CIDR, FORMAT, IP, QUANTITY, SEMVER, URL, Kind

_TRAVERSAL = 0.1
_REGEX = 0.25
_LIST = 10
_STRUCT = 40
_ONE = fixed(1)
_MAX_FORMAT = 64
_MAX_NAME_FORMAT_REGEX = 128


class Operand(NamedTuple):
    """A target or argument: its node, its size if known, and for containers the size of their elements."""

    node: Node
    size: Range | None
    elements: Range | None

    @property
    def range(self) -> Range:
        """The size, or the widest range if the size is not known."""
        return UNKNOWN if self.size is None else self.size


class Estimate(NamedTuple):
    """The cost of a call, and the size of its result if it is known."""

    cost: Range
    size: Range | None = None


Rule: TypeAlias = Callable[[Operand | None, list[Operand]], Estimate | None]


def estimate_call(function: str, overload: str, target: Operand | None, args: list[Operand]) -> Estimate | None:
    """Return the estimate of a call without its arguments; None if there is no rule for it."""
    for rule in (_EXTENSIONS.get(overload), _FUNCTIONS.get(function)):
        if rule is not None:
            found = rule(target, args)
            if found is not None:
                return found
    if overload == "cidr_ip":
        return Estimate(_ONE)
    if overload == "cidr_contains_ip_string":
        return Estimate(add(_contains_ip(), scale_range(args[0].range, _TRAVERSAL)))
    if overload == "cidr_contains_ip_ip":
        return Estimate(_contains_ip())
    if overload == "cidr_contains_cidr_string":
        return Estimate(add(_contains_cidr(), scale_range(args[0].range, _TRAVERSAL)))
    if overload == "cidr_contains_cidr":
        return Estimate(_contains_cidr())
    standard = _OVERLOADS.get(overload)
    return standard(target, args) if standard is not None else None


def _contains_ip() -> Range:
    return scale_range(Range(8, 32), _TRAVERSAL)


def _contains_cidr() -> Range:
    return add(add(_contains_ip(), scale_range(Range(4, 16), _TRAVERSAL)), _ONE)


# --- Kubernetes' libraries


def _scan_elements(function: str) -> Rule:
    def rule(target: Operand | None, _args: list[Operand]) -> Estimate | None:
        if target is None:
            return None
        params = target.node.type.params
        if params:
            each = _ONE
            if params[0].kind in (Kind.STRING, Kind.BYTES):
                assert target.elements is not None
                each = add(each, scale_range(target.elements, _TRAVERSAL))
            return Estimate(times(target.range, each))
        if function == "includes":
            return Estimate(times(target.range, _ONE))
        return Estimate(scale_range(target.range, _TRAVERSAL))

    return rule


def _read_first(_target: Operand | None, args: list[Operand]) -> Estimate | None:
    return Estimate(scale_range(args[0].range, _TRAVERSAL)) if args else None


def _read_first_twice(_target: Operand | None, args: list[Operand]) -> Estimate | None:
    return Estimate(scale_range(args[0].range, 2 * _TRAVERSAL)) if args else None


def _url(_target: Operand | None, args: list[Operand]) -> Estimate | None:
    if len(args) != 1:
        return None
    return Estimate(scale_range(args[0].range, _TRAVERSAL), args[0].range)


def _transform(target: Operand | None, _args: list[Operand]) -> Estimate | None:
    return None if target is None else Estimate(scale_range(target.range, _TRAVERSAL), target.range)


def _replace(target: Operand | None, args: list[Operand]) -> Estimate | None:
    if target is None or len(args) < 2:
        return None
    size, old, new = target.range, args[0].range, args[1].range
    most_kept = least_kept = 0
    if old.minimum == 0:
        most = min(size.maximum + 1, UNLIMITED)
        most_kept = size.maximum
    elif new.maximum <= old.minimum:
        most = 0
        most_kept = size.maximum
    else:
        most = _ceil_divide(size.maximum, old.minimum)
    if old.maximum == 0:
        least = min(size.minimum + 1, UNLIMITED)
        least_kept = size.minimum
    elif old.maximum <= new.minimum:
        least = 0
        least_kept = size.minimum
    else:
        least = _ceil_divide(size.minimum, old.maximum)
    result = add(times(Range(least, most), new), Range(least_kept, most_kept))
    return Estimate(scale_range(size, 2 * _TRAVERSAL), result)


def _ceil_divide(dividend: int, divisor: int) -> int:
    return min(math.ceil(float(dividend) / float(divisor)), UNLIMITED)


def _split(target: Operand | None, args: list[Operand]) -> Estimate | None:
    if target is None:
        return None
    most = target.range.maximum
    if len(args) > 1 and isinstance(args[1].node, Literal) and type(args[1].node.value) is int:
        most = args[1].node.value % 2**64
    return Estimate(scale_range(target.range, 2 * _TRAVERSAL), Range(0, most))


def _join(target: Operand | None, args: list[Operand]) -> Estimate | None:
    if target is None:
        return None
    count = target.range
    size = ZERO if target.elements is None else times(count, target.elements)
    if args:
        separators = Range(max(count.minimum - 1, 0), max(count.maximum - 1, 0))
        size = add(size, times(args[0].range, separators))
    return Estimate(scale_range(size, _TRAVERSAL), size)


def _regex_cost(text: Range, pattern: Range) -> Range:
    return times(scale_range(add(text, _ONE), _TRAVERSAL), scale_range(pattern, _REGEX))


def _find(target: Operand | None, args: list[Operand]) -> Estimate | None:
    if target is None or not args:
        return None
    return Estimate(_regex_cost(target.range, args[0].range), Range(0, target.range.maximum))


def _validate(_target: Operand | None, args: list[Operand]) -> Estimate | None:
    if not args:
        return None
    read = scale_range(args[0].range, _TRAVERSAL)
    return Estimate(scale_range(read, _MAX_NAME_FORMAT_REGEX * _REGEX))


def _unit(_target: Operand | None, _args: list[Operand]) -> Estimate | None:
    return Estimate(_ONE)


def _equals(_target: Operand | None, args: list[Operand]) -> Estimate | None:
    left, right = (arg.node.type for arg in args)
    if left != right:
        return None
    if left in (IP, CIDR, QUANTITY, SEMVER):
        return Estimate(_ONE)
    if left == FORMAT:
        return Estimate(scale_range(Range(1, _MAX_FORMAT), _TRAVERSAL))
    if left == URL:
        most = 1 if args[1].size is None else args[1].size.maximum
        return Estimate(scale_range(Range(1, most), _TRAVERSAL))
    return None


def _check(_target: Operand | None, _args: list[Operand]) -> Estimate | None:
    return Estimate(fixed(350_000))


def _selector(_target: Operand | None, args: list[Operand]) -> Estimate | None:
    if len(args) != 1:
        return None
    length = args[0].range
    requirements = scale_range(scale_range(length, 0.5), _LIST + _STRUCT)
    return Estimate(add(add(fixed(_LIST), scale_range(length, _TRAVERSAL)), requirements))


_FUNCTIONS: dict[str, Rule] = {
    "check": _check,
    "fieldSelector": _selector,
    "labelSelector": _selector,
    "replace": _replace,
    "split": _split,
    "join": _join,
    "url": _url,
    "ip.isCanonical": _read_first_twice,
    "validate": _validate,
    "format.named": _unit,
    "_==_": _equals,
}
for _name in ("isSorted", "sum", "min", "max", "indexOf", "lastIndexOf", "includes"):
    _FUNCTIONS[_name] = _scan_elements(_name)
for _name in ("lowerAscii", "upperAscii", "substring", "trim"):
    _FUNCTIONS[_name] = _transform
for _name in ("cidr", "isIP", "isCIDR", "ip", "quantity", "isQuantity", "semver", "isSemver"):
    _FUNCTIONS[_name] = _read_first
for _name in ("find", "findAll"):
    _FUNCTIONS[_name] = _find


# --- extensions


def _allocating(factor: float, size: Range) -> Estimate:
    return Estimate(add(scale_range(size, factor), fixed(1 + _LIST)), size)


def _constant(operand: Operand, default: int) -> int:
    node = operand.node
    if isinstance(node, Literal) and type(node.value) is int:
        return max(int(node.value), 0)
    return default


def _slice(target: Operand | None, args: list[Operand]) -> Estimate | None:
    if target is None or len(args) != 2:
        return None
    start, end = _constant(args[0], 0), _constant(args[1], target.range.maximum)
    return _allocating(1, fixed((end - start) % 2**64))


def _range(_target: Operand | None, args: list[Operand]) -> Estimate | None:
    return _allocating(1, fixed(_constant(args[0], UNLIMITED)))


def _reverse(target: Operand | None, _args: list[Operand]) -> Estimate | None:
    return None if target is None else _allocating(1, target.range)


def _flatten(target: Operand | None, args: list[Operand]) -> Estimate | None:
    if target is None:
        return None
    return _allocating(float(_constant(args[0], UNLIMITED) if args else 1), target.range)


def _self_compare(factor: float, sorted_by_argument: bool = False) -> Rule:
    def rule(target: Operand | None, args: list[Operand]) -> Estimate | None:
        if target is None:
            return None
        size = (args[0] if sorted_by_argument else target).range
        return _allocating(factor, times(size, size))

    return rule


def _sets(factor: float) -> Rule:
    def rule(_target: Operand | None, args: list[Operand]) -> Estimate | None:
        return Estimate(add(scale_range(times(args[0].range, args[1].range), factor), _ONE))

    return rule


_EXTENSIONS: dict[str, Rule] = {
    "list_slice": _slice,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "lists_range": _range,
    "list_reverse": _reverse,
    "list_distinct": _self_compare(2.0),
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
}
for _name in ("int", "uint", "double", "bool", "google.protobuf.Duration", "google.protobuf.Timestamp"):
    _EXTENSIONS[f"list_{_name}_sort"] = _self_compare(2.0)
    _EXTENSIONS[f"list_{_name}_sortByAssociatedKeys"] = _self_compare(2.0, sorted_by_argument=True)
for _name in ("string", "bytes"):
    _EXTENSIONS[f"list_{_name}_sort"] = _self_compare(2.0 + _TRAVERSAL)
    _EXTENSIONS[f"list_{_name}_sortByAssociatedKeys"] = _self_compare(2.0 + _TRAVERSAL, sorted_by_argument=True)


# --- the standard library


def _read_target(target: Operand | None, _args: list[Operand]) -> Estimate | None:
    return None if target is None else Estimate(scale_range(target.range, _TRAVERSAL))


def _to_bytes(_target: Operand | None, args: list[Operand]) -> Estimate | None:
    size = args[0].range
    return Estimate(scale_range(size, _TRAVERSAL), Range(size.minimum, size.maximum * 4 % 2**64))


def _to_string(_target: Operand | None, args: list[Operand]) -> Estimate | None:
    size = args[0].range
    return Estimate(scale_range(size, _TRAVERSAL), Range(size.minimum // 4, size.maximum))


def _quote(_target: Operand | None, args: list[Operand]) -> Estimate | None:
    size = args[0].range
    return Estimate(scale_range(size, _TRAVERSAL), Range((size.minimum + 2) % 2**64, (size.maximum * 2 + 2) % 2**64))


def _in_list(_target: Operand | None, args: list[Operand]) -> Estimate | None:
    return Estimate(args[1].range)


def _matches(target: Operand | None, args: list[Operand]) -> Estimate | None:
    text, pattern = (target, args[0]) if target is not None else (args[0], args[1])
    return Estimate(_regex_cost(text.range, pattern.range))


def _contains(target: Operand | None, args: list[Operand]) -> Estimate | None:
    if target is None:
        return None
    return Estimate(times(scale_range(target.range, _TRAVERSAL), scale_range(args[0].range, _TRAVERSAL)))


def _compare(_target: Operand | None, args: list[Operand]) -> Estimate | None:
    most = min(args[0].range.maximum, args[1].range.maximum)
    return Estimate(Range(scale(min(most, 1), _TRAVERSAL), scale(most, _TRAVERSAL)))


_OVERLOADS: dict[str, Rule] = {
    "string_format": _read_target,
    "string_to_bytes": _to_bytes,
    "bytes_to_string": _to_string,
    "strings_quote": _quote,
    "starts_with_string": _read_first,
    "ends_with_string": _read_first,
    "in_list": _in_list,
    "matches": _matches,
    "matches_string": _matches,
    "contains_string": _contains,
    "equals": _compare,
    "not_equals": _compare,
}
for _name in ("less", "greater", "less_equals", "greater_equals"):
    for _kind in ("string", "bytes"):
        _OVERLOADS[f"{_name}_{_kind}"] = _compare
