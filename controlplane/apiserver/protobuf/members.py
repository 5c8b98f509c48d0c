"""Members of a JSON object that upstream's type has. Others are dropped, and strict field validation reports them."""

import re
from collections.abc import Iterator, Set
from typing import Any

from controlplane.apiserver.protobuf.codec import is_message, zero_of
from controlplane.apiserver.protobuf.messages import TYPE_MEMBERS, TYPED_PARTS, Field, fields_of
from resourceapi.objects.strict import members

_LIST, _MAP = "[]", "map[string]"
INDEX = re.compile(r"\[\d+\]")


def known_members(message: str, value: Any, problems: list[str], kept: Set[str] = frozenset(), path: str = "") -> Any:
    """Return the value without members that are no fields of the message, except those at the paths `kept`.

    Null members are dropped. Texts such as `unknown field "spec.x"` are added to `problems`, in the order of the
    document. A value that is not an object is returned unchanged.
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
    """The fields by their JSON names. Fields of a message that JSON has inline are included."""
    for field in fields_of(message):
        if field.name:
            yield field.name, field
        else:
            yield from _fields(field.type.removeprefix("*"))
