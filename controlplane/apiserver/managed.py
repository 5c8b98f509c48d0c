"""metadata.managedFields: which manager owns which fields, kept up to date by every write (allocator.md 5.8)."""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from controlplane.apiserver.compare import Changes, compare
from controlplane.apiserver.fieldsets import NOTHING, FieldSet, from_fields_v1, to_fields_v1
from controlplane.apiserver.kinds import Plain, Schema
from resourceapi.objects import format_time
from resourceapi.objects.metadata_rules import MAX_MANAGER

MAX_UPDATE_MANAGERS = 10
ANCIENT_CHANGES = "ancient-changes"

_NEVER_OWNED = frozenset(
    {
        ("f:apiVersion",),
        ("f:kind",),
        ("f:metadata",),
        *(
            ("f:metadata", f"f:{name}")
            for name in (
                "name",
                "namespace",
                "creationTimestamp",
                "selfLink",
                "uid",
                "clusterName",
                "generation",
                "managedFields",
                "resourceVersion",
            )
        ),
    }
)


class Manager(NamedTuple):
    """The author of a write. An applier is one manager in all versions; an updater is one per version."""

    name: str
    operation: str
    api_version: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        text = json.dumps(self.name, ensure_ascii=False)
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {self.api_version}" if self.operation == "Update" else text

    @property
    def identifier(self) -> str:
        """Return the text by which the reference identifies managers, and sorts them in messages."""
        members = {"manager": self.name, "operation": self.operation}
        members |= {"apiVersion": self.api_version} if self.operation == "Update" else {}
        members |= {"subresource": self.subresource} if self.subresource else {}
        return json.dumps(members, ensure_ascii=False, separators=(",", ":"))


class Owned(NamedTuple):
    """The fields of a manager, the time of its last change, and the version in which it wrote them."""

    fields: FieldSet
    time: str
    api_version: str


Managers = Mapping[Manager, Owned]
InVersion = Callable[[str], tuple[Plain, Plain, Schema] | None]
"""Returns the states before and after a write in a version, which has this schema; None for an unknown version."""


def manager_name(field_manager: str, user_agent: str) -> str:
    """Return the manager of a write: the client's field manager, or the program's name."""
    if field_manager:
        return field_manager
    return user_agent.partition("/")[0][:MAX_MANAGER] or "unknown"


def read_managers(entries: Any) -> dict[Manager, Owned]:
    """Return the managers in a list of entries. Raises ValueError if an entry is malformed."""
    found: dict[Manager, Owned] = {}
    for entry in entries or ():
        operation, api_version = entry.get("operation", ""), entry.get("apiVersion", "")
        if operation not in ("Apply", "Update"):
            raise ValueError(f"unknown operation {operation!r}")
        version = "" if operation == "Apply" else api_version
        manager = Manager(entry.get("manager", ""), operation, version, entry.get("subresource", ""))
        fields = from_fields_v1(entry.get("fieldsV1") or {})
        found[manager] = Owned(fields, entry.get("time") or "", api_version)
    return found


def write_managers(managers: Managers) -> list[Plain]:
    """Return the entries in the reference's order: appliers first, then by time."""
    order = sorted(managers.items(), key=lambda each: (each[0].operation, each[1].time, *each[0]))
    entries = []
    for manager, owned in order:
        entry: Plain = {"manager": manager.name, "operation": manager.operation, "apiVersion": owned.api_version}
        if owned.time:
            entry["time"] = owned.time
        entry |= {"fieldsType": "FieldsV1", "fieldsV1": to_fields_v1(owned.fields)}
        if manager.subresource:
            entry["subresource"] = manager.subresource
        entries.append(entry)
    return entries


def starting_managers(new: Plain, old: Plain | None, subresource: str) -> dict[Manager, Owned]:
    """Return the managers before a write: those in the written object, or else those of the stored object.

    A list with only one empty entry turns tracking off.
    """
    carried = new["metadata"].get("managedFields")
    if not subresource:
        if carried == [{}]:
            return {}
        try:
            managers = read_managers(carried)
        except (ValueError, TypeError, AttributeError):
            managers = {}
        if managers:
            return managers
    try:
        return read_managers(old["metadata"].get("managedFields") if old else None)
    except (ValueError, TypeError, AttributeError):
        return {}


def track_update(
    old: Plain,
    new: Plain,
    schema: Schema,
    managers: Managers,
    manager: Manager,
    now: datetime,
    *,
    is_new: bool,
    ignored: tuple[str, ...] = (),
    in_version: InVersion | None = None,
) -> dict[Manager, Owned]:
    """Return the managers after an update: the writer owns what it changed; removed fields lose their owners.

    `ignored` are the top-level fields that this write cannot change. `in_version` is set if the object has other fields
    in other versions. An object without managers stays untracked. Raises NotInSchema for an object that cannot be
    tracked.
    """
    if not managers and not is_new:
        return {}
    changes = _changes(old, new, schema, ignored)
    taken = changes.added | changes.modified
    by_version = {owned.api_version: changes for owned in managers.values()}
    if in_version is not None:
        for version in by_version:
            other = in_version(version)
            if other is not None:
                by_version[version] = _changes(other[0], other[1], other[2], ignored)
    result = release_fields(managers, by_version)
    if taken:
        before = result.get(manager)
        fields = taken | (before.fields if before else NOTHING)
        result[manager] = Owned(fields, format_time(now), manager.api_version)
    return _capped(result)


def _changes(old: Plain, new: Plain, schema: Schema, ignored: tuple[str, ...]) -> Changes:
    found = compare(without_managed(old), without_managed(new), schema)
    return Changes(*(tracked(fields, ignored) for fields in found))


def release_fields(managers: Managers, changes: Mapping[str, Changes]) -> dict[Manager, Owned]:
    """Return the managers without the fields that were changed or removed; `changes` has these by manager's version."""
    result = {}
    for manager, owned in managers.items():
        fields = owned.fields.difference(*changes[owned.api_version])
        if fields:
            result[manager] = owned._replace(fields=fields)
    return result


def tracked(fields: FieldSet, ignored: tuple[str, ...] = ()) -> FieldSet:
    """Return the fields without those that are never owned: identity, and top-level fields in `ignored`."""
    dropped = {f"f:{name}" for name in ignored}
    return frozenset(path for path in fields - _NEVER_OWNED if path and path[0] not in dropped)


def without_managed(obj: Plain) -> Plain:
    """Return the object without managedFields."""
    metadata = obj.get("metadata") or {}
    if "managedFields" not in metadata:
        return obj
    return {**obj, "metadata": {name: value for name, value in metadata.items() if name != "managedFields"}}


def with_managed_of(obj: Plain, other: Plain | None) -> Plain:
    """Return the object with another one's managedFields; without the member if that one has none, or is None."""
    plain, entries = without_managed(obj), ((other or {}).get("metadata") or {}).get("managedFields")
    return {**plain, "metadata": {**plain["metadata"], "managedFields": entries}} if entries else plain


def with_managed(obj: Plain, managers: Managers) -> Plain:
    """Return the object with managedFields; without the member if there are none."""
    plain = without_managed(obj)
    if not managers:
        return plain
    return {**plain, "metadata": {**plain["metadata"], "managedFields": write_managers(managers)}}


def _capped(managers: dict[Manager, Owned]) -> dict[Manager, Owned]:
    """At most ten updaters: the oldest are merged into one."""
    updaters = [each for each in managers if each.operation == "Update"]
    if len(updaters) <= MAX_UPDATE_MANAGERS:
        return managers
    result = dict(managers)
    by_age = sorted(updaters, key=lambda each: (result[each].time, *each))
    for oldest in by_age[: len(updaters) - MAX_UPDATE_MANAGERS + 1]:
        owned = result.pop(oldest)
        bucket = Manager(ANCIENT_CHANGES, "Update", owned.api_version)
        before = result.get(bucket)
        fields = owned.fields | (before.fields if before else NOTHING)
        result[bucket] = Owned(fields, max(owned.time, before.time) if before else owned.time, owned.api_version)
    return result
