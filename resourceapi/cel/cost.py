"""Run-time cost: the charge for each call.

Most calls cost one unit; those whose work grows with their operands cost in proportion. The rules equal upstream's
exactly (cel-go's cost tracker and Kubernetes' CostEstimator.CallCost), because the sum decides whether an expression
is cancelled. The estimate before a run is in estimate.py.
"""

from __future__ import annotations

import math
from typing import Any

from resourceapi.cel.declarations import Cost
from resourceapi.cel.errors import CelEvalError
from resourceapi.cel.frame import Cancelled, Failure
from resourceapi.cel.values import (
    Duration,
    Optional,
    Timestamp,
    Uint,
    go_type_name,
    is_extension,
    is_map,
    items_of,
    size,
)

_WITH_ADD = frozenset({str, int, Uint, float, bytes, Duration, Timestamp})

LIST = 10
MAP = 30
STRUCT = 40
TRAVERSAL = 0.1  # per character
REGEX = 0.25  # per character of the pattern

_TABLE = [math.ceil(length * TRAVERSAL) for length in range(1024)]


def traversal(length: int) -> int:
    """Return the cost of reading `length` characters once."""
    return _TABLE[length] if length < 1024 else math.ceil(length * TRAVERSAL)


def _values(value: Any) -> int:
    """Return the cost of visiting a value and its contents."""
    kind = type(value)
    if kind is str:
        return int(len(value.encode()) * TRAVERSAL)
    if kind is bytes:
        return int(len(value) * TRAVERSAL)
    if kind is list:
        return sum(map(_values, value))
    if is_map(value):
        return sum(_values(key) + _values(each) for key, each in items_of(value))
    return 1


def _all_values(args: tuple[Any, ...], _: Any) -> int:
    return _values(args[0])


def _first(args: tuple[Any, ...], _: Any) -> int:
    return traversal(_plain_size(args[0]))


def _first_twice(args: tuple[Any, ...], _: Any) -> int:
    return math.ceil(_plain_size(args[0]) * 2 * TRAVERSAL)


def _result_twice(_: tuple[Any, ...], result: Any) -> int:
    return math.ceil(_plain_size(result) * 2 * TRAVERSAL)


def _selector(args: tuple[Any, ...], _: Any) -> int:
    # The shortest requirement has two characters and creates a struct and a list.
    length = _plain_size(args[1])
    return LIST + traversal(length) + math.ceil(length * 0.5) * (LIST + STRUCT)


def _plain_size(value: Any) -> int:
    # Kubernetes' rules do not unwrap optional values.
    return 1 if type(value) is Optional else size(value)


def _regex_parts(text: Any, pattern_size: int) -> int:
    return math.ceil((1.0 + size(text)) * TRAVERSAL) * math.ceil(pattern_size * REGEX)


def _regex(args: tuple[Any, ...], _: Any) -> int:
    return _regex_parts(args[0], size(args[1]))


def _validate(args: tuple[Any, ...], _: Any) -> int:
    pattern = getattr(args[0], "max_regex_size", None)
    return 1 if pattern is None else _regex_parts(args[1], pattern)


def _contains_ip(args: tuple[Any, ...], _: Any) -> int:
    network = _plain_size(args[0])
    return math.ceil((network + network) * TRAVERSAL)


def _contains_cidr(args: tuple[Any, ...], result: Any) -> int:
    return _contains_ip(args, result) + traversal(_plain_size(args[0])) + 1


def _with_parsing(rule: Cost) -> Cost:
    """Return the rule for the overload whose second argument is a text to parse."""

    def cost(args: tuple[Any, ...], result: Any) -> int:
        return rule(args, result) + traversal(_plain_size(args[1]))

    return cost


_BY_FUNCTION: dict[str, Cost | int] = {
    "check": 350_000,
    "fieldSelector": _selector,
    "labelSelector": _selector,
    "ip.isCanonical": _first_twice,
    "join": _result_twice,
    "validate": _validate,
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
}
for _name in ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"):
    _BY_FUNCTION[_name] = _all_values
for _name in ("url", "lowerAscii", "upperAscii", "substring", "trim"):
    _BY_FUNCTION[_name] = _first
for _name in ("cidr", "isIP", "isCIDR", "ip", "quantity", "isQuantity", "semver", "isSemver"):
    _BY_FUNCTION[_name] = _first
for _name in ("replace", "split"):
    _BY_FUNCTION[_name] = _first_twice
for _name in ("find", "findAll"):
    _BY_FUNCTION[_name] = _regex


def _second(args: tuple[Any, ...], _: Any) -> int:
    return traversal(size(args[1]))


def _elements_of_second(args: tuple[Any, ...], _: Any) -> int:
    return size(args[1])


def shorter(args: tuple[Any, ...], _: Any = None) -> int:
    """Return the cost of comparing two values, which depends on the shorter one."""
    return traversal(min(size(args[0]), size(args[1])))


def _both(args: tuple[Any, ...], _: Any) -> int:
    return traversal(size(args[0]) + size(args[1]))


def _product(args: tuple[Any, ...], _: Any) -> int:
    return traversal(size(args[0])) * traversal(size(args[1]))


def _first_or_optional(args: tuple[Any, ...], _: Any) -> int:
    return traversal(size(args[0]))


_BY_OVERLOAD: dict[str, Cost | int] = {
    "starts_with_string": _second,
    "ends_with_string": _second,
    "string_to_bytes": _first_or_optional,
    "bytes_to_string": _first_or_optional,
    "strings_quote": _first_or_optional,
    "string_format": _first_or_optional,
    "in_list": _elements_of_second,
    "add_string": _both,
    "add_bytes": _both,
    "matches": _regex,
    "matches_string": _regex,
    "contains_string": _product,
}
for _name in ("less", "greater", "less_equals", "greater_equals"):
    for _kind in ("string", "bytes"):
        _BY_OVERLOAD[f"{_name}_{_kind}"] = shorter


def _allocating(factor: float, elements: int) -> int:
    units = elements * factor
    return (int(units) if units < 2.0**64 else 2**63) + 1 + LIST  # Go converts a float beyond 64 bits to 2**63


def _output(_: tuple[Any, ...], result: Any) -> int:
    return _allocating(1, size(result))


def _flatten(args: tuple[Any, ...], _: Any) -> int:
    depth = args[1] if len(args) == 2 else 1
    if type(depth) is not int:
        # Upstream's tracker converts the argument to an int unchecked, and panics if it is something else.
        kind = "*types.Err" if type(depth) is Failure else go_type_name(depth)
        raise Cancelled(CelEvalError(f"internal error: interface conversion: ref.Val is {kind}, not types.Int"))
    return _allocating(1.0 if depth < 0 else float(depth), size(args[0]))


def _self_compare(values: Any) -> int:
    if type(values) is not list:
        # Upstream's tracker converts the argument to a list unchecked, and panics if it is something else.
        kind = "*types.Err" if type(values) is Failure else go_type_name(values)
        missing = "Contains" if type(values) in _WITH_ADD else "Add"
        panic = f"internal error: interface conversion: {kind} is not traits.Lister: missing method {missing}"
        raise Cancelled(CelEvalError(panic))
    elements = size(values)
    factor = 2.0
    if elements and type(values) is list and type(values[0]) in (str, bytes):
        factor += TRAVERSAL
    return _allocating(factor, elements * elements)


def _sets(factor: int) -> Cost:
    def cost(args: tuple[Any, ...], _: Any) -> int:
        return 1 + size(args[0]) * size(args[1]) * factor

    return cost


# These rules have precedence over the rules by function name.
_OVERLOADS_FIRST: dict[str, Cost | int] = {
    "cidr_ip": 1,
    "cidr_contains_ip_string": _with_parsing(_contains_ip),
    "cidr_contains_cidr_string": _with_parsing(_contains_cidr),
    "list_slice": _output,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "lists_range": _output,
    "list_reverse": _output,
    "list_distinct": lambda args, _: _self_compare(args[0]),
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
}
for _name in (
    *("int", "uint", "double", "bool", "string", "bytes"),
    *("google.protobuf.Duration", "google.protobuf.Timestamp"),
):
    _OVERLOADS_FIRST[f"list_{_name}_sort"] = lambda args, _: _self_compare(args[0])
    _OVERLOADS_FIRST[f"list_{_name}_sortByAssociatedKeys"] = lambda args, _: _self_compare(args[1])


def call_cost(function: str, overload: str) -> Cost | int:
    """Return the cost of a call: units, or a rule to compute them. `overload` is empty if several fit by type."""
    if overload in _OVERLOADS_FIRST:
        return _OVERLOADS_FIRST[overload]
    if function in _BY_FUNCTION:
        return _BY_FUNCTION[function]
    return _BY_OVERLOAD.get(overload, 1)


# All other costs depend only on the arguments, and are charged before the call runs.
_BY_RESULT = frozenset({_output, _result_twice})


def depends_on_result(cost: Cost | int) -> bool:
    """Return whether a call can be charged only when its result is known."""
    return cost in _BY_RESULT


def equality_cost(left: Any, right: Any, unequal: bool = False) -> int:
    """Return the cost of `==`, or of `!=` with `unequal`."""
    if not unequal and is_extension(left):
        return 1
    return traversal(min(size(left), size(right)))
