"""Sets of fields for server-side apply: who owns which part of an object (allocator.md 5.8).

A path is a tuple of steps, each written as in `fieldsV1`: `f:NAME` is a member, `k:{...}` an item of a map list by its
keys, `v:VALUE` an item of a set. A `FieldSet` is a set of paths. It can have a path without the path's parents.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from controlplane.apiserver.kinds import Plain, Schema
from resourceapi.objects import quoted_text

Path = tuple[str, ...]
FieldSet = frozenset[Path]

NOTHING: FieldSet = frozenset()


class NotInSchema(Exception):
    """A value that its schema does not allow. The text says where and what."""


def to_fields_v1(fields: FieldSet) -> Plain:
    """Return the form of a set in managedFields."""
    root: Plain = {}
    for path in fields:
        node = root
        for step in path:
            node = node.setdefault(step, {})
        if path:
            node["."] = {}
    return _written(root)


def from_fields_v1(value: Any) -> FieldSet:
    """Return the set of a managedFields entry. Raises ValueError if it is malformed."""
    return frozenset(_paths(value, ()))


def field_set(value: Any, schema: Schema) -> FieldSet:
    """Return the fields that an applied configuration names: leaves, members of maps, items of lists."""
    return frozenset(_named(value, schema, ()))


def child_schema(schema: Schema, name: str) -> Schema | None:
    """Return the schema of a member; None if the schema has none."""
    if "properties" in schema and name in schema["properties"]:
        found: Schema = schema["properties"][name]
        return found
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        return extra
    if extra is True or is_open(schema):
        return OPEN
    return None


OPEN: Schema = {"x-kubernetes-preserve-unknown-fields": True}


def is_open(schema: Schema) -> bool:
    """Return whether the schema allows any value."""
    return bool(schema.get("x-kubernetes-preserve-unknown-fields")) or not schema


def is_struct_field(schema: Schema, name: str) -> bool:
    """Return whether a member is a field of a struct, not an entry of a map."""
    return bool(name in schema.get("properties", ()))


def is_atomic(value: Any, schema: Schema) -> bool:
    """Return whether a value is owned as a whole."""
    if isinstance(value, dict):
        return bool(schema.get("x-kubernetes-map-type") == "atomic")
    if isinstance(value, list):
        return bool(schema.get("x-kubernetes-list-type", "atomic") == "atomic")
    return True


def item_steps(items: list[Any], schema: Schema) -> list[str]:
    """Return the steps that lead to the items of a set or map list."""
    if schema["x-kubernetes-list-type"] == "set":
        return [f"v:{_json(item)}" for item in items]
    properties = schema.get("items", {}).get("properties", {})
    steps = []
    for item in items:
        keys = {}
        for name in schema.get("x-kubernetes-list-map-keys", ()):
            value = item.get(name) if isinstance(item, dict) else None
            if value is None:
                value = properties.get(name, {}).get("default")
            if value is not None:
                keys[name] = value
        steps.append(f"k:{_json(dict(sorted(keys.items())))}")
    return steps


def map_keys_fault(item: Plain, schema: Schema) -> str:
    """Return why an object cannot be identified in a map list; empty if it can."""
    keys = schema.get("x-kubernetes-list-map-keys", ())
    if not keys or item_steps([item], schema) != ["k:{}"]:
        return ""
    named = " ".join(map(quoted_text, keys))
    lacks = "(and doesn't have default values for any key fields)"
    return f"associative list with keys has an element that omits all key fields [{named}] {lacks}"


def shown(path: Path) -> str:
    """Return a path in the format of conflicts."""
    pieces = []
    for step in path:
        kind, _, text = step.partition(":")
        if kind == "f":
            pieces.append(f".{text}")
        elif kind == "k":
            keys = json.loads(text)
            pieces.append(f"[{','.join(f'{key}={_key(value)}' for key, value in keys.items())}]")
        else:
            pieces.append(f"[={text}]" if kind == "v" else f"[{text}]")
    return "".join(pieces)


def sorted_paths(fields: FieldSet) -> list[Path]:
    """Return the paths in the order of conflicts: a path that ends at a level comes before those that go deeper."""
    return sorted(fields, key=lambda path: [(n < len(path) - 1, step) for n, step in enumerate(_order(path))])


def with_parents(fields: Iterable[Path]) -> FieldSet:
    """Return the paths and all their parents."""
    found: set[Path] = set()
    for path in fields:
        while path and path not in found:
            found.add(path)
            path = path[:-1]
    return frozenset(found)


def _named(value: Any, schema: Schema, path: Path) -> Iterator[Path]:
    if is_atomic(value, schema):
        if path:
            yield path
        return
    if isinstance(value, dict):
        for name, item in value.items():
            child = child_schema(schema, name) or OPEN
            step = (*path, f"f:{name}")
            if item is None:
                yield step
                continue
            yield from _named(item, child, step)
            if item == {} or not is_struct_field(schema, name):
                yield step
        return
    for item, item_step in zip(value, item_steps(value, schema), strict=True):
        yield from _named(item, schema.get("items", OPEN), (*path, item_step))
        yield (*path, item_step)


def _paths(value: Any, path: Path) -> Iterator[Path]:
    if not isinstance(value, dict):
        raise ValueError("a set of fields is an object")
    for step, below in value.items():
        if step == ".":
            if path:
                yield path
            continue
        if step[:2] not in ("f:", "k:", "v:", "i:"):
            raise ValueError(f"missing colon or unknown kind: {step!r}")
        if step[:2] in ("k:", "v:"):
            json.loads(step[2:])
        here = (*path, step)
        if not isinstance(below, dict):
            raise ValueError("a set of fields is an object")
        if below:
            yield from _paths(below, here)
        else:
            yield here


def _written(node: Plain) -> Plain:
    """The content below a node, in order. A member that owns only itself is written as `{}`."""
    written: Plain = {".": {}} if "." in node else {}
    for step in sorted(node.keys() - {"."}, key=_order_of):
        below = node[step]
        written[step] = {} if len(below) == 1 and "." in below else _written(below)
    return written


def _order(path: Path) -> tuple[tuple[int, str], ...]:
    return tuple(map(_order_of, path))


def _order_of(step: str) -> tuple[int, str]:
    return "fkvi".index(step[0]), step[2:]


def _key(value: Any) -> str:
    """The text of an item's key, also for a list or map."""
    if isinstance(value, dict):
        return "".join(f"{name}={_key(item)}" for name, item in value.items())
    return f"[{','.join(map(_key, value))}]" if isinstance(value, list) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
