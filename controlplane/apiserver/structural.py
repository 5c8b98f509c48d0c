"""Structural schemas of custom resources: pruning, defaults and validation, worded as the reference words them."""

import copy
import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from controlplane.apiserver.kinds import Schema
from controlplane.apiserver.string_formats import is_formatted
from resourceapi.cel.re2 import RegexTooExpensive, compile_regex
from resourceapi.objects import ErrorList, ErrorType, FieldError, quoted_text
from resourceapi.objects.json_value import canonical, json_equal

NEW: Any = object()
"""What was before a value that none was before."""
_TOLERANCE = 1e-9
_NUMBERS = (("minimum", "exclusiveMinimum", "greater"), ("maximum", "exclusiveMaximum", "less"))


def prune(value: Any, schema: Schema, path: str = "") -> tuple[Any, list[str]]:
    """The value without members that the schema does not know, and the paths of those."""
    unknown: list[str] = []
    return _pruned(value, schema, path, unknown), unknown


def with_defaults(value: Any, schema: Schema) -> Any:
    """The value with the schema's defaults for members that are missing (or null where null is not allowed).

    A null that is not allowed and has no default is as good as missing, too.
    """
    if isinstance(value, dict):
        result = dict(value)
        for name, child in schema.get("properties", {}).items():
            missing = name not in result or (result[name] is None and not child.get("nullable"))
            if "default" in child and missing:
                result[name] = copy.deepcopy(child["default"])
            elif missing:
                result.pop(name, None)
            if name in result:
                result[name] = with_defaults(result[name], child)
        extra = schema.get("additionalProperties")
        if isinstance(extra, Mapping):
            known = schema.get("properties", {})
            result |= {name: with_defaults(item, extra) for name, item in result.items() if name not in known}
        return result
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        return [with_defaults(item, schema["items"]) for item in value]
    return value


def check(errors: ErrorList, value: Any, schema: Schema, path: str = "", before: Any = NEW) -> None:
    """Add what is wrong with the value: errors of members in the order of their names.

    What an update leaves as it was `before` is right whatever it is (KEP-4008), but for an item of a list that has no
    keys to know it by.
    """
    known = len(errors)
    _check(errors, value, schema, path, before)
    if len(errors) > known and before is not NEW and json_equal(value, before):
        del errors[known:]


def check_items(errors: ErrorList, value: Any, schema: Schema, path: str = "") -> None:
    """Add the items that sets and lists with keys have twice."""
    if isinstance(value, dict):
        known, extra = schema.get("properties", {}), schema.get("additionalProperties")
        for name in sorted(value):
            child = known.get(name, extra)
            if isinstance(child, Mapping):
                check_items(errors, value[name], child, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        if schema.get("x-kubernetes-list-type") in ("set", "map"):
            seen: set[bytes] = set()
            for index, item in enumerate(value):
                known = item_key(item, schema)
                text = canonical(known)
                if text in seen:
                    shown = f"Duplicate value: {_shown(known)}"
                    errors.append(FieldError(ErrorType.DUPLICATE, f"{path}[{index}]", shown))
                seen.add(text)
        if isinstance(schema.get("items"), Mapping):
            for index, item in enumerate(value):
                check_items(errors, item, schema["items"], f"{path}[{index}]")


def item_key(item: Any, schema: Schema) -> Any:
    """What an item of a set or of a list with keys is known by; an item that should be an object is so by itself."""
    keys = schema.get("x-kubernetes-list-map-keys")
    return {key: item[key] for key in keys if key in item} if keys and isinstance(item, dict) else item


def items_before(before: Any, schema: Schema) -> Callable[[Any], Any]:
    """Finds what an item of a list was before: `NEW` but in lists with keys."""
    is_keyed = isinstance(before, list) and schema.get("x-kubernetes-list-type") == "map"
    known = {canonical(item_key(item, schema)): item for item in before} if is_keyed else {}
    return lambda item: known.get(canonical(item_key(item, schema)), NEW) if known else NEW


def _check(errors: ErrorList, value: Any, schema: Schema, path: str, before: Any) -> None:
    if value is None and schema.get("nullable"):
        return
    wanted = "int-or-string" if schema.get("x-kubernetes-int-or-string") else schema.get("type")
    if wanted and not _is(value, wanted):
        found = _type_of(value)
        if wanted == "int-or-string":
            wanted = "integer,string"
        text = f'Invalid value: "{found}": {_in_body(path)} must be of type {wanted}: "{found}"'
        errors.append(FieldError(ErrorType.TYPE_INVALID, path or "<nil>", text))
        return
    if "enum" in schema and not any(json_equal(value, each) for each in schema["enum"]):
        choices = ", ".join(_shown(each) for each in schema["enum"])
        errors.append(
            FieldError(
                ErrorType.NOT_SUPPORTED, path, f"Unsupported value: {_shown(value)}: supported values: {choices}"
            )
        )
    if isinstance(value, str):
        _string(errors, value, schema, path)
    elif isinstance(value, bool):
        pass
    elif isinstance(value, int | float):
        _number(errors, value, schema, path)
    elif isinstance(value, list):
        _list(errors, value, schema, path, before)
    elif isinstance(value, dict):
        _object(errors, value, schema, path, before)
    _combined(errors, value, schema, path)


def _pruned(value: Any, schema: Schema, path: str, unknown: list[str]) -> Any:
    if isinstance(value, dict):
        known, extra = schema.get("properties", {}), schema.get("additionalProperties")
        is_open = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-embedded-resource")
        result = {}
        for name, item in value.items():
            here = f"{path}.{name}" if path else name
            if name in known:
                result[name] = _pruned(item, known[name], here, unknown)
            elif isinstance(extra, Mapping):
                result[name] = _pruned(item, extra, here, unknown)
            elif is_open or extra is True:
                result[name] = item
            else:
                unknown.append(here)
        return result
    if isinstance(value, list) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        items = schema.get("items") or {}  # none is known of what should be no list
        return [_pruned(item, items, f"{path}[{index}]", unknown) for index, item in enumerate(value)]
    return value


def _string(errors: ErrorList, value: str, schema: Schema, path: str) -> None:
    size = len(value)
    if size > schema.get("maxLength", size):
        errors.too_long(path, schema["maxLength"])
    if size < schema.get("minLength", 0):
        limit = schema["minLength"]
        errors.invalid(path, value, f"{_in_body(path)} should be at least {limit} chars long")
    if "pattern" in schema and not _matches(schema["pattern"], value):
        errors.invalid(path, value, f"{_in_body(path)} should match '{schema['pattern']}'")
    name = schema.get("format") or ""
    if not is_formatted(value, name):
        errors.append(
            FieldError(
                ErrorType.TYPE_INVALID,
                path,
                f"Invalid value: {quoted_text(value)}: {_in_body(path)} must be of type {name}: {quoted_text(value)}",
            )
        )


def _number(errors: ErrorList, value: float, schema: Schema, path: str) -> None:
    for name, exclusive, word in _NUMBERS:
        if name not in schema:
            continue
        limit, is_open = schema[name], bool(schema.get(exclusive))
        if isinstance(limit, float) and limit.is_integer():  # as it comes in protobuf
            limit = int(limit)
        distance = value - limit if word == "greater" else limit - value
        if distance < 0 or (is_open and distance == 0):
            text = f"{word} than {limit}" if is_open else f"{word} than or equal to {limit}"
            errors.invalid(path, value, f"{_in_body(path)} should be {text}")
    step = schema.get("multipleOf")
    if step and not _is_multiple(value, step):
        errors.invalid(path, value, f"{_in_body(path)} should be a multiple of {step}")


def _list(errors: ErrorList, value: list[Any], schema: Schema, path: str, before: Any) -> None:
    if len(value) > schema.get("maxItems", len(value)):
        errors.too_many(path, len(value), schema["maxItems"])
    if len(value) < schema.get("minItems", 0):
        count = schema["minItems"]
        errors.invalid(path, len(value), f"{_in_body(path)} should have at least {count} items")
    if schema.get("uniqueItems") and len(set(map(canonical, value))) < len(value):
        errors.append(FieldError(ErrorType.DUPLICATE, path, f"Duplicate value: {_shown(value)}"))
    if isinstance(schema.get("items"), Mapping):
        was = items_before(before, schema)
        for index, item in enumerate(value):
            check(errors, item, schema["items"], f"{path}[{index}]", was(item))


def _object(errors: ErrorList, value: dict[str, Any], schema: Schema, path: str, before: Any) -> None:
    if len(value) > schema.get("maxProperties", len(value)):
        errors.too_many(path, len(value), schema["maxProperties"])
    if len(value) < schema.get("minProperties", 0):
        count = schema["minProperties"]
        errors.invalid(path, len(value), f"{_in_body(path)} should have at least {count} properties")
    required = set(schema.get("required", ()))
    known, extra = schema.get("properties", {}), schema.get("additionalProperties")
    for name in sorted(set(value) | required):
        here = f"{path}.{name}" if path else name
        if name not in value:
            errors.required(here)
            continue
        child = known.get(name, extra)
        if isinstance(child, Mapping):
            was = before.get(name, NEW) if isinstance(before, dict) else NEW
            check(errors, value[name], child, here, was)


def _combined(errors: ErrorList, value: Any, schema: Schema, path: str) -> None:
    for each in schema.get("allOf", ()):
        check(errors, value, each, path)
    fitting = {word: [each for each in schema.get(word, ()) if _fits(value, each, path)] for word in ("anyOf", "oneOf")}
    if schema.get("anyOf") and not fitting["anyOf"]:
        errors.invalid(path, value, f"{_in_body(path)} must validate at least one schema (anyOf)")
    if schema.get("oneOf") and len(fitting["oneOf"]) != 1:
        found = "Found none valid" if not fitting["oneOf"] else f"Found {len(fitting['oneOf'])} valid alternatives"
        errors.invalid(path, value, f"{_in_body(path)} must validate one and only one schema (oneOf). {found}")
    if "not" in schema and _fits(value, schema["not"], path):
        errors.invalid(path, value, f"{_in_body(path)} must not validate the schema (not)")


def _fits(value: Any, schema: Schema, path: str) -> bool:
    found = ErrorList()
    check(found, value, schema, path)
    return not found


def _is(value: Any, wanted: str) -> bool:
    match wanted:
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return not isinstance(value, bool) and (
                isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            )
        case "number":
            return not isinstance(value, bool) and isinstance(value, int | float)
    return not isinstance(value, bool) and isinstance(value, int | str)


def _type_of(value: Any) -> str:
    names: Iterator[str] = (
        name for name in ("object", "array", "string", "boolean", "integer", "number") if _is(value, name)
    )
    return next(names, "null")


def _in_body(path: str) -> str:
    return f"{path} in body"


def _shown(value: Any) -> str:
    return (
        quoted_text(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    )


def _is_multiple(value: float, step: float) -> bool:
    """As the reference divides: a quotient that is a whole number, but for the last digits of a float."""
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    quotient = value / step
    return math.isfinite(quotient) and abs(quotient - round(quotient)) <= _TOLERANCE


def _matches(pattern: str, value: str) -> bool:
    """Whether a text has a match; one whose search takes too long counts as none."""
    try:
        return compile_regex(pattern).is_match(value)
    except RegexTooExpensive:
        return False
