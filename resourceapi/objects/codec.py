"""Between plain JSON values and records, in both directions, driven by the records' own annotations.

Reading follows Go's rules, because that is what writers of manifests know: an absent member and `null` both leave the
zero value, nothing is converted silently, and the first mismatch is reported with its path. Members without a field
are kept in `unknown_fields` and written back. Writing leaves out what is empty, except where Go would not.
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
_GROUP = "resource.k8s.io"  # stands for the version of that group in the names of types
_STRICT_JSON = json.JSONEncoder(allow_nan=False, ensure_ascii=False)
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)


class DecodeError(ValueError):
    """A value that is not what its field holds.

    `path` says where (`spec.devices[0].name`), `reason` what is wrong, in the reference's words where it has any.
    """

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.reason = reason
        self.path = path


class Mismatch(Exception):
    """A value that is not of the type `go_type` (Go's name), on its way up: `under` adds a step of the path.

    Go goes on behind a value of another type, and tells the first of them in the end. What a type itself refuses, such
    as a quantity or a time, `is_final`: it is told at once, whatever stood before.
    """

    def __init__(self, value: object = None, go_type: str = "", reason: str = "") -> None:
        super().__init__()
        self.value = value
        self.go_type = go_type
        self.reason = reason
        self.is_final = bool(reason)
        self.steps: list[str] = []
        self.embedded: dict[int, str] = {}  # how many steps there were, and the struct
        self.struct = ""
        self._steps_in_struct = 0

    def of(self, struct: str) -> "Mismatch":
        """The mismatch of a member of a struct, which is remembered if it is the first."""
        if not self.struct:
            self.struct, self._steps_in_struct = struct, len(self.steps)
        return self

    def within(self, embedded: str, struct: str) -> "Mismatch":
        """The mismatch of a member of a struct that another one embeds: Go names both, and the other one first."""
        count = len(self.steps)
        self.embedded[count] = ".".join(filter(None, (embedded, self.embedded.get(count))))
        if self._steps_in_struct == count - 1:
            self.struct = struct
        return self

    def under(self, step: str, embedded: str = "") -> "Mismatch":
        """The mismatch, seen from one step further out; `embedded` is the struct that has the member in Go."""
        self.steps.append(step)
        if embedded:
            self.embedded[len(self.steps)] = embedded
        return self

    def to_error(self, version: str) -> DecodeError:
        """What Go says of it."""
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
    """A record's field and its form in JSON; free-form values are carried as they are."""

    name: str
    json_name: str
    kind: _Kind
    default: Any
    always: bool
    is_text: bool
    embedded_in: str = ""  # the struct that has it in Go, where that is a part of the record's without a name

    @property
    def is_free_form(self) -> bool:
        """Whether any JSON value will do."""
        return self.kind is _FREE_FORM


def from_dict(record_type: type[R], value: object, version: str = "v1") -> R:
    """The record that a plain JSON value stands for; raises DecodeError with the path of the first mismatch.

    The value is not changed, and free-form parts (opaque parameters) are shared with it. `version` is the one of
    resource.k8s.io that errors speak of.
    """
    try:
        return typing.cast("R", _kind_of(record_type).read(value))
    except Mismatch as mismatch:
        raise mismatch.to_error(version) from None


def to_dict(record: Record) -> dict[str, Any]:
    """The plain JSON value of a record, members in the order of the API's types, unknown ones last."""
    result: dict[str, Any] = _kind_of(type(record)).write(record)
    return result


def json_fields(record_type: type[Record]) -> Mapping[str, JsonField]:
    """The fields of a record by their names in JSON."""
    return _by_json_name(record_type)


def without_unknown(record: R) -> R:
    """The record without the members that no field stands for, at any depth: what the API server would store.

    It is the same record where there are none.
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
    """A moment as the API writes it: RFC 3339 in UTC, whole seconds."""
    return moment.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


@functools.cache
def _fields_of(record_type: type[Record]) -> tuple[JsonField, ...]:
    fields = []
    for info in msgspec.structs.fields(record_type):
        if info.name == "unknown_fields":
            continue
        plain, marks = unwrapped(info.type)
        kind = _called(_kind_of(plain), marks["go_type"]) if "go_type" in marks else _kind_of(plain)
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
    """The names of the fields that hold records, one, several, or by name."""
    return tuple(info.name for info in msgspec.structs.fields(record_type) if _holds_records(info.type))


def _holds_records(annotation: Any) -> bool:
    is_record = isinstance(annotation, type) and issubclass(annotation, Record)
    return is_record or any(map(_holds_records, typing.get_args(annotation)))


def unwrapped(annotation: Any) -> tuple[Any, Mapping[str, str]]:
    """An annotation without its marks, and what they say."""
    if typing.get_origin(annotation) is Annotated:
        inner, *marks = typing.get_args(annotation)
        return inner, {name: text for mark in marks for name, text in mark.extra.items()}
    return annotation, {}


def _called(kind: _Kind, go_type: str) -> _Kind:
    """A kind under another name."""

    def read(value: Any) -> Any:
        try:
            return kind.read(value)
        except Mismatch as mismatch:
            if not mismatch.steps:  # it is the value itself
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
        return _called(_kind_of(plain), marks["go_type"])
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
    package = _GROUP if record_type.__module__.endswith((".v1", ".older")) else "v1"
    go_type = f"{package}.{record_type.__name__}"

    def read(value: Any) -> Record:
        if not isinstance(value, dict):
            raise Mismatch(value, go_type)
        known = _by_json_name(record_type)  # not before the first use: types may refer to each other
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
            elif field.is_text and type(item) is str and item.isascii():  # as most are
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
    """The mismatch that is told if no final one follows; raises a final one."""
    if now.is_final:
        raise now from None
    return now if before is None else before


def _read_free_form(value: Any) -> Any:
    """A value that we only carry: it must be possible to write it again."""
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
    """What Go parses: a string, or the JSON of anything else."""
    if isinstance(value, str):
        return value.strip()
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return _number(value) if is_number else _described(value)  # which is no quantity either


def _read_time(value: Any) -> datetime:
    if isinstance(value, datetime):  # YAML knows times
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    if not isinstance(value, str):
        mismatch = Mismatch(value, "string")
        mismatch.is_final = True
        raise mismatch
    try:
        if _RFC3339.fullmatch(value):
            return datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        pass  # a day or an hour that does not exist
    raise Mismatch(reason=_time_complaint(value, _TIME_LAYOUT))


def micro_time_complaint(text: Any) -> str:
    """Go's words for a text that is no time in microseconds, as a MicroTime has to be; empty for any other value."""
    is_right = not isinstance(text, str) or _MICRO_TIME.fullmatch(text)
    return "" if is_right else _time_complaint(text, _MICRO_LAYOUT)


def _time_complaint(text: str, layouts: Sequence[tuple[str, str]]) -> str:
    """Go's words for what is no time: the first part of the layout that does not fit."""
    rest, whole = text, "".join(layout for layout, _ in layouts)
    for layout, pattern in layouts:
        match = re.match(pattern, rest, re.ASCII)
        if match is None:
            return f'parsing time "{_quoted(text)}" as "{whole}": cannot parse "{_quoted(rest)}" as "{layout}"'
        rest = rest[match.end() :]
    found = f'parsing time "{_quoted(text)}"'
    return f'{found}: extra text: "{_quoted(rest)}"' if rest else f"{found}: out of range"


def _quoted(text: str) -> str:
    """A text as Go's package of times quotes it: byte by byte where it is not ASCII."""
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
"""How values without members are read and written; reading raises Mismatch."""
