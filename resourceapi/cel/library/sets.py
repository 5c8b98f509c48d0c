"""The sets extension: treats lists as sets."""

from __future__ import annotations

from typing import Any

from resourceapi.cel.declarations import Function, Overload, group
from resourceapi.cel.values import contains


def _contains(values: list[Any], part: list[Any]) -> bool:
    return all(contains(values, each) for each in part)


def _equivalent(left: list[Any], right: list[Any]) -> bool:
    return _contains(left, right) and _contains(right, left)


def _intersects(left: list[Any], right: list[Any]) -> bool:
    return any(contains(right, each) for each in left)


def functions() -> list[Function]:
    """sets.contains, sets.equivalent, sets.intersects."""
    return group(
        [
            Overload("list_sets_contains_list", "sets.contains(list(T), list(T)) -> bool", _contains),
            Overload("list_sets_equivalent_list", "sets.equivalent(list(T), list(T)) -> bool", _equivalent),
            Overload("list_sets_intersects_list", "sets.intersects(list(T), list(T)) -> bool", _intersects),
        ]
    )
