"""Optional values: creating, testing and unwrapping them."""

from __future__ import annotations

from typing import Any

from resourceapi.cel.declarations import Function, Overload, group, singleton
from resourceapi.cel.errors import CelEvalError
from resourceapi.cel.library.standard import declared_only
from resourceapi.cel.values import NONE, Duration, Optional, Timestamp, Uint, display

_ZERO_INSTANT = -62135596800 * 10**9  # Go's zero time: the start of the year 1


def is_zero(value: Any) -> bool:
    """Return whether a value is the zero or empty value of its type."""
    kind = type(value)
    if value is None:
        return True
    if kind is Duration:
        return bool(value.nanos == 0)
    if kind is Timestamp:
        return bool(value.nanos == _ZERO_INSTANT)
    if kind in (bool, int, Uint, float, str, bytes, list, dict):
        return not value
    return False  # upstream treats the device's maps like this, even if they are empty


def _of_non_zero(value: Any) -> Optional:
    return NONE if is_zero(value) else Optional(value)


def _value(optional: Optional) -> Any:
    if not optional.present:
        raise CelEvalError("optional.none() dereference")
    return optional.value


def _first(values: list[Any]) -> Optional:
    return Optional(values[0]) if values else NONE


def _last(values: list[Any]) -> Optional:
    return Optional(values[-1]) if values else NONE


def _unwrap(values: list[Any]) -> list[Any]:
    for value in values:
        if type(value) is not Optional:
            raise CelEvalError(f"value {display(value)} is not optional")
    return [value.value for value in values if value.present]


def functions() -> list[Function]:
    """The functions that create and read optional values; the compiler handles or, orValue and optional selects."""
    return [
        *group(
            [
                Overload("optional_of", "optional.of(V) -> optional(V)", Optional),
                Overload("optional_ofNonZeroValue", "optional.ofNonZeroValue(V) -> optional(V)", _of_non_zero),
                Overload("optional_none", "optional.none() -> optional(V)", lambda: NONE),
                Overload("optional_value", "optional(V).value() -> V", _value),
                Overload("optional_hasValue", "optional(V).hasValue() -> bool", lambda optional: optional.present),
                Overload("optional_or_optional", "optional(V).or(optional(V)) -> optional(V)", declared_only),
                Overload("optional_orValue_value", "optional(V).orValue(V) -> V", declared_only),
                Overload("list_first", "list(V).first() -> optional(V)", _first),
                Overload("list_last", "list(V).last() -> optional(V)", _last),
                Overload("optional_unwrap", "optional.unwrap(list(optional(V))) -> list(V)", _unwrap),
                Overload("optional_unwrapOpt", "list(optional(V)).unwrapOpt() -> list(V)", _unwrap),
            ]
        ),
        singleton(
            declared_only,
            [
                ("list_optindex_optional_int", "_[?_](list(V), int) -> optional(V)"),
                ("optional_list_optindex_optional_int", "_[?_](optional(list(V)), int) -> optional(V)"),
                ("map_optindex_optional_value", "_[?_](map(K, V), K) -> optional(V)"),
                ("optional_map_optindex_optional_value", "_[?_](optional(map(K, V)), K) -> optional(V)"),
            ],
        ),
        singleton(
            declared_only,
            [
                ("optional_list_index_int", "_[_](optional(list(V)), int) -> optional(V)"),
                ("optional_map_index_value", "_[_](optional(map(K, V)), K) -> optional(V)"),
            ],
        ),
    ]
