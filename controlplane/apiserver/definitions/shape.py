"""The types of a CustomResourceDefinition: what Go's decoder accepts (otherwise 400), and how Go shows its parts.

Source: apiextensions.k8s.io/v1 and its internal types.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from controlplane.apiserver.go_values import numbers_as_read
from controlplane.apiserver.kinds import Plain
from resourceapi.objects import DecodeError


class _Struct(NamedTuple):
    """A Go struct: its name, and the forms of its members.

    A form is a type, a struct, or a list or map (`*`) of them; `object` is any value.
    """

    name: str
    members: dict[str, Any]


_RULE = _Struct(
    "ValidationRule",
    dict.fromkeys(("rule", "message", "messageExpression", "reason", "fieldPath"), str) | {"optionalOldSelf": bool},
)
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
    | {"additionalItems": _PROPS, "x-kubernetes-validations": [_RULE]}
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
_SCALE = _Struct(
    "CustomResourceSubresourceScale",
    dict.fromkeys(("specReplicasPath", "statusReplicasPath", "labelSelectorPath"), str),
)
_SERVICE = _Struct("ServiceReference", dict.fromkeys(("namespace", "name", "path"), str) | {"port": int})
_WEBHOOK = _Struct(
    "WebhookConversion",
    {
        "clientConfig": _Struct("WebhookClientConfig", {"url": str, "service": _SERVICE, "caBundle": str}),
        "conversionReviewVersions": [str],
    },
)
_VERSION = _Struct(
    "CustomResourceDefinitionVersion",
    {
        "name": str,
        "deprecationWarning": str,
        "schema": _Struct("CustomResourceValidation", {"openAPIV3Schema": _PROPS}),
        "subresources": _Struct("CustomResourceSubresources", {"status": _ANY, "scale": _SCALE}),
        "additionalPrinterColumns": [_COLUMN],
        "selectableFields": [_Struct("SelectableField", {"jsonPath": str})],
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
        "conversion": _Struct("CustomResourceConversion", {"strategy": str, "webhook": _WEBHOOK}),
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


def shaped(definition: Plain) -> Plain:
    """Return the definition if every value has the type of its member. Null is always allowed, and left out.

    Raises DecodeError.
    """
    made: Plain = _formed(definition, _DEFINITION, _DEFINITION.name, "")
    return made


def internal_form_of(value: Any, form: str) -> Any:
    """Return a part of a definition as a refusal shows it: with all members of Go's type, under Go's names."""
    return _internal(value, _INTERNAL[form]) if isinstance(value, Mapping) else None


def _formed(value: Any, form: Any, owner: str, path: str) -> Any:
    if form is object:  # as if it was decoded and encoded; members that Go does not have are dropped
        return _sorted(numbers_as_read(value)) if owner == _PROPS.name else value
    if value is None:
        return {} if isinstance(form, dict | _Struct) else [] if isinstance(form, list) else form()
    if form is _PROPS and _is_other_schema_form(value, path):
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
    text = f"json: cannot unmarshal {_found(value, form)} into Go struct field {owner}.{path} of type {_go_type(form)}"
    raise DecodeError(text)


def _is_other_schema_form(value: Any, path: str) -> bool:
    """Return whether a value can be no schema: a boolean `additionalProperties`; `items` as a list is refused later."""
    if path.endswith((".additionalProperties", ".additionalItems")):
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


def _go_type(form: Any) -> str:
    if isinstance(form, list):
        return f"[]{_go_type(form[0])}"
    if isinstance(form, dict):
        return f"map[string]{_go_type(form['*'])}"
    if isinstance(form, _Struct):
        return f"v1.{form.name}"
    return _GO_NAMES.get(form, "v1.JSON")


def _internal(value: Mapping[str, Any], members: Mapping[str, Any]) -> Plain:
    shown: Plain = {}
    for name, (key, empty) in members.items():
        item = value.get(key)
        shown[name] = empty.shown(item) if isinstance(empty, _Form) else empty if item is None else item
    return shown


def _sorted(value: Any) -> Any:
    """A value of any form, with its members in Go's order: by name."""
    if isinstance(value, Mapping):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


class _Form(NamedTuple):
    """A member with another of Go's types, a list or a map of them, or one of two types."""

    name: str
    holds: str = ""

    def shown(self, value: Any) -> Any:
        """Return the member as Go shows it; null if it is empty."""
        if self.holds == "either":
            return self._either(value)
        if not isinstance(value, Mapping | list):
            return None
        members = _INTERNAL[self.name]
        if isinstance(value, list):
            return [_internal(each or {}, members) for each in value]
        if self.holds == "map":
            return {each: _internal(value[each] or {}, members) for each in sorted(value)}
        return _internal(value, members)

    def _either(self, value: Any) -> Any:
        if isinstance(value, bool):
            return {"Allows": value, "Schema": None}
        if isinstance(value, list):
            return {"Schema": None, "JSONSchemas": [_internal(each, _INTERNAL[self.name]) for each in value]}
        return None if value is None else {"Allows": True, "Schema": _internal(value, _INTERNAL[self.name])}


class _Items(_Form):
    """The items of a list: one schema, or several."""

    def shown(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {"Schema": _internal(value, _INTERNAL[self.name]), "JSONSchemas": None}
        return self._either(value)


class _Dependencies(_Form):
    """The requirements of a member: another schema, or other members."""

    def shown(self, value: Any) -> Any:
        return {name: self._each(value[name]) for name in sorted(value)} if isinstance(value, Mapping) else None

    def _each(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {"Schema": _internal(value, _INTERNAL[self.name]), "Property": None}
        return {"Schema": None, "Property": value}


_EITHER = _Form("JSONSchemaProps", "either")
_SCHEMAS = _Form("JSONSchemaProps", "map")
_LIST = _Form("JSONSchemaProps", "list")
_INTERNAL: dict[str, dict[str, tuple[str, Any]]] = {
    "JSONSchemaProps": {
        "ID": ("id", ""),
        "Schema": ("$schema", ""),
        "Ref": ("$ref", None),
        "Description": ("description", ""),
        "Type": ("type", ""),
        "Nullable": ("nullable", False),
        "Format": ("format", ""),
        "Title": ("title", ""),
        "Default": ("default", None),
        "Maximum": ("maximum", None),
        "ExclusiveMaximum": ("exclusiveMaximum", False),
        "Minimum": ("minimum", None),
        "ExclusiveMinimum": ("exclusiveMinimum", False),
        "MaxLength": ("maxLength", None),
        "MinLength": ("minLength", None),
        "Pattern": ("pattern", ""),
        "MaxItems": ("maxItems", None),
        "MinItems": ("minItems", None),
        "UniqueItems": ("uniqueItems", False),
        "MultipleOf": ("multipleOf", None),
        "Enum": ("enum", None),
        "MaxProperties": ("maxProperties", None),
        "MinProperties": ("minProperties", None),
        "Required": ("required", None),
        "Items": ("items", _Items("JSONSchemaProps")),
        "AllOf": ("allOf", _LIST),
        "OneOf": ("oneOf", _LIST),
        "AnyOf": ("anyOf", _LIST),
        "Not": ("not", _Form("JSONSchemaProps")),
        "Properties": ("properties", _SCHEMAS),
        "AdditionalProperties": ("additionalProperties", _EITHER),
        "PatternProperties": ("patternProperties", _SCHEMAS),
        "Dependencies": ("dependencies", _Dependencies("JSONSchemaProps")),
        "AdditionalItems": ("additionalItems", _EITHER),
        "Definitions": ("definitions", _SCHEMAS),
        "ExternalDocs": ("externalDocs", _Form("ExternalDocumentation")),
        "Example": ("example", None),
        "XPreserveUnknownFields": ("x-kubernetes-preserve-unknown-fields", None),
        "XEmbeddedResource": ("x-kubernetes-embedded-resource", False),
        "XIntOrString": ("x-kubernetes-int-or-string", False),
        "XListMapKeys": ("x-kubernetes-list-map-keys", None),
        "XListType": ("x-kubernetes-list-type", None),
        "XMapType": ("x-kubernetes-map-type", None),
        "XValidations": ("x-kubernetes-validations", _Form("ValidationRule", "list")),
    },
    "ValidationRule": {
        name[:1].upper() + name[1:]: (name, empty)
        for name, empty in (
            ("rule", ""),
            ("message", ""),
            ("messageExpression", ""),
            ("reason", None),
            ("fieldPath", ""),
            ("optionalOldSelf", None),
        )
    },
    "CustomResourceDefinitionVersion": {
        "Name": ("name", ""),
        "Served": ("served", False),
        "Storage": ("storage", False),
        "Deprecated": ("deprecated", False),
        "DeprecationWarning": ("deprecationWarning", None),
        "Schema": ("schema", _Form("CustomResourceValidation")),
        "Subresources": ("subresources", _Form("CustomResourceSubresources")),
        "AdditionalPrinterColumns": ("additionalPrinterColumns", _Form("CustomResourceColumnDefinition", "list")),
        "SelectableFields": ("selectableFields", _Form("SelectableField", "list")),
    },
    "CustomResourceValidation": {"OpenAPIV3Schema": ("openAPIV3Schema", _Form("JSONSchemaProps"))},
    "CustomResourceSubresources": {
        "Status": ("status", _Form("CustomResourceSubresourceStatus")),
        "Scale": ("scale", _Form("CustomResourceSubresourceScale")),
    },
    "CustomResourceSubresourceStatus": {},
    "CustomResourceSubresourceScale": {
        "SpecReplicasPath": ("specReplicasPath", ""),
        "StatusReplicasPath": ("statusReplicasPath", ""),
        "LabelSelectorPath": ("labelSelectorPath", None),
    },
    "CustomResourceColumnDefinition": {
        "Name": ("name", ""),
        "Type": ("type", ""),
        "Format": ("format", ""),
        "Description": ("description", ""),
        "Priority": ("priority", 0),
        "JSONPath": ("jsonPath", ""),
    },
    "ExternalDocumentation": {"Description": ("description", ""), "URL": ("url", "")},
    "SelectableField": {"JSONPath": ("jsonPath", "")},
}
"""Go's internal types of a definition: each member's name, its JSON name, and its type or its empty value."""
SCHEMA_MEMBERS = tuple(name for name, _ in _INTERNAL["JSONSchemaProps"].values())
"""The JSON names of a schema's members, in the order of Go's type."""
