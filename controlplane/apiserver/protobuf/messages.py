"""Which messages there are: upstream's Go types as a table, `messages.txt`, that `proto/kubernetes` prints.

A message is a line with its name (apiVersion and kind), below it a line for each field, in the order of JSON: number,
name in JSON, type in Go's notation. `name!` is in JSON even when it is empty, `.` stands for a message whose members
JSON has inline. `string=v1.SecretType` is a text whose type Go's errors call so. What follows says how the value is
merged. By server-side apply: as a list with `keys=A,B` (of items with one owner, if `whole`), as a `set`, or as an
`atomic` map; a list that says nothing is atomic; a key may have a `default=`. By a strategic merge patch:
`patch=STRATEGY`, `by=KEY`.
"""

import functools
from collections.abc import Mapping
from importlib import resources
from typing import NamedTuple

_META = "meta.k8s.io/v1"


TYPED_PARTS = frozenset({"v1.PersistentVolumeClaim"})
"""Messages of objects that are a part of others, where they say what kind they are."""
TYPE_MEMBERS = ("apiVersion", "kind")


class Field(NamedTuple):
    """A field: `type` is Go's, `always` whether JSON has it even when it is empty. An inline one has no name.

    `merging` are the words on how it is merged, with their values.
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
    """The fields of a message, by number."""
    found = []
    for line in _sections()[message]:
        number, name, form, *words = line.split()
        merging = {word: value for word, _, value in (each.partition("=") for each in words)}
        found.append(Field(int(number), name.rstrip("!."), form, name.endswith("!"), merging))
    return tuple(found)


@functools.cache
def message_of(api_version: str, kind: str) -> str | None:
    """The name of a kind's message; those of meta.k8s.io are at home in every group. None: it has no message."""
    names = (f"{api_version}.{kind}", f"{_META}.{kind}")
    return next((name for name in names if name in _sections()), None)
