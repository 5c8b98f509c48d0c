"""Validates a value by a schema, with the texts and the order of the reference.

At each place the validators run in order: for the type, for allOf and the like, for strings, formats, numbers, lists,
enums and objects. The number of those that had something to check decides which failure of an anyOf is reported.
Source: k8s.io/kube-openapi/pkg/validation; KEP-4008 for values that an update does not change.
"""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from controlplane.apiserver.definitions.pruning import NEW, items_before
from controlplane.apiserver.definitions.string_formats import FORMATS_OF_NUMBERS, is_formatted, is_known
from controlplane.apiserver.go_values import go_text
from controlplane.apiserver.kinds import Schema
from resourceapi.cel.re2 import RegexError, RegexTooExpensive, compile_regex
from resourceapi.objects import ErrorList, ErrorType, FieldError, quoted_text
from resourceapi.objects.json_value import json_equal

_INT_OR_STRING = "x-kubernetes-int-or-string"
_MAX_EXACT = 2**53 - 1
_TOLERANCE = 1e-9
_MAX_FLOAT32 = 3.4028235677973366e38
_LIMITS = (("minimum", "exclusiveMinimum", "Minimum", "greater"), ("maximum", "exclusiveMaximum", "Maximum", "less"))


class _Fault(NamedTuple):
    """A fault: its path, type, value and text."""

    name: str
    type: ErrorType
    value: Any
    text: str
    choices: tuple[str, ...] = ()

    def error(self) -> FieldError:
        """Return the fault as the API server reports it."""
        path, errors = self.name.removeprefix(".") or "<nil>", ErrorList()
        match self.type:
            case ErrorType.REQUIRED:
                errors.required(path)
            case ErrorType.TOO_LONG:
                errors.too_long(path, self.value)
            case ErrorType.TOO_MANY:
                errors.too_many(path, *self.value)
            case ErrorType.INVALID:
                errors.invalid(path, self.value, self.text)
            case ErrorType.TYPE_INVALID:
                return FieldError(self.type, path, f"Invalid value: {quoted_text(self.value)}: {self.text}")
            case _:
                choices = ", ".join(map(quoted_text, self.choices))
                text = f"Unsupported value: {_shown(self.value)}: supported values: {choices}"
                return FieldError(self.type, path, text)
        return errors[0]


class _Result:
    """The distinct faults at a place and below it, and the number of validators that had something to check."""

    def __init__(self, *faults: _Fault) -> None:
        self.faults = {(each.name, each.text): each for each in faults}
        self.count = 0

    def merge(self, other: "_Result | None", *, counted: bool = False) -> None:
        """Add another result; `counted` adds one to the number of validators."""
        if other is not None:
            self.faults = self.faults | {key: each for key, each in other.faults.items() if key not in self.faults}
            self.count += other.count
        self.count += counted


def check(errors: ErrorList, value: Any, schema: Schema, before: Any = NEW) -> None:
    """Add the faults of the value.

    A value that equals its old value `before` is valid in any case, except for items of lists without keys, which have
    no old value.
    """
    errors.extend(each.error() for each in _update(value, schema, "", before).faults.values())


def _update(value: Any, schema: Schema, path: str, before: Any) -> _Result:
    result = _validate(value, schema, path, before)
    if result.faults and before is not NEW and json_equal(value, before):
        result.faults = {}
    return result


def _validate(value: Any, schema: Schema, path: str, before: Any) -> _Result:
    result = _Result()
    if value is None:
        result.merge(_check_type(value, schema, path))
        result.merge(_check_choice(value, schema, path))
        return result
    if _types(schema) or _format(schema):
        result.merge(_check_type(value, schema, path), counted=True)
    result.merge(_check_combined(value, schema, path, before), counted=True)
    if isinstance(value, str):
        result.merge(_check_text(value, schema, path), counted=True)
        if is_known(schema.get("format") or "") and _format(schema):
            result.merge(_check_format(value, schema, path), counted=True)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        result.merge(_check_number(value, schema, path), counted=True)
    elif isinstance(value, list):
        result.merge(_check_list(value, schema, path, before), counted=True)
    result.merge(_check_choice(value, schema, path), counted=True)
    if isinstance(value, dict):
        result.merge(_check_object(value, schema, path, before), counted=True)
    result.count += 1
    return result


def _types(schema: Schema) -> tuple[str, ...]:
    if schema.get(_INT_OR_STRING):
        return ("integer", "string")
    return (schema["type"],) if schema.get("type") else ()


def _format(schema: Schema) -> str:
    """The format of a schema; empty if values of its type cannot have it."""
    name, types = schema.get("format") or "", _types(schema)
    kind = types[0] if len(types) == 1 else ""
    if kind in ("", "string"):
        return name if is_known(name) else ""
    return name if name in FORMATS_OF_NUMBERS.get(kind, ()) else ""


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    names = {dict: "object", list: "array", str: "string", int: "integer", float: "number"}
    return names[type(value)]


def _check_type(value: Any, schema: Schema, path: str) -> _Result:
    types, form = _types(schema), _format(schema)
    if value is None:
        wrong = types and not schema.get("nullable")
        return _type_error(path, ",".join(types), "null") if wrong else _counted(1)
    kind = _kind(value)
    is_whole = isinstance(value, float) and _is_whole(value) and "integer" in types
    fits = kind in types or is_whole or (kind == "integer" and "number" in types)
    of_value = {"integer": "int64", "number": "float64"}.get(kind, "")
    if form and kind not in ("string", "array") and not fits and of_value != form:
        return _type_error(path, form, of_value)
    if form and kind in ("string", "array") and not {"number", "integer"} & set(types):
        return _counted(1)
    return _counted(1) if fits else _type_error(path, ",".join(types), kind)


def _counted(count: int) -> _Result:
    result = _Result()
    result.count = count
    return result


def _type_error(path: str, wanted: str, value: str) -> _Result:
    text = f"{path} in body must be of type {wanted}: {quoted_text(value)}"
    return _Result(_Fault(path, ErrorType.TYPE_INVALID, value, text))


def _invalid(path: str, value: Any, text: str) -> _Result:
    return _Result(_Fault(path, ErrorType.INVALID, value, text))


def _without_place(text: str) -> _Result:
    return _invalid("", "", text)


def _check_combined(value: Any, schema: Schema, path: str, before: Any) -> _Result:
    """Check allOf and the like. Ratcheting applies only below the place: the value itself is always checked."""
    result, shown = _Result(), quoted_text(path)
    any_of = schema.get("anyOf") or ()
    if any_of:
        best = None
        for found in (_validate(value, each, path, before) for each in any_of):
            if not found.faults:
                best = found
                break
            if best is None or found.count > best.count:
                best = found
        assert best is not None
        if best.faults:
            result.merge(_without_place(f"{shown} must validate at least one schema (anyOf)"))
        result.merge(best)
    if schema.get("oneOf"):
        result.merge(_check_one(value, schema["oneOf"], path, before))
    all_of = [_validate(value, each, path, before) for each in schema.get("allOf") or ()]
    for found in all_of:
        result.merge(found)
    if any(each.faults for each in all_of):
        none = ". None validated" if all(each.faults for each in all_of) else ""
        result.merge(_without_place(f"{shown} must validate all the schemas (allOf){none}"))
    if isinstance(schema.get("not"), Mapping) and not _validate(value, schema["not"], path, before).faults:
        result.merge(_without_place(f"{shown} must not validate the schema (not)"))
    result.count += 1
    return result


def _check_one(value: Any, schemas: list[Schema], path: str, before: Any) -> _Result:
    result, best, fitting = _Result(), None, list[_Result]()
    for found in (_validate(value, each, path, before) for each in schemas):
        if not found.faults:
            fitting.append(found)
            best = None
        elif not fitting and (best is None or found.count > best.count):
            best = found
    if len(fitting) == 1:
        return fitting[0]
    why = f"Found {len(fitting)} valid alternatives" if fitting else "Found none valid"
    result.merge(_without_place(f"{quoted_text(path)} must validate one and only one schema (oneOf). {why}"))
    result.merge(best)
    return result


def _check_text(value: str, schema: Schema, path: str) -> _Result | None:
    size, pattern = len(value), schema.get("pattern") or ""
    most, least = schema.get("maxLength"), schema.get("minLength")
    if most is not None and size > most:
        return _Result(_Fault(path, ErrorType.TOO_LONG, most, "too long"))
    if least is not None and size < least:
        return _invalid(path, value, f"{path} in body should be at least {least} chars long")
    why = _mismatch(pattern, value) if pattern else None
    return None if why is None else _invalid(path, value, f"{path} in body should match '{why}'")


def _mismatch(pattern: str, value: str) -> str | None:
    """The pattern that a text does not match; None if it does. A search that takes too long counts as no match."""
    try:
        return None if compile_regex(pattern).is_match(value) else pattern
    except RegexTooExpensive:
        return pattern
    except RegexError as error:
        return f"{pattern}, but pattern is invalid: {error}"


def _check_format(value: str, schema: Schema, path: str) -> _Result | None:
    name = schema["format"]
    return None if is_formatted(value, name) else _type_error(path, name, value)


def _check_number(value: float, schema: Schema, path: str) -> _Result:
    result, types = _counted(1), _types(schema)
    kind = types[0] if len(types) == 1 and types[0] in FORMATS_OF_NUMBERS else ""
    form = _format(schema) if kind else ""
    if why := _out_of_range(value, kind, form, "Checked", path):
        result.merge(_without_place(why))
    step = schema.get("multipleOf")
    if step is not None:
        why = _out_of_range(float(step), kind, form, "MultipleOf", path)
        result.merge(_without_place(why) if why else None)
        result.merge(_check_step(float(value) if why else value, float(step), path))
    for name, exclusive, word, than in _LIMITS:
        limit = schema.get(name)
        if limit is None:
            continue
        why = _out_of_range(float(limit), kind, form, f"{word} boundary", path)
        result.merge(_without_place(why) if why else None)
        given, bound = (float(value), float(limit)) if why or isinstance(value, float) else (value, int(limit))
        distance, is_open = given - bound if than == "greater" else bound - given, bool(schema.get(exclusive))
        if distance < 0 or (is_open and distance == 0):
            text = f"{than} than {'' if is_open else 'or equal to '}{go_text(bound)}"
            result.merge(_invalid(path, given, f"{path} in body should be {text}"))
    return result


def _check_step(value: float, step: float, path: str) -> _Result | None:
    """Check that a number is a multiple. As in the reference, the step for a whole number is cut to a whole number."""
    factor = int(step) if isinstance(value, int) else step
    if factor <= 0:
        return _invalid(path, factor, f"factor MultipleOf declared for {path} must be positive: {go_text(factor)}")
    if isinstance(value, int):
        is_multiple = value % factor == 0
    else:
        is_multiple = _is_whole(1 / factor * value if factor < 1 else value / factor)
    return None if is_multiple else _invalid(path, value, f"{path} in body should be a multiple of {go_text(factor)}")


def _out_of_range(value: float, kind: str, form: str, what: str, path: str) -> str:
    """Why a number, or a limit of numbers, does not fit its type; empty if it does."""
    bits = 31 if form == "int32" else 63
    if kind == "integer":
        fits = (isinstance(value, int) or value.is_integer()) and -(2**bits) <= value < 2**bits
    else:
        fits = form != "float" or abs(value) < _MAX_FLOAT32
    with_format = f"with format {form}" if form else "(default format)"
    return "" if fits else f"{what} value must be of type {kind} {with_format} in {path}"


def _is_whole(value: float) -> bool:
    """Return whether the reference takes a number for whole: within a tolerance, and in a float's exact range."""
    if not math.isfinite(value) or not -_MAX_EXACT - 1 <= value <= _MAX_EXACT:
        return False
    if value.is_integer():
        return True
    whole = math.trunc(value)
    return value > 0 and whole != 0 and abs(value - whole) / (abs(value) + whole) < _TOLERANCE


def _check_list(value: list[Any], schema: Schema, path: str, before: Any) -> _Result:
    result = _counted(1)
    if isinstance(schema.get("items"), Mapping):
        was = items_before(before, schema)
        for index, item in enumerate(value):
            result.merge(_update(item, schema["items"], f"{path}[{index}]", was(item)))
    size, least, most = len(value), schema.get("minItems"), schema.get("maxItems")
    if least is not None and size < least:
        result.merge(_invalid(path, size, f"{path} in body should have at least {least} items"))
    if most is not None and size > most:
        result.merge(_Result(_Fault(path, ErrorType.TOO_MANY, (size, most), "too many")))
    return result


def _check_choice(value: Any, schema: Schema, path: str) -> _Result | None:
    choices = schema.get("enum") or ()
    if not choices or any(_is_choice(value, each) for each in choices):
        return None
    texts = tuple(each if isinstance(each, str) else _shown(each) for each in choices)
    return _Result(_Fault(path, ErrorType.NOT_SUPPORTED, value, "none of the choices", texts))


def _is_choice(value: Any, choice: Any) -> bool:
    """Return whether a value equals a choice after Go's conversion to its type: numbers to characters, floats cut."""
    if value is None or choice is None:
        return False
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and isinstance(choice, str):
        return isinstance(value, int) and choice == _character(value)
    if is_number and isinstance(choice, int | float) and not isinstance(choice, bool):
        if isinstance(choice, float) or isinstance(value, int):
            return bool(value == choice)
        return math.isfinite(value) and math.trunc(value) == choice
    return json_equal(value, choice)


def _character(code: int) -> str:
    return chr(code) if 0 <= code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"


def _check_object(value: dict[str, Any], schema: Schema, path: str, before: Any) -> _Result:
    result, size = _Result(), len(value)
    known, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    least, most = schema.get("minProperties"), schema.get("maxProperties")
    if least is not None and size < least:
        result.merge(_invalid(path, size, f"{path} in body should have at least {least} properties"))
    if most is not None and size > most:
        result.merge(_Result(_Fault(path, ErrorType.TOO_MANY, (size, most), "too many")))
    for name in sorted(value):
        if name not in known and extra is False:
            result.merge(_invalid(path, name, f"{path}.{name} in body is a forbidden property"))
    for name, child, here in _members(value, schema, path):
        was = before.get(name, NEW) if isinstance(before, dict) else NEW
        if not path and name in ("apiVersion", "kind"):
            was = NEW
        result.merge(_update(value[name], child, here, was))
    for name in schema.get("required") or ():
        if name not in value:
            result.merge(_Result(_Fault(f"{path}.{name}", ErrorType.REQUIRED, None, "is required")))
    return result


def _members(value: Mapping[str, Any], schema: Schema, path: str) -> Iterator[tuple[str, Schema, str]]:
    """The members of an object that have a schema, those of `additionalProperties` first."""
    known, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    for name in sorted(value):
        if name not in known and isinstance(extra, Mapping):
            yield name, extra, f"{path}.{name}"
    for name in sorted(value):
        if name in known:
            yield name, known[name], f"{path}.{name}" if path else name


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return quoted_text(value)
    return go_text(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
