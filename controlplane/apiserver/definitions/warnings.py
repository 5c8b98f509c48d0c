"""Warnings for a definition: unsupported formats, and sets whose items are no scalars.

An update warns only of what it adds. Source: k8s.io/apiextensions-apiserver, the strategy of definitions.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from controlplane.apiserver.definitions.string_formats import FORMATS_OF_NUMBERS, is_known
from controlplane.apiserver.definitions.structural import is_schema
from controlplane.apiserver.kinds import Plain, Schema
from resourceapi.objects import quoted_text
from resourceapi.objects.json_value import canonical
from resourceapi.objects.release import Release

_LIST_TYPE = "x-kubernetes-list-type"
_LISTS, _MAPS = ("allOf", "anyOf", "oneOf"), ("properties", "patternProperties", "definitions", "dependencies")


def definition_warnings(new: Plain, old: Plain | None, release: Release) -> list[str]:
    """Return the warnings for a definition that is written."""
    known = [list(_formats(each)) for each in (new, old or {})]
    found = [f"unrecognized format {quoted_text(name)}" for name in known[0] if name not in known[1]]
    if release.warns_of_sets:
        sets = [set(_sets(each)) for each in (new, old or {})]
        found += sorted(sets[0] - sets[1])
    return found


def _formats(definition: Plain) -> Iterator[str]:
    for schema in _schemas(definition):
        name, kind = schema.get("format") or "", schema.get("type") or ""
        is_text = kind in ("", "string")
        if name and not (is_known(name) if is_text else name in FORMATS_OF_NUMBERS.get(kind, ())):
            yield name


def _sets(definition: Plain) -> Iterator[str]:
    for schema in _schemas(definition):
        items = schema.get("items")
        kind = items.get("type") if isinstance(items, Mapping) else None
        if schema.get(_LIST_TYPE) == "set" and kind in ("object", "array"):
            what = "is not supported by server-side apply or CEL validation rules"
            yield f"{_LIST_TYPE}: set for items of type {quoted_text(kind)} {what}"


def _schemas(definition: Plain) -> Iterator[Schema]:
    """All places of all schemas of a definition. A schema that several versions share is visited once."""
    wholes: dict[bytes, Any] = {}
    for version in (definition.get("spec") or {}).get("versions") or ():
        whole = (version.get("schema") or {}).get("openAPIV3Schema")
        if whole is not None:
            wholes.setdefault(canonical(whole), whole)
    for whole in wholes.values():
        yield from _places(whole)


def _places(schema: Schema) -> Iterator[Schema]:
    yield schema
    below = [schema.get(name) for name in ("items", "not", "additionalProperties", "additionalItems")]
    below += [each for name in _LISTS for each in schema.get(name) or ()]
    below += [each for name in _MAPS for each in (schema.get(name) or {}).values()]
    for child in below:
        if is_schema(child):
            yield from _places(child)
