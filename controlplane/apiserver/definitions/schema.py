"""The rules of a CustomResourceDefinition's schema. The texts and their order are the reference's.

There are three passes: whether the schema is structural, whether its defaults are valid, and what each place can
contain (lists, maps, rules). Expressions are compiled only if everything else is correct.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from controlplane.apiserver.definitions.defaults import check_defaults
from controlplane.apiserver.definitions.embedded import EMBEDDED, TYPE_AND_METADATA
from controlplane.apiserver.definitions.expressions import check_rule_programs, check_rule_words
from controlplane.apiserver.definitions.shape import SCHEMA_MEMBERS, internal_form_of
from controlplane.apiserver.definitions.structural import OPEN, check_structural, is_set, needs_type, unsupported
from controlplane.apiserver.kinds import Schema
from resourceapi.objects import ErrorList
from resourceapi.objects.release import Release

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_LIST_TYPES = ("atomic", "set", "map")
_MAP_TYPES = ("atomic", "granular")
_LIST_TYPE, _LIST_KEYS, _MAP_TYPE = (f"x-kubernetes-{name}" for name in ("list-type", "list-map-keys", "map-type"))
_UNSUPPORTED = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_POINTERS = ("additionalItems", "dependencies", "$ref")
_AT_THE_ROOT = {
    "description": "Description",
    "type": "Type",
    "format": "Format",
    "title": "Title",
    "maximum": "Maximum",
    "exclusiveMaximum": "ExclusiveMaximum",
    "minimum": "Minimum",
    "exclusiveMinimum": "ExclusiveMinimum",
    "maxLength": "MaxLength",
    "minLength": "MinLength",
    "pattern": "Pattern",
    "maxItems": "MaxItems",
    "minItems": "MinItems",
    "uniqueItems": "UniqueItems",
    "multipleOf": "MultipleOf",
    "required": "Required",
    "items": "Items",
    "properties": "Properties",
    "externalDocs": "ExternalDocs",
    "example": "Example",
    OPEN: "XPreserveUnknownFields",
    "x-kubernetes-validations": "XValidations",
}
"""The members that the schema's root can have if the status is a subresource, with Go's names."""


class _Place(NamedTuple):
    """What the enclosing places determine for a place of a schema."""

    is_root: bool = False
    no_default: str = ""
    """Why a default is not allowed; empty if it is."""
    is_in_metadata: bool = False
    unknown: str = ""
    """The path of an enclosing part whose members cannot be correlated with their old values; empty if none."""
    checks_rules: bool = False


class _Found(NamedTuple):
    """The faults at a place and below it: those found without compiling expressions, and those of expressions."""

    words: ErrorList
    programs: ErrorList

    def add(self, other: "_Found") -> None:
        """Add the faults of a place below."""
        self.words.extend(other.words)
        self.programs.extend(other.programs)


def check_schema(errors: ErrorList, path: str, schema: Schema, release: Release, *, has_status: bool) -> None:
    """Add the faults of a schema, of one version or of all, whose types are correct."""
    wrong = ErrorList()
    if has_status:
        _check_root(wrong, path, schema)
    if schema.get("nullable"):
        wrong.forbidden(f"{path}.nullable", "nullable cannot be true at the root")
    unreadable, readable = unsupported(schema), ErrorList()
    if not unreadable:
        check_structural(readable, path, schema)
        if not readable:
            check_defaults(readable, path, schema, release)
    wrong.extend(readable)
    found = _check(path, schema, _Place(is_root=True, checks_rules=not readable and not unreadable))
    wrong.extend(found.words + found.programs)
    if unreadable and not wrong:
        wrong.invalid(path, "", unreadable)
    errors.extend(wrong)


def _check_root(errors: ErrorList, path: str, schema: Schema) -> None:
    values = ("default", "example")  # they count even if they are empty, like lists
    lists = [name for name, item in schema.items() if isinstance(item, list)]
    for name in SCHEMA_MEMBERS:
        if not is_set(schema.get(name)) and name not in lists and not (name in values and name in schema):
            continue
        if name == "type" and schema["type"] != "object":
            text = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
            errors.invalid(f"{path}.type", schema["type"], text)
            return
        if name not in _AT_THE_ROOT:
            names = " ".join(_AT_THE_ROOT.values())
            text = f"only [{names}] fields are allowed at the root of the schema if the status subresource is enabled"
            errors.invalid(path, internal_form_of(schema, "JSONSchemaProps"), text)
            return


def _check(path: str, schema: Schema, place: _Place) -> _Found:
    found = _Found(ErrorList(), ErrorList())
    _check_supported(found.words, path, schema, place)
    if schema.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        found.words.forbidden(f"{path}.uniqueItems", text)
    if schema.get("properties") and schema.get("additionalProperties") not in (None, True):
        text = "additionalProperties and properties are mutual exclusive"
        found.words.forbidden(f"{path}.additionalProperties", text)
    for step, child, inner in _below(path, schema, place):
        found.add(_check(f"{path}.{step}", child, inner))
    if schema.get(OPEN) is False:
        found.words.invalid(f"{path}.{OPEN}", False, "must be true or undefined")
    _check_map_type(found.words, path, schema)
    _check_list_type(found.words, path, schema)
    _check_items_of_keyed(found.words, path, schema)
    check_rule_words(found.words, path, schema)
    if place.checks_rules and not found.words:
        check_rule_programs(found.programs, path, schema, is_root=place.is_root, unknown=place.unknown)
    return found


def _check_supported(errors: ErrorList, path: str, schema: Schema, place: _Place) -> None:
    kind = schema.get("type")
    if kind and kind not in _TYPES:
        errors.not_supported(f"{path}.type", kind, list(_TYPES))
    if schema.get("default") is not None and place.no_default:
        errors.forbidden(f"{path}.default", f"must not be set {place.no_default}")
    for name in _UNSUPPORTED:
        if schema.get(name) or (name in _POINTERS and schema.get(name) is not None):
            errors.forbidden(f"{path}.{name}", f"{name} is not supported")
    if kind == "null":
        errors.forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    if isinstance(schema.get("items"), list) and schema["items"]:
        errors.forbidden(f"{path}.items", "items must be a schema object and not an array")
    if place.is_in_metadata and schema.get(EMBEDDED):
        errors.forbidden(f"{path}.{EMBEDDED}", "must not be used inside of resource meta")


def _below(path: str, schema: Schema, place: _Place) -> Iterator[tuple[str, Schema, _Place]]:
    """The places directly below a place, in the order in which they are checked."""
    is_root, place = place.is_root, place._replace(is_root=False)
    narrower = place._replace(checks_rules=False)
    if isinstance(schema.get("additionalProperties"), Mapping):
        why = "inside additionalProperties applying to object metadata" if place.is_in_metadata else place.no_default
        yield "additionalProperties", schema["additionalProperties"], place._replace(no_default=why)
    for name, child in sorted((schema.get("properties") or {}).items()):
        inner = place
        if schema.get(_MAP_TYPE) not in (None, *_MAP_TYPES):
            inner = inner._replace(unknown=inner.unknown or path)
        if name in TYPE_AND_METADATA and (is_root or schema.get(EMBEDDED)):
            inner = inner._replace(is_in_metadata=True)
            if is_root:
                inner = inner._replace(no_default=f"in top-level {name}")
        yield f"properties[{name}]", child, inner
    if isinstance(schema.get("not"), Mapping):
        yield "not", schema["not"], narrower
    for combinator in ("allOf", "oneOf", "anyOf"):
        for index, child in enumerate(schema.get(combinator) or ()):
            yield f"{combinator}[{index}]", child, narrower
    for name, child in sorted((schema.get("definitions") or {}).items()):
        yield f"definitions[{name}]", child, narrower
    items = schema.get("items")
    inner = place if schema.get(_LIST_TYPE) == "map" else place._replace(unknown=place.unknown or path)
    if isinstance(items, Mapping):
        yield "items", items, inner
    for index, child in enumerate(items if isinstance(items, list) else ()):
        yield f"items[{index}]", child, inner
    for name, child in sorted((schema.get("dependencies") or {}).items()):
        if isinstance(child, Mapping):
            yield f"dependencies[{name}]", child, narrower


def _check_map_type(errors: ErrorList, path: str, schema: Schema) -> None:
    kind = schema.get(_MAP_TYPE)
    if kind is None:
        return
    if schema.get("type") != "object":
        needs_type(errors, path, schema, f"must be object if {_MAP_TYPE} is specified")
    if kind not in _MAP_TYPES:
        errors.not_supported(f"{path}.{_MAP_TYPE}", kind, list(_MAP_TYPES))


def _check_list_type(errors: ErrorList, path: str, schema: Schema) -> None:
    """Add the faults of a list type and its keys."""
    kind, keys, items = schema.get(_LIST_TYPE), schema.get(_LIST_KEYS) or [], schema.get("items")
    if kind is not None and schema.get("type") != "array":
        needs_type(errors, path, schema, f"must be array if {_LIST_TYPE} is specified")
    elif kind == "set" and isinstance(items, Mapping):
        text = f"must be atomic as item of a list with {_LIST_TYPE}=set"
        if items.get("type") == "array" and items.get(_LIST_TYPE, "atomic") != "atomic":
            errors.invalid(f"{path}.items.{_LIST_TYPE}", items[_LIST_TYPE], text)
        elif items.get("type") == "object" and items.get(_MAP_TYPE) != "atomic":
            errors.invalid(f"{path}.items.{_MAP_TYPE}", items.get(_LIST_TYPE), text)
    if kind is not None and kind not in _LIST_TYPES:
        errors.not_supported(f"{path}.{_LIST_TYPE}", kind, list(_LIST_TYPES))
    if keys and kind is None:
        errors.required(f"{path}.{_LIST_TYPE}", f"must be map if {_LIST_KEYS} is non-empty")
    elif keys and kind != "map":
        errors.invalid(f"{path}.{_LIST_TYPE}", kind, f"must be map if {_LIST_KEYS} is non-empty")
    if kind == "map":
        _check_keys(errors, path, schema, keys)


def _check_keys(errors: ErrorList, path: str, schema: Schema, keys: list[str]) -> None:
    where, items = f"{path}.{_LIST_KEYS}", schema.get("items")
    if not keys:
        errors.required(where, f"must not be empty if {_LIST_TYPE} is map")
    if items is None:
        errors.required(f"{path}.items", f"must have a schema if {_LIST_TYPE} is map")
    if isinstance(items, list):
        shown = {"Schema": None, "JSONSchemas": [internal_form_of(each, "JSONSchemaProps") for each in items]}
        errors.invalid(f"{path}.items", shown, f"must only have a single schema if {_LIST_TYPE} is map")
    if not isinstance(items, Mapping):
        return
    if items.get("type") != "object":
        text = f"must be object if parent array's {_LIST_TYPE} is map"
        errors.invalid(f"{path}.items.type", items.get("type") or "", text)
        return
    seen: set[str] = set()
    for key in keys:
        member = (items.get("properties") or {}).get(key)
        if member is None:
            errors.invalid(where, keys, "entries must all be names of item properties")
        elif member.get("type") in ("array", "object"):
            text = f"must be a scalar type if parent array's {_LIST_TYPE} is map"
            errors.invalid(f"{path}.items.properties[{key}].type", items["type"], text)
        if key in seen:
            errors.invalid(where, keys, "must not contain duplicate entries")
        seen.add(key)


def _check_items_of_keyed(errors: ErrorList, path: str, schema: Schema) -> None:
    """Add the faults of items that are identified by keys or by themselves."""
    kind, items = schema.get(_LIST_TYPE), schema.get("items")
    if kind not in ("set", "map") or not isinstance(items, Mapping):
        return
    if items.get("nullable"):
        errors.forbidden(f"{path}.items.nullable", f"cannot be nullable when {_LIST_TYPE} is {kind}")
    for key in (schema.get(_LIST_KEYS) or ()) if kind == "map" else ():
        member: Any = (items.get("properties") or {}).get(key)
        here = f"{path}.items.properties[{key}]"
        if member is None:
            continue
        if key not in (items.get("required") or ()) and member.get("default") is None:
            text = f"this property is in {_LIST_KEYS}, so it must have a default or be a required property"
            errors.required(f"{here}.default", text)
        if member.get("nullable"):
            errors.forbidden(f"{here}.nullable", f"this property is in {_LIST_KEYS}, so it cannot be nullable")
