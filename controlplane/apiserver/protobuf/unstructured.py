"""Go's conversion of an untyped value to a type: after a strategic merge patch, and for applied configurations.

It differs from decoding JSON: it converts numbers, follows the order of the type, and has other error texts.
Source: k8s.io/apimachinery pkg/runtime/converter.go (FromUnstructured).
"""

from collections.abc import Iterator, Set
from typing import Any

from controlplane.apiserver.protobuf.codec import is_message
from controlplane.apiserver.protobuf.forms import FORMS
from controlplane.apiserver.protobuf.members import INDEX
from controlplane.apiserver.protobuf.messages import TYPE_MEMBERS, TYPED_PARTS, fields_of
from resourceapi.objects import DecodeError
from resourceapi.objects.codec import Mismatch

_LIST, _MAP = "[]", "map[string]"
_INTEGERS = {"int32": 32, "int64": 64}
_PLAIN = ("string", "bool", "float64", *_INTEGERS)
_OVERFLOWN = -(2**63)
"""The result of Go's conversion of a float beyond 64 bits to an integer."""


def converted(message: str, value: Any, problems: list[str], kept: Set[str] = frozenset(), path: str = "") -> Any:
    """Return the value with the members that the message has. Raises DecodeError for values that cannot be converted.

    Texts such as `unknown field "spec.x"` are added to `problems`; their paths do not contain keys of maps. Members at
    the paths `kept` stay.
    """
    if not isinstance(value, dict):
        raise DecodeError(f"cannot restore struct from: {_kind(value)}")
    known: dict[str, Any] = {}
    for name, form in _members(message):
        if name in value:
            known[name] = _value(form, value[name], problems, kept, f"{path}.{name}" if path else name)
    for name in value:
        here = f"{path}.{name}" if path else name
        if INDEX.sub("", here) in kept:
            known[name] = value[name]
        elif name not in known and not (message in TYPED_PARTS and name in TYPE_MEMBERS):
            problems.append(f'unknown field "{here}"')
    return known


def _members(message: str) -> Iterator[tuple[str, str]]:
    for field in fields_of(message):
        if field.name:
            yield field.name, field.type
        else:
            yield from _members(field.type.removeprefix("*"))


def _value(form: str, value: Any, problems: list[str], kept: Set[str], path: str) -> Any:
    if value is None:
        return None
    form = form.removeprefix("*")
    plain, _, named = form.partition("=")
    if form.startswith(_LIST):
        if not isinstance(value, list):
            raise DecodeError(f"cannot restore slice from {_kind(value)}")
        item = form.removeprefix(_LIST)
        return [_value(item, each, problems, kept, f"{path}[{n}]") for n, each in enumerate(value)]
    if form.startswith(_MAP):
        if not isinstance(value, dict):
            raise DecodeError(f"cannot restore map from {_kind(value)}")
        item = form.removeprefix(_MAP)
        return {name: _value(item, each, problems, kept, path) for name, each in value.items()}
    if is_message(form):
        return converted(form, value, problems, kept, path)
    if plain in _PLAIN:
        return _plain(plain, named or plain, value)
    if plain == "bytes" and not isinstance(value, str | list):
        raise DecodeError(f"cannot restore slice from {_kind(value)}")
    if plain in FORMS:
        try:
            FORMS[plain].write(value)
        except Mismatch as mismatch:
            prefix = "error decoding from json: " if plain == "bytes" else ""
            raise DecodeError(f"{prefix}{mismatch.to_error('v1').reason}") from None
    return value


def _plain(form: str, named: str, value: Any) -> Any:
    """A value of one of Go's scalar types; `named` is Go's name of the type."""
    kind = _kind(value)
    if form == "float64" and kind in ("int64", "float64"):
        return value
    if form in _INTEGERS and kind in ("int64", "float64"):
        if isinstance(value, float) and not value.is_integer():
            raise DecodeError(f"cannot convert {kind} to {named}")
        return _wrapped(int(value), _INTEGERS[form])
    if form == kind:
        return value
    if form == "string" and kind == "int64":  # Go would make a character of it
        raise DecodeError(f"cannot convert int64 to {named}")
    raise DecodeError(f"unrecognized type: {form}")


def _wrapped(number: int, bits: int) -> int:
    """A number cut to a number of bits, as the processor does it."""
    number = number if -(2**63) <= number < 2**63 else _OVERFLOWN
    number &= 2**bits - 1
    return number - 2**bits if number >> (bits - 1) else number


def _kind(value: Any) -> str:
    """Go's kind of a JSON value."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int64" if -(2**63) <= value < 2**63 else "float64"
    kinds = {float: "float64", str: "string", list: "slice"}
    return kinds.get(type(value), "map")
