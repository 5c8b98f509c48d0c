"""The kinds that are served: a table of built-in kinds, definitions of custom resources, and other packages' kinds.

A `Kind` has everything about one resource that the rest of the server needs. Other modules do not depend on the names
of kinds.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from controlplane.apiserver.access.identity import SERVER, Caller
from resourceapi.objects.release import Release

Plain = dict[str, Any]
"""A JSON object."""
Schema = Mapping[str, Any]
"""A structural OpenAPI v3 schema with Kubernetes' extensions; empty if nothing is known."""
Key = tuple[str, str]
"""Namespace (empty if there is none) and name."""


class Column(NamedTuple):
    """A table column after the name; `cell` computes its text (or number) from the stored object.

    The cells of a column without a name are in the rows, but not among the columns.
    """

    name: str
    cell: Callable[[Plain], Any]
    type: str = "string"
    priority: int = 0
    description: str = ""
    format: str = ""


class Decoded(NamedTuple):
    """An object in the stored version, and the problems that strict field validation finds in its text.

    `sent` has the places where the text had an empty list or map: rules depend on them, but they are not stored. None:
    no such place.
    """

    object: Plain
    problems: tuple[str, ...] = ()
    sent: Plain | None = None


class WriteContext(NamedTuple):
    """How an object is written: the version, the server's release, the client, and the subresource.

    Rules append to `warnings`. `sent` is that of the decoded object.
    """

    version: str
    release: Release
    warnings: list[str]
    caller: Caller = SERVER
    subresource: str = ""
    sent: Plain | None = None


class Rules(Protocol):
    """The rules of a kind's objects. Objects are in the stored version; a refusal is an ApiError."""

    takes_metadata_with_status: bool = False  # a write of the status can change labels and other metadata
    spec_parts: frozenset[str] = frozenset()  # subresources that write a part of the spec
    kept: frozenset[str] = frozenset()  # paths of members that upstream's type lacks

    def decode(self, value: Plain, version: str) -> Decoded:
        """Return the object of `value`, which is in the given version, with defaults. Raises DecodeError.

        `value` might be changed.
        """

    def decode_applied(self, value: Plain, version: str) -> Decoded:
        """Return the object that results from applying a configuration. Raises DecodeError."""
        return self.decode(value, version)

    def encode(self, obj: Plain, version: str) -> Plain:
        """Return the object as it is served in a version."""

    def in_order(self, obj: Plain) -> Plain:
        """Return an object with its members in the order of its type."""
        return obj

    def empty(self, version: str) -> Plain:
        """Return the encoding of an object without any value."""

    def create(self, obj: Plain, context: WriteContext) -> Plain:
        """Return a new object as it will be stored."""

    def update(self, new: Plain, old: Plain, context: WriteContext) -> Plain:
        """Return a changed object as it will be stored."""

    def update_status(self, new: Plain, old: Plain, context: WriteContext) -> Plain:
        """Return an object with a changed status as it will be stored."""

    def warnings(self, obj: Plain) -> list[str]:
        """Return the warnings for a client that writes the object."""


class ScalePaths(NamedTuple):
    """The paths (such as `.spec.replicas`) of the desired replicas, the actual replicas, and the pods' selector."""

    spec: str
    status: str
    selector: str = ""


class Served(msgspec.Struct, frozen=True):
    """A version of a kind. `deprecation` is a warning to every client that uses it; `scale` is set if it has a Scale.

    With `must_be_current`, an update must name the version of the object. With `deletes_silently`, a delete does not
    return the object, even if the kind's deletes do.
    """

    name: str
    schema: Schema
    deprecation: str = ""
    must_be_current: bool = False
    scale: ScalePaths | None = None
    deletes_silently: bool = False


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of objects, and how it is served. The preferred version is first; the stored one is `storage`.

    `fields` are the fields of field selectors besides name and namespace. Kinds `from_definition` differ in details of
    answers. `hides_name`: tables show no name. `stored_as` is the kind of another group that shares these objects.
    `converts`: versions have different fields. `hashed_as` is the group and version that the hash of the stored version
    is made from, if a real server stores another one.
    `other_parts` are subresources that are written like a status. `creates_on_update`: a PUT creates a missing object.
    `orphans`: dependents stay when such an object is deleted, unless the delete has another policy. `has_status_table`:
    a status can be shown as a table, like the object.
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
    converts: bool = False
    hashed_as: str = ""
    creates_on_update: bool = False
    orphans: bool = False
    has_status_table: bool = True

    @property
    def parts(self) -> tuple[str, ...]:
        """The subresources that write a part of an object."""
        return (*self.other_parts, "status") if self.status else self.other_parts

    @property
    def id(self) -> str:
        """Plural and group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def table(self) -> str:
        """The name under which the store keeps the objects."""
        return self.stored_as or self.id

    def api_version(self, version: str) -> str:
        """Return the `apiVersion` of objects in a version."""
        return f"{self.group}/{version}" if self.group else version

    @property
    def singular_name(self) -> str:
        """The singular name."""
        return self.singular or self.kind.lower()

    @property
    def list_kind_name(self) -> str:
        """The kind of the list."""
        return self.list_kind or f"{self.kind}List"

    def shows_deleted(self, version: str) -> bool:
        """Return whether a delete returns the object, not a Status."""
        served = self.served(version)
        return self.delete_returns_object and not (served and served.deletes_silently)

    def served(self, version: str) -> Served | None:
        """Return a version by name; None if it is not served."""
        return next((each for each in self.versions if each.name == version), None)


class Registry:
    """The kinds that are served now, by group. They are changed on the event loop, and read in threads too."""

    def __init__(self, kinds: Iterable[Kind] = ()) -> None:
        self._kinds: dict[str, Kind] = {}
        self._changes = 0
        self._groups: tuple[int, dict[str, tuple[str, ...]]] = (-1, {})  # with the changes so far, as a version
        for kind in kinds:
            self.add(kind)

    def __iter__(self) -> Iterator[Kind]:
        return iter(tuple(self._kinds.values()))

    def add(self, kind: Kind) -> None:
        """Serve a kind, or replace it."""
        self._kinds[kind.id] = kind
        self._changes += 1

    def remove(self, kind_id: str) -> None:
        """Stop serving a kind."""
        self._kinds.pop(kind_id, None)
        self._changes += 1

    def __contains__(self, kind: Kind) -> bool:
        """Return whether a kind is served, in any version."""
        return kind.id in self._kinds

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """Return the kind that a path names."""
        kind = self._kinds.get(f"{plural}.{group}" if group else plural)
        return kind if kind is not None and kind.served(version) else None

    def by_kind(self, api_version: str, kind: str) -> Kind | None:
        """Return the kind that an owner reference names."""
        group, _, version = api_version.rpartition("/")
        found = (each for each in self if (each.group, each.kind) == (group, kind))
        return next((each for each in found if each.served(version)), None)

    def groups(self) -> dict[str, tuple[str, ...]]:
        """Return each group with its versions, preferred first, in the order of registration.

        Every request needs them, so they are computed once after each change.
        """
        changes = self._changes
        if (known := self._groups)[0] == changes:
            return known[1].copy()
        found: dict[str, list[str]] = {}
        for kind in self:
            versions = found.setdefault(kind.group, [])
            versions.extend(each.name for each in kind.versions if each.name not in versions)
        groups = {group: tuple(sorted(versions, key=version_rank)) for group, versions in found.items()}
        self._groups = changes, groups  # computed again if a kind was added meanwhile
        return groups.copy()


def version_rank(version: str) -> tuple[int, int, int, str]:
    """Return a sort key in the API server's order of preference: v2, v1, v1beta2, v1beta1, v1alpha3, others."""
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
