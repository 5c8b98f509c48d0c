"""The encoding of single values: Go's scalar types, and types with their own form in JSON."""

import base64
import re
import string
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import msgspec

from controlplane.apiserver.protobuf.wire import (
    FIXED64,
    LENGTH,
    VARINT,
    ProtobufError,
    fields,
    signed,
    sized,
    tag,
    varint,
)
from resourceapi.objects import DecodeError, Quantity, QuantityError, format_time, parse_json
from resourceapi.objects.codec import PLAIN, Mismatch, micro_time_error

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _THIRD = tag(1, LENGTH), tag(3, LENGTH)
_BASE64 = frozenset(string.ascii_letters.encode() + string.digits.encode() + b"+/")
_IS_BASE64 = re.compile(rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_NEWLINES, _PADDING = b"\r\n", ord("=")
_SHORT = 1e21  # smaller numbers are written without an exponent
_ZERO = b"\0"
"""The length 0."""


class Form(NamedTuple):
    """`write` returns the bytes after the tag, for a value that is neither None nor `zero`; it raises Mismatch.

    `read` returns the value of these bytes, and raises ProtobufError. `zero` is the JSON form of Go's zero value.
    `go_type` is Go's name. A `nullable` value is left out if it is missing. If a field occurs twice, the values of a
    form that `merges` are joined; otherwise the last one counts.
    """

    wire_type: int
    write: Callable[[Any], bytes]
    read: Callable[[Any], Any]
    zero: Callable[[], Any]
    go_type: str
    nullable: bool = False
    merges: bool = False


def text_of(data: bytes) -> str:
    """Return a string's text. Like Go, it replaces bytes that are not UTF-8."""
    return data.decode("utf-8", "replace")


def _write_text(value: Any) -> bytes:
    return sized(PLAIN[str].read(value).encode())


def _write_int32(value: Any) -> bytes:
    if type(value) is not int or not -(2**31) <= value < 2**31:
        raise Mismatch(value, "int32")
    return varint(value)


def _write_float(value: Any) -> bytes:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Mismatch(value, "float64")
    return struct.pack("<d", value)


def _read_float(data: bytes) -> float:
    value: float = struct.unpack("<d", data)[0]
    return int(value) if value.is_integer() and abs(value) < _SHORT else value  # the form that Go writes in JSON


def _write_bytes(value: Any) -> bytes:
    if isinstance(value, list):  # Go accepts a list of bytes too
        return sized(bytes(map(_byte, value)))
    if not isinstance(value, str):
        raise Mismatch(value, "[]uint8")
    text = value.encode(errors="surrogatepass")
    plain = text.translate(None, _NEWLINES)
    if not _IS_BASE64.fullmatch(plain):
        raise Mismatch(reason=f"illegal base64 data at input byte {_illegal_at(text)}")
    return sized(base64.b64decode(plain))


def _byte(value: Any) -> int:
    if value is None:
        return 0
    if type(value) is not int or not 0 <= value < 256:
        raise Mismatch(value, "uint8")
    return value


def _illegal_at(text: bytes) -> int:
    """The position at which Go's base64 package fails in an invalid text."""
    held = 0  # characters of the current group of four
    for at, byte in enumerate(text):
        if byte in _BASE64:
            held = (held + 1) % 4
        elif byte not in _NEWLINES:
            if byte != _PADDING or held < 2:
                return at
            rest = _after_newlines(text, at + 1)
            if held == 2 and rest < len(text):
                if text[rest] != _PADDING:
                    return rest - 1
                rest = _after_newlines(text, rest + 1)
            return rest
    return len(text) - held


def _after_newlines(text: bytes, at: int) -> int:
    while at < len(text) and text[at] in _NEWLINES:
        at += 1
    return at


def _write_time(value: Any, *, micro: bool = False) -> bytes:
    if value is None:
        return _ZERO
    if micro and (why := micro_time_error(value)):
        raise Mismatch(reason=why)
    passed: timedelta = PLAIN[datetime].read(value) - _EPOCH
    nanos = passed.microseconds * 1000 if micro else 0
    return sized(b"\x08" + varint(passed.days * 86400 + passed.seconds) + b"\x10" + varint(nanos))


def _read_time(data: bytes, *, micro: bool = False) -> str | None:
    if not data:
        return None
    found = {number: item for number, _, item in fields(data) if isinstance(item, int)}
    try:
        seconds, nanos = signed(found.get(1, 0), 64), signed(found.get(2, 0), 32)
        moment = _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
    except OverflowError:
        raise ProtobufError("year outside of range [0,9999]") from None
    if micro:
        return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    return format_time(moment)


def _read_quantity(data: bytes) -> str:
    texts = [text_of(item) for number, _, item in fields(data) if number == 1 and isinstance(item, bytes)]
    try:
        return str(Quantity.parse(texts[-1] if texts else ""))
    except QuantityError as error:
        raise ProtobufError(str(error)) from None


def _write_int_or_string(value: Any) -> bytes:
    if isinstance(value, str):
        return sized(b"\x08\x01\x10\x00" + _THIRD + _write_text(value))
    return sized(b"\x08\x00\x10" + _write_int32(value) + _THIRD + _ZERO)


def _read_int_or_string(data: bytes) -> int | str:
    found = {number: item for number, _, item in fields(data)}
    text, number = found.get(3, b""), found.get(2, 0)
    if found.get(1):
        return text_of(text) if isinstance(text, bytes) else ""
    return signed(number, 32) if isinstance(number, int) else 0


def _read_raw(data: bytes) -> Any:
    raw = [item for number, _, item in fields(data) if number == 1 and isinstance(item, bytes)]
    try:
        return parse_json(raw[-1]) if raw and raw[-1] else None
    except DecodeError as error:
        raise ProtobufError(str(error)) from None


def _write_texts(value: Any) -> bytes:
    if not isinstance(value, list):
        raise Mismatch(value, "[]string")
    return sized(b"".join(_FIRST + _write_text(item) for item in value))


def _write_int64(value: Any) -> bytes:
    return varint(PLAIN[int].read(value))


def _write_quantity(value: Any) -> bytes:
    return sized(_FIRST + _write_text(str(PLAIN[Quantity].read(value))))


def _write_amount(value: Any) -> bytes:
    return sized(_FIRST + _write_text(str(PLAIN[Quantity].read(value).rounded_up())))


def _write_raw(value: Any) -> bytes:
    return _ZERO if value is None else sized(_FIRST + sized(msgspec.json.encode(value)))


def _read_texts(data: bytes) -> list[str]:
    return [text_of(item) for number, _, item in fields(data) if number == 1 and isinstance(item, bytes)]


_none = type(None)
_write_micro_time, _read_micro_time = partial(_write_time, micro=True), partial(_read_time, micro=True)
FORMS = {
    "string": Form(LENGTH, _write_text, text_of, str, "string"),
    "bool": Form(VARINT, lambda value: varint(PLAIN[bool].read(value)), bool, bool, "bool"),
    "int32": Form(VARINT, _write_int32, lambda number: signed(number, 32), int, "int32"),
    "int64": Form(VARINT, _write_int64, lambda number: signed(number, 64), int, "int64"),
    "float64": Form(FIXED64, _write_float, _read_float, int, "float64"),
    "bytes": Form(LENGTH, _write_bytes, lambda data: base64.b64encode(data).decode(), str, "[]uint8", nullable=True),
    "Time": Form(LENGTH, _write_time, _read_time, _none, "string"),
    "MicroTime": Form(LENGTH, _write_micro_time, _read_micro_time, _none, "string"),
    "Quantity": Form(LENGTH, _write_quantity, _read_quantity, lambda: "0", ""),
    "Amount": Form(LENGTH, _write_amount, _read_quantity, lambda: "0", ""),
    "IntOrString": Form(LENGTH, _write_int_or_string, _read_int_or_string, int, "int32"),
    "Raw": Form(LENGTH, _write_raw, _read_raw, _none, ""),
    "Strings": Form(LENGTH, _write_texts, _read_texts, _none, "[]string", nullable=True),
}
"""The forms by the table's names. `Amount` is a quantity in a resource list, which is rounded to thousandths.

The forms in schemas of CustomResourceDefinitions are in `codec`.
"""
