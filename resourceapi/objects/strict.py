"""Strict field validation: finds unknown and duplicate members of an object.

The texts are those of the API server's warnings, in the order of the document.
"""

import json
from collections.abc import Iterator
from typing import Any

from resourceapi.objects.codec import json_fields
from resourceapi.objects.meta import KubernetesObject, Record


class Members(dict[str, Any]):
    """A JSON object that keeps all its members, including those that a later duplicate replaced."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs


def parse_members(data: bytes | str) -> Any:
    """Parse a JSON text that `decode.parse_json` has accepted; its objects are `Members`."""
    return json.loads(data, object_pairs_hook=Members)


def as_plain_dicts(value: Any) -> Any:
    """Return the value with plain dicts instead of `Members`, for code that checks exact types."""
    if isinstance(value, dict):
        return {name: as_plain_dicts(item) for name, item in value.items()}
    return [as_plain_dicts(item) for item in value] if isinstance(value, list) else value


def duplicates(value: Any, prefix: str = "") -> Iterator[str]:
    """Yield the duplicate members of a value without a known type, as `duplicate field "metadata.name"`."""
    if isinstance(value, dict):
        for name, item, is_duplicate in members(value):
            if is_duplicate:
                yield f'duplicate field "{prefix}{name}"'
            yield from duplicates(item, f"{prefix}{name}.")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from duplicates(item, f"{prefix.removesuffix('.')}[{index}].")


def problems(record: Record, value: dict[str, Any]) -> tuple[str, ...]:
    """Return texts such as `unknown field "spec.x"` and `duplicate field "metadata.name"`, each once.

    `record` was read from `value`. Duplicates are found only in `Members`.
    """
    found = dict.fromkeys(_in_record(record, value, ""))
    if isinstance(record, KubernetesObject):  # apiVersion and kind are no fields of the record
        for name in ("apiVersion", "kind"):
            found.pop(f'unknown field "{name}"', None)
    return tuple(found)


def _in_record(record: Record, value: dict[str, Any], prefix: str) -> Iterator[str]:
    fields = json_fields(type(record))
    for name, item, is_duplicate in members(value):
        field = fields.get(name)
        if is_duplicate:
            yield f'duplicate field "{prefix}{name}"'
        if field is None:
            yield f'unknown field "{prefix}{name}"'
        elif not field.is_free_form:
            yield from _in_value(getattr(record, field.name), item, f"{prefix}{name}")


def _in_value(read: Any, value: Any, path: str) -> Iterator[str]:
    if isinstance(read, Record) and isinstance(value, dict):
        yield from _in_record(read, value, f"{path}.")
    elif isinstance(read, tuple) and isinstance(value, list):
        for index, (item_read, item) in enumerate(zip(read, value, strict=False)):
            yield from _in_value(item_read, item, f"{path}[{index}]")
    elif isinstance(read, dict) and isinstance(value, dict):
        for name, item, is_duplicate in members(value):
            if is_duplicate:
                yield f'duplicate field "{path}.{name}"'
            yield from _in_value(read.get(name), item, f"{path}.{name}")


def members(value: dict[str, Any]) -> Iterator[tuple[str, Any, bool]]:
    """Yield name and value of each member, and whether an earlier member has the name."""
    seen = set()
    for name, item in value.pairs if isinstance(value, Members) else value.items():
        yield name, item, name in seen
        seen.add(name)
