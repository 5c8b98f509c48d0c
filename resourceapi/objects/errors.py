"""Field errors of an object, in the API server's wording.

Rules add errors to a list and never raise. `invalid_status` builds the API server's response from the list.
"""

import enum
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from resourceapi.objects.codec import format_time, to_dict, unwrapped
from resourceapi.objects.meta import KubernetesObject, ObjectMeta, OwnerReference, Record, WrittenEmpty
from resourceapi.objects.quantity import Quantity


class ErrorType(enum.Enum):
    """Kind of a field error: the cause's reason in a Status body, and the prefix of the message."""

    REQUIRED = ("FieldValueRequired", "Required value")
    INVALID = ("FieldValueInvalid", "Invalid value")
    DUPLICATE = ("FieldValueDuplicate", "Duplicate value")
    NOT_SUPPORTED = ("FieldValueNotSupported", "Unsupported value")
    FORBIDDEN = ("FieldValueForbidden", "Forbidden")
    TOO_LONG = ("FieldValueTooLong", "Too long")
    TOO_MANY = ("FieldValueTooMany", "Too many")
    NOT_FOUND = ("FieldValueNotFound", "Not found")
    INTERNAL = ("InternalError", "Internal error")
    TYPE_INVALID = ("FieldValueTypeInvalid", "Invalid value")

    @property
    def reason(self) -> str:
        """The cause's reason in a Status body."""
        return self.value[0]


_MAX_CHARACTERS = 8 * 1024 * 1024  # characters of all errors; an object has at most 1.5 MiB
_WITHOUT_VALUE = frozenset({ErrorType.REQUIRED, ErrorType.FORBIDDEN, ErrorType.TOO_LONG, ErrorType.INTERNAL})


class FieldError(NamedTuple):
    """One fault. `path` is like `spec.devices[0].name`; `message` does not contain the path."""

    type: ErrorType
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class Token(str):
    """A text whose Go type is a named string type, such as an operator. Errors show it as JSON, not Go-quoted."""

    __slots__ = ()


OMITTED: Any = object()
"""Passed as the value of an error whose message does not show it."""


class WithAlpha(NamedTuple):
    """A value that errors show with its alpha fields, even if they are empty."""

    value: Any


class InOrder(NamedTuple):
    """A value whose members errors show in their present order."""

    value: Any


class ErrorList(list[FieldError]):
    """Field errors in the order in which they were found.

    Errors are dropped once the texts exceed `_MAX_CHARACTERS` characters, because each error can show a large value.
    """

    _length = 0

    @property
    def is_full(self) -> bool:
        """Whether further errors are dropped."""
        return self._length > _MAX_CHARACTERS

    def required(self, path: str, detail: str = "") -> None:
        """A value is missing."""
        self._add(ErrorType.REQUIRED, path, None, detail)

    def invalid(self, path: str, value: Any, detail: str) -> None:
        """A value breaks a rule."""
        self._add(ErrorType.INVALID, path, value, detail)

    def duplicate(self, path: str, value: Any, detail: str = "") -> None:
        """A value that must be unique occurs again."""
        self._add(ErrorType.DUPLICATE, path, value, detail)

    def not_supported(self, path: str, value: Any, supported: list[str], *, is_named: bool = True) -> None:
        """A value is not one of the supported ones; `is_named`: its Go type is a named string type."""
        quoted = ", ".join(quoted_text(item) for item in supported)
        shown = Token(value) if is_named and isinstance(value, str) else value
        self._add(ErrorType.NOT_SUPPORTED, path, shown, f"supported values: {quoted}")

    def forbidden(self, path: str, detail: str) -> None:
        """A value is possible, but not here."""
        self._add(ErrorType.FORBIDDEN, path, None, detail)

    def too_long(self, path: str, limit: int, unit: str = "bytes") -> None:
        """A text has more bytes (or characters) than the limit."""
        unit = unit.removesuffix("s") if limit == 1 else unit
        self._add(ErrorType.TOO_LONG, path, None, f"may not be more than {limit} {unit}")

    def too_many(self, path: str, count: int, limit: int) -> None:
        """A list or map has more items than the limit."""
        self._add(ErrorType.TOO_MANY, path, count, f"must have at most {limit} item{'' if limit == 1 else 's'}")

    def not_found(self, path: str, value: str, detail: str = "") -> None:
        """A reference names something that does not exist."""
        self._add(ErrorType.NOT_FOUND, path, value, detail)

    def internal(self, path: str, detail: str) -> None:
        """A rule could not be checked."""
        self._add(ErrorType.INTERNAL, path, None, detail)

    def _add(self, kind: ErrorType, path: str, value: Any, detail: str) -> None:
        if self.is_full:
            return
        words = kind.value[1]
        shown = "" if kind in _WITHOUT_VALUE or value is OMITTED else f": {_shown(value)}"
        error = FieldError(kind, path, f"{words}{shown}" + (f": {detail}" if detail else ""))
        self._length += len(path) + len(error.message)
        self.append(error)


def invalid_status(obj: KubernetesObject, errors: ErrorList) -> dict[str, Any]:
    """Return the Status body with which the API server refuses the object: message, reason and causes."""
    group = obj.API_VERSION.rpartition("/")[0]
    kind, name = f"{obj.KIND}.{group}" if group else obj.KIND, obj.metadata.name
    distinct = list(dict.fromkeys(str(error) for error in errors))
    text = distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"
    details: dict[str, Any] = {"name": name, "group": group, "kind": obj.KIND}
    details["causes"] = [{"reason": x.type.reason, "message": x.message, "field": x.path} for x in errors]
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"{kind} {quoted_text(name)} is invalid: {text}",
        "reason": "Invalid",
        "details": {key: value for key, value in details.items() if value},
        "code": 422,
    }


def quoted_text(text: str) -> str:
    """Return the text in quotes, escaped as Go's strconv.Quote does."""
    pieces = []
    for character in text:
        if character in _ESCAPES:
            pieces.append(_ESCAPES[character])
        elif character == " " or character.isprintable():
            pieces.append(character)
        elif ord(character) < 0x80:
            pieces.append(f"\\x{ord(character):02x}")
        else:
            pieces.append(f"\\u{ord(character):04x}" if ord(character) < 0x10000 else f"\\U{ord(character):08x}")
    return f'"{"".join(pieces)}"'


_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def _shown(value: Any) -> str:
    if isinstance(value, str) and not isinstance(value, Token):
        return quoted_text(value)
    if isinstance(value, Quantity):
        return quoted_text(str(value))
    if isinstance(value, WithAlpha):
        value = _internal_form(value.value, alpha=True)
    elif isinstance(value, InOrder):
        value = value.value
    elif not isinstance(value, dict):  # a dict's members are in display order already
        value = _internal_form(value)
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.translate(JSON_ESCAPES)


def _internal_form(value: Any, *, alpha: bool = False) -> Any:
    """Return a value as the API server's internal structs print it: Go's field names, null for empty values."""
    if isinstance(value, ObjectMeta | OwnerReference):
        return to_dict(value)  # the internal API uses the same struct as the versioned one
    if isinstance(value, Record):
        form: dict[str, Any] = {}
        for info in msgspec.structs.fields(type(value)):
            if info.name == "unknown_fields":
                continue
            item = getattr(value, info.name)
            plain, marks = unwrapped(info.type)
            if not item and "alpha" in marks and not alpha:
                continue
            if plain is Any:
                form[_go_name(info.name)] = item
            elif isinstance(item, ObjectMeta):
                form.update(to_dict(item))  # embedded without a name
            else:
                form[_go_name(info.name)] = _internal_form(item, alpha=alpha)
        return form
    if isinstance(value, Quantity):
        return str(value)
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, tuple | list):
        shown = [_internal_form(item, alpha=alpha) for item in value]
        return shown if shown or isinstance(value, list | WrittenEmpty) else None
    if isinstance(value, Mapping):
        return {key: _internal_form(value[key], alpha=alpha) for key in sorted(value)} or None
    return value


def _go_name(name: str) -> str:
    return "".join(_ACRONYMS.get(word, word.capitalize()) for word in name.split("_"))


JSON_ESCAPES = {code: f"\\u{code:04x}" for code in (ord("&"), ord("<"), ord(">"), 0x2028, 0x2029)}
_ACRONYMS = {"api": "API", "cel": "CEL", "id": "ID", "ips": "IPs", "uid": "UID"}
