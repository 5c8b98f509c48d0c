"""Objects in the form of refusals: the API server's internal structs, whose members have Go's names.

Members are in Go's order, and empty ones are shown. The files `internal_types-*.txt`, which `proto/internal` prints
from upstream's Go types, have a line with the name of each struct, followed by one line per field: the name that is
shown, the published name (with `^` if the parent has it), and the type. `.` is a struct whose members belong to its
parent; `same` is shown in the published form. Releases before the first table use the first table.
"""

import difflib
import functools
import json
from importlib import resources
from typing import Any, NamedTuple

from controlplane.apiserver.kinds import Plain
from resourceapi.objects.errors import JSON_ESCAPES
from resourceapi.objects.release import LATEST, Release

_ZERO: dict[str, Any] = {"text": "", "bool": False, "number": 0, "quantity": "0", "time": None}
_FIRST = 36
"""The release of the first table."""
_MAX_LINES = 10_000
"""The most lines that are compared. The time grows quadratically, and the server answers no other request meanwhile."""


class _Field(NamedTuple):
    shown: str
    member: str
    type: str


@functools.cache
def _structs(minor: int) -> dict[str, tuple[_Field, ...]]:
    found: dict[str, list[_Field]] = {}
    fields: list[_Field] = []
    text = resources.files(__package__).joinpath(f"internal_types-1.{minor}.txt").read_text()
    for line in text.splitlines():
        if line.startswith(" "):
            fields.append(_Field(*line.split()))
        elif not line.startswith("#"):
            fields = found.setdefault(line, [])
    return {name: tuple(fields) for name, fields in found.items()}


def internal_form(struct: str, value: Plain, release: Release = LATEST) -> Plain:
    """Return a value of a published type as an internal struct, such as `core.PodSpec`. Raises KeyError if unknown."""
    return _shown(_structs(max(release.minor, _FIRST)), struct, value, {})


def published(value: Any) -> Any:
    """Return a value in the published form: without empty members."""
    if isinstance(value, dict):
        return {name: published(item) for name, item in value.items() if item not in (None, [], {})}
    return list(map(published, value)) if isinstance(value, list) else value


def _shown(structs: dict[str, tuple[_Field, ...]], struct: str, value: Plain, holder: Plain) -> Plain:
    found: Plain = {}
    for field in structs[struct]:
        if field.member.startswith("^"):
            item = holder.get(field.member[1:])
        else:
            item = value if field.member == "." else value.get(field.member)
        form = _form(structs, field.type, item, value)
        if field.shown == ".":
            found |= form
        else:
            found[field.shown] = form
    return found


def _form(structs: dict[str, tuple[_Field, ...]], form: str, item: Any, holder: Plain) -> Any:
    if form.startswith("*"):
        return None if item is None else _form(structs, form[1:], item, holder)
    if form.startswith("[]"):
        return None if item is None else [_form(structs, form[2:], each, holder) for each in item]
    if form.startswith("map:"):
        is_none = item is None
        return None if is_none else {key: _form(structs, form[4:], item[key], holder) for key in sorted(item)}
    if form == "same":
        return published(item or {})
    if form in _ZERO:
        return _ZERO[form] if item is None else item
    return _shown(structs, form, item or {}, holder)


def difference(before: Any, after: Any) -> str:
    """Return a change as a refusal shows it: a diff of JSON with three lines of context; empty for too many lines.

    Source: k8s.io/apimachinery pkg/util/diff.
    """
    texts = (json.dumps(each, indent=1, ensure_ascii=False).translate(JSON_ESCAPES) for each in (before, after))
    was, now = ([f"{line}\n" for line in text.split("\n")] for text in texts)
    if len(was) + len(now) > _MAX_LINES:
        return ""
    return "".join([*difflib.unified_diff(was, now)][2:])  # without the file names
