"""What a CustomResourceDefinition must be, worded as the reference words it: shapes of its values, and its schemas.

`shaped` is what Go's decoder does with JSON (400); `check_schema` asks that a schema is structural (422).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from controlplane.apiserver.definition_expressions import check_rules
from controlplane.apiserver.kinds import Plain
from resourceapi.cel.re2 import RegexError, compile_regex
from resourceapi.objects import DecodeError, ErrorList

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_LIST_TYPES = ("atomic", "set", "map")
_MAP_TYPES = ("atomic", "granular")


class _Struct(NamedTuple):
    """A Go struct: its name, and the forms of its members.

    A form is a type, a struct, a list or a map (`*`) of them; `object` is anything.
    """

    name: str
    members: dict[str, Any]


_PROPS = _Struct("JSONSchemaProps", {})
_PROPS.members.update(
    dict.fromkeys(("id", "$schema", "$ref", "description", "type", "format", "title", "pattern"), str)
    | dict.fromkeys(("maximum", "minimum", "multipleOf"), float)
    | dict.fromkeys(("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties"), int)
    | dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum", "uniqueItems", "nullable"), bool)
    | {name: [_PROPS] for name in ("allOf", "oneOf", "anyOf")}
    | {name: {"*": _PROPS} for name in ("properties", "patternProperties", "definitions")}
    | {f"x-kubernetes-{name}": bool for name in ("preserve-unknown-fields", "embedded-resource", "int-or-string")}
    | {"required": [str], "enum": [object], "not": _PROPS, "items": _PROPS, "additionalProperties": _PROPS}
    | {"x-kubernetes-list-map-keys": [str], "x-kubernetes-list-type": str, "x-kubernetes-map-type": str}
)
_COLUMN = _Struct(
    "CustomResourceColumnDefinition",
    dict.fromkeys(("name", "type", "format", "description", "jsonPath"), str) | {"priority": int},
)
_NAMES = _Struct(
    "CustomResourceDefinitionNames",
    dict.fromkeys(("plural", "singular", "kind", "listKind"), str) | {"shortNames": [str], "categories": [str]},
)
_ANY = _Struct("CustomResourceSubresourceStatus", {})
_VERSION = _Struct(
    "CustomResourceDefinitionVersion",
    {
        "name": str,
        "deprecationWarning": str,
        "schema": _Struct("CustomResourceValidation", {"openAPIV3Schema": _PROPS}),
        "subresources": _Struct("CustomResourceSubresources", {"status": _ANY, "scale": {"*": object}}),
        "additionalPrinterColumns": [_COLUMN],
    }
    | dict.fromkeys(("served", "storage", "deprecated"), bool),
)
_SPEC = _Struct(
    "CustomResourceDefinitionSpec",
    {
        "group": str,
        "scope": str,
        "names": _NAMES,
        "versions": [_VERSION],
        "conversion": _Struct("CustomResourceConversion", {"strategy": str, "webhook": {"*": object}}),
        "preserveUnknownFields": bool,
    },
)
_STATUS = _Struct(
    "CustomResourceDefinitionStatus",
    {
        "acceptedNames": _NAMES,
        "storedVersions": [str],
        "conditions": [_Struct("CustomResourceDefinitionCondition", dict.fromkeys(("type", "status", "reason"), str))],
    },
)
_DEFINITION = _Struct("CustomResourceDefinition", {"spec": _SPEC, "status": _STATUS})
_GO_NAMES: dict[Any, str] = {str: "string", bool: "bool", int: "int64", float: "float64"}

_AT_THE_ROOT = "at the root"


def shaped(definition: Plain) -> Plain:
    """The definition, if every value has the type of its member; null is good everywhere and left out.

    Raises DecodeError.
    """
    made: Plain = _formed(definition, _DEFINITION, _DEFINITION.name, "")
    return made


def check_schema(
    errors: ErrorList, path: str, schema: Plain | None, where: str = _AT_THE_ROOT, unknown: str = ""
) -> None:
    """Add what keeps a schema (of a good shape) from being structural. `unknown` as `check_rules` has it."""
    schema = schema or {}
    if schema.get("$ref"):
        errors.forbidden(f"{path}.$ref", "$ref is not supported")
        return
    wanted = schema.get("type")
    is_open = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if not wanted and not is_open:
        errors.required(f"{path}.type", f"must not be empty {where}")
    elif wanted and wanted not in _TYPES:
        errors.not_supported(f"{path}.type", wanted, list(_TYPES))
    items = schema.get("items")
    if isinstance(items, list):
        errors.forbidden(f"{path}.items", "items must be a schema object and not an array")
    elif items is not None:
        within = unknown or ("" if schema.get("x-kubernetes-list-type") == "map" else path)
        check_schema(errors, f"{path}.items", items, "for specified array items", within)
    elif wanted == "array":
        errors.required(f"{path}.items", "must be specified")
    _check_list_type(errors, path, schema)
    _check_map_type(errors, path, schema)
    _check_pattern(errors, path, schema)
    check_rules(errors, path, schema, is_root=where == _AT_THE_ROOT, unknown=unknown)
    for name, child in sorted((schema.get("properties") or {}).items()):
        check_schema(errors, f"{path}.properties[{name}]", child, "for specified object fields", unknown)
    extra = schema.get("additionalProperties")
    if isinstance(extra, Mapping):
        check_schema(errors, f"{path}.additionalProperties", dict(extra), "for specified object fields", unknown)
    for junctor in ("allOf", "anyOf", "oneOf"):
        for index, child in enumerate(schema.get(junctor) or ()):
            _check_value_rules(errors, f"{path}.{junctor}[{index}]", child)
    if schema.get("not"):
        _check_value_rules(errors, f"{path}.not", schema["not"])


def _check_list_type(errors: ErrorList, path: str, schema: Plain) -> None:
    """What is wrong with how a list is merged, and what its items are known by."""
    kind, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys") or []
    if kind and schema.get("type") != "array":
        _no_type(errors, path, schema, "must be array if x-kubernetes-list-type is specified")
    if kind and kind not in _LIST_TYPES:
        errors.not_supported(f"{path}.x-kubernetes-list-type", kind, list(_LIST_TYPES))
    if keys and not kind:
        errors.required(f"{path}.x-kubernetes-list-type", "must be map if x-kubernetes-list-map-keys is non-empty")
    elif keys and kind != "map":
        text = "must be map if x-kubernetes-list-map-keys is non-empty"
        errors.invalid(f"{path}.x-kubernetes-list-type", kind, text)
    items = schema.get("items")
    if kind not in ("set", "map") or not isinstance(items, Mapping):
        return
    if items.get("nullable"):
        errors.forbidden(f"{path}.items.nullable", f"cannot be nullable when x-kubernetes-list-type is {kind}")
    if kind == "map":
        _check_keys(errors, path, items, keys)
    elif items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        text = "must be atomic as item of a list with x-kubernetes-list-type=set"
        errors.invalid(f"{path}.items.x-kubernetes-map-type", None, text)
    elif items.get("type") == "array" and items.get("x-kubernetes-list-type", "atomic") != "atomic":
        text = "must be atomic as item of a list with x-kubernetes-list-type=set"
        errors.invalid(f"{path}.items.x-kubernetes-list-type", items["x-kubernetes-list-type"], text)


def _check_keys(errors: ErrorList, path: str, items: Mapping[str, Any], keys: list[str]) -> None:
    where = f"{path}.x-kubernetes-list-map-keys"
    if not keys:
        errors.required(where, "must not be empty if x-kubernetes-list-type is map")
    if items.get("type") not in (None, "", "object"):
        text = "must be object if parent array's x-kubernetes-list-type is map"
        errors.invalid(f"{path}.items.type", items["type"], text)
    for index, key in enumerate(keys):
        member = (items.get("properties") or {}).get(key)
        here = f"{path}.items.properties[{key}]"
        if member is None:
            errors.invalid(where, keys, "entries must all be names of item properties")
        elif member.get("type") in ("array", "object"):
            text = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            errors.invalid(f"{here}.type", items.get("type", ""), text)
        if key in keys[:index]:
            errors.invalid(where, keys, "must not contain duplicate entries")
        if member is None:
            continue
        if key not in (items.get("required") or ()) and member.get("default") is None:
            text = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            errors.required(f"{here}.default", text)
        if member.get("nullable"):
            text = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable"
            errors.forbidden(f"{here}.nullable", text)


def _check_map_type(errors: ErrorList, path: str, schema: Plain) -> None:
    kind = schema.get("x-kubernetes-map-type")
    if kind and schema.get("type") != "object":
        _no_type(errors, path, schema, "must be object if x-kubernetes-map-type is specified")
    if kind and kind not in _MAP_TYPES:
        errors.not_supported(f"{path}.x-kubernetes-map-type", kind, list(_MAP_TYPES))


def _no_type(errors: ErrorList, path: str, schema: Plain, why: str) -> None:
    if schema.get("type"):
        errors.invalid(f"{path}.type", schema["type"], why)
    else:
        errors.required(f"{path}.type", why)


def _check_pattern(errors: ErrorList, path: str, schema: Plain) -> None:
    pattern = schema.get("pattern") or ""
    try:
        compile_regex(pattern)
    except RegexError as error:
        errors.invalid(f"{path}.pattern", pattern, f"must be a valid regular expression, but isn't: {error}")


def _check_value_rules(errors: ErrorList, path: str, schema: Plain | None) -> None:
    """Schemas below allOf and its like only narrow values; they say nothing of types."""
    schema = schema or {}
    if schema.get("type") and not schema.get("x-kubernetes-int-or-string"):
        errors.forbidden(f"{path}.type", "must be empty to be structural")
    _check_pattern(errors, path, schema)
    for name, child in sorted((schema.get("properties") or {}).items()):
        _check_value_rules(errors, f"{path}.properties[{name}]", child)
    if isinstance(schema.get("items"), Mapping):
        _check_value_rules(errors, f"{path}.items", schema["items"])


def _formed(value: Any, form: Any, owner: str, path: str) -> Any:
    if form is object:
        return value
    if value is None:
        return {} if isinstance(form, dict | _Struct) else [] if isinstance(form, list) else form()
    if form is _PROPS and _may_be_other(value, path):
        return value
    if isinstance(form, list) and isinstance(value, list):
        return [_formed(item, form[0], owner, path) for item in value]
    if isinstance(form, dict) and isinstance(value, dict):
        return {name: _formed(item, form["*"], owner, path) for name, item in value.items()}
    if isinstance(form, _Struct) and isinstance(value, dict):
        return {
            name: _formed(item, form.members.get(name, object), form.name, f"{path}.{name}" if path else name)
            for name, item in value.items()
            if item is not None
        }
    if isinstance(form, type) and _is(value, form):
        return value
    text = f"json: cannot unmarshal {_found(value, form)} into Go struct field {owner}.{path} of type {_go(form)}"
    raise DecodeError(text)


def _may_be_other(value: Any, path: str) -> bool:
    """`additionalProperties` may be a flag; a list of `items` is refused later, in other words."""
    if path.endswith(".additionalProperties"):
        return isinstance(value, bool)
    return path.endswith(".items") and isinstance(value, list)


def _is(value: Any, form: type) -> bool:
    if form is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if form is int:
        return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    return isinstance(value, form)


def _found(value: Any, form: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"number {value}" if form is int else "number"
    names: dict[type, str] = {bool: "bool", str: "string", list: "array"}
    return names.get(type(value), "object")


def _go(form: Any) -> str:
    if isinstance(form, list):
        return f"[]{_go(form[0])}"
    if isinstance(form, dict):
        return f"map[string]{_go(form['*'])}"
    if isinstance(form, _Struct):
        return f"v1.{form.name}"
    return _GO_NAMES.get(form, "v1.JSON")
