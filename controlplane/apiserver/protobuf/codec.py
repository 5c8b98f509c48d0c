"""Converts between JSON values and protobuf messages, by the table of upstream's Go types.

Writing does what upstream's generated marshallers do: fields by number, scalars always, pointers only if they are set,
maps by key; so the bytes are those of a real server. Reading returns what Go would write in JSON.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from controlplane.apiserver.protobuf.forms import FORMS, Form, text_of
from controlplane.apiserver.protobuf.messages import Field, fields_of
from controlplane.apiserver.protobuf.wire import LENGTH, VARINT, ProtobufError, fields, read_varint, sized, tag
from resourceapi.objects import DecodeError
from resourceapi.objects.codec import Mismatch

Plain = dict[str, Any]
_LIST, _MAP, _POINTER = "[]", "map[string]", "*"
_QUANTITIES, _AMOUNTS, _CORE = "map[string]Quantity", "map[string]Amount", "v1."
_PROPS = "apiextensions.k8s.io/v1.JSONSchemaProps"
_RESOURCES = "v1.ResourceList"
_FIRST, _SECOND = tag(1, LENGTH), tag(2, LENGTH)


class _Step(NamedTuple):
    """A field with its codec: `write` returns all its bytes, `read` its value, `absent` its JSON value if missing."""

    field: Field
    wire_type: int
    write: Callable[[Any], bytes]
    read: Callable[[list[Any]], Any]
    absent: Callable[[], Any]


def encode_message(message: str, value: Plain) -> bytes:
    """Return the bytes of a message. Raises DecodeError for a value that its type cannot hold."""
    try:
        return _encode(message, value)
    except Mismatch as mismatch:
        raise mismatch.to_error("v1") from None
    except RecursionError:
        raise DecodeError("json: exceeded max depth") from None


def decode_message(message: str, data: bytes) -> Plain:
    """Return the value of a message. Raises ProtobufError."""
    try:
        return _decode(message, data)
    except RecursionError:
        raise ProtobufError("proto: exceeded max depth") from None


def without_omitted_members(message: str, value: Plain) -> Plain:
    """Return the value as Go writes its type: without empty members that JSON omits. Raises DecodeError."""
    return _decode(message, encode_message(message, value))


def _encode(message: str, value: Any) -> bytes:
    if not isinstance(value, dict):
        raise Mismatch(value, _go_name(message))
    written = []
    for step in _by_number(message):
        name = step.field.name
        try:
            written.append(step.write(value.get(name) if name else value))
        except Mismatch as mismatch:
            struct = message.rpartition(".")[2]
            if not name:
                raise mismatch.within(step.field.type.rpartition(".")[2], struct) from None
            raise mismatch.of(struct).under(name) from None
    return b"".join(written)


def _decode(message: str, data: bytes) -> Plain:
    found: dict[int, list[Any]] = {}
    steps = _numbered(message)
    for number, wire_type, item in fields(data):
        step = steps.get(number)
        if step is None:
            continue
        if wire_type == step.wire_type:
            found.setdefault(number, []).append(item)
        elif wire_type == LENGTH and step.wire_type == VARINT and step.field.type.startswith(_LIST):
            found.setdefault(number, []).extend(_unpacked(item))
        else:
            name = step.field.name or step.field.type.rpartition(".")[2]
            raise ProtobufError(f"proto: wrong wireType = {wire_type} for field {name[:1].upper()}{name[1:]}")
    value: Plain = {}
    for step in _steps(message):
        items, name = found.get(step.field.number), step.field.name
        item = step.read(items) if items else step.absent()
        if not name:
            value |= item
        elif step.field.always or (items and step.field.type.startswith(_POINTER)) or item != step.absent():
            value[name] = item
    return value


@functools.cache
def _steps(message: str) -> tuple[_Step, ...]:
    fields_ = fields_of(message)
    if message.startswith(_CORE):  # Go rounds the quantities in its resource lists when it reads them
        fields_ = tuple(each._replace(type=_AMOUNTS) if each.type == _QUANTITIES else each for each in fields_)
    return tuple(map(_step, fields_))


@functools.cache
def _by_number(message: str) -> tuple[_Step, ...]:
    return tuple(sorted(_steps(message), key=lambda step: step.field.number))


@functools.cache
def _numbered(message: str) -> dict[int, _Step]:
    return {step.field.number: step for step in _steps(message)}


def _step(field: Field) -> _Step:
    for prefix, make in ((_LIST, _list_step), (_MAP, _map_step), (_POINTER, _pointer_step)):
        if field.type.startswith(prefix):
            return make(field, _form(field.type.removeprefix(prefix)))
    return _plain_step(field, _form(field.type))


def _plain_step(field: Field, form: Form) -> _Step:
    if form.nullable:
        return _pointer_step(field, form)
    prefix = tag(field.number, form.wire_type)

    def write(value: Any) -> bytes:
        return prefix + form.write(form.zero() if value is None else value)

    return _Step(field, form.wire_type, write, lambda items: _one(form, items), form.zero)


def _pointer_step(field: Field, form: Form) -> _Step:
    prefix = tag(field.number, form.wire_type)
    return _Step(
        field,
        form.wire_type,
        lambda value: b"" if value is None else prefix + form.write(value),
        lambda items: _one(form, items),
        lambda: None,
    )


def _one(form: Form, items: list[Any]) -> Any:
    """The value of a field that occurs once, as a rule."""
    return form.read(b"".join(items) if form.merges else items[-1])


def _list_step(field: Field, form: Form) -> _Step:
    prefix = tag(field.number, form.wire_type)

    def write(value: Any) -> bytes:
        if value is None:
            return b""
        if not isinstance(value, list):
            raise Mismatch(value, f"[]{form.go_type}")
        written = []
        for index, item in enumerate(value):
            try:
                written.append(prefix + form.write(form.zero() if item is None else item))
            except Mismatch as mismatch:
                raise mismatch.under(f"[{index}]") from None
        return b"".join(written)

    return _Step(field, form.wire_type, write, lambda items: [form.read(item) for item in items], lambda: None)


def _map_step(field: Field, form: Form) -> _Step:
    prefix, value_prefix = tag(field.number, LENGTH), tag(2, form.wire_type)
    form_of_key = FORMS["string"]

    def write(value: Any) -> bytes:
        if value is None:
            return b""
        if not isinstance(value, dict):
            is_of_resources = field.type in (_QUANTITIES, _AMOUNTS)
            raise Mismatch(value, _RESOURCES if is_of_resources else f"map[string]{form.go_type}")
        written = {}
        for key, item in value.items():  # the first fault is reported
            entry = _FIRST + form_of_key.write(key)
            if item is not None or not form.nullable:
                try:
                    entry += value_prefix + form.write(form.zero() if item is None else item)
                except Mismatch as mismatch:
                    raise mismatch.under(f"[{key}]") from None
            written[key] = prefix + sized(entry)
        return b"".join(written[key] for key in sorted(written))

    def read(items: list[bytes]) -> Plain:
        result = {}
        for entry in items:
            parts = {(number, wire_type): item for number, wire_type, item in fields(entry)}
            key, item = parts.get((1, LENGTH), b""), parts.get((2, form.wire_type))
            result[form_of_key.read(key)] = form.zero() if item is None else form.read(item)
        return dict(sorted(result.items()))

    return _Step(field, LENGTH, write, read, lambda: None)


def is_message(type_name: str) -> bool:
    """Return whether a type of the table is a message with fields."""
    is_plain = type_name.partition("=")[0] in FORMS or type_name in _SCHEMA_FORMS
    return not is_plain and not type_name.startswith((_LIST, _MAP, _POINTER))


def zero_of(type_name: str) -> Any:
    """Return what a null in a list or map becomes: Go's zero value of a scalar; a message stays null."""
    is_one = type_name.partition("=")[0] in FORMS
    return _form(type_name).zero() if is_one else None


@functools.cache
def _form(type_name: str) -> Form:
    if type_name in FORMS:
        return FORMS[type_name]
    plain, _, go_type = type_name.partition("=")
    if go_type:
        return _called(FORMS[plain], go_type)
    if type_name in _SCHEMA_FORMS:
        return _SCHEMA_FORMS[type_name]
    return Form(
        LENGTH,
        lambda value: sized(_encode(type_name, value)),
        lambda data: _decode(type_name, data),
        lambda: _decode(type_name, b""),
        _go_name(type_name),
        merges=True,
    )


def _called(form: Form, go_type: str) -> Form:
    """A form with another name in errors."""

    def write(value: Any) -> bytes:
        try:
            return form.write(value)
        except Mismatch as mismatch:
            mismatch.go_type = go_type
            raise

    return form._replace(write=write, go_type=go_type)


def _go_name(message: str) -> str:
    package, _, name = message.rpartition(".")
    return f"{package.rpartition('/')[2]}.{name}"


def _unpacked(data: Any) -> Iterable[int]:
    at = 0
    while at < len(data):
        number, at = read_varint(data, at)
        yield number


def _write_schema(value: Any) -> bytes:
    return sized(_encode(_PROPS, value))


def _write_schema_or_array(value: Any) -> bytes:
    if isinstance(value, list):
        return sized(b"".join(_SECOND + _write_schema(item or {}) for item in value))
    return sized(_FIRST + _write_schema(value))


def _read_schema_or_array(data: bytes) -> Any:
    return _schemas(data, 2) or _schema(data)


def _write_schema_or_bool(value: Any) -> bytes:
    if isinstance(value, bool):
        return sized(bytes((8, value)))
    return sized(b"\x08\x01" + _SECOND + _write_schema(value))


def _read_schema_or_bool(data: bytes) -> Any:
    schemas = _schemas(data, 2)
    return schemas[-1] if schemas else any(item for number, _, item in fields(data) if number == 1)


def _write_schema_or_texts(value: Any) -> bytes:
    if isinstance(value, list):
        return sized(b"".join(_SECOND + FORMS["string"].write(item) for item in value))
    return sized(_FIRST + _write_schema(value))


def _read_schema_or_texts(data: bytes) -> Any:
    texts = [text_of(item) for number, _, item in fields(data) if number == 2 and isinstance(item, bytes)]
    return texts or _schema(data)


def _schemas(data: bytes, wanted: int) -> list[Plain]:
    return [_decode(_PROPS, item) for number, _, item in fields(data) if number == wanted and isinstance(item, bytes)]


def _schema(data: bytes) -> Plain | None:
    found = _schemas(data, 1)
    return found[-1] if found else None


_SCHEMA_FORMS = {
    "SchemaOrArray": Form(LENGTH, _write_schema_or_array, _read_schema_or_array, lambda: None, ""),
    "SchemaOrBool": Form(LENGTH, _write_schema_or_bool, _read_schema_or_bool, lambda: False, ""),
    "SchemaOrStrings": Form(LENGTH, _write_schema_or_texts, _read_schema_or_texts, lambda: None, ""),
}
