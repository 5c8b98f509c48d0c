"""Single faults in valid objects: a field is dropped, null, empty, of another type, huge, or repeated."""

import copy
import random
from collections.abc import Callable, Iterator
from pathlib import Path as File
from typing import Any, NamedTuple

import msgspec

from resourceapi.manifests import read_documents
from tests.controlplane.apiserver.running import Http, Plain

Path = tuple[str | int, ...]
DROPPED: Any = object()
"""The value of an absent field."""
_INVALID_TEXTS = (
    *("x y", "A_B", "-a", "a.", "ä", "a/b/c", "..", "/", "1", "x", "X", "None", "0", "-1", "1.5", "10.0.0.300", "::1"),
    *("a" * 64, "a" * 254, "a" * 129, "example.com/x", "\0", "true", "{}", "v1", "a\nb", '"', "<&>", "\u2028", "1e21"),
)
_INVALID_NUMBERS = (-1, 0, 1, 2**31, 2**31 - 1, -(2**31) - 1, 2**63, 65536, 1.5, 1e21, 1.0, 100_001)
_OTHER_TYPES: tuple[Any, ...] = ("x", 7, 1.5, True, {}, [], [7], {"a": "b"}, ["x"], [None], [{}], {"": 1})
_TEXT_REPEATS, _ITEM_COUNT = 300, 90
"""Characters; items. Each item can cause a warning header, and Python reads at most a hundred headers."""


def objects() -> list[Plain]:
    """Valid objects of the served kinds, at least one per kind with all fields set."""
    files = sorted(File(__file__).parent.glob("data/objects/*.yaml"))
    return [msgspec.to_builtins(each) for file in files for each in read_documents(file.read_text())]


class Endpoint(NamedTuple):
    """The path of a kind's objects, and whether the kind has a status subresource."""

    path: str
    has_status: bool


def find_endpoint(api: Http, obj: Plain) -> Endpoint:
    """The path of the objects of the same kind as `obj`."""
    version = obj["apiVersion"]
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    listed = api.ok("GET", base)["resources"]
    found = next(each for each in listed if each["kind"] == obj["kind"] and "/" not in each["name"])
    space = f"namespaces/{obj['metadata']['namespace']}/" if found["namespaced"] else ""
    has_status = any(each["name"] == f"{found['name']}/status" for each in listed)
    return Endpoint(f"{base}/{space}{found['name']}", has_status)


class Mutation(NamedTuple):
    """A replacement value for one field of an object; `how` describes it."""

    path: Path
    how: str
    value: Any

    def applied(self, obj: Plain) -> Plain:
        """A copy of the object with the mutation."""
        changed = copy.deepcopy(obj)
        holder: Any = changed
        for step in self.path[:-1]:
            holder = holder[step]
        if self.value is DROPPED:
            del holder[self.path[-1]]
        else:
            holder[self.path[-1]] = copy.deepcopy(self.value)
        return changed

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.path))} {self.how}"


class Mutations:
    """An endless source of mutations. Equal seeds produce equal mutations."""

    def __init__(self, seed: str) -> None:
        self._choose = random.Random(seed)

    def next(self, obj: Plain, *, within: tuple[str, ...]) -> Mutation:
        """A mutation of a field below these members of an object."""
        candidates = [(path, value) for path, value in _all_fields(obj) if path[0] in within]
        path, value = self._choose.choice(candidates)
        how, change = self._choose.choice([(how, change) for how, (fits, change) in _MUTATORS.items() if fits(value)])
        return Mutation(path, how, change(value, self._choose))


def _all_fields(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """All paths in an object with their values."""
    if path and path != ("metadata", "name"):
        yield path, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in items:
        yield from _all_fields(item, (*path, step))


def _emptied(value: Any, _: random.Random) -> Any:
    return type(value)()


def _of_another_type(value: Any, choose: random.Random) -> Any:
    return choose.choice([each for each in _OTHER_TYPES if type(each) is not type(value) or each in ([7], {"": 1})])


def _invalid(value: Any, choose: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    return choose.choice(_INVALID_TEXTS if isinstance(value, str) else _INVALID_NUMBERS)


def _extended(value: Any, choose: random.Random) -> Any:
    if isinstance(value, dict):
        return {**value, choose.choice(("extra", "name", "Name", "a_b", "")): choose.choice((1, "x", {}, None))}
    return [*value, choose.choice((None, "x", {}, 1))]


def _enlarged(value: Any, _: random.Random) -> Any:
    if isinstance(value, str):
        return (value or "x") * _TEXT_REPEATS
    if isinstance(value, list):
        return (value * _ITEM_COUNT)[:_ITEM_COUNT]
    return {**value, **{f"k{n}": "v" for n in range(_ITEM_COUNT)}}


def _has_type(*types: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, types)


_MUTATORS: dict[str, tuple[Callable[[Any], bool], Callable[[Any, random.Random], Any]]] = {
    "dropped": (lambda value: True, lambda value, choose: DROPPED),
    "null": (lambda value: True, lambda value, choose: None),
    "empty": (lambda value: True, _emptied),
    "of another type": (lambda value: True, _of_another_type),
    "wrong": (_has_type(str, int, float), _invalid),
    "wrong again": (_has_type(str, int, float), _invalid),
    "with more": (_has_type(dict, list), _extended),
    "huge": (_has_type(dict, list, str), _enlarged),
    "with an item twice": (lambda value: isinstance(value, list) and bool(value), lambda value, _: [*value, value[0]]),
}
