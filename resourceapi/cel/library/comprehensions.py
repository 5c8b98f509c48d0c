"""What the two-variable comprehensions need besides their macros: insertion into the map that is being built."""

from __future__ import annotations

from typing import Any

from resourceapi.cel.declarations import Function, Overload, group
from resourceapi.cel.errors import CelEvalError
from resourceapi.cel.values import display, find, items_of, to_key


def _insert(mapping: dict[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    if find(mapping, key)[1]:
        raise CelEvalError(f"insert failed: key {display(key)} already exists")
    return {**mapping, to_key(key): value}


def _insert_all(mapping: dict[Any, Any], other: dict[Any, Any]) -> dict[Any, Any]:
    for key, value in items_of(other):
        mapping = _insert(mapping, key, value)
    return mapping


def functions() -> list[Function]:
    """cel.@mapInsert."""
    return group(
        [
            Overload("cel_@mapInsert_map_key_value", "cel.@mapInsert(map(K, V), K, V) -> map(K, V)", _insert),
            Overload("cel_@mapInsert_map_map", "cel.@mapInsert(map(K, V), map(K, V)) -> map(K, V)", _insert_all),
        ]
    )
