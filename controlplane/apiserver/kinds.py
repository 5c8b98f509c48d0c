"""Which kinds are served: a table that built-in kinds, definitions of custom resources and other packages add to.

A `Kind` says everything about one resource that the rest of the server needs; nothing else knows kinds by name.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from controlplane.apiserver.access.identity import SERVER, Caller
from resourceapi.objects.release import Release

Plain = dict[str, Any]
"""A JSON object."""
Schema = Mapping[str, Any]
"""A structural OpenAPI v3 schema with Kubernetes' extensions; empty where nothing is known."""
Key = tuple[str, str]
"""Namespace (empty if there is none) and name."""


class Column(NamedTuple):
    """A table column beyond the name; `cell` computes its text (or number) from the stored object."""

    name: str
    cell: Callable[[Plain], Any]
    type: str = "string"
    priority: int = 0
    description: str = ""
    format: str = ""


class Decoded(NamedTuple):
    """An object in the stored version, and what strict field validation says of its text.

    `sent` says where the text had an empty list or map: rules go by that, but it is not stored. None: nowhere.
    """

    object: Plain
    problems: tuple[str, ...] = ()
    sent: Plain | None = None


class WriteContext(NamedTuple):
    """How an object is written: in which version, to a server of which release, by whom, which part of it.

    `told` takes what its rules warn of; `sent` is that of what was decoded.
    """

    version: str
    release: Release
    warnings: list[str]
    caller: Caller = SERVER
    subresource: str = ""
    sent: Plain | None = None


class Rules(Protocol):
    """What a kind's objects must be. Objects are in the stored version; a refusal is an ApiError."""

    takes_metadata_with_status: bool = False  # who writes the status may change labels and the like
    spec_parts: frozenset[str] = frozenset()  # subresources by which a part of the spec is written
    kept: frozenset[str] = frozenset()  # paths of members that upstream's type has none of

    def decode(self, value: Plain, version: str) -> Decoded:
        """The object that `value`, in the given version, stands for, with defaults; raises DecodeError.

        `value` may be changed.
        """

    def decode_applied(self, value: Plain, version: str) -> Decoded:
        """The object that applying a configuration has made; raises DecodeError."""
        return self.decode(value, version)

    def encode(self, obj: Plain, version: str) -> Plain:
        """The object as it is served in a version."""

    def in_order(self, obj: Plain) -> Plain:
        """An object with its members in the order of its type."""
        return obj

    def empty(self, version: str) -> Plain:
        """What an object without any value is written as."""

    def create(self, obj: Plain, context: WriteContext) -> Plain:
        """A new object as it will be stored."""

    def update(self, new: Plain, old: Plain, context: WriteContext) -> Plain:
        """A changed object as it will be stored."""

    def update_status(self, new: Plain, old: Plain, context: WriteContext) -> Plain:
        """An object with a changed status as it will be stored."""

    def warnings(self, obj: Plain) -> list[str]:
        """What is told to the writer of an object."""


class ScalePaths(NamedTuple):
    """Where an object says how many there are to be, how many there are, and which pods: paths as `.spec.replicas`."""

    spec: str
    status: str
    selector: str = ""


class Served(msgspec.Struct, frozen=True):
    """A version of a kind; `deprecation` is told to everyone who uses it, `scale` says that it has one.

    With `must_be_current` an update has to say which version of the object it is about. `deletes_silently`: who deletes
    one is not shown it, though its kind may say otherwise.
    """

    name: str
    schema: Schema
    deprecation: str = ""
    must_be_current: bool = False
    scale: ScalePaths | None = None
    deletes_silently: bool = False


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of objects, and how it is served. Versions come preferred first; the stored one is `storage`.

    `fields` lists what field selectors may ask for besides name and namespace. Kinds
    `from_definition` differ in details of answers. `hides_name` kinds show no name in tables. `stored_as` names
    the kind of another group whose objects these are, too. `other_parts` are subresources that are written as a
    status is. `creates_on_update`: a PUT of what is not there creates it. `orphans`: what such an
    object owns stays when it is deleted, unless somebody says otherwise. `has_status_table`: a status is shown as a
    table, as the object is.
    """

    group: str
    plural: str
    kind: str
    namespaced: bool
    versions: tuple[Served, ...]
    rules: Rules
    storage: str = ""
    singular: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    status: bool = False
    other_parts: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    fields: Mapping[str, Callable[[Plain], str]] = {}
    counts_generations: bool = False
    delete_returns_object: bool = False
    from_definition: bool = False
    hides_name: bool = False
    stored_as: str = ""
    creates_on_update: bool = False
    orphans: bool = False
    has_status_table: bool = True

    @property
    def parts(self) -> tuple[str, ...]:
        """The subresources by which a part of an object is written."""
        return (*self.other_parts, "status") if self.status else self.other_parts

    @property
    def id(self) -> str:
        """Plural and group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def table(self) -> str:
        """What the store files the objects under."""
        return self.stored_as or self.id

    def api_version(self, version: str) -> str:
        """Group and version as objects carry them."""
        return f"{self.group}/{version}" if self.group else version

    @property
    def name_of_one(self) -> str:
        """The singular name."""
        return self.singular or self.kind.lower()

    @property
    def name_of_list(self) -> str:
        """The kind of the list."""
        return self.list_kind or f"{self.kind}List"

    def shows_deleted(self, version: str) -> bool:
        """Whether who deletes an object is shown it, and not that it is gone."""
        served = self.served(version)
        return self.delete_returns_object and not (served and served.deletes_silently)

    def served(self, version: str) -> Served | None:
        """One of the versions."""
        return next((each for each in self.versions if each.name == version), None)


class Registry:
    """The kinds that are served now, by group. They change on one loop, and are looked for in threads, too."""

    def __init__(self, kinds: Iterable[Kind] = ()) -> None:
        self._kinds: dict[str, Kind] = {}
        self._changes = 0
        self._groups: tuple[int, dict[str, tuple[str, ...]]] = (-1, {})  # after how many changes, and what they were
        for kind in kinds:
            self.add(kind)

    def __iter__(self) -> Iterator[Kind]:
        return iter(tuple(self._kinds.values()))

    def add(self, kind: Kind) -> None:
        """Serve a kind, or serve it again."""
        self._kinds[kind.id] = kind
        self._changes += 1

    def remove(self, kind_id: str) -> None:
        """Stop serving a kind."""
        self._kinds.pop(kind_id, None)
        self._changes += 1

    def __contains__(self, kind: Kind) -> bool:
        """Whether a kind is served, in whatever versions."""
        return kind.id in self._kinds

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """The kind that a path means."""
        kind = self._kinds.get(f"{plural}.{group}" if group else plural)
        return kind if kind is not None and kind.served(version) else None

    def by_kind(self, api_version: str, kind: str) -> Kind | None:
        """The kind that an owner reference means."""
        group, _, version = api_version.rpartition("/")
        found = (each for each in self if (each.group, each.kind) == (group, kind))
        return next((each for each in found if each.served(version)), None)

    def groups(self) -> dict[str, tuple[str, ...]]:
        """Each group with its versions, preferred first, in the order of registration.

        Every request needs them, so they are found once after each change.
        """
        changes = self._changes
        if (known := self._groups)[0] == changes:
            return known[1].copy()
        found: dict[str, list[str]] = {}
        for kind in self:
            versions = found.setdefault(kind.group, [])
            versions.extend(each.name for each in kind.versions if each.name not in versions)
        groups = {group: tuple(sorted(versions, key=version_rank)) for group, versions in found.items()}
        self._groups = changes, groups  # outdated where a kind came meanwhile
        return groups.copy()


def version_rank(version: str) -> tuple[int, int, int, str]:
    """Sorts versions as the API server prefers them: v2, v1, v1beta2, v1beta1, v1alpha3, others."""
    stage, major, minor = 3, 0, 0
    digits = version.removeprefix("v")
    for word, rank in (("beta", 1), ("alpha", 2), ("", 0)):
        head, found, tail = digits.partition(word) if word else (digits, "", "")
        if found and head.isdigit() and tail.isdigit():
            stage, major, minor = rank, int(head), int(tail)
            break
        if not word and head.isdigit():
            stage, major = rank, int(head)
    return (stage, -major, -minor, version)
