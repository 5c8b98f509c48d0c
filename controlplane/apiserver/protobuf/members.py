"""Which members of a JSON object upstream's type has: others are dropped, and strict field validation names them."""

import re
from collections.abc import Iterator, Set
from typing import Any

from controlplane.apiserver.protobuf.codec import is_message, zero_of
from controlplane.apiserver.protobuf.messages import TYPE_MEMBERS, TYPED_PARTS, Field, fields_of
from resourceapi.objects.strict import members

_LIST, _MAP = "[]", "map[string]"
INDEX = re.compile(r"\[\d+\]")


def known_members(message: str, value: Any, problems: list[str], kept: Set[str] = frozenset(), path: str = "") -> Any:
    """The value without what the message has no field for, but for the members at the paths `kept`.

    What is null has no place. To `problems` come texts as `unknown field "spec.x"`, in the order of the document. A
    value that is no object is left as it is.
    """
    if not isinstance(value, dict):
        return value
    fields = dict(_fields(message))
    known: dict[str, Any] = {}
    for name, item, is_duplicate in members(value):
        here = f"{path}.{name}" if path else name
        if is_duplicate:
            problems.append(f'duplicate field "{here}"')
        field = fields.get(name)
        if field is not None and item is not None:
            known[name] = _known(field.type, item, problems, kept, here)
        elif INDEX.sub("", here) in kept:
            known[name] = item
        elif field is None and not (message in TYPED_PARTS and name in TYPE_MEMBERS):
            problems.append(f'unknown field "{here}"')
    return known


def _known(form: str, value: Any, problems: list[str], kept: Set[str], path: str) -> Any:
    if value is None:
        return zero_of(form)
    form = form.removeprefix("*")
    if form.startswith(_LIST) and isinstance(value, list):
        form = form.removeprefix(_LIST)
        return [_known(form, item, problems, kept, f"{path}[{index}]") for index, item in enumerate(value)]
    if form.startswith(_MAP) and isinstance(value, dict):
        form = form.removeprefix(_MAP)
        known = {}
        for name, item, is_duplicate in members(value):
            if is_duplicate:
                problems.append(f'duplicate field "{path}.{name}"')
            known[name] = _known(form, item, problems, kept, f"{path}.{name}")
        return known
    return known_members(form, value, problems, kept, path) if is_message(form) else value


def _fields(message: str) -> Iterator[tuple[str, Field]]:
    """The fields by their names in JSON, with those of a message that JSON has inline."""
    for field in fields_of(message):
        if field.name:
            yield field.name, field
        else:
            yield from _fields(field.type.removeprefix("*"))
