"""Objects within custom resources (x-kubernetes-embedded-resource): their metadata has the rules of all objects.

Source: kubernetes.io "RawExtension"; k8s.io/apiextensions-apiserver's schema/objectmeta.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from controlplane.apiserver.kinds import Plain, Schema
from controlplane.apiserver.status import go_name
from resourceapi.cel.library.formats import FORMATS
from resourceapi.objects import DecodeError, ErrorList, FieldError, ObjectMeta, from_dict, to_dict, without_unknown
from resourceapi.objects.metadata_rules import metadata_on_create
from resourceapi.objects.names import path_segment
from resourceapi.objects.release import Release
from resourceapi.objects.strict import problems

EMBEDDED = "x-kubernetes-embedded-resource"
TYPE_AND_METADATA = ("apiVersion", "kind", "metadata")


def has_embedded(schema: Any) -> bool:
    """Return whether a schema has an embedded object anywhere."""
    if isinstance(schema, Mapping):
        return schema.get(EMBEDDED) is True or any(map(has_embedded, schema.values()))
    return isinstance(schema, list) and any(map(has_embedded, schema))


def coerce(value: Any, schema: Schema, path: str, unknown: list[str]) -> FieldError | None:
    """Convert the metadata of embedded objects in `value` to ObjectMeta, in place; add dropped members to `unknown`.

    Return the first fault that prevents it.
    """
    if isinstance(value, dict) and schema.get(EMBEDDED):
        found = _coerce_object(value, path, unknown)
        if found is not None:
            return found
    for here, item, below in _members(value, schema, path):
        found = coerce(item, below, here, unknown)
        if found is not None:
            return found
    return None


def check_embedded(errors: ErrorList, value: Any, schema: Schema, path: str, release: Release) -> None:
    """Add the faults in the types and the metadata of embedded objects."""
    if isinstance(value, dict) and schema.get(EMBEDDED):
        _check_object(errors, value, path, release)
    for here, item, below in _members(value, schema, path):
        check_embedded(errors, item, below, here, release)


def _members(value: Any, schema: Schema, path: str) -> Iterator[tuple[str, Any, Schema]]:
    """The members and items of a value that have a schema."""
    if isinstance(value, dict):
        known, extra = schema.get("properties") or {}, schema.get("additionalProperties")
        for name in sorted(value):
            if name in known:
                yield under(path, name), value[name], known[name]
            elif isinstance(extra, Mapping):
                yield f"{path}[{name}]", value[name], extra
    elif isinstance(value, list) and isinstance(items := schema.get("items"), Mapping):
        for index, item in enumerate(value):
            yield f"{path}[{index}]", item, items


def under(path: str, name: str) -> str:
    """Return the path of a member."""
    return f"{path}.{name}" if path else name


def _coerce_object(value: Plain, path: str, unknown: list[str]) -> FieldError | None:
    for name in ("apiVersion", "kind"):
        if name in value and not isinstance(value[name], str):
            return _fault(under(path, name), value[name], "must be a string")
    if "metadata" not in value:
        return None
    metadata, here = value["metadata"], under(path, "metadata")
    if metadata is not None and not isinstance(metadata, dict):
        return _fault(here, metadata, f"json: cannot unmarshal {go_name(metadata)} into Go value of type v1.ObjectMeta")
    try:
        record = from_dict(ObjectMeta, metadata or {})
    except DecodeError as error:
        return _fault(here, metadata, error.reason)
    unknown += [_unquoted(text, here) for text in problems(record, metadata or {})]
    value["metadata"] = to_dict(without_unknown(record))
    return None


def _unquoted(text: str, path: str) -> str:
    """The path of an unknown member, from a decoder's message."""
    return under(path, text.partition('"')[2].rstrip('"'))


def _fault(path: str, value: Any, why: str) -> FieldError:
    errors = ErrorList()
    errors.invalid(path, value, why)
    return errors[0]


def _check_object(errors: ErrorList, value: Plain, path: str, release: Release) -> None:
    for name in ("apiVersion", "kind"):
        if name not in value:
            errors.required(under(path, name))
    for name in (each for each in TYPE_AND_METADATA if each in value):
        item, here = value[name], under(path, name)
        if name == "metadata":
            _check_metadata(errors, item, here, release)
        elif not isinstance(item, str):
            errors.invalid(here, item, "must be a string")
        elif not item:
            errors.invalid(here, item, "must not be empty")
        elif name == "apiVersion" and item.count("/") > 1:
            errors.invalid(here, item, f"unexpected GroupVersion string: {item}")
        elif name == "kind" and (found := FORMATS["dns1035Label"].check(item.lower())):
            errors.invalid(here, item, f"may have mixed case, but should otherwise match: {','.join(found)}")


def _check_metadata(errors: ErrorList, value: Any, path: str, release: Release) -> None:
    try:
        record = from_dict(ObjectMeta, value or {})
    except DecodeError as error:
        errors.append(_fault(path, value, error.reason))
        return
    if not record.name:
        record = from_dict(ObjectMeta, {**(value or {}), "name": "fakename"})
    metadata_on_create(errors, record, release, namespaced=bool(record.namespace), name_rule=path_segment, path=path)
