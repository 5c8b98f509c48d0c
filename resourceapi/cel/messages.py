"""Literals of protobuf's well-known messages, such as `google.protobuf.Int64Value{value: 1}`.

A literal evaluates to a plain value: a wrapper to its content, a Struct to a map, a ListValue to a list, and a Value to
the value of its last field. `google.protobuf.Any` and `Empty` are not supported. Source: the conversions of cel-go,
which also define the error messages.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from resourceapi.cel.errors import CelEvalError
from resourceapi.cel.frame import Frame
from resourceapi.cel.library.times import format_duration, format_timestamp
from resourceapi.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    FORMAT,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    list_of,
    map_of,
    wrapper_of,
)
from resourceapi.cel.values import (
    MAX_INT,
    MIN_INT,
    Duration,
    Optional,
    Timestamp,
    TypeValue,
    Uint,
    display,
    is_extension,
    is_map,
    items_of,
    type_name,
)

_PREFIX = "google.protobuf."
_JSON = "*structpb.Value"
_EXACT = 2**53 - 1  # a double represents all integers up to this one exactly; JSON has larger ones as strings
_SECOND = 10**9
_INTEGERS: Mapping[str, tuple[type, int, int]] = {
    "int32": (int, -(2**31), 2**31 - 1),
    "int64": (int, MIN_INT, MAX_INT),
    "protoreflect.EnumNumber": (int, -(2**31), 2**31 - 1),
    "uint8": (Uint, 0, 2**8 - 1),
    "uint32": (Uint, 0, 2**32 - 1),
    "uint64": (Uint, 0, 2**64 - 1),
}
_PLAIN: Mapping[str, type] = {"bool": bool, "[]uint8": bytes, "float64": float, "float32": float, "string": str}
_OWN_WORDS: Mapping[type, str] = {
    int: "unsupported type conversion from 'int' to {}",
    Uint: "unsupported type conversion from 'uint' to {}",
    str: "unsupported native conversion from string to '{}'",
    TypeValue: "type conversion not supported for 'type'",
}
_KINDS: Mapping[type, str] = {float: "Double", bool: "bool", bytes: "Bytes", type(None): "'null_type'", list: "list"}


class Field(NamedTuple):
    """A field of a message: its type, and the Go type to which its value is converted."""

    type: Type
    native: str


class Message(NamedTuple):
    """A message: its type, its fields, and a function of the converted values, in the order of the literal."""

    type: Type
    fields: Mapping[str, Field]
    build: Callable[[dict[str, Any]], Any]


ANY = "any"
"""The Go type of a field that keeps every value as it is."""


def build(frame: Frame, name: str, message: Message, values: dict[str, Any]) -> Any:
    """Return the value of a message with these fields. Raises CelEvalError if a value cannot be converted."""
    return message.build({field: _field(frame, name, field, message.fields[field], values[field]) for field in values})


def _field(frame: Frame, message: str, name: str, field: Field, value: Any) -> Any:
    path = f"{message}.{name}"
    if field.native in ("repeated", "map") and not (
        type(value) is list if field.native == "repeated" else is_map(value)
    ):
        raise CelEvalError(f"unsupported field type for {path}: {_type_of(value)}")
    try:
        return _native(frame, value, field.native)
    except CelEvalError as error:
        raise CelEvalError(f"field type conversion error for {path} value type: {error}") from None


def _native(frame: Frame, value: Any, native: str) -> Any:
    """Convert a value to a Go type. Raises CelEvalError."""
    if native == ANY:
        return value
    kind = type(value)
    if kind is Optional:
        if not value.present:
            raise CelEvalError("optional.none() dereference")
        return _native(frame, value.value, native)
    if native in _INTEGERS:
        wanted, low, high = _INTEGERS[native]
        if kind is wanted:
            if low <= value <= high:
                return value
            raise CelEvalError("integer overflow" if wanted is int else "unsigned integer overflow")
    elif kind is _PLAIN.get(native):
        return _as_float32(value) if native == "float32" else value
    elif native == _JSON:
        return _as_json(frame, value)
    elif native == "string" and is_extension(value) and type_name(value) != FORMAT.name:
        return display(value)
    elif native == "[]uint8" and kind is list:
        frame.convert(len(value))
        return bytes([_native(frame, each, "uint8") for each in value])
    elif native in ("repeated", "*structpb.ListValue"):
        if kind is list:
            frame.convert(len(value))
            return [_as_json(frame, each) for each in value]
    elif native in ("map", "*structpb.Struct") and is_map(value):
        frame.convert(len(value))
        return {_native(frame, key, "string"): _as_json(frame, each) for key, each in items_of(value)}
    raise _refused(value, native)


def _as_json(frame: Frame, value: Any) -> Any:
    """Convert a value to JSON, as a CEL value. Raises CelEvalError."""
    if value is None or isinstance(value, bool | float | str):
        return value
    if isinstance(value, int):
        return float(value) if abs(value) <= _EXACT else str(int(value))
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Duration):
        return format_duration(value)
    if isinstance(value, Timestamp):
        return format_timestamp(value)
    if isinstance(value, list):
        return _native(frame, value, "repeated")
    if is_map(value):
        return _native(frame, value, "map")
    return _native(frame, value.value, _JSON) if isinstance(value, Optional) and value.present else _never(value)


def _never(value: Any) -> Any:
    if isinstance(value, Optional):
        raise CelEvalError("optional.none() dereference")
    raise _refused(value, _JSON)


def _as_float32(value: float) -> float:
    try:
        rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def _refused(value: Any, native: str) -> CelEvalError:
    kind = type(value)
    if kind in _OWN_WORDS:
        return CelEvalError(_OWN_WORDS[kind].format(native))
    known = "map" if is_map(value) else _KINDS.get(kind)
    name = type_name(value).rpartition(".")[2].removeprefix("Named")
    return CelEvalError(f"type conversion error from {known or repr(name)} to '{native}'")


def _type_of(value: Any) -> str:
    params = "(dyn, dyn)" if is_map(value) else "(dyn)" if isinstance(value, list | Optional) else ""
    return type_name(value) + params


def _wrapper(type_: Type, native: str, zero: Any) -> Message:
    return Message(wrapper_of(type_), {"value": Field(type_, native)}, lambda values: values.get("value", zero))


def _nanos(values: dict[str, Any]) -> int:
    return int(values.get("seconds", 0) * _SECOND + values.get("nanos", 0))


def _timestamp(values: dict[str, Any]) -> Timestamp:
    seconds, nanos = divmod(_nanos(values), _SECOND)
    wrapped = (seconds - MIN_INT) % 2**64 + MIN_INT  # `nanos` can exceed a second; the sum overflows as in Go
    return Timestamp(wrapped * _SECOND + nanos)


def _last(values: dict[str, Any]) -> Any:
    """Return the value of a Value: that of its last field, as the fields exclude each other."""
    name = next(reversed(values), "null_value")
    return None if name == "null_value" else values[name]


_SECONDS = {"seconds": Field(INT, "int64"), "nanos": Field(INT, "int32")}
_OBJECT, _ARRAY = map_of(STRING, DYN), list_of(DYN)

MESSAGES: Mapping[str, Message] = {
    f"{_PREFIX}{name}": message
    for name, message in {
        "BoolValue": _wrapper(BOOL, "bool", False),
        "BytesValue": _wrapper(BYTES, "[]uint8", b""),
        "DoubleValue": _wrapper(DOUBLE, "float64", 0.0),
        "Duration": Message(DURATION, _SECONDS, lambda values: Duration(max(MIN_INT, min(_nanos(values), MAX_INT)))),
        "FloatValue": _wrapper(DOUBLE, "float32", 0.0),
        "Int32Value": _wrapper(INT, "int32", 0),
        "Int64Value": _wrapper(INT, "int64", 0),
        "ListValue": Message(_ARRAY, {"values": Field(_ARRAY, "repeated")}, lambda values: values.get("values", [])),
        "StringValue": _wrapper(STRING, "string", ""),
        "Struct": Message(_OBJECT, {"fields": Field(_OBJECT, "map")}, lambda values: values.get("fields", {})),
        "Timestamp": Message(TIMESTAMP, _SECONDS, _timestamp),
        "UInt32Value": _wrapper(UINT, "uint32", Uint(0)),
        "UInt64Value": _wrapper(UINT, "uint64", Uint(0)),
        "Value": Message(
            DYN,
            {
                "null_value": Field(INT, "protoreflect.EnumNumber"),
                "number_value": Field(DOUBLE, "float64"),
                "string_value": Field(STRING, "string"),
                "bool_value": Field(BOOL, "bool"),
                "struct_value": Field(_OBJECT, "*structpb.Struct"),
                "list_value": Field(_ARRAY, "*structpb.ListValue"),
            },
            _last,
        ),
    }.items()
}
"""Name -> message, in every environment."""
ENUM_VALUES: Mapping[str, int] = {f"{_PREFIX}NullValue.NULL_VALUE": 0}
