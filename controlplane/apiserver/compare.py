"""The difference between two states of an object, as sets of fields."""

from typing import Any, NamedTuple

from controlplane.apiserver.fieldsets import (
    OPEN,
    FieldSet,
    NotInSchema,
    Path,
    child_schema,
    is_atomic,
    item_steps,
    map_keys_fault,
)
from controlplane.apiserver.kinds import Plain, Schema
from resourceapi.objects.json_value import json_equal


class Changes(NamedTuple):
    """The fields that were added, modified and removed."""

    added: FieldSet
    modified: FieldSet
    removed: FieldSet


def compare(old: Plain, new: Plain, schema: Schema) -> Changes:
    """Return the difference: leaves, and whole values that were added or removed.

    Raises NotInSchema for list items that cannot be distinguished.
    """
    walk = _Walk()
    walk.visit(old, new, True, True, schema, ())
    return Changes(frozenset(walk.added), frozenset(walk.modified), frozenset(walk.removed))


class _Walk:
    def __init__(self) -> None:
        self.added: set[Path] = set()
        self.modified: set[Path] = set()
        self.removed: set[Path] = set()

    def visit(self, old: Any, new: Any, was: bool, is_now: bool, schema: Schema, path: Path) -> None:
        """Compare two values; `was` and `is_now` are whether they exist at all (null is a value)."""
        if was and is_now and json_equal(old, new):
            return
        if not was or not is_now:
            (self.removed if was else self.added).add(path)
        if self._is_leaf(old, new, schema):
            if was and is_now:
                self.modified.add(path)
            return
        if isinstance(old, dict) or isinstance(new, dict):
            self._members(old, new, schema, path)
        if isinstance(old, list) or isinstance(new, list):
            self._items(old, new, schema, path)

    def _is_leaf(self, old: Any, new: Any, schema: Schema) -> bool:
        kinds = {type(each) for each in (old, new) if each is not None}
        if len(kinds) != 1:
            return True
        return (not old and not new) or is_atomic(new if new is not None else old, schema)

    def _members(self, old: Any, new: Any, schema: Schema, path: Path) -> None:
        old, new = old or {}, new or {}
        for name in {**old, **new}:
            child = child_schema(schema, name) or OPEN
            self.visit(old.get(name), new.get(name), name in old, name in new, child, (*path, f"f:{name}"))

    def _items(self, old: Any, new: Any, schema: Schema, path: Path) -> None:
        before = _by_step(old or [], schema)
        after = _by_step(new or [], schema)
        items = schema.get("items", OPEN)
        for step in {**before, **after}:
            was, now, here = before.get(step, []), after.get(step, []), (*path, step)
            if len(was) < 2 and len(now) < 2:
                one, other = (each[0] if each else None for each in (was, now))
                self.visit(one, other, bool(was), bool(now), items, here)
            elif len(was) > 1 and len(now) > 1:  # an item that exists twice is owned as a whole
                if not json_equal(was, now):
                    self.modified.add(here)
            elif len(was) > 1:
                self.removed.add(here)
                if now:
                    self.visit(None, now[0], False, True, items, here)
            else:
                self.added.add(here)
                if was:
                    self.visit(was[0], None, True, False, items, here)


def _by_step(items: list[Any], schema: Schema) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for step, item in zip(item_steps(items, schema), items, strict=True):
        if step == "k:{}":
            raise NotInSchema(map_keys_fault(item, schema))
        found.setdefault(step, []).append(item)
    return found
