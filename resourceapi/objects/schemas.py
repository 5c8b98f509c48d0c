"""Schemas of the typed kinds, derived from their structs: one source for decoding, field ownership and OpenAPI.

The merge semantics of lists and maps, which the structs do not express, are in the table `_LISTS` (allocator.md 4.2).
"""

import functools
import re
import types
import typing
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from resourceapi.objects import Condition, KubernetesObject, ObjectMeta, OwnerReference, Quantity, Record, core, v1
from resourceapi.objects.descriptions import description

Plain = dict[str, Any]
Schema = Mapping[str, Any]
Describe = Callable[[str, str], str]
"""Returns the description of a field, by the struct's name and the field's JSON name."""

_PYTHON_NAME = re.compile(r"(?<=`)[a-z]+(_[a-z]+)+(?=`)")
_SET = {"x-kubernetes-list-type": "set"}
_MERGED_SET = _SET | {"x-kubernetes-patch-strategy": "merge"}
ATOMIC_LIST = {"x-kubernetes-list-type": "atomic"}
ATOMIC_MAP = {"x-kubernetes-map-type": "atomic"}


def map_list(*keys: str, patch: bool = True) -> Plain:
    """Return the schema of a list whose items have keys; with `patch`, strategic merge patches use the first key."""
    schema: Plain = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}
    if patch:
        schema |= {"x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": keys[0]}
    return schema


_LISTS: dict[tuple[type[Record], str], Plain] = {
    (ObjectMeta, "finalizers"): _MERGED_SET,
    (ObjectMeta, "owner_references"): map_list("uid"),
    (v1.ResourceClaimStatus, "reserved_for"): map_list("uid"),
    (v1.ResourceClaimStatus, "devices"): map_list("driver", "device", "pool", "shareID", patch=False),
    (v1.AllocatedDeviceStatus, "conditions"): map_list("type", patch=False),
    (v1.DeviceTaintRuleStatus, "conditions"): map_list("type"),
    (v1.DeviceRequestAllocationResult, "skip_node_operations"): _SET,
    (v1.ResourceSliceSpec, "skip_node_operations"): _SET,
}
_ATOMIC = (OwnerReference, core.NodeSelector)
_PLAIN: dict[Any, Plain] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int64"},
    Quantity: {"type": "string", "x-kubernetes-int-or-string": True},
    datetime: {"type": "string", "format": "date-time"},
    Any: {"type": "object", "x-kubernetes-preserve-unknown-fields": True} | ATOMIC_MAP,
}


def schema_of(form: type[KubernetesObject], describe: Describe = description) -> Schema:
    """Return the schema of a kind's JSON form with `apiVersion` and `kind`; `describe` describes the kind's fields."""
    schema = dict(_record(form, describe))
    schema["properties"] = TYPE_FIELDS | schema["properties"]
    return schema


TYPE_FIELDS: Plain = {
    "apiVersion": {"type": "string", "description": "Group and version of this object."},
    "kind": {"type": "string", "description": "Kind of this object."},
}


@functools.cache
def metadata_schema() -> Schema:
    """Return the schema of the metadata that every object has."""
    return _record(ObjectMeta)


@functools.cache
def condition_schema() -> Schema:
    """Return the schema of a condition."""
    return _record(Condition)


@functools.cache
def _record(record: type[Record], describe: Describe = description) -> Schema:
    hints = typing.get_type_hints(record)
    properties = {}
    for info in msgspec.structs.fields(record):
        if info.name == "unknown_fields":
            continue
        field = dict(_schema(hints[info.name], describe))
        if field.get("type") == "array":
            field |= _LISTS.get((record, info.name), ATOMIC_LIST)
        about = describe(record.__name__, info.encode_name) or field.get("items", {}).get("description")
        if about and "description" not in field:
            field["description"] = about
        properties[info.encode_name] = field
    text = _PYTHON_NAME.sub(lambda match: _camel(match[0]), " ".join((record.__doc__ or "").split()))
    schema: Plain = {"type": "object", "description": text, "properties": properties}
    return schema | ATOMIC_MAP if record in _ATOMIC else schema


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def _schema(annotation: Any, describe: Describe) -> Schema:
    if typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        return _schema(next(each for each in arguments if each is not types.NoneType), describe)
    if origin is tuple:
        return {"type": "array", "items": _schema(arguments[0], describe)}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _schema(arguments[1], describe)}
    if annotation in (ObjectMeta, Condition):
        return _record(annotation)
    return _record(annotation, describe)
