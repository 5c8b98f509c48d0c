"""The function that the two-variable comprehensions need besides their macros: insertion into the resulting map."""

from __future__ import annotations

from resourceapi.cel.declarations import Function, Overload, group
from resourceapi.cel.library.standard import declared_only


def functions() -> list[Function]:
    """cel.@mapInsert."""
    return group(
        [
            Overload("cel_@mapInsert_map_key_value", "cel.@mapInsert(map(K, V), K, V) -> map(K, V)", declared_only),
            Overload("cel_@mapInsert_map_map", "cel.@mapInsert(map(K, V), map(K, V)) -> map(K, V)", declared_only),
        ]
    )
