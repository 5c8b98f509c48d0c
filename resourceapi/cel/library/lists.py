"""List functions: those of Kubernetes (sum, min, max, isSorted, indexOf, includes) and the lists extension, version 3.

Source: k8s.io/apiserver/pkg/cel/library/lists.go and cel-go ext/lists.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from itertools import pairwise
from typing import Any

from resourceapi.cel.declarations import Function, Overload, group, singleton
from resourceapi.cel.errors import CelEvalError
from resourceapi.cel.library.standard import MAX_ELEMENTS, add, unsupported
from resourceapi.cel.values import (
    Duration,
    Uint,
    compare,
    is_comparable,
    is_equal,
    is_hashable,
    is_map,
    no_such_overload,
    to_key,
    type_name,
)

_SUMMABLE = {"int": 0, "uint": Uint(0), "double": 0.0, "duration": Duration(0)}
_COMPARABLE = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
# The extension's overload ids contain the full names of types.
_FULL_NAMES = {"duration": "google.protobuf.Duration", "timestamp": "google.protobuf.Timestamp"}


def _require_comparable(values: list[Any]) -> None:
    if not all(map(is_comparable, values)):
        raise no_such_overload()


def _is_sorted(values: list[Any]) -> bool:
    _require_comparable(values)
    return all(_order(left, right) != 1 for left, right in pairwise(values))


def _order(left: Any, right: Any) -> int | None:
    # A pair without an order never equals the result that the callers compare with.
    try:
        return compare(left, right)
    except CelEvalError:
        return None


def _sum(start: Any) -> Callable[[list[Any]], Any]:
    def run(values: list[Any]) -> Any:
        total = start
        for value in values:
            total = add(total, value)
        return total

    return run


def _extreme(name: str, replace_when: int) -> Callable[[list[Any]], Any]:
    def run(values: list[Any]) -> Any:
        _require_comparable(values)
        if not values:
            raise CelEvalError(f"{name} called on empty list")
        best = values[0]
        for value in values[1:]:
            if _order(best, value) == replace_when:
                best = value
        return best

    return run


def _index_of(values: list[Any], wanted: Any) -> int:
    return next((index for index, value in enumerate(values) if is_equal(value, wanted)), -1)


def _last_index_of(values: list[Any], wanted: Any) -> int:
    return next((index for index in range(len(values) - 1, -1, -1) if is_equal(values[index], wanted)), -1)


def _includes(target: Any, value: Any) -> bool:
    if type(target) is list:
        return any(is_equal(each, value) for each in target)
    return is_equal(target, value)


def kubernetes() -> list[Function]:
    """The list functions that every version of Kubernetes has."""
    return group(
        [
            *(Overload(f"list_{t}_is_sorted_bool", f"list({t}).isSorted() -> bool", _is_sorted) for t in _COMPARABLE),
            *(Overload(f"list_{t}_sum_{t}", f"list({t}).sum() -> {t}", _sum(zero)) for t, zero in _SUMMABLE.items()),
            *(Overload(f"list_{t}_max_{t}", f"list({t}).max() -> {t}", _extreme("max", -1)) for t in _COMPARABLE),
            *(Overload(f"list_{t}_min_{t}", f"list({t}).min() -> {t}", _extreme("min", 1)) for t in _COMPARABLE),
            Overload("list_a_index_of_int", "list(A).indexOf(A) -> int", _index_of),
            Overload("list_a_last_index_of_int", "list(A).lastIndexOf(A) -> int", _last_index_of),
        ]
    )


def includes() -> list[Function]:
    """`x.includes(v)`, for lists and scalars."""
    return group([Overload("list_includes_dyn_dyn", "dyn.includes(dyn) -> bool", _includes)])


def _slice(values: list[Any], start: int, end: int) -> list[Any]:
    called = f"cannot slice({start}, {end})"
    if start < 0 or end < 0:
        raise CelEvalError(f"{called}, negative indexes not supported")
    if start > end:
        raise CelEvalError(f"{called}, start index must be less than or equal to end index")
    if len(values) < end:
        raise CelEvalError(f"{called}, list is length {len(values)}")
    return values[start:end]


def _flatten(values: Any, depth: Any = None) -> list[Any]:
    if type(values) is not list or type(depth) not in (int, type(None)):
        argument_type = "" if depth is None else type_name(depth)
        name = "map(dyn, dyn)" if is_map(values) else type_name(values)
        raise CelEvalError(f"no such overload: {name}.flatten({argument_type})")
    if depth is None:
        depth = 1
    if depth < 0:
        raise CelEvalError("level must be non-negative")
    flat: list[Any] = values
    while depth > 0 and any(type(value) is list for value in flat):
        flat = [each for value in flat for each in (value if type(value) is list else (value,))]
        if len(flat) > MAX_ELEMENTS:
            raise CelEvalError("value is too large")
        depth -= 1
    return flat


def _sort(values: Any) -> list[Any]:
    if type(values) is not list:
        raise unsupported("sort", values)
    return _sort_by_keys(values, values)


def _sort_by_keys(values: Any, keys: Any) -> list[Any]:
    if type(values) is not list:
        raise unsupported("@sortByAssociatedKeys", values)
    if type(keys) is not list:
        raise no_such_overload()
    if len(values) != len(keys):
        raise CelEvalError(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got"
            f" {len(values)} and {len(keys)} elements respectively"
        )
    if not keys:
        return values
    if not is_comparable(keys[0]):
        raise CelEvalError("list elements must be comparable")
    if len(keys) > 1 and any(type(key) is not type(keys[0]) for key in keys):
        raise CelEvalError("list elements must have the same type")

    def by_key(left: int, right: int) -> int:
        return _order(keys[left], keys[right]) or 0

    order: list[int] = sorted(range(len(keys)), key=cmp_to_key(by_key))
    return [values[position] for position in order]


def _range(count: int) -> list[int]:
    if count < 0:
        raise CelEvalError(f"lists.range: size must be non-negative, got {count}")
    if count > MAX_ELEMENTS:
        raise CelEvalError(f"lists.range: size {count} exceeds maximum allowed ({MAX_ELEMENTS})")
    return list(range(count))


def _distinct(values: list[Any]) -> list[Any]:
    unique: list[Any] = []
    scalars: set[Any] = set()
    for value in values:
        if is_hashable(value) and value == value:
            key = to_key(value)
            if key in scalars:
                continue
            scalars.add(key)
        elif any(is_equal(value, other) for other in unique):
            continue
        unique.append(value)
    return unique


def extension() -> list[Function]:
    """The lists extension."""
    return [
        *group(
            [
                Overload("list_slice", "list(T).slice(int, int) -> list(T)", _slice),
                Overload("list_reverse", "list(T).reverse() -> list(T)", lambda values: values[::-1]),
                Overload("list_distinct", "list(T).distinct() -> list(T)", _distinct),
                Overload("lists_range", "lists.range(int) -> list(int)", _range),
            ]
        ),
        *group(
            [
                Overload("list_flatten", "list(list(T)).flatten() -> list(T)", _flatten),
                Overload("list_flatten_int", "list(dyn).flatten(int) -> list(dyn)", _flatten),
            ],
            guarded=False,
        ),
        singleton(
            _sort,
            [(f"list_{_FULL_NAMES.get(t, t)}_sort", f"list({t}).sort() -> list({t})") for t in _COMPARABLE],
        ),
        singleton(
            _sort_by_keys,
            [
                (
                    f"list_{_FULL_NAMES.get(t, t)}_sortByAssociatedKeys",
                    f"list(T).@sortByAssociatedKeys(list({t})) -> list(T)",
                )
                for t in _COMPARABLE
            ],
        ),
    ]
