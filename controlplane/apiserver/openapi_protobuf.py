"""The OpenAPI v2 document in protobuf, the only form of it that kubectl reads.

Source: gnostic-models, openapiv2/OpenAPIv2.proto. The tables have only the members that the document uses.
"""

import functools
import struct
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.protobuf.wire import FIXED64, LENGTH, VARINT, sized, tag, varint

MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
ACCEPTED = ("application/com.github.proto-openapi.spec.v2@v1.0+protobuf", MEDIA_TYPE)
"""The media types that request it. Older clients use a name that is not a valid media type."""
_Write = Callable[[Any], bytes]


def encoded(document: Plain) -> bytes:
    """Return the bytes of the document."""
    return _message(_DOCUMENT)(document)


def _text(number: int) -> _Write:
    return lambda value: tag(number, LENGTH) + sized(str(value).encode())


def _texts(number: int) -> _Write:
    return lambda values: b"".join(map(_text(number), values))


def _flag(number: int) -> _Write:
    return lambda value: tag(number, VARINT) + varint(bool(value))


def _count(number: int) -> _Write:
    return lambda value: tag(number, VARINT) + varint(int(value))


def _double(number: int) -> _Write:
    return lambda value: tag(number, FIXED64) + struct.pack("<d", value)


def _inside(number: int, write: _Write) -> _Write:
    return lambda value: tag(number, LENGTH) + sized(write(value))


def _each(number: int, write: _Write) -> _Write:
    return lambda values: b"".join(map(_inside(number, write), values))


def _named(number: int, write: _Write) -> _Write:
    """The entries of a map, each a message with name and value."""
    return lambda values: b"".join(
        _inside(number, lambda item: _text(1)(item[0]) + _inside(2, write)(item[1]))(item) for item in values.items()
    )


def _any(value: Any) -> bytes:
    return _text(2)(msgspec.json.encode(value).decode() + "\n")


def _message(fields: Mapping[str, _Write], extensions: int = 0) -> _Write:
    """A message by its members' names. Members that begin with `x-` go into the field `extensions`."""

    def write(value: Plain) -> bytes:
        found = [fields[name](item) for name, item in value.items() if name in fields]
        if extensions and (others := {name: item for name, item in value.items() if name.startswith("x-")}):
            found.append(_named(extensions, _any)(others))
        return b"".join(found)

    return write


def _schema(value: Any) -> bytes:
    return _schema_fields()(value)


@functools.cache
def _schema_fields() -> _Write:
    return _message(
        {
            "$ref": _text(1),
            "format": _text(2),
            "title": _text(3),
            "description": _text(4),
            "default": _inside(5, _any),
            "multipleOf": _double(6),
            "maximum": _double(7),
            "exclusiveMaximum": _flag(8),
            "minimum": _double(9),
            "exclusiveMinimum": _flag(10),
            "maxLength": _count(11),
            "minLength": _count(12),
            "pattern": _text(13),
            "maxItems": _count(14),
            "minItems": _count(15),
            "uniqueItems": _flag(16),
            "maxProperties": _count(17),
            "minProperties": _count(18),
            "required": _texts(19),
            "enum": _each(20, _any),
            "additionalProperties": _inside(21, _extra),
            "type": _inside(22, _text(1)),
            "items": _inside(23, _inside(1, _schema)),
            "allOf": _each(24, _schema),
            "properties": _inside(25, _named(1, _schema)),
        },
        extensions=31,
    )


def _extra(value: Any) -> bytes:
    return _inside(1, _schema)(value) if isinstance(value, Mapping) else _flag(2)(value)


def _parameter(value: Plain) -> bytes:
    match value["in"]:
        case "body":
            return _inside(1, _inside(1, _BODY))(value)
        case "path":
            return _inside(1, _inside(2, _inside(4, _PATH)))(value)
    return _inside(1, _inside(2, _inside(3, _QUERY)))(value)


_BODY = _message({"name": _text(2), "in": _text(3), "required": _flag(4), "schema": _inside(5, _schema)})
_QUERY = _message({"in": _text(2), "name": _text(4), "type": _text(6)})
_PATH = _message({"required": _flag(1), "in": _text(2), "name": _text(4), "type": _text(5)})
_RESPONSE = _message({"description": _text(1)})
_OPERATION = _message(
    {
        "consumes": _texts(7),
        "parameters": _each(8, _parameter),
        "responses": _inside(9, _named(1, _inside(1, _RESPONSE))),
    },
    extensions=13,
)
_PATH_ITEM = _message(
    {
        "get": _inside(2, _OPERATION),
        "put": _inside(3, _OPERATION),
        "post": _inside(4, _OPERATION),
        "delete": _inside(5, _OPERATION),
        "patch": _inside(8, _OPERATION),
        "parameters": _each(9, _parameter),
    }
)
_DOCUMENT: Mapping[str, _Write] = {
    "swagger": _text(1),
    "info": _inside(2, _message({"title": _text(1), "version": _text(2)})),
    "paths": _inside(8, _named(2, _PATH_ITEM)),
    "definitions": _inside(9, _named(1, _schema)),
}
