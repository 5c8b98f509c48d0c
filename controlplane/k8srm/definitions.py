"""The prototype's kinds as CustomResourceDefinitions, for the stand-in and for any other API server.

The schemas are made from the types. They are as tolerant as the prototype's server, which had no schemas: unknown
members are stored, and null means absent. But a value of the wrong type is refused. Source: allocator specification
6.1, 6.7.
"""

from collections.abc import Mapping
from typing import Any

from controlplane.k8srm.descriptions import description
from controlplane.k8srm.types import GROUP, KINDS, DeviceClaim, DevicePool
from resourceapi.objects.schemas import schema_of

_VERSION = "v1alpha1"
_PRESERVE_UNKNOWN_FIELDS = {"x-kubernetes-preserve-unknown-fields": True}
_UNAPPROVED_ANNOTATION = {"api-approved.kubernetes.io": "unapproved, a prototype"}  # required for groups of k8s.io
_KINDS_WITH_STATUS = (DeviceClaim, DevicePool)
_NAMESPACED_KINDS = (DeviceClaim,)


def definitions() -> list[dict[str, Any]]:
    """Return the definitions of all kinds of the group, and of the example vendor's `foozer.example.com`."""
    prototype = [
        _definition(
            GROUP,
            name,
            _schema(kind),
            is_namespaced=issubclass(kind, _NAMESPACED_KINDS),
            has_status=issubclass(kind, _KINDS_WITH_STATUS),
        )
        for name, kind in KINDS.items()
    ]
    foozer = {
        "type": "object",
        "properties": {"spec": {"type": "object", **_PRESERVE_UNKNOWN_FIELDS}},
        **_PRESERVE_UNKNOWN_FIELDS,
    }
    return [*prototype, _definition("foozer.example.com", "FoozerConfig", foozer, is_namespaced=True, has_status=False)]


def _definition(
    group: str, kind: str, schema: Mapping[str, Any], *, is_namespaced: bool, has_status: bool
) -> dict[str, Any]:
    singular = kind.lower()
    plural = f"{singular}es" if singular.endswith("s") else f"{singular}s"
    version = {"name": _VERSION, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    if has_status:
        version["subresources"] = {"status": {}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"}
        | ({"annotations": _UNAPPROVED_ANNOTATION} if group.endswith(".k8s.io") else {}),
        "spec": {
            "group": group,
            "names": {"plural": plural, "singular": singular, "kind": kind, "listKind": f"{kind}List"},
            "scope": "Namespaced" if is_namespaced else "Cluster",
            "versions": [version],
        },
    }


def _schema(kind: type[Any]) -> dict[str, Any]:
    schema = _structural(schema_of(kind, description))
    properties = schema["properties"]
    for name in ("apiVersion", "kind", "metadata"):
        del properties[name]  # the API server adds these
    return {name: value for name, value in schema.items() if name != "nullable"}


def _structural(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema in the form that definitions allow, and as tolerant as the module's docstring says."""
    about = {"description": schema["description"]} if "description" in schema else {}
    if schema.get("x-kubernetes-int-or-string"):
        return {"x-kubernetes-int-or-string": True, "nullable": True, **about}
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return {"type": "object", "nullable": True, **about, **_PRESERVE_UNKNOWN_FIELDS}
    structural: dict[str, Any] = {"type": schema["type"], "nullable": True, **about}
    if "format" in schema:
        structural["format"] = schema["format"]
    if "items" in schema:
        structural["items"] = {
            name: value for name, value in _structural(schema["items"]).items() if name != "nullable"
        }
    if "additionalProperties" in schema:
        structural["additionalProperties"] = _structural(schema["additionalProperties"])
    if "properties" in schema:
        structural["properties"] = {name: _structural(each) for name, each in schema["properties"].items()}
        structural |= _PRESERVE_UNKNOWN_FIELDS
    return structural
