"""Events of devices: the changes of offered devices from one assignment to the next, and their holders."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Literal, TypeAlias

from msgspec import Struct

from checkpoint import Lease
from hostdevices import Device, Inventory
from hostdevices.inventory import known_ids
from nodeplug.events.leases import MAX_NAMED, device_names, holder_in_words
from resources.assignment import Assignment
from telemetry import EventLog

Kind: TypeAlias = Literal["plugged", "unplugged", "unhealthy", "healthy"]


class Seen(Struct, frozen=True):
    """What a scan found on the host, and which resource offers it."""

    inventory: Inventory = Inventory()
    assignment: Assignment = Assignment()


class DeviceChange(Struct, frozen=True):
    """A change of a device of a resource: why it is unhealthy, and its leases."""

    kind: Kind
    resource: str
    device: str
    reason: str
    leases: tuple[Lease, ...] = ()


class DeviceRecorder:
    """Records the changes of offered devices, from one scan to the next."""

    def __init__(
        self,
        events: EventLog,
        leases_of: Callable[[str], Iterable[Lease]],
        report: Callable[[Sequence[DeviceChange]], None] | None = None,
    ) -> None:
        """Record in `events`, and pass the changes to `report`; `leases_of` as in `device_changes`."""
        self._events = events
        self._leases_of = leases_of
        self._report = report
        self._seen = Seen()

    def update(self, inventory: Inventory, assignment: Assignment) -> None:
        """Record the changes since the last scan."""
        seen = Seen(inventory, assignment)
        changes = list(device_changes(self._seen, seen, self._leases_of))
        self._seen = seen
        record_devices(self._events, changes)
        if self._report is not None:
            self._report(changes)


def device_changes(before: Seen, now: Seen, leases_of: Callable[[str], Iterable[Lease]]) -> Iterator[DeviceChange]:
    """Yield the changes of the offered devices; `leases_of` returns the leases that have any part of a device.

    What is newly offered or no longer offered because of another configuration is not a change of a device. Devices of
    the first scan are not changes either, unless they are unhealthy.
    """
    # computed once, and only if a device has come or gone
    known_before, known_now = (cache(partial(known_ids, x.inventory.devices)) for x in (before, now))
    is_first = not before.inventory.devices
    for resource in {**before.assignment.devices, **now.assignment.devices}:
        old, new = (x.assignment.devices.get(resource, ()) for x in (before, now))
        if old is not new and old != new:
            for kind, device in _changes(old, new, known_before, known_now):
                if not (is_first and kind == "plugged"):
                    leases = tuple(_held(device, leases_of))
                    reason = "" if kind == "unplugged" else device.health.reason
                    yield DeviceChange(kind, resource, device.id, reason, leases)


def record_devices(events: EventLog, changes: Iterable[DeviceChange]) -> None:
    """Record changes: one event for each holder of a device, one for all similar devices without a holder."""
    free: dict[tuple[Kind, str, str], list[str]] = {}
    for change in changes:
        holders = dict.fromkeys(lease.holder for lease in change.leases)
        words = _words(change.kind, change.reason)
        for holder in holders:
            message = f"{words}; it is with {holder_in_words(holder)}"
            events.record(change.kind, message, resource=change.resource, device=change.device, holder=holder)
        if not holders:
            free.setdefault((change.kind, change.resource, change.reason), []).append(change.device)
    for (kind, resource, reason), devices in free.items():
        more = f" ({len(devices)} devices)" if len(devices) > MAX_NAMED else ""
        events.record(kind, _words(kind, reason) + more, resource=resource, device=device_names(devices))


def _changes(
    old: tuple[Device, ...],
    new: tuple[Device, ...],
    known_before: Callable[[], frozenset[str]],
    known_now: Callable[[], frozenset[str]],
) -> Iterator[tuple[Kind, Device]]:
    was = {device.id: device for device in old}
    current = {device.id for device in new}
    for device in new:
        known = was.get(device.id)
        if known is not None and known.health.healthy != device.health.healthy:
            yield "healthy" if device.health.healthy else "unhealthy", device
        elif known is None and not device.health.healthy:
            yield "unhealthy", device
        elif known is None and not _is_present(device, known_before()):
            yield "plugged", device
    for device in old:
        if device.id not in current and not _is_present(device, known_now()):
            yield "unplugged", device


def _is_present(device: Device, known: frozenset[str]) -> bool:
    """Return whether a device is on the host, under any id; a group is there if all its members are."""
    return device.id in known or bool(device.children and known.issuperset(device.children))


def _held(device: Device, leases_of: Callable[[str], Iterable[Lease]]) -> Iterable[Lease]:
    return {lease.key: lease for part in sorted(device.ids) for lease in leases_of(part)}.values()


def _words(kind: Kind, reason: str) -> str:
    words = {"plugged": "is there", "unplugged": "is gone", "unhealthy": "is unhealthy", "healthy": "is healthy again"}
    return f"{words[kind]}: {reason}" if reason else words[kind]
