"""Views of objects: tables for kubectl, and objects reduced to their metadata (allocator.md 5.13)."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from controlplane.apiserver.columns import Since, age_since
from controlplane.apiserver.kinds import Kind, Plain
from controlplane.apiserver.status import bad_request, internal, not_acceptable
from resourceapi.objects import ObjectMeta, from_dict, quoted_text, to_dict

_INCLUDES = ("", "Metadata", "Object", "None")
_NAME = (
    "Name must be unique within a namespace. It is required when creating resources; some let the server generate it."
    " Names are for humans and for repeated creation; they cannot be changed."
)


def check_include(include: str) -> None:
    """Refuse an invalid `includeObject`."""
    if include not in _INCLUDES:
        text = f"includeObject: Invalid value: {quoted_text(include)}: must be 'Metadata', 'Object', 'None', or empty"
        raise bad_request(f"Unable to convert to Table as requested: {text}")


def check_view(kind: Kind, view: str, *, is_list: bool) -> None:
    """Refuse the view of one object for a list, and the view of a list for one object."""
    package = "unstructured" if kind.from_definition else kind.group.partition(".")[0] or "core"
    if kind.plural == "scales":  # the Scale of a custom resource has no internal type
        package = "v1"
    name = "Unstructured" if kind.from_definition else kind.kind
    if view == "PartialObjectMetadata" and is_list:
        raise not_acceptable(f"you requested {view}, but the requested object is a list (*{package}.{name}List)")
    if view == "PartialObjectMetadataList" and not is_list:
        if kind.from_definition:
            raise internal("content is not a list")
        raise not_acceptable(f"you requested {view}, but the requested object is not a list (*{package}.{name})")


def table(
    kind: Kind,
    objects: Iterable[Plain],
    metadata: Plain,
    include: str,
    view_version: str,
    version: str,
    now: datetime,
    *,
    with_columns: bool = True,
) -> Plain:
    """Return the Table of stored objects at `now`. `with_columns` is off for the later tables of a watch."""
    rows = [_row(kind, obj, include, view_version, version, now) for obj in objects]
    definitions: list[Plain] | None = None
    if with_columns:
        definitions = [] if kind.hides_name else [_column("Name", "string", "name", _NAME, 0)]
        for column in (each for each in kind.columns if each.name):
            text = column.description or f"{column.name} of the {kind.kind}."
            definitions.append(_column(column.name, column.type, column.format, text, column.priority))
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{view_version}",
        "metadata": metadata,
        "columnDefinitions": definitions,
        "rows": rows,
    }


def partial(obj: Plain, view_version: str) -> Plain:
    """Return an object's PartialObjectMetadata."""
    metadata = to_dict(from_dict(ObjectMeta, obj["metadata"]))
    return {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{view_version}", "metadata": metadata}


def partial_list(objects: Iterable[Plain], metadata: Plain, view_version: str) -> Plain:
    """Return the PartialObjectMetadataList of objects."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": f"meta.k8s.io/{view_version}",
        "metadata": metadata,
        "items": [partial(obj, view_version) for obj in objects] or None,
    }


def _column(name: str, kind: str, form: str, description: str, priority: int) -> Plain:
    return {"name": name, "type": kind, "format": form, "description": description, "priority": priority}


def _row(kind: Kind, obj: Plain, include: str, view_version: str, version: str, now: datetime) -> Plain:
    cells: list[Any] = [] if kind.hides_name else [obj["metadata"]["name"]]
    for column in kind.columns:
        cell = column.cell(obj)
        cells.append(age_since(cell.time, now) if isinstance(cell, Since) else cell)
    shown: Plain | None = None
    if include in ("", "Metadata"):
        shown = partial(obj, view_version)
    elif include == "Object":
        shown = kind.rules.encode(obj, version)
    return {"cells": cells, "object": shown}
