"""How refusals show objects: as the structs that the API server works with, whose members have Go's names.

They are there in Go's order, even when they are empty. `internal_types.txt`, which `proto/internal` prints of
upstream's Go types, has a line with the name of each struct and below it one for each field: the name that is shown,
the name that is published, and the type. `.` is a struct whose members are its holder's; `same` is shown as it is
published.
"""

import difflib
import functools
import json
from importlib import resources
from typing import Any, NamedTuple

from controlplane.apiserver.kinds import Plain

_ZERO: dict[str, Any] = {"text": "", "bool": False, "number": 0, "quantity": "0", "time": None}
_ESCAPED = {code: f"\\u{code:04x}" for code in (ord("&"), ord("<"), ord(">"), 0x2028, 0x2029)}


class _Field(NamedTuple):
    shown: str
    member: str
    type: str


@functools.cache
def _structs() -> dict[str, tuple[_Field, ...]]:
    found: dict[str, list[_Field]] = {}
    fields: list[_Field] = []
    for line in resources.files(__package__).joinpath("internal_types.txt").read_text().splitlines():
        if line.startswith(" "):
            fields.append(_Field(*line.split()))
        elif not line.startswith("#"):
            fields = found.setdefault(line, [])
    return {name: tuple(fields) for name, fields in found.items()}


def internal_form(struct: str, value: Plain) -> Plain:
    """A value of a published type as a struct, of which `core.PodSpec` is one. Raises KeyError for no such struct."""
    shown: Plain = {}
    for field in _structs()[struct]:
        item = value if field.member == "." else value.get(field.member)
        if field.shown == ".":
            shown |= _form(field.type, item)
        elif field.shown != "-":
            shown[field.shown] = _form(field.type, item)
    return shown


def internal_list(struct: str, values: list[Plain] | None) -> list[Plain] | None:
    """A list of such values; nothing where there is none."""
    return None if values is None else [internal_form(struct, each) for each in values]


def _form(form: str, item: Any) -> Any:
    if form.startswith("*"):
        return None if item is None else _form(form[1:], item)
    if form.startswith("[]"):
        return None if item is None else [_form(form[2:], each) for each in item]
    if form.startswith("map:"):
        return {key: _form(form[4:], item[key]) for key in sorted(item)} if item else None
    if form == "same":
        return _without_empty(item or {})
    if form in _ZERO:
        return _ZERO[form] if item is None else item
    return internal_form(form, item or {})


def _without_empty(value: Any) -> Any:
    """A value as it is published, without its empty members."""
    if isinstance(value, dict):
        return {name: _without_empty(item) for name, item in value.items() if item not in (None, [], {})}
    return list(map(_without_empty, value)) if isinstance(value, list) else value


def difference(before: Any, after: Any) -> str:
    """What changed, as a refusal shows it: lines of JSON, with three around each change.

    Source: k8s.io/apimachinery pkg/util/diff.
    """
    texts = (json.dumps(each, indent=1, ensure_ascii=False).translate(_ESCAPED) for each in (before, after))
    lines = ([f"{line}\n" for line in text.split("\n")] for text in texts)
    return "".join([*difflib.unified_diff(*lines)][2:])  # without the names of files
