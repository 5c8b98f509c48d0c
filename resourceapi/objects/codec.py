"""Converts plain JSON values to records and back, driven by the records' type annotations.

Reading follows Go's rules, because that is what writers of manifests know: an absent member and `null` both leave the
zero value, nothing is converted silently, and the first mismatch is reported with its path. Members without a field
are kept in `unknown_fields` and written back. Writing leaves out empty fields, except where Go writes them.
"""

import functools
import json
import operator
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec

from resourceapi.objects.meta import Record, Unknown, WrittenEmpty
from resourceapi.objects.quantity import Quantity, QuantityError

R = TypeVar("R", bound=Record)

_MIN_INT64, _MAX_INT64 = -(2**63), 2**63 - 1
_GROUP = "resource.k8s.io"  # placeholder in type names: errors show the version of the request instead
_STRICT_JSON = json.JSONEncoder(allow_nan=False, ensure_ascii=False)
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)


class DecodeError(ValueError):
    """A value does not match its field.

    `path` is the field's path (`spec.devices[0].name`). `reason` is what is wrong, in Go's words where Go has some.
    """

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.reason = reason
        self.path = path


class Mismatch(Exception):
    """A value is not of the type `go_type` (Go's name). While the exception propagates, `under` adds path steps.

    Go continues after a value of the wrong type and reports the first of them at the end. A value that its own type
    refuses, such as a quantity or a time, `is_final`: Go reports it at once, even after earlier mismatches.
    """

    def __init__(self, value: object = None, go_type: str = "", reason: str = "") -> None:
        super().__init__()
        self.value = value
        self.go_type = go_type
        self.reason = reason
        self.is_final = bool(reason)
        self.steps: list[str] = []
        self.embedded: dict[int, str] = {}  # number of steps so far -> embedded struct
        self.struct = ""
        self._steps_in_struct = 0

    def of(self, struct: str) -> "Mismatch":
        """Record the struct whose member mismatches, unless an inner struct is recorded already; return self."""
        if not self.struct:
            self.struct, self._steps_in_struct = struct, len(self.steps)
        return self

    def within(self, embedded: str, struct: str) -> "Mismatch":
        """Record that `struct` embeds the struct of the member; Go names both, the outer one first. Return self."""
        count = len(self.steps)
        self.embedded[count] = ".".join(filter(None, (embedded, self.embedded.get(count))))
        if self._steps_in_struct == count - 1:
            self.struct = struct
        return self

    def under(self, step: str, embedded: str = "") -> "Mismatch":
        """Add one outer step to the path; `embedded` is the embedded Go struct that has the member. Return self."""
        self.steps.append(step)
        if embedded:
            self.embedded[len(self.steps)] = embedded
        return self

    def to_error(self, version: str) -> DecodeError:
        """Return the error with Go's message for this mismatch."""
        steps = self.steps[::-1]
        path = "".join(step if step.startswith("[") else f".{step}" for step in steps).removeprefix(".")
        if self.reason:
            return DecodeError(self.reason, path)
        found = _described(self.value)
        if self.go_type in ("int32", "int64", "uint8") and found == "number":
            found = f"number {_number(self.value)}"
        shown = [f"{self.embedded[i]}.{step}" if i in self.embedded else step for i, step in enumerate(self.steps, 1)]
        names = ".".join(step for step in reversed(shown) if not step.startswith("["))
        field = f"struct field {self.struct}.{names}" if names else "value"
        go_type = self.go_type.replace(_GROUP, version)
        return DecodeError(f"json: cannot unmarshal {found} into Go {field} of type {go_type}", path)


class _Kind(NamedTuple):
    """How values of one type are read and written; `go_type` is the type's name in Go."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any]
    zero: Callable[[], Any]
    go_type: str


class JsonField(NamedTuple):
    """A record's field and its form in JSON; free-form values are kept unchanged."""

    name: str
    json_name: str
    kind: _Kind
    default: Any
    always: bool
    is_text: bool
    embedded_in: str = ""  # the Go struct that has the field, if the record's Go type embeds that struct

    @property
    def is_free_form(self) -> bool:
        """Whether the field accepts any JSON value."""
        return self.kind is _FREE_FORM


def from_dict(record_type: type[R], value: object, version: str = "v1") -> R:
    """Return the record for a plain JSON value; raises DecodeError with the path of the first mismatch.

    The value is not changed, and the record shares its free-form parts (opaque parameters). `version` is the version
    of resource.k8s.io that errors name.
    """
    try:
        return typing.cast("R", _kind_of(record_type).read(value))
    except Mismatch as mismatch:
        raise mismatch.to_error(version) from None


def to_dict(record: Record) -> dict[str, Any]:
    """Return the plain JSON value of a record, members in the order of the API's types, unknown ones last."""
    result: dict[str, Any] = _kind_of(type(record)).write(record)
    return result


def json_fields(record_type: type[Record]) -> Mapping[str, JsonField]:
    """Return the fields of a record by their JSON names."""
    return _by_json_name(record_type)


def without_unknown(record: R) -> R:
    """Return the record without unknown members at any depth: what the API server would store.

    Returns the same record if it has none.
    """
    changes: dict[str, Any] = {} if record.unknown_fields is None else {"unknown_fields": None}
    for name in _record_fields(type(record)):
        value = getattr(record, name)
        if not value:
            continue
        known: Any = value
        if isinstance(value, Record):
            known = without_unknown(value)
        elif isinstance(value, tuple):
            items = tuple(map(without_unknown, value))
            known = items if any(map(operator.is_not, items, value)) else value
        elif isinstance(value, dict):
            members = {key: without_unknown(item) for key, item in value.items()}
            known = members if any(map(operator.is_not, members.values(), value.values())) else value
        if known is not value:
            changes[name] = known
    return msgspec.structs.replace(record, **changes) if changes else record


def format_time(moment: datetime) -> str:
    """Return a time as the API writes it: RFC 3339 in UTC, whole seconds."""
    return moment.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


@functools.cache
def _fields_of(record_type: type[Record]) -> tuple[JsonField, ...]:
    fields = []
    for info in msgspec.structs.fields(record_type):
        if info.name == "unknown_fields":
            continue
        plain, marks = unwrapped(info.type)
        kind = _with_go_type(_kind_of(plain), marks["go_type"]) if "go_type" in marks else _kind_of(plain)
        default = info.default if info.default is not msgspec.NODEFAULT else info.default_factory()
        is_text = kind.write is _write_text
        fields.append(
            JsonField(
                info.name, info.encode_name, kind, default, "written" in marks, is_text, marks.get("embedded_in", "")
            )
        )
    return tuple(fields)


@functools.cache
def _by_json_name(record_type: type[Record]) -> dict[str, JsonField]:
    return {field.json_name: field for field in _fields_of(record_type)}


@functools.cache
def _record_fields(record_type: type[Record]) -> tuple[str, ...]:
    """Return the names of the fields that hold a record, a tuple of records or a mapping to records."""
    return tuple(info.name for info in msgspec.structs.fields(record_type) if _holds_records(info.type))


def _holds_records(annotation: Any) -> bool:
    is_record = isinstance(annotation, type) and issubclass(annotation, Record)
    return is_record or any(map(_holds_records, typing.get_args(annotation)))


def unwrapped(annotation: Any) -> tuple[Any, Mapping[str, str]]:
    """Return the type inside an `Annotated`, and the entries of its `msgspec.Meta` marks."""
    if typing.get_origin(annotation) is Annotated:
        inner, *marks = typing.get_args(annotation)
        return inner, {name: text for mark in marks for name, text in mark.extra.items()}
    return annotation, {}


def _with_go_type(kind: _Kind, go_type: str) -> _Kind:
    """Return a kind with another Go type name."""

    def read(value: Any) -> Any:
        try:
            return kind.read(value)
        except Mismatch as mismatch:
            if not mismatch.steps:  # the value itself mismatches, not a part of it
                mismatch.go_type = go_type
            raise

    return kind._replace(read=read, go_type=go_type)


@functools.cache
def _kind_of(annotation: Any) -> _Kind:
    if annotation is Any:
        return _FREE_FORM
    if annotation in PLAIN:
        return PLAIN[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        plain, marks = unwrapped(annotation)
        return _with_go_type(_kind_of(plain), marks["go_type"])
    if origin is types.UnionType:  # X | None
        inner = _kind_of(next(argument for argument in arguments if argument is not types.NoneType))
        return _Kind(inner.read, inner.write, lambda: None, inner.go_type)
    if origin is tuple:
        return _list_kind(_kind_of(arguments[0]))
    if origin is Mapping:
        return _map_kind(_kind_of(arguments[1]))
    if isinstance(annotation, type) and issubclass(annotation, Record):
        return _record_kind(annotation)
    raise TypeError(f"no JSON form for {annotation}")


def _record_kind(record_type: type[Record]) -> _Kind:
    package = _GROUP if record_type.__module__.endswith((".v1", ".v1beta1")) else "v1"
    go_type = f"{package}.{record_type.__name__}"

    def read(value: Any) -> Record:
        if not isinstance(value, dict):
            raise Mismatch(value, go_type)
        known = _by_json_name(record_type)  # resolved on first use, because types can refer to each other
        values: dict[str, Any] = {}
        unknown = first = None
        for json_name, item in value.items():
            field = known.get(json_name)
            if field is None:
                if not isinstance(json_name, str):
                    raise Mismatch(reason=f"member names must be strings, not {json_name!r}")
                unknown = Unknown() if unknown is None else unknown
                try:
                    unknown[json_name] = _read_free_form(item)
                except Mismatch as mismatch:
                    raise mismatch.under(json_name) from None
            elif field.is_text and type(item) is str and item.isascii():  # fast path for most members
                values[field.name] = item
            elif item is not None:
                try:
                    values[field.name] = field.kind.read(item)
                except Mismatch as mismatch:
                    mismatch.struct = mismatch.struct or record_type.__name__
                    first = _first(first, mismatch.under(json_name, field.embedded_in))
        if first is not None:
            raise first
        return record_type(**values, unknown_fields=unknown)

    def write(record: Any) -> dict[str, Any]:
        result = {}
        for field in _fields_of(record_type):
            value = getattr(record, field.name)
            if field.always or value != field.default:
                is_null = value is None or (field.always and value == ())
                result[field.json_name] = None if is_null else value if field.is_text else field.kind.write(value)
        if record.unknown_fields:
            result.update((name, item) for name, item in record.unknown_fields.items() if name not in result)
        return result

    return _Kind(read, write, record_type, go_type)


def _list_kind(item_kind: _Kind) -> _Kind:
    go_type = f"[]{item_kind.go_type}"

    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise Mismatch(value, go_type)
        if not value:
            return WrittenEmpty()
        items, first = [], None
        for index, item in enumerate(value):
            try:
                items.append(item_kind.zero() if item is None else item_kind.read(item))
            except Mismatch as mismatch:
                first = _first(first, mismatch.under(f"[{index}]"))
        if first is not None:
            raise first
        return tuple(items)

    return _Kind(read, lambda value: [item_kind.write(item) for item in value], tuple, go_type)


def _map_kind(item_kind: _Kind) -> _Kind:
    go_type = f"map[string]{item_kind.go_type}"

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Mismatch(value, go_type)
        items, first = {}, None
        for key, item in value.items():
            if not isinstance(key, str):
                raise Mismatch(reason=f"member names must be strings, not {key!r}")
            try:
                _read_str(key)
                items[key] = item_kind.zero() if item is None else item_kind.read(item)
            except Mismatch as mismatch:
                first = _first(first, mismatch.under(f"[{key}]"))
        if first is not None:
            raise first
        return items

    def write(value: Any) -> dict[str, Any]:
        return {key: item_kind.write(value[key]) for key in sorted(value)}

    return _Kind(read, write, dict, go_type)


def _first(before: Mismatch | None, now: Mismatch) -> Mismatch:
    """Return the mismatch to report if no final one follows. Raises `now` if it is final."""
    if now.is_final:
        raise now from None
    return now if before is None else before


def _read_free_form(value: Any) -> Any:
    """Return the value unchanged; raises Mismatch if it could not be written again as JSON."""
    try:
        _STRICT_JSON.encode(value).encode()
    except RecursionError:
        raise Mismatch(reason="json: exceeded max depth") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise Mismatch(reason=f"not JSON: {error}") from None
    return value


def _read_str(value: Any) -> str:
    if not isinstance(value, str):
        raise Mismatch(value, "string")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise Mismatch(reason=f"not UTF-8: {error.reason}") from None
    return value


def _write_text(value: str) -> str:
    return value


def _read_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Mismatch(value, "bool")
    return value


def _read_int(value: Any) -> int:
    if type(value) is not int or not _MIN_INT64 <= value <= _MAX_INT64:
        raise Mismatch(value, "int64")
    return value


def _read_quantity(value: Any) -> Quantity:
    try:
        return Quantity.parse(_quantity_text(value))
    except QuantityError as error:
        raise Mismatch(reason=str(error)) from None


def _quantity_text(value: Any) -> str:
    """Return the text that Go parses: the string, or the JSON text of any other value."""
    if isinstance(value, str):
        return value.strip()
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return _number(value) if is_number else _described(value)  # `_described` gives a text that does not parse


def _read_time(value: Any) -> datetime:
    if isinstance(value, datetime):  # YAML has a timestamp type
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    if not isinstance(value, str):
        mismatch = Mismatch(value, "string")
        mismatch.is_final = True
        raise mismatch
    try:
        if _RFC3339.fullmatch(value):
            return datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        pass  # for example February 30 or hour 25
    raise Mismatch(reason=_time_error(value, _TIME_LAYOUT))


def is_time(text: str) -> bool:
    """Return whether a text is a valid time (RFC 3339, as Go parses it)."""
    try:
        _read_time(text)
    except Mismatch:
        return False
    return True


def micro_time_error(text: Any) -> str:
    """Return Go's error about a text that is not a valid MicroTime; empty for valid ones and other types."""
    is_right = not isinstance(text, str) or _MICRO_TIME.fullmatch(text)
    return "" if is_right else _time_error(text, _MICRO_LAYOUT)


def _time_error(text: str, layouts: Sequence[tuple[str, str]]) -> str:
    """Return Go's error about an invalid time, which names the first part of the layout that does not match."""
    rest, whole = text, "".join(layout for layout, _ in layouts)
    for layout, pattern in layouts:
        match = re.match(pattern, rest, re.ASCII)
        if match is None:
            return f'parsing time "{_quoted(text)}" as "{whole}": cannot parse "{_quoted(rest)}" as "{layout}"'
        rest = rest[match.end() :]
    found = f'parsing time "{_quoted(text)}"'
    return f'{found}: extra text: "{_quoted(rest)}"' if rest else f"{found}: out of range"


def _quoted(text: str) -> str:
    """Quote a text as Go's `time` package does: every byte of a non-ASCII character is escaped."""
    pieces = []
    for character in text:
        if character in '"\\':
            pieces.append(f"\\{character}")
        elif " " <= character < "\x80":
            pieces.append(character)
        else:
            pieces += [f"\\x{byte:02x}" for byte in character.encode(errors="surrogatepass")]
    return "".join(pieces)


def _described(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, list | tuple):
        return "array"
    return "object" if isinstance(value, dict) else type(value).__name__


def _number(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > 10_000:
        return "beyond all bounds"  # Python refuses to print it
    return repr(value)


_TIME_LAYOUT = (
    ("2006", r"\d{4}"),
    ("-", "-"),
    ("01", r"\d\d"),
    ("-", "-"),
    ("02", r"\d\d"),
    ("T", "T"),
    ("15", r"\d\d"),
    (":", ":"),
    ("04", r"\d\d"),
    (":", ":"),
    ("05", r"\d\d([.,]\d+)?"),
    ("Z07:00", r"Z|[+-]\d\d:\d\d"),
)
_MICRO_LAYOUT = (*_TIME_LAYOUT[:-2], ("05", r"\d\d"), (".000000", r"[.,]\d{6}"), _TIME_LAYOUT[-1])
_MICRO_TIME = re.compile("".join(f"(?:{pattern})" for _, pattern in _MICRO_LAYOUT), re.ASCII)
_FREE_FORM = _Kind(_read_free_form, lambda value: value, lambda: None, "")
PLAIN: dict[Any, _Kind] = {
    str: _Kind(_read_str, _write_text, str, "string"),
    bool: _Kind(_read_bool, lambda value: value, bool, "bool"),
    int: _Kind(_read_int, lambda value: value, int, "int64"),
    Quantity: _Kind(_read_quantity, str, lambda: Quantity.of(0), "resource.Quantity"),
    datetime: _Kind(_read_time, format_time, lambda: None, "string"),
}
"""How scalar values are read and written; reading raises Mismatch."""
