"""Types and values of a definition's schema in CEL.

Source: kubernetes.io "Validation rules" of custom resources (types, escaped names).
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any

from controlplane.apiserver.kinds import Schema
from resourceapi.cel.library.times import parse_duration, parse_timestamp
from resourceapi.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    Kind,
    Type,
    list_of,
    map_of,
)
from resourceapi.cel.values import Duration

_FORMATS: Mapping[str, Type] = {
    "byte": BYTES,
    "date": TIMESTAMP,
    "date-time": TIMESTAMP,
    "duration": DURATION,
}
_PLAIN: Mapping[str, Type] = {"boolean": BOOL, "integer": INT, "number": DOUBLE}
_ESCAPES = (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__"))
_KEYWORDS = frozenset(
    (
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import"),
        *("let", "loop", "package", "namespace", "return", "var", "void", "while"),
    )
)
_ROOT: Schema = {
    "apiVersion": {"type": "string"},
    "kind": {"type": "string"},
    "metadata": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}},
    },
}

Fields = dict[str, Mapping[str, Type]]
"""The fields of each object type, by the type's name."""


def type_of(schema: Schema, fields: Fields, name: str = "selfType", *, is_root: bool = False) -> Type:
    """Return the CEL type of a schema's values. The members of its object types are added to `fields`."""
    if schema.get("x-kubernetes-int-or-string"):
        return DYN
    match schema.get("type"):
        case "array":
            return list_of(type_of(schema.get("items") or {}, fields, f"{name}.@idx"))
        case "object":
            extra = schema.get("additionalProperties")
            if isinstance(extra, Mapping):
                return map_of(STRING, type_of(extra, fields, f"{name}.@elem"))
            members = {**(schema.get("properties") or {})}
            if is_root or schema.get("x-kubernetes-embedded-resource"):
                members |= _ROOT
            fields[name] = {escaped(key): type_of(child, fields, f"{name}.{key}") for key, child in members.items()}
            return Type(Kind.STRUCT, name)
        case "string":
            return _FORMATS.get(schema.get("format", ""), STRING)
    return _PLAIN.get(schema.get("type", ""), DYN)


def value_of(value: Any, schema: Schema) -> Any:
    """Return a value as CEL value. One that does not have its schema's format is not converted."""
    if isinstance(value, dict):
        known, extra = schema.get("properties") or {}, schema.get("additionalProperties")
        found = {}
        for name, item in value.items():
            child = known.get(name, extra)
            found[escaped(name) if name in known else name] = value_of(
                item, child if isinstance(child, Mapping) else {}
            )
        return found
    if isinstance(value, list):
        items = schema.get("items")
        return [value_of(item, items if isinstance(items, Mapping) else {}) for item in value]
    if isinstance(value, str):
        read = _READERS.get(schema.get("format", ""), str)
        return read(value)
    if isinstance(value, bool):
        return value
    if schema.get("type") == "number" and isinstance(value, int):
        return float(value)
    return int(value) if schema.get("type") == "integer" and isinstance(value, float) else value


def escaped(name: str) -> str:
    """Return a member's name as a CEL identifier."""
    if name in _KEYWORDS:
        return f"__{name}__"
    for found, instead in _ESCAPES:
        name = name.replace(found, instead)
    return name


def _bytes(text: str) -> Any:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return text


def _time(text: str) -> Any:
    return parse_timestamp(text if "T" in text else f"{text}T00:00:00Z") or text


def _duration(text: str) -> Any:
    nanoseconds = parse_duration(text)
    return text if nanoseconds is None else Duration(nanoseconds)


_READERS: Mapping[str, Callable[[str], Any]] = {
    "byte": _bytes,
    "date": _time,
    "date-time": _time,
    "duration": _duration,
}
