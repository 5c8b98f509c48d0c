"""Structural schemas of custom resources: pruning, defaults, and the identity of list items."""

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any

from controlplane.apiserver.definitions.embedded import EMBEDDED, TYPE_AND_METADATA
from controlplane.apiserver.kinds import Schema
from resourceapi.objects import ErrorList, ErrorType, FieldError, quoted_text
from resourceapi.objects.json_value import canonical

_OPEN = "x-kubernetes-preserve-unknown-fields"
NEW: Any = object()
"""Stands for the old value of a new value."""


def prune(value: Any, schema: Schema, path: str = "") -> tuple[Any, list[str]]:
    """Return the value without members that the schema does not have, and their paths."""
    unknown: list[str] = []
    return _pruned(value, schema, path, unknown), unknown


def without_nulls(value: Any, schema: Schema | None) -> Any:
    """Return the value without null members for which the schema has neither `nullable` nor a default."""
    if isinstance(value, dict):
        kept = {}
        for name, item in value.items():
            child = _member(schema, name)
            if item is not None or not _takes_no_null(child) or (child or {}).get("default") is not None:
                kept[name] = without_nulls(item, child)
        return kept
    if isinstance(value, list):
        items = (schema or {}).get("items")
        return [without_nulls(item, items if isinstance(items, Mapping) else None) for item in value]
    return value


def with_defaults(value: Any, schema: Schema | None) -> Any:
    """Return the value with the schema's defaults for members that are missing (or null if null is not allowed)."""
    if schema is None:
        return value
    if isinstance(value, dict):
        result, known = dict(value), schema.get("properties") or {}
        for name, child in known.items():
            missing = name not in result or (result[name] is None and not child.get("nullable"))
            if child.get("default") is not None and missing:
                result[name] = copy.deepcopy(child["default"])
        return {
            name: with_defaults(item if name in known else _or_default(item, child), child)
            for name, item in result.items()
            for child in (_member(schema, name),)
        }
    if isinstance(value, list) and isinstance(items := schema.get("items"), Mapping):
        return [with_defaults(_or_default(item, items), items) for item in value]
    return value


def _member(schema: Schema | None, name: str) -> Schema | None:
    """The schema of a member, if it has one."""
    known, extra = (schema or {}).get("properties") or {}, (schema or {}).get("additionalProperties")
    child = known.get(name, extra)
    return child if isinstance(child, Mapping) else None


def _takes_no_null(schema: Schema | None) -> bool:
    return schema is not None and not schema.get("nullable")


def _or_default(item: Any, schema: Schema | None) -> Any:
    return copy.deepcopy((schema or {}).get("default")) if item is None and _takes_no_null(schema) else item


def check_items(errors: ErrorList, value: Any, schema: Schema, path: str = "") -> None:
    """Add the duplicate items of sets and lists with keys."""
    if isinstance(value, dict):
        known, extra = schema.get("properties", {}), schema.get("additionalProperties")
        for name in sorted(value):
            child = known.get(name, extra)
            if isinstance(child, Mapping):
                check_items(errors, value[name], child, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        if schema.get("x-kubernetes-list-type") in ("set", "map"):
            seen: set[bytes] = set()
            for index, item in enumerate(value):
                known = item_key(item, schema)
                text = canonical(known)
                if text in seen:
                    shown = f"Duplicate value: {_shown(known)}"
                    errors.append(FieldError(ErrorType.DUPLICATE, f"{path}[{index}]", shown))
                seen.add(text)
        if isinstance(schema.get("items"), Mapping):
            for index, item in enumerate(value):
                check_items(errors, item, schema["items"], f"{path}[{index}]")


def item_key(item: Any, schema: Schema) -> Any:
    """Return the identity of an item in a set or a list with keys; the item itself if it has no keys."""
    keys = schema.get("x-kubernetes-list-map-keys")
    return {key: item[key] for key in keys if key in item} if keys and isinstance(item, dict) else item


def items_before(before: Any, schema: Schema) -> Callable[[Any], Any]:
    """Return a function from an item to its old value; `NEW` for new items, and in lists without keys."""
    is_keyed = isinstance(before, list) and schema.get("x-kubernetes-list-type") == "map"
    known = {canonical(item_key(item, schema)): item for item in before} if is_keyed else {}
    return lambda item: known.get(canonical(item_key(item, schema)), NEW) if known else NEW


def _pruned(value: Any, schema: Schema | None, path: str, unknown: list[str], is_open: bool = False) -> Any:
    """`is_open`: the value is in a list of a place that keeps unknown members."""
    is_open = is_open or bool((schema or {}).get(_OPEN))
    if isinstance(value, dict):
        extra = (schema or {}).get("additionalProperties")
        result = {}
        for name, item in value.items():
            here = f"{path}.{name}" if path else name
            child = _member(schema, name)
            if (schema or {}).get(EMBEDDED) and name in TYPE_AND_METADATA:
                result[name] = item
            elif child is not None or (extra is not None and schema is not None):
                result[name] = _pruned(item, child, here, unknown)
            elif is_open:
                result[name] = item
            else:
                unknown.append(here)
        return result
    if isinstance(value, list):
        items = (schema or {}).get("items")
        below = items if isinstance(items, Mapping) else None
        if is_open and below is None:
            return value
        return [_pruned(item, below, f"{path}[{index}]", unknown, is_open) for index, item in enumerate(value)]
    return value


def _shown(value: Any) -> str:
    return (
        quoted_text(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    )
