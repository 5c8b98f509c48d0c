"""The changes by another configuration: fields with their values, and the consequences for leases. For two requests."""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import UNSET, Struct

from checkpoint import Lease
from hostdevices import Inventory
from nodeplug.config import Config
from nodeplug.config_file import changed_fields, differences
from nodeplug.control.file_values import to_file_value
from nodeplug.lease_changes import LeaseChange, lease_changes
from resources.assignment import assign
from resources.resource import Resource


class FieldChange(Struct, frozen=True):
    """A setting, or a field of a resource, with its old and new values, as JSON; selectors as text.

    Empty: it is not set.
    """

    where: str  # the resource's name, or `settings`
    field: str
    before: str
    after: str


class Changes(Struct, frozen=True, rename="camel"):
    """What another configuration changes: as text, field by field, and for each lease.

    `needs_restart`: the daemon restarts with it, in the same process; pods keep their devices.
    """

    differences: tuple[str, ...] = ()
    fields: tuple[FieldChange, ...] = ()
    needs_restart: bool = False
    leases: tuple[LeaseChange, ...] = ()


def changes(before: Config, now: Config, inventory: Inventory, leases: Sequence[Lease], needs_restart: bool) -> Changes:
    """Compute what `now` changes; `inventory` has the devices for it. It can take a second: call it in a thread."""
    return Changes(
        tuple(differences(before, now)),
        tuple(_fields(before, now)),
        needs_restart,
        tuple(lease_changes(now, assign(inventory, now.resources), leases)),
    )


def _fields(before: Config, now: Config) -> Iterator[FieldChange]:
    yield from _changes_of("settings", before.settings, now.settings)
    old = {x.name: x for x in before.resources}
    for resource in now.resources:
        if resource.name in old:
            yield from _changes_of(resource.name, old[resource.name], resource)


def _changes_of(where: str, before: Resource | Struct, now: Resource | Struct) -> Iterator[FieldChange]:
    for name, (old, new) in changed_fields(before, now).items():
        yield FieldChange(where, name, _text(old), _text(new))


def _text(value: object) -> str:
    return "" if value is UNSET or value is None else msgspec.json.encode(to_file_value(value)).decode()
