"""The messages: upstream's Go types as a table, `messages.txt`, which `proto/kubernetes` prints.

A message is a line with its name (apiVersion and kind), followed by a line for each field, in the order of JSON:
number, JSON name, type in Go's notation. A field `name!` is in JSON even if it is empty. `.` is a message whose members
are inline in JSON. `string=v1.SecretType` is a string whose type has that name in Go's errors. The rest of the line is
how the value is merged. By server-side apply: as a list with `keys=A,B` (whose items have one owner, if `whole`), as a
`set`, or as an `atomic` map; a list without any of these is atomic; a key can have a `default=`. By a strategic merge
patch: `patch=STRATEGY`, `by=KEY`.
"""

import functools
from collections.abc import Mapping
from importlib import resources
from typing import NamedTuple

_META = "meta.k8s.io/v1"


TYPED_PARTS = frozenset({"v1.PersistentVolumeClaim"})
"""Messages of objects that are parts of other objects, and have their own apiVersion and kind there."""
TYPE_MEMBERS = ("apiVersion", "kind")


class Field(NamedTuple):
    """A field: `type` is Go's; `always`: JSON has it even if it is empty. An inline field has no name.

    `merging` has the table's words for how it is merged, with their values.
    """

    number: int
    name: str
    type: str
    always: bool
    merging: Mapping[str, str]


@functools.cache
def _sections() -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    text = resources.files(__package__).joinpath("messages.txt").read_text()
    for line in text.splitlines():
        name, _, original = line.partition(" = ")
        if original:
            sections[name] = sections[original]
        elif line.startswith(" "):
            lines.append(line)
        else:
            lines = sections[line] = []
    return sections


@functools.cache
def fields_of(message: str) -> tuple[Field, ...]:
    """Return the fields of a message, by number."""
    found = []
    for line in _sections()[message]:
        number, name, form, *words = line.split()
        merging = {word: value for word, _, value in (each.partition("=") for each in words)}
        found.append(Field(int(number), name.rstrip("!."), form, name.endswith("!"), merging))
    return tuple(found)


@functools.cache
def message_of(api_version: str, kind: str) -> str | None:
    """Return the name of a kind's message; None if it has none. Kinds of meta.k8s.io belong to every group."""
    names = (f"{api_version}.{kind}", f"{_META}.{kind}")
    return next((name for name in names if name in _sections()), None)
