"""Conversions between types: bool(), bytes(), double(), duration(), int(), string(), timestamp(), uint()."""

from __future__ import annotations

import re
from typing import Any

from resourceapi.cel.declarations import Function, Overload, group
from resourceapi.cel.errors import CelEvalError
from resourceapi.cel.gotext import format_double
from resourceapi.cel.library.standard import MAX_TIME, MIN_TIME, checked_int, checked_uint
from resourceapi.cel.library.times import format_duration, format_timestamp, parse_duration, parse_timestamp
from resourceapi.cel.values import MAX_INT, MAX_UINT, MIN_INT, Duration, Timestamp, Uint, read_digits, type_name

_NANOS = 10**9
# Possessive repetitions make matching linear in the length of the text.
_FLOAT = re.compile(
    r"[+-]?(?:(?:\d(?:_?\d)*+)?+\.?(?:\d(?:_?\d)*+)?+(?:e[+-]?\d(?:_?\d)*+)?|inf|infinity)|nan",
    re.IGNORECASE | re.ASCII,
)
_HEX_FLOAT = re.compile(r"[+-]?0x(?:_?[0-9a-f])*+\.?(?:_?[0-9a-f])*+p[+-]?\d(?:_?\d)*+", re.IGNORECASE | re.ASCII)
_BOOLS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}


def _failed(value: Any, target: str) -> CelEvalError:
    return CelEvalError(f"type conversion error from '{type_name(value)}' to '{target}'")


def _identity(value: Any) -> Any:
    return value


def _string_to_bool(text: str) -> bool:
    if text not in _BOOLS:
        raise _failed(text, "bool")
    return _BOOLS[text]


def _string_to_double(text: str) -> float:
    if _HEX_FLOAT.fullmatch(text):
        try:
            return float.fromhex(text.replace("_", ""))
        except (ValueError, OverflowError):
            raise _failed(text, "double") from None
    if not _FLOAT.fullmatch(text):
        raise _failed(text, "double")
    try:
        value = float(text)
    except ValueError:
        raise _failed(text, "double") from None
    if value in (float("inf"), float("-inf")) and "i" not in text.lower():
        raise _failed(text, "double")
    return value


def _string_to_int(text: str) -> int:
    match = re.fullmatch(r"([+-]?)(\d+)", text, re.ASCII)
    value = 0 if match is None else read_digits(match[2]) * (-1 if match[1] == "-" else 1)
    if match is None or not MIN_INT <= value <= MAX_INT:
        raise _failed(text, "int")
    return value


def _string_to_uint(text: str) -> Uint:
    if not re.fullmatch(r"\d+", text, re.ASCII) or (value := read_digits(text)) > MAX_UINT:
        raise _failed(text, "uint")
    return Uint(value)


def _double_to_int(value: float) -> int:
    if value != value or not MIN_INT < value < MAX_INT:
        raise CelEvalError("integer overflow")
    return int(value)


def _double_to_uint(value: float) -> Uint:
    if value != value or not 0 <= value < 2.0**64:
        raise CelEvalError("unsigned integer overflow")
    return Uint(int(value))


def _bytes_to_string(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise CelEvalError("invalid UTF-8 in bytes, cannot convert to string") from None


def _string_to_duration(text: str) -> Duration:
    nanos = parse_duration(text)
    if nanos is None:
        raise _failed(text, "google.protobuf.Duration")
    return Duration(nanos)


def _string_to_timestamp(text: str) -> Timestamp:
    value = parse_timestamp(text)
    if value is None:
        raise _failed(text, "google.protobuf.Timestamp")
    if not MIN_TIME <= value.nanos // _NANOS <= MAX_TIME:
        raise CelEvalError("timestamp overflow")
    return value


def _int_to_timestamp(seconds: int) -> Timestamp:
    if not MIN_TIME <= seconds <= MAX_TIME:
        raise CelEvalError("timestamp overflow")
    return Timestamp(seconds * _NANOS)


def to_string(value: Any) -> str:
    """Return the string form of a scalar. Raises CelEvalError for bytes that are not UTF-8."""
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is float:
        return format_double(value)
    if kind is bytes:
        return _bytes_to_string(value)
    if kind is Duration:
        return format_duration(value)
    if kind is Timestamp:
        return format_timestamp(value)
    return str(int(value))


def functions() -> list[Function]:
    """The conversions, except those that other libraries declare with their types."""
    return group(
        [
            Overload("bool_to_bool", "bool(bool) -> bool", _identity),
            Overload("string_to_bool", "bool(string) -> bool", _string_to_bool),
            Overload("bytes_to_bytes", "bytes(bytes) -> bytes", _identity),
            Overload("string_to_bytes", "bytes(string) -> bytes", str.encode),
            Overload("double_to_double", "double(double) -> double", _identity),
            Overload("int64_to_double", "double(int) -> double", float),
            Overload("string_to_double", "double(string) -> double", _string_to_double),
            Overload("uint64_to_double", "double(uint) -> double", float),
            Overload("duration_to_duration", "duration(duration) -> duration", _identity),
            Overload("string_to_duration", "duration(string) -> duration", _string_to_duration),
            Overload("int64_to_int64", "int(int) -> int", _identity),
            Overload("double_to_int64", "int(double) -> int", _double_to_int),
            Overload("duration_to_int64", "int(duration) -> int", lambda value: value.nanos),
            Overload("string_to_int64", "int(string) -> int", _string_to_int),
            Overload("timestamp_to_int64", "int(timestamp) -> int", lambda value: value.nanos // _NANOS),
            Overload("uint64_to_int64", "int(uint) -> int", lambda value: checked_int(int(value))),
            Overload("string_to_string", "string(string) -> string", _identity),
            Overload("bool_to_string", "string(bool) -> string", to_string),
            Overload("bytes_to_string", "string(bytes) -> string", to_string),
            Overload("double_to_string", "string(double) -> string", to_string),
            Overload("duration_to_string", "string(duration) -> string", to_string),
            Overload("int64_to_string", "string(int) -> string", to_string),
            Overload("timestamp_to_string", "string(timestamp) -> string", to_string),
            Overload("uint64_to_string", "string(uint) -> string", to_string),
            Overload("timestamp_to_timestamp", "timestamp(timestamp) -> timestamp", _identity),
            Overload("int64_to_timestamp", "timestamp(int) -> timestamp", _int_to_timestamp),
            Overload("string_to_timestamp", "timestamp(string) -> timestamp", _string_to_timestamp),
            Overload("uint64_to_uint64", "uint(uint) -> uint", _identity),
            Overload("double_to_uint64", "uint(double) -> uint", _double_to_uint),
            Overload("int64_to_uint64", "uint(int) -> uint", checked_uint),
            Overload("string_to_uint64", "uint(string) -> uint", _string_to_uint),
        ]
    )
