"""What all objects share: the base of the structs, object metadata, conditions.

Every struct represents one JSON object of the Kubernetes API. Absent fields have Go's zero value (or None where the Go
field is a pointer). Members that a struct has no field for are kept in `unknown_fields`, so that reading and writing
an object of a newer server loses nothing. codec.py fills the structs and writes them.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, TypeVar, cast

import msgspec

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")

Always = Annotated[T, msgspec.Meta(extra={"written": "always"})]
"""A field that is written even when it is empty, as Go does for fields without `omitempty`."""


Uid = Annotated[str, msgspec.Meta(extra={"go_type": "types.UID"})]
"""The uid of an object, with the type name that Go's errors show."""

ConditionStatus = Annotated[str, msgspec.Meta(extra={"go_type": "v1.ConditionStatus"})]
ManagedFieldsOperation = Annotated[str, msgspec.Meta(extra={"go_type": "v1.ManagedFieldsOperationType"})]

Alpha = Annotated[T, msgspec.Meta(extra={"alpha": "1.37"})]
"""A field that is alpha in 1.37. An error that shows a whole struct leaves the field out when it is empty."""


class WrittenEmpty(tuple[Any, ...]):
    """An empty list that the JSON spelled out as `[]`: equal to an absent one, but errors show it as `[]`."""


def map_items(function: Callable[[A], B], items: tuple[A, ...]) -> tuple[B, ...]:
    """Apply the function to each item; an empty list is returned unchanged, so a `WrittenEmpty` stays one."""
    return tuple(function(item) for item in items) if items else cast("tuple[B, ...]", items)


class Unknown(dict[str, Any]):
    """JSON members that a struct has no field for. Created when objects are read or converted."""


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel", repr_omit_defaults=True, gc=False):
    """Base of all structs of the API. Immutable: change with `msgspec.structs.replace`.

    Records hold only values, so they cannot be part of a reference cycle. The garbage collector skips them, because a
    node has about 100,000.
    """

    unknown_fields: Unknown | None = None


class OwnerReference(Record, frozen=True):
    """The object that this one belongs to. When the owner is deleted, this object is deleted too."""

    api_version: Always[str] = ""
    kind: Always[str] = ""
    name: Always[str] = ""
    uid: Annotated[str, msgspec.Meta(extra={"written": "always", "go_type": "types.UID"})] = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ManagedFieldsEntry(Record, frozen=True):
    """Which fields a writer set (server-side apply)."""

    manager: str = ""
    operation: ManagedFieldsOperation = ""
    api_version: str = ""
    time: datetime | None = None
    fields_type: str = ""
    fields_v1: Any = None
    subresource: str = ""


class ObjectMeta(Record, frozen=True):
    """Metadata of every object, and of the objects that are created from a template."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    self_link: str = ""
    uid: Uid = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    managed_fields: tuple[ManagedFieldsEntry, ...] = ()


class Condition(Record, frozen=True):
    """One observation of an object's state."""

    type: Always[str] = ""
    status: Always[ConditionStatus] = ""
    observed_generation: int = 0
    last_transition_time: Always[datetime | None] = None
    reason: Always[str] = ""
    message: Always[str] = ""


class KubernetesObject(Record, frozen=True):
    """Base of the kinds: objects that have metadata and are served on their own."""

    KIND: ClassVar[str]
    API_VERSION: ClassVar[str]

    metadata: Always[ObjectMeta] = ObjectMeta()
