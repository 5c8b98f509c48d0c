"""What expressions that change an object can write: literals of the object's parts and of JSON patches.

`Object{spec: Object.spec{replicas: 3}}` is a part of an object, in which every field is allowed. `JSONPatch{op: "add",
path: "/metadata/labels/x", value: "y"}` is one operation. Source: k8s.io/apiserver pkg/cel/mutation and
pkg/cel/library/jsonpatch.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from resourceapi.cel.declarations import Function, Overload, group
from resourceapi.cel.messages import ANY, MESSAGES, Field, Message
from resourceapi.cel.types import DYN, STRING, Kind, Type

_OBJECT = "Object"
OBJECT, JSON_PATCH = (Type(Kind.STRUCT, name) for name in (_OBJECT, "JSONPatch"))
_T = TypeVar("_T")
_TEXT = Field(STRING, "string")


class ObjectPart(NamedTuple):
    """The value of a literal such as `Object.spec{...}`."""

    type_name: str
    fields: dict[str, Any]


class Operation(NamedTuple):
    """The value of a literal of one operation of a JSON patch."""

    fields: dict[str, Any]


class _Fields(Mapping[str, _T]):
    """Fields, or their types, by name; those of all other names are the same."""

    def __init__(self, other: _T, known: Mapping[str, _T]) -> None:
        self._other, self._known = other, known

    def __getitem__(self, name: str) -> _T:
        return self._known.get(name, self._other)

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


_ANYTHING = Field(DYN, ANY)
_EVERY_FIELD = _Fields(DYN, {})
_NOTHING = Field(Type(Kind.STRUCT, ""), ANY)  # no value has this type
_OPERATION = Message(
    JSON_PATCH,
    _Fields(_NOTHING, {"op": _TEXT, "from": _TEXT, "path": _TEXT, "value": _ANYTHING}),
    lambda values: Operation(values),
)


class PatchFields(Mapping[str, Mapping[str, Type]]):
    """The fields of types by name: also those of operations, and of the parts of objects, which have every field."""

    def __init__(self, others: Mapping[str, Mapping[str, Type]]) -> None:
        self._others = {**others, JSON_PATCH.name: {"op": STRING, "from": STRING, "path": STRING, "value": DYN}}

    def __getitem__(self, name: str) -> Mapping[str, Type]:
        return _EVERY_FIELD if _is_object_part(name) else self._others[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._others)

    def __len__(self) -> int:
        return len(self._others)


def _is_object_part(name: str) -> bool:
    return name == _OBJECT or name.startswith(f"{_OBJECT}.")


def find_message(name: str) -> Message | None:
    """Return the message of a literal's name, among them the parts of objects and the operations."""
    if _is_object_part(name):
        return Message(Type(Kind.STRUCT, name), _Fields(_ANYTHING, {}), lambda values: ObjectPart(name, values))
    return _OPERATION if name == JSON_PATCH.name else MESSAGES.get(name)


def functions() -> list[Function]:
    """The function that escapes a part of an operation's path."""
    return [
        *group(
            [
                Overload(
                    "string_jsonpatch_escapeKey_string",
                    "jsonpatch.escapeKey(string) -> string",
                    lambda text: text.replace("~", "~0").replace("/", "~1"),
                ),
            ]
        )
    ]
