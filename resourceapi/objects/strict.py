"""What strict field validation finds in an object: members that no field stands for, and members that come twice.

The texts are those of the API server's warnings, in the order of the document.
"""

import json
from collections.abc import Iterator
from typing import Any

from resourceapi.objects.codec import json_fields
from resourceapi.objects.meta import KubernetesObject, Record


class Members(dict[str, Any]):
    """A JSON object that remembers all of its members, also those that a later one of the same name replaced."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs


def parse_members(data: bytes | str) -> Any:
    """The value of a JSON text that `decode.parse_json` has taken, with `Members` for its objects."""
    return json.loads(data, object_pairs_hook=Members)


def without_pairs(value: Any) -> Any:
    """The value with ordinary dicts in the place of `Members`, for who looks at types."""
    if isinstance(value, dict):
        return {name: without_pairs(item) for name, item in value.items()}
    return [without_pairs(item) for item in value] if isinstance(value, list) else value


def duplicates(value: Any, prefix: str = "") -> Iterator[str]:
    """What comes twice in a value that no type is known of, as `duplicate field "metadata.name"`."""
    if isinstance(value, dict):
        for name, item, is_duplicate in members(value):
            if is_duplicate:
                yield f'duplicate field "{prefix}{name}"'
            yield from duplicates(item, f"{prefix}{name}.")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from duplicates(item, f"{prefix.removesuffix('.')}[{index}].")


def problems(record: Record, value: dict[str, Any]) -> tuple[str, ...]:
    """Texts as `unknown field "spec.x"` and `duplicate field "metadata.name"`, each once.

    `record` is what was read from `value`. Only `Members` know of duplicates.
    """
    found = dict.fromkeys(_in_record(record, value, ""))
    if isinstance(record, KubernetesObject):  # what says its type is no field of ours
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
    """Name and value of each member, and whether the name came before."""
    seen = set()
    for name, item in value.pairs if isinstance(value, Members) else value.items():
        yield name, item, name in seen
        seen.add(name)
