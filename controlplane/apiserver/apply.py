"""Server-side apply: merge a configuration, remove what it no longer names, find conflicts (allocator.md 5.8)."""

import json
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple

from controlplane.apiserver.compare import Changes, compare
from controlplane.apiserver.fieldsets import (
    OPEN,
    FieldSet,
    NotInSchema,
    Path,
    child_schema,
    field_set,
    is_atomic,
    item_steps,
    shown,
    sorted_paths,
    with_parents,
)
from controlplane.apiserver.go_values import in_order
from controlplane.apiserver.kinds import Plain, Schema
from controlplane.apiserver.managed import (
    Manager,
    Managers,
    Owned,
    release_fields,
    track_update,
    tracked,
    with_managed,
    without_managed,
)
from controlplane.apiserver.status import ApiError, internal
from controlplane.apiserver.typed_values import check_types
from resourceapi.objects import format_time
from resourceapi.objects.json_value import json_equal

BEFORE_FIRST_APPLY = "before-first-apply"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_KUBECTL = "kubectl"


def apply(
    live: Plain,
    empty: Plain,
    config: Plain,
    schema: Schema,
    managers: Managers,
    manager: Manager,
    api_version: str,
    now: datetime,
    *,
    force: bool,
    ignored: tuple[str, ...] = (),
) -> Plain:
    """Return the object after applying a configuration, in the version of the configuration.

    `live` is the stored object in that version; if it does not exist, `live` is `empty`, the encoding of an object
    without values. Raises ApiError: 409 with the conflicts, 500 (as the reference does) for fields that the schema does
    not have.
    """
    with _reporting_untyped(config):
        check_types(config, schema)
        named = tracked(field_set(config, schema), ignored)
        live = without_managed(live)
        if not managers and live is not empty:
            first = Manager(BEFORE_FIRST_APPLY, "Update", api_version)
            managers = track_update(empty, live, schema, {}, first, now, is_new=True)
        before = managers.get(manager)
        owners = {**managers, manager: Owned(named, before.time if before else "", api_version)}
        merged = _merged(live, config, schema)
        if before is not None:
            owned = frozenset().union(*(each.fields for each in owners.values()))
            released = _ReleasedFields(before.fields, with_parents(before.fields), with_parents(owned))
            merged = _without(merged, released, schema, ())
        others = {each: owned for each, owned in owners.items() if each != manager}
        converted = _changes(_without_empty(live), _without_empty(merged), schema, ignored)
        # An applier's own earlier fields are converted, to find those that it no longer names.
        here = converted if before is not None and before.fields else _changes(live, merged, schema, ignored)
        # By version, because each manager's fields are compared in the version of that manager.
        changes = {**{owned.api_version: converted for owned in others.values()}, api_version: here}
        if not force:
            found = [
                (each, path)
                for each, owned in others.items()
                for path in owned.fields & (changes[owned.api_version].added | changes[owned.api_version].modified)
            ]
            if found and not (manager.name == _KUBECTL and _only_last_applied(live, found, schema)):
                raise _conflicts(found)
        result = {**release_fields(others, changes), manager: owners[manager]}
        if not named:
            del result[manager]
        if manager in result and any(compare(live, merged, schema)):  # else no time, or that of its last change
            result[manager] = result[manager]._replace(time=format_time(now))
        return with_managed(_with_last_applied(merged, config, manager), result)


@contextmanager
def _reporting_untyped(config: Plain) -> Iterator[None]:
    """Report a value that the schema does not have as an error of the configuration, wherever the value is."""
    try:
        yield
    except NotInSchema as error:
        raise untyped_error(config, str(error)) from None


def _changes(old: Plain, new: Plain, schema: Schema, ignored: tuple[str, ...]) -> Changes:
    return Changes(*(tracked(fields, ignored) for fields in compare(old, new, schema)))


def _without_empty(value: Any) -> Any:
    """A value as a conversion into another version leaves it: without empty members."""
    if isinstance(value, dict):
        kept = {name: _without_empty(item) for name, item in value.items()}
        return {name: item for name, item in kept.items() if item not in (None, {}, [])}
    return list(map(_without_empty, value)) if isinstance(value, list) else value


def untyped_error(config: Plain, why: str) -> ApiError:
    """The error 500 for a configuration with fields that the schema does not have."""
    metadata = config.get("metadata")
    names = [metadata.get(name) if isinstance(metadata, dict) else "" for name in ("namespace", "name")]
    named = "/".join(name if isinstance(name, str) else "" for name in names)
    group, _, version = config["apiVersion"].rpartition("/")
    named += f"; {group}/{version}, Kind={config['kind']}"
    return internal(f"failed to create typed patch object ({named}): {why}")


def _merged(live: Any, config: Any, schema: Schema) -> Any:
    if config is None and isinstance(live, dict | list) and not is_atomic(live, schema):
        return live  # a null map or list in a configuration removes nothing
    if config is None or type(live) is not type(config) or is_atomic(config, schema):
        return config
    if isinstance(config, dict):
        result = dict(live)
        for name, item in config.items():
            child = child_schema(schema, name) or OPEN
            result[name] = _merged(live[name], item, child) if name in live else item
        return result
    return _merged_items(live, config, schema)


def _merged_items(live: list[Any], config: list[Any], schema: Schema) -> list[Any]:
    """The items of both lists, in the order of structured-merge-diff.

    Items of the configuration are in its order. Items that it lacks stay before the items that they preceded. New items
    come after those.
    """
    there = dict(zip(item_steps(live, schema), live, strict=True))
    wanted = dict(zip(item_steps(config, schema), config, strict=True))
    lives, shared = deque(there), deque(step for step in wanted if step in there)
    result = []
    for step, item in wanted.items():
        while lives and lives[0] != step and not (shared and lives[0] == shared[0]):
            first = lives.popleft()
            if first not in wanted:
                result.append(there[first])
        for queue in (lives, shared):
            if queue and queue[0] == step:
                queue.popleft()
        result.append(_merged(there[step], item, schema.get("items", OPEN)) if step in there else item)
    return result + [there[step] for step in lives if step not in wanted]


class _ReleasedFields(NamedTuple):
    """An applier's earlier fields, the same with their parents, and the fields owned now with their parents."""

    fields: FieldSet
    above: FieldSet
    owned: FieldSet

    def has(self, path: Path) -> bool:
        return path in self.fields and path not in self.owned


def _without(value: Any, released: _ReleasedFields, schema: Schema, path: Path) -> Any:
    """The value without the fields that the applier owned before and that have no owner now."""
    if is_atomic(value, schema) or not value:
        return value
    if isinstance(value, dict):
        result = {}
        for name, item in value.items():
            here = (*path, f"f:{name}")
            if not released.has(here):
                child = child_schema(schema, name) or OPEN
                kept = _without(item, released, child, here) if here in released.above else item
                if kept or not item or json_equal(kept, item):
                    result[name] = kept
        return result
    kept_items = []
    for step, item in zip(item_steps(value, schema), value, strict=True):
        here = (*path, step)
        if not released.has(here):
            kept_items.append(_without(item, released, schema.get("items", OPEN), here))
    return kept_items


def _only_last_applied(live: Plain, found: list[tuple[Manager, Path]], schema: Schema) -> bool:
    """Return whether all conflicts are with fields that kubectl set before by client-side apply."""
    try:
        last = json.loads(live["metadata"].get("annotations", {})[LAST_APPLIED])
        check_types(last, schema)
        fields = field_set(last, schema)
    except (KeyError, ValueError, TypeError, NotInSchema):
        return False
    changed = compare(last, live, schema)
    return all(path in fields and path not in changed.modified for _, path in found)


def _with_last_applied(obj: Plain, config: Plain, manager: Manager) -> Plain:
    """Update the annotation of client-side apply, if kubectl left one."""
    annotations = obj["metadata"].get("annotations") or {}
    if manager.name != _KUBECTL or LAST_APPLIED not in annotations:
        return obj
    metadata = dict(config["metadata"])
    others = {name: text for name, text in (metadata.pop("annotations", None) or {}).items() if name != LAST_APPLIED}
    if others:
        metadata["annotations"] = others
    text = json.dumps(in_order({**config, "metadata": metadata}), ensure_ascii=False, separators=(",", ":")) + "\n"
    return {**obj, "metadata": {**obj["metadata"], "annotations": {**annotations, LAST_APPLIED: text}}}


def _conflicts(found: list[tuple[Manager, Path]]) -> ApiError:
    by_manager: dict[str, list[str]] = {}
    causes = []
    for manager in sorted({each for each, _ in found}, key=lambda each: each.identifier):
        for path in sorted_paths(frozenset(path for each, path in found if each == manager)):
            by_manager.setdefault(str(manager), []).append(shown(path))
            cause = {"reason": "FieldManagerConflict", "message": f"conflict with {manager}", "field": shown(path)}
            causes.append(cause)
    if len(causes) == 1:
        message = f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        lines = []
        for name, paths in by_manager.items():
            lines += [f"conflicts with {name}:", *(f"- {path}" for path in paths)]
        message = f"Apply failed with {len(causes)} conflicts: " + "\n".join(lines)
    return ApiError(409, message, "Conflict", {"causes": causes})
