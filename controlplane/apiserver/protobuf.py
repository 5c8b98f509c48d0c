"""Kubernetes' protobuf bodies, as far as kubectl sends any: namespaces, config maps and secrets of its generators.

An envelope (magic, apiVersion, kind) around a message whose fields are the table below. What is not in the table
cannot be read, so that nothing is lost silently.
"""

import base64
from collections.abc import Iterator
from typing import Any, NamedTuple

from controlplane.apiserver.kinds import Plain

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"


class CannotRead(ValueError):
    """A body that is damaged, or has what the table does not know."""


class _Field(NamedTuple):
    """A member and its kind: text, flag, texts, map (to texts), blobs (a map to base64), or the fields of a message."""

    name: str
    kind: Any


_Fields = dict[int, _Field]
_METADATA: _Fields = {
    1: _Field("name", "text"),
    2: _Field("generateName", "text"),
    3: _Field("namespace", "text"),
    4: _Field("selfLink", "text"),
    5: _Field("uid", "text"),
    6: _Field("resourceVersion", "text"),
    8: _Field("", {}),  # the time of creation, which nobody can set
    11: _Field("labels", "map"),
    12: _Field("annotations", "map"),
    14: _Field("finalizers", "texts"),
}
_KINDS: dict[tuple[str, str], _Fields] = {
    ("v1", "Namespace"): {
        1: _Field("metadata", _METADATA),
        2: _Field("spec", {1: _Field("finalizers", "texts")}),
        3: _Field("status", {1: _Field("phase", "text")}),
    },
    ("v1", "ConfigMap"): {
        1: _Field("metadata", _METADATA),
        2: _Field("data", "map"),
        3: _Field("binaryData", "blobs"),
        4: _Field("immutable", "flag"),
    },
    ("v1", "Secret"): {
        1: _Field("metadata", _METADATA),
        2: _Field("data", "blobs"),
        3: _Field("type", "text"),
        4: _Field("stringData", "map"),
        5: _Field("immutable", "flag"),
    },
}


def read_protobuf(data: bytes) -> Plain:
    """The object in a body; raises CannotRead."""
    if not data.startswith(_MAGIC):
        raise CannotRead("no envelope")
    type_meta, raw = b"", b""
    for number, value in _fields(data[len(_MAGIC) :]):
        if number == 1 and isinstance(value, bytes):
            type_meta = value
        elif number == 2 and isinstance(value, bytes):
            raw = value
    found = _message(type_meta, {1: _Field("apiVersion", "text"), 2: _Field("kind", "text")})
    fields = _KINDS.get((found.get("apiVersion", ""), found.get("kind", "")))
    if fields is None:
        raise CannotRead(f"no table for {found}")
    return found | _message(raw, fields)


def _message(data: bytes, fields: _Fields) -> Plain:
    result: Plain = {}
    for number, value in _fields(data):
        field = fields.get(number)
        if field is None:
            if value:
                raise CannotRead(f"field {number}")
            continue
        if field.kind == "flag":
            result[field.name] = bool(value)
            continue
        if not isinstance(value, bytes):
            raise CannotRead(f"field {number}")
        if isinstance(field.kind, dict):
            below = _message(value, field.kind)
            if below or field.kind:
                result[field.name] = below
        elif field.kind == "text":
            if value:
                result[field.name] = _text(value)
        elif field.kind == "texts":
            result.setdefault(field.name, []).append(_text(value))
        else:
            entry = dict(_fields(value))
            key, item = entry.get(1, b""), entry.get(2, b"")
            if not isinstance(key, bytes) or not isinstance(item, bytes):
                raise CannotRead(f"field {number}")
            shown = _text(item) if field.kind == "map" else base64.b64encode(item).decode()
            result.setdefault(field.name, {})[_text(key)] = shown
    return result


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers with their values: a number, or bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        if tag & 7 == 0:
            number, at = _varint(data, at)
            yield tag >> 3, number
        elif tag & 7 == 2:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise CannotRead("cut off")
            yield tag >> 3, data[at : at + size]
            at += size
        else:
            raise CannotRead(f"wire type {tag & 7}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise CannotRead("cut off")
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CannotRead("not UTF-8") from error
