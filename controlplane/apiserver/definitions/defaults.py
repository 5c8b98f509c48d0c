"""Defaults in a definition's schema: they have to be valid by that schema, without unknown members.

Source: KEP-575 "Defaulting and pruning for custom resources"; the texts are kube-apiserver's.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from controlplane.apiserver.definitions.embedded import EMBEDDED, TYPE_AND_METADATA, check_embedded, coerce
from controlplane.apiserver.definitions.expressions import check_object, has_rules
from controlplane.apiserver.definitions.pruning import prune
from controlplane.apiserver.definitions.schema_validation import check
from controlplane.apiserver.go_values import in_order
from controlplane.apiserver.kinds import Schema, WriteContext
from resourceapi.objects import ErrorList
from resourceapi.objects.errors import InOrder
from resourceapi.objects.release import Release

_Around = Callable[[Any], Any]


class _Place(NamedTuple):
    """The position of a default."""

    root: Schema
    """The schema of the innermost enclosing object that has metadata."""
    around: _Around
    """Makes that object around the value, with nothing else in it."""
    is_in_metadata: bool


def check_defaults(errors: ErrorList, path: str, schema: Schema, release: Release) -> None:
    """Add the faults of the defaults in a structural schema."""
    whole = {**schema, EMBEDDED: True}
    _check_place(errors, path, whole, _Place(whole, _typed, False), release)


def _typed(value: Any) -> Any:
    return {"kind": "Validation", "apiVersion": "validation/v1"} | value


def _check_place(errors: ErrorList, path: str, schema: Schema, place: _Place, release: Release) -> None:
    if schema.get(EMBEDDED):
        place = _Place(schema, _typed, False)
    if schema.get("default") is not None:
        _check_default(errors, f"{path}.default", schema, place, release)
    if isinstance(schema.get("items"), Mapping):
        inner = place._replace(around=lambda value: place.around([value]))
        _check_place(errors, f"{path}.items", schema["items"], inner, release)
    for name, child in sorted((schema.get("properties") or {}).items()):
        is_in_metadata = place.is_in_metadata or (bool(schema.get(EMBEDDED)) and name in TYPE_AND_METADATA)
        inner = place._replace(around=_member_of(place.around, name), is_in_metadata=is_in_metadata)
        _check_place(errors, f"{path}.properties[{name}]", child, inner, release)


def _member_of(around: _Around, name: str) -> _Around:
    return lambda value: around({name: value})


def _check_default(errors: ErrorList, path: str, schema: Schema, place: _Place, release: Release) -> None:
    default = copy.deepcopy(schema["default"])
    found = ErrorList()
    if place.is_in_metadata:
        whole, ignored = place.around(copy.deepcopy(default)), list[str]()
        fault = coerce(whole, place.root, "", ignored)
        if fault is None:
            check_embedded(found, whole, place.root, "", release)
            texts = list(dict.fromkeys(map(str, found)))
            why = f"[{', '.join(texts)}]" if texts[1:] else "".join(texts)
        else:
            why = str(fault)
        if why:
            errors.invalid(path, default, f"must result in valid metadata: {why}")
            return
    else:
        if prune(default, schema)[1]:
            errors.invalid(path, InOrder(in_order(default)), "must not have unknown fields")
        fault = coerce(default, schema, path, [])
        if fault is not None:
            errors.append(fault)
            return
        check_embedded(found, default, schema, path, release)
        if found:
            errors.extend(found)
            return
    check(found, default, schema)
    is_of_rules = not found
    if is_of_rules and has_rules(schema):
        context = WriteContext("", release, [])
        check_object(found, schema, default, default, context)
        if not found:
            check_object(found, schema, default, None, context)
    for each in found:
        inside = "" if each.path in ("", "<nil>") else each.path
        # before an index, only paths of the type check have a dot
        has_dot = inside and not (is_of_rules and inside.startswith("["))
        errors.append(each._replace(path=f"{path}{'.' if has_dot else ''}{inside}"))
