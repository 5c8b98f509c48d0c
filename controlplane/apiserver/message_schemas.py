"""Schemas of built-in kinds without Python structs: members, types, and how lists and maps are merged.

Derived from upstream's types as `protobuf` has them (messages.txt). They validate nothing. Server-side apply, strategic
merge patches, `kubectl explain` and request generators use them.
"""

import functools
from collections.abc import Iterable, Mapping
from typing import Any

from controlplane.apiserver import protobuf
from controlplane.apiserver.fieldsets import OPEN
from controlplane.apiserver.kinds import Plain, Schema
from controlplane.apiserver.protobuf.messages import Field, fields_of
from resourceapi.objects.schemas import ATOMIC_MAP, TYPE_FIELDS, metadata_schema

_METADATA = "meta.k8s.io/v1.ObjectMeta"
_TEXT = {"type": "string"}
_SIMPLE: Mapping[str, Schema] = {
    "string": _TEXT,
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "float64": {"type": "number", "format": "double"},
    "bytes": {"type": "string", "format": "byte"},
    "Time": {"type": "string", "format": "date-time"},
    "MicroTime": {"type": "string", "format": "date-time"},
    "Quantity": {"type": "string", "x-kubernetes-int-or-string": True},
    "IntOrString": {"type": "string", "format": "int-or-string", "x-kubernetes-int-or-string": True},
    "Strings": {"type": "array", "items": _TEXT},
    "Raw": {"type": "object", **OPEN},
}


def kind_schema(api_version: str, kind: str, description: str, kept: Iterable[str] = ()) -> Schema:
    """Return the schema of a kind. Any value is allowed at the paths `kept`, which upstream's type lacks."""
    message = protobuf.message_of(api_version, kind)
    assert message is not None, "every built-in kind has one"
    known: Mapping[str, Schema] = _message(message)["properties"]
    schema: Schema = {
        "type": "object",
        "description": description,
        "properties": {**TYPE_FIELDS, **known, "metadata": metadata_schema()},
    }
    for path in kept:
        schema = _opened(schema, path.split("."))
    return schema


@functools.cache
def _message(name: str) -> Schema:
    if name == _METADATA:
        return metadata_schema()
    properties: Plain = {}
    for field in fields_of(name):
        if field.name:
            properties[field.name] = _field(field)
        else:
            properties |= _of_type(field.type)["properties"]
    return {"type": "object", "properties": properties}


def _field(field: Field) -> Schema:
    schema, merging = _of_type(field.type), field.merging
    if "keys" in merging:
        keys = merging["keys"].split(",")
        merged: Plain = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys}
        merged["items"] = _with_keys(field.type.lstrip("*[]"), keys)
    elif "set" in merging:
        merged = {"x-kubernetes-list-type": "set"}
    elif "atomic" in merging:
        merged = dict(ATOMIC_MAP)
    else:
        merged = {"x-kubernetes-list-type": "atomic"} if schema.get("type") == "array" else {}
    if "patch" in merging:
        merged["x-kubernetes-patch-strategy"] = merging["patch"]
    if "by" in merging:
        merged["x-kubernetes-patch-merge-key"] = merging["by"]
    if "default" in merging:
        merged["default"] = merging["default"]
    if "whole" in merging:
        merged["items"] = {**(merged.get("items") or schema["items"]), **ATOMIC_MAP}
    return {**schema, **merged} if merged else schema


def _with_keys(message: str, keys: list[str]) -> Schema:
    """The schema of items that are identified by keys. A key that is always written defaults to its empty value."""
    schema = _message(message)
    properties = {**schema["properties"]}
    for field in fields_of(message):
        if field.always and field.name in keys:
            empty = 0 if field.type in ("int32", "int64") else ""
            properties[field.name] = {"default": empty, **properties[field.name]}
    return {**schema, "properties": properties}


def _of_type(form: str) -> Schema:
    """The schema of a type in Go's notation."""
    form = form.lstrip("*")
    if form.startswith("[]"):
        return {"type": "array", "items": _of_type(form[2:])}
    if form.startswith("map[string]"):
        return {"type": "object", "additionalProperties": _of_type(form.removeprefix("map[string]"))}
    simple: Any = _SIMPLE.get(form.partition("=")[0])
    return simple if simple is not None else _message(form)


def _opened(schema: Schema, steps: list[str]) -> Schema:
    """The schema with any value allowed at a path."""
    if not steps:
        return OPEN
    if schema.get("type") == "array":
        return {**schema, "items": _opened(schema["items"], steps)}
    name, *rest = steps
    return {**schema, "properties": {**schema["properties"], name: _opened(schema["properties"].get(name, OPEN), rest)}}
