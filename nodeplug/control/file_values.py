"""The value of a resource's field or of a setting as in a file: its keys and values, without defaults."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, structs

from resources.groups import Folder, Functions, PathSet, SameAttribute, Within
from resources.resource import DriverBinding, InterfaceMoves, NodeAccess, Shares
from resources.selector import Selection, describe

_KEYS: Final = {"minimum": "min", "maximum": "max", "selector": "select", "glob": "path"}
"""For fields that have another name in the file."""


def to_file_value(value: object) -> object:
    """Return a value as the file has it, to be encoded; for a selector its meaning as text."""
    match value:
        case _ if isinstance(value, Selection):
            return describe(value)
        case Within(kind):
            return {"within": kind} if kind else "parent"
        case SameAttribute(name):
            return {"attribute": name}
        case Functions():
            return "functions"
        case PathSet(members):
            return {"paths": list(map(to_file_value, members))}
        case Folder(path):
            return {"folder": path}
        case NodeAccess(uid, gid, mode):
            octal = None if mode is None else f"{mode:04o}"
            return {name: x for name, x in (("uid", uid), ("gid", gid), ("mode", octal)) if x is not None}
        case InterfaceMoves() if value == InterfaceMoves():
            return "move"
        case DriverBinding() if value == DriverBinding():
            return value.driver
        case Struct():
            return _fields(value)
        case Mapping():
            return {name: to_file_value(each) for name, each in value.items()}
        case tuple():
            return list(map(to_file_value, value))
        case _:
            return value


def _fields(value: Struct) -> dict[str, object]:
    """Return the fields of a value that differ from their defaults; always the count of shares, or their memory."""
    values = {x.name: getattr(value, x.name) for x in structs.fields(value)}
    written = {x.name for x in structs.fields(value) if values[x.name] not in (x.default, {}, None)}
    if isinstance(value, Shares) and not value.memory:
        written.add("count")
    return {_key(name): to_file_value(values[name]) for name in values if name in written}


def _key(name: str) -> str:
    first, *others = name.split("_")
    return _KEYS.get(name) or first + "".join(map(str.capitalize, others))
