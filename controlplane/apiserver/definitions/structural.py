"""Structural schemas: each place has a type, and allOf and the like only restrict values of known places.

Source: kubernetes.io "Specifying a structural schema" of custom resources. The errors are sorted by their text.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from controlplane.apiserver.kinds import Plain, Schema
from resourceapi.cel.re2 import RegexError, compile_regex
from resourceapi.objects import ErrorList

OPEN = "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"
INT_OR_STRING = "x-kubernetes-int-or-string"
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|[.\[\]]|[^.\[\]']+|'")
_ROOT, _ITEM, _FIELD = "at the root", "for specified array items", "for specified object fields"
_COMBINATORS = ("allOf", "anyOf", "oneOf")
_UNSUPPORTED = ("id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions")
_EMPTY_OR_FALSE = {
    "title": "must be empty",
    "description": "must be empty",
    "nullable": "must be false",
    OPEN: "must be false",
    EMBEDDED: "must be false",
    INT_OR_STRING: "must be false",
    "x-kubernetes-list-map-keys": "must be empty",
    "x-kubernetes-validations": "must be empty",
}
_UNDEFINED = ("default", "x-kubernetes-list-type", "x-kubernetes-map-type")


def unsupported(schema: Schema) -> str:
    """Return why a schema cannot be read as a structural schema; empty if it can."""
    for name in _UNSUPPORTED:
        if schema.get(name) or (name == "additionalItems" and schema.get(name) is not None):
            return f"OpenAPIV3Schema '{name.removeprefix('$') if name == '$schema' else name}' is not supported"
    if schema.get(OPEN) is False:
        return f"internal error: '{OPEN}' must be true or undefined"
    if isinstance(schema.get("items"), list) and schema["items"]:
        return "OpenAPIV3Schema 'items' must be a schema, but is an array"
    return next(filter(None, map(unsupported, _below(schema))), "")


def check_structural(errors: ErrorList, path: str, schema: Schema) -> None:
    """Add the faults because of which a readable schema is not structural."""
    found = ErrorList()
    _check_place(found, path, schema, _ROOT)
    _check_known(found, schema, schema, path, path)
    errors.extend(sorted(found, key=str))


def field_of(schema: Schema, path: str, *, with_brackets: bool = True) -> tuple[tuple[str, ...], Schema | None, str]:
    """Return the steps and the schema of a path such as `.a['b']`, or else why it leads nowhere."""
    tokens = [each for each in _TOKEN.findall(path) if each]
    steps: list[str] = []
    while tokens:
        begin = tokens.pop(0)
        if begin not in (".", "["):
            return (), None, f"expected [ or . but got: {begin}"
        if begin == "[" and not with_brackets:
            return (), None, "array notation is not allowed"
        if not tokens:
            return (), None, "unexpected end of JSON path"
        name = tokens.pop(0)
        if begin == "[":
            if len(name) < 2 or not (name[0] == name[-1] == "'"):
                return (), None, f"expected single quoted string but got {name}"
            name = re.sub(r"\\(.)", r"\1", name[1:-1])
        known, extra = schema.get("properties"), schema.get("additionalProperties")
        below = known.get(name) if known else {} if isinstance(extra, bool) else extra
        if not isinstance(below, Mapping):
            return (), None, "does not refer to a valid field"
        steps.append(name)
        schema = below
        if begin == "[":
            if not tokens:
                return (), None, "unexpected end of JSON path"
            if (end := tokens.pop(0)) != "]":
                return (), None, f"expected ] but got {end}"
    return tuple(steps), schema, ""


def _below(schema: Schema) -> Iterator[Schema]:
    for combinator in _COMBINATORS:
        yield from schema.get(combinator) or ()
    yield from (schema.get("properties") or {}).values()
    yield from (schema[name] for name in ("not", "items", "additionalProperties") if is_schema(schema.get(name)))


def is_schema(value: Any) -> TypeGuard[Schema]:
    """Return whether a member of a schema is a schema, not a boolean, a list or None."""
    return isinstance(value, Mapping)


def _check_place(errors: ErrorList, path: str, schema: Schema, level: str) -> None:
    kind, properties, extra = (
        schema.get("type") or "",
        schema.get("properties") or {},
        schema.get("additionalProperties"),
    )
    is_embedded, is_open = bool(schema.get(EMBEDDED)), bool(schema.get(OPEN))
    if kind == "array" and not is_schema(schema.get("items")):
        errors.required(f"{path}.items", "must be specified")
    if is_schema(schema.get("items")):
        _check_place(errors, f"{path}.items", schema["items"], _ITEM)
    for name, child in properties.items():
        _check_place(errors, f"{path}.properties[{name}]", child, _FIELD)
    if extra is not None and level == _ROOT:
        errors.forbidden(f"{path}.additionalProperties", "must not be used at the root")
    if isinstance(extra, Mapping):
        _check_place(errors, f"{path}.additionalProperties", extra, _FIELD)
    if schema.get(INT_OR_STRING):
        for name in (OPEN, EMBEDDED):
            if schema.get(name):
                errors.invalid(f"{path}.{name}", True, f"must be false if {INT_OR_STRING} is true")
    all_of = schema.get("allOf") or [{}]
    _check_values(
        errors,
        path,
        schema,
        may_choose=schema.get("anyOf") == _INT_OR_STRING,
        first_may_choose=all_of[0].get("anyOf") == _INT_OR_STRING,
    )
    if is_embedded and kind != "object":
        needs_type(errors, path, schema, f"must be object if {EMBEDDED} is true")
    elif not kind and not schema.get(INT_OR_STRING) and not is_open:
        errors.required(f"{path}.type", f"must not be empty {level}")
    if is_embedded and extra is not None:
        errors.forbidden(f"{path}.additionalProperties", f"must not be used if {EMBEDDED} is set")
    if level == _ROOT and kind not in ("", "object"):
        errors.invalid(f"{path}.type", kind, "must be object at the root")
    if is_embedded or level == _ROOT:
        _check_type_meta(errors, path, properties)
    if level == _ROOT and _restricts(properties.get("metadata") or {}):
        text = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        errors.forbidden(f"{path}.properties[metadata]", text)
    if is_embedded and not is_open and not properties:
        errors.required(f"{path}.properties", f"must not be empty if {EMBEDDED} is true without {OPEN}")


def needs_type(errors: ErrorList, path: str, schema: Schema, why: str) -> None:
    """Add the fault that a schema does not have the type that its other members require."""
    if schema.get("type"):
        errors.invalid(f"{path}.type", schema["type"], why)
    else:
        errors.required(f"{path}.type", why)


def _check_type_meta(errors: ErrorList, path: str, properties: Plain) -> None:
    for name, kind, rule in (
        ("kind", "string", "string"),
        ("apiVersion", "string", "string"),
        ("metadata", "object", "object"),
    ):
        if name in properties and properties[name].get("type") != kind:
            errors.invalid(f"{path}.properties[{name}].type", properties[name].get("type") or "", f"must be {rule}")


def _restricts(metadata: Schema) -> bool:
    """Return whether the schema of an object's own metadata requires more than a name."""
    always_set = ("additionalProperties", "x-kubernetes-map-type", "x-kubernetes-list-type")  # even if they are empty
    named = {name for name, item in metadata.items() if is_set(item) or (item is not None and name in always_set)}
    named -= {"type", "default"}
    properties = set(metadata.get("properties") or {})
    return bool(named - {"properties"} or properties - {"name", "generateName"})


def is_set(item: Any) -> bool:
    """Return whether a member of a schema has a value; 0 and objects are values."""
    return item is not None and item is not False and item not in ("", [])


def _check_values(
    errors: ErrorList, path: str, schema: Schema, *, may_choose: bool = False, first_may_choose: bool = False
) -> None:
    """Add the faults of a place's value rules. `may_choose`: its anyOf is that of int-or-string, and is skipped."""
    for index, child in enumerate(() if may_choose else schema.get("anyOf") or ()):
        _check_nested(errors, f"{path}.anyOf[{index}]", child)
    for index, child in enumerate(schema.get("allOf") or ()):
        _check_nested(errors, f"{path}.allOf[{index}]", child, may_choose=first_may_choose and index == 0)
    for index, child in enumerate(schema.get("oneOf") or ()):
        _check_nested(errors, f"{path}.oneOf[{index}]", child)
    if is_schema(schema.get("not")):
        _check_nested(errors, f"{path}.not", schema["not"])
    if pattern := schema.get("pattern"):
        try:
            compile_regex(pattern)
        except RegexError as error:
            errors.invalid(f"{path}.pattern", pattern, f"must be a valid regular expression, but isn't: {error}")


def _check_nested(errors: ErrorList, path: str, schema: Schema, *, may_choose: bool = False) -> None:
    """Check a schema below allOf or the like: it can only restrict values, and has no types."""
    _check_values(errors, path, schema, may_choose=may_choose)
    if is_schema(schema.get("items")):
        _check_nested(errors, f"{path}.items", schema["items"])
    properties = schema.get("properties") or {}
    for name, child in properties.items():
        _check_nested(errors, f"{path}.properties[{name}]", child)
    if schema.get("type"):
        errors.forbidden(f"{path}.type", "must be empty to be structural")
    if schema.get("additionalProperties") not in (None, False):
        errors.forbidden(f"{path}.additionalProperties", "must be undefined to be structural")
    for name in _UNDEFINED:
        if schema.get(name) is not None:
            errors.forbidden(f"{path}.{name}", "must be undefined to be structural")
    for name, rule in _EMPTY_OR_FALSE.items():
        if schema.get(name):
            errors.forbidden(f"{path}.{name}", f"{rule} to be structural")
    if "metadata" in properties:
        errors.forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context")


def _check_known(errors: ErrorList, rules: Schema, schema: Schema, path: str, where: str) -> None:
    """Check that everything that the rules at `where` restrict has a schema of its own at `path`."""
    nested = [(f"{where}.not", rules["not"])] if is_schema(rules.get("not")) else []
    for combinator in _COMBINATORS:
        nested += [(f"{where}.{combinator}[{index}]", each) for index, each in enumerate(rules.get(combinator) or ())]
    for here, each in nested:
        _check_known_below(errors, each, schema, path, here)


def _check_known_below(errors: ErrorList, rules: Schema, schema: Schema, path: str, where: str) -> None:
    _check_known(errors, rules, schema, path, where)
    items, known = schema.get("items"), schema.get("properties") or {}
    below = [("items", rules["items"], items)] if is_schema(rules.get("items")) else []
    below += [(f"properties[{name}]", each, known.get(name)) for name, each in (rules.get("properties") or {}).items()]
    for step, each, found in below:
        if isinstance(found, Mapping):
            _check_known_below(errors, each, found, f"{path}.{step}", f"{where}.{step}")
        else:
            errors.required(f"{path}.{step}", f"because it is defined in {where}.{step}")
