"""Checks that an applied configuration has the types of its schema. All faults are reported with upstream's texts.

Source: sigs.k8s.io/structured-merge-diff typed/validate.go.
"""

from collections.abc import Iterator
from typing import Any

from controlplane.apiserver.fieldsets import (
    OPEN,
    NotInSchema,
    Path,
    child_schema,
    is_atomic,
    item_steps,
    map_keys_fault,
    shown,
)
from controlplane.apiserver.go_values import go_syntax, go_text, go_type
from controlplane.apiserver.kinds import Schema

_BOXED = "value.valueUnstructured"
_TEXTS = (None, "byte")
"""Formats whose values are texts; values of other formats can be numbers and booleans too."""


def check_types(value: Any, schema: Schema) -> None:
    """Raise NotInSchema for values that the schema does not allow."""
    faults = list(_faults(value, schema, ()))
    if faults:
        raise NotInSchema(faults[0] if len(faults) == 1 else "\n  ".join(["errors:", *faults]))


def _faults(value: Any, schema: Schema, path: Path) -> Iterator[str]:
    why = _value_fault(value, schema)
    if why:
        yield f"{shown(path)}: {why}"
    elif isinstance(value, dict):
        for name, item in value.items():
            child, here = child_schema(schema, name), (*path, f"f:{name}")
            if child is None:
                yield f"{shown(here)}: field not declared in schema"
                return
            yield from _faults(item, child, here)
    elif isinstance(value, list):
        yield from _faults_of_items(value, schema, path)


def _faults_of_items(items: list[Any], schema: Schema, path: Path) -> Iterator[str]:
    seen: set[str] = set()
    for index, item in enumerate(items):
        step = f"i:{index}"
        if not is_atomic(items, schema):
            why = _item_fault(item, schema)
            if why:
                yield f"{shown(path)}: element {index}: {why}"
                return
            (step,) = item_steps([item], schema)
            if step in seen:
                yield f"{shown(path)}: duplicate entries for key {shown((step,))}"
            seen.add(step)
        yield from _faults(item, schema.get("items", OPEN), (*path, step))


def _item_fault(item: Any, schema: Schema) -> str:
    """Why a value cannot be an item of a list whose items have owners."""
    if schema["x-kubernetes-list-type"] == "set":
        if isinstance(item, dict):
            return "associative list without keys has an element that's a map type"
        if isinstance(item, list):
            return "not supported: associative list with lists as elements"
        return "associative list without keys has an element that's an explicit null" if item is None else ""
    if item is None:
        return "associative list with keys may not have a null element"
    if not isinstance(item, dict):
        return "associative list with keys may not have non-map elements"
    return map_keys_fault(item, schema)


def _value_fault(value: Any, schema: Schema) -> str:
    """Why a value does not have the schema's type; empty if it does, or if the schema has none."""
    if value is None:
        return ""
    wanted, is_number = schema.get("type"), isinstance(value, int | float) and not isinstance(value, bool)
    is_raw = schema.get("x-kubernetes-preserve-unknown-fields") and schema.get("x-kubernetes-map-type") == "atomic"
    if wanted == "array" and not isinstance(value, list):
        return f"expected list, got &{{{go_text(value)}}}"
    if wanted == "object" and not isinstance(value, dict) and not is_raw:
        return f"expected map, got &{{{go_text(value)}}}"
    if wanted == "string" and (schema.get("x-kubernetes-int-or-string") or schema.get("format") not in _TEXTS):
        return f"expected any scalar, got &{{{go_text(value)}}}" if isinstance(value, dict | list) else ""
    if wanted == "string" and not isinstance(value, str):
        return f"expected string, got &{_BOXED}{{Value:{go_syntax(value)}}}"
    if wanted == "boolean" and not isinstance(value, bool):
        return f"expected boolean, got &{{{go_text(value)}}}"
    if wanted in ("integer", "number") and not is_number:
        return f"expected numeric (int or float), got {go_type(value)}"
    return ""
