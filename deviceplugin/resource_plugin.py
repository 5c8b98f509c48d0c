"""One resource on the device plugin side: its list, its allocations and its registration, fed with its devices.

A resource that the configuration no longer has is served while pods have units of it: the units stay listed, as
unhealthy, and their containers can start again.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from msgspec import Struct

import cdi
from checkpoint import Lease, Ledger
from checkpoint.unlisted import unlisted_reason
from deviceplugin import container_record
from deviceplugin.advertise import Advertised
from deviceplugin.allocate import NOT_DESCRIBED, Allocator
from deviceplugin.container_record import ContainerRecord
from deviceplugin.descriptions import Descriptions, SpecSettings
from deviceplugin.device_info import file_name, files_of
from deviceplugin.limits import list_too_long_reason
from deviceplugin.peers import peer_lease
from deviceplugin.response import cdi_device
from deviceplugin.server import DevicePluginServicer
from deviceplugin.specs import Specs
from deviceplugin.units import API, owner_of, size_of, taken_reason, units_of, units_of_device
from hostdevices import Device, Host
from hostdevices.presence import Presence, are_equivalent
from resources.resource import Resource
from telemetry import Telemetry

if TYPE_CHECKING:
    from deviceplugin.dry_run import DryRun

_MAX_LINES = 20  # lines about devices with the same text: there can be 10,000
_GONE = "it is gone, and a pod has it"
_NOT_OFFERED = "it is not offered any more, and a pod has it"
_AVAILABLE_AGAIN = "device is available again"
log = logging.getLogger("nodeplug.deviceplugin")


class ResourceStatus(Struct, frozen=True):
    """The state of one resource, for people and metrics.

    `devices` are units. `withheld`, `in_use` and `unlisted` are those that are not `healthy` because an administrator
    withholds them, because a holder has them that this API does not count, or because a pod still has them that the
    kubelet has forgotten (`checkpoint.unlisted`).
    """

    name: str
    devices: int
    healthy: int
    leased: int
    streaming: bool
    registrations: int
    last_error: str
    withheld: int = 0
    in_use: int = 0
    unlisted: int = 0


class DeviceStatus(Struct, frozen=True):
    """The state of one device, or of a unit that a pod has: a missing one, or a share of a pod that was forgotten.

    The reason is empty while it is healthy. `unavailable` is a healthy device that is withheld, or has a holder that
    this API or the kubelet does not count.
    """

    id: str
    health: Literal["healthy", "unhealthy", "unavailable"]
    reason: str = ""


class KubeletRegistration(Protocol):
    """A way of registration with the kubelet: at kubelet.sock or through the plugin watcher."""

    registrations: int

    @property
    def last_error(self) -> str:
        """Return why the resource is not registered; empty without a problem."""
        ...

    async def run(self) -> None:
        """Serve and register until cancelled."""
        ...

    def stream_changed(self) -> None:
        """Process that the kubelet opened or ended ListAndWatch."""
        ...


MakeRegistration: TypeAlias = Callable[[str, DevicePluginServicer], KubeletRegistration]


class ResourcePlugin:
    """Offers one resource while `run` runs."""

    def __init__(
        self,
        resource: Resource,
        host: Host,
        presence: Presence,
        ledger: Ledger,
        specs: Specs,
        renumbered: frozenset[str],
        register: MakeRegistration,
        telemetry: Telemetry,
    ) -> None:
        """Prepare; `register` creates the registration for a resource's name and servicer."""
        self.resource = resource
        self.allocator = Allocator(resource, presence, ledger, specs)
        self._presence = presence
        self._ledger = ledger
        self._advertised = Advertised()
        self._unavailable: dict[str, str] = {}  # device -> why it cannot be allocated although it is healthy
        self._unlisted: dict[str, str] = {}  # unit -> which forgotten pod has it
        self._held: dict[str, cdi.Device | None] = {}  # devices described as they were leased
        self._gone: dict[str, str] = {}  # unit that a pod has -> that it is missing, or no longer offered
        self._is_moved = True  # some device might be leased at other paths than it is offered at
        self._too_long = ""
        self._has_ended = False
        self.servicer = DevicePluginServicer(
            host, self.allocator, self._advertised, renumbered, lambda: self.registration.stream_changed(), telemetry
        )
        self.registration = register(resource.name, self.servicer)

    async def run(self) -> None:
        """Serve and register."""
        try:
            await self.registration.run()
        finally:
            self._has_ended = True

    def configure(self, resource: Resource) -> bool:
        """Offer the same resource in another way from the next `update` on; return whether that is possible in place.

        It is not if the options that were registered with the kubelet change.
        """
        if resource != self.resource:
            if self.servicer.options_of(resource) != self.servicer.options():
                return False
            self.resource = self.allocator.resource = resource
            self._is_moved = True
        return True

    def update(self, devices: tuple[Device, ...], noticed_at: float | None = None) -> None:
        """Store which devices there are now, and send the list if it has changed.

        `noticed_at` is when the host reported the change, by the loop's clock.
        """
        too_long = list_too_long_reason(*size_of(self.resource, devices))
        if too_long and too_long != self._too_long:
            state = {"is_current": lambda: not self._has_ended and self._too_long == too_long}
            log.error("not offered: %s", too_long, extra={"resource": self.resource.name, **state})
        self._too_long = too_long
        self.allocator.update(units_of(self.resource, () if too_long else devices))
        self.rebuild(noticed_at)

    def refresh(self, device: Device) -> None:
        """Send the list again if leases of others have changed whether this device is available."""
        reason = self._unavailable_reason(device)
        before = self._unavailable.get(device.id, "")
        if reason == before:
            return
        self._unavailable[device.id] = reason
        if self._advertised.set_health(self._units(device), not reason and device.health.healthy):
            self._log({self._change_message(device, not reason, before): [device.id]})
            self.servicer.publish()

    def describe(self) -> Descriptions | None:
        """Return what a runtime must find: the offered devices, and those that containers have, as they are now.

        None if there are none.
        """
        resource, offered = self.resource, self.allocator.devices
        self._held = self._described_as_leased()
        if resource.cdi is False:
            offered = {}
        elif self._held or not all(map(self._is_describable, offered.values())):
            offered = {
                i: device for i, device in offered.items() if self._is_describable(device) and i not in self._held
            }
        held = {described.name: described for described in self._held.values() if described is not None}
        return (
            Descriptions(cdi.kind_of(resource.name), SpecSettings.of(resource), offered, held)
            if offered or held
            else None
        )

    def device_info(self) -> dict[str, bytes]:
        """Return the device-info files of what is offered, by name."""
        return files_of(self.resource, self.allocator.units, self._presence.get)

    def held_device_info(self) -> list[str]:
        """Return the names of the device-info files of leased units."""
        leases = self._ledger.of_resource(self.resource.name, API)
        return [file_name(self.resource.name, lease.unit) for lease in leases]

    def _described_as_leased(self) -> dict[str, cdi.Device | None]:
        """Return how held devices are described, by id, if that differs from how they are offered.

        They are no longer offered, are groups with other members today, or are offered at other paths. None: they are
        missing.
        """
        if not self._can_differ_from_offered():
            return {}
        offered = self.allocator.devices if self.resource.cdi is not False else {}
        leases = self._ledger.of_resource(self.resource.name, API)
        self._is_moved = not leases  # none: the ledger might not be loaded yet
        found: dict[str, cdi.Device | None] = {}
        for record in filter(None, map(container_record.decode, {lease.record: None for lease in leases})):
            for seen in record.devices if record.is_named else ():
                device = offered.get(seen.device.id)
                is_moved = device is not None and not are_equivalent(device.devnodes, seen.device.devnodes)
                self._is_moved |= is_moved
                if device is None or is_moved or device.ids != seen.device.ids:
                    held = self._presence.find(seen)
                    is_describable = held is not None and _is_describable(held, with_driver=record.with_driver)
                    found.setdefault(seen.device.id, _as_leased(held, record) if held and is_describable else None)
        return found

    def _is_describable(self, device: Device) -> bool:
        return _is_describable(device, with_driver=self.resource.userspace is not None)

    def _can_differ_from_offered(self) -> bool:
        """Return whether a held device can differ from how it is offered; if not, no lease needs to be checked."""
        resource = self.resource
        path_has_placeholder = "{" in resource.container_path  # the path changes with the device's attributes
        may_change = resource.group is not None or path_has_placeholder
        return self._is_moved or bool(self._gone) or resource.cdi is False or may_change

    def status(self) -> ResourceStatus:
        """Return the state of the resource."""
        devices, healthy = self._advertised.counts()
        offered = list(self.allocator.devices.values())  # called from other threads, too
        return ResourceStatus(
            name=self.resource.name,
            devices=devices,
            healthy=healthy,
            leased=len(self._ledger.of_resource(self.resource.name, API)),
            streaming=self.servicer.streaming,
            registrations=self.registration.registrations,
            last_error=self.registration.last_error,
            withheld=sum(len(self._units(device)) for device in offered if device.withheld),
            in_use=sum(len(self._units(device)) for device in offered if self._is_in_use(device))
            + sum(why == _NOT_OFFERED for why in [*self._gone.values()]),
            unlisted=len(self._unlisted),
        )

    def dry_run(self, count: int, wanted: Sequence[str]) -> "DryRun":
        """Return what a container would get (dry_run.py). Raises `AllocationRefused`."""
        from deviceplugin.dry_run import dry_run  # on first use: most daemons never need it

        pre_start = self.servicer.options().pre_start_required
        healthy = self._advertised.health()
        return dry_run(self.allocator, self._ledger, healthy, count, wanted, pre_start=pre_start)

    def devices(self) -> Iterator[DeviceStatus]:
        """Yield the state of each device. Its holder can have become known since the list was made."""
        for device in self.allocator.devices.values():
            if not device.health.healthy:
                yield DeviceStatus(device.id, "unhealthy", device.health.reason)
            elif reason := self._unavailable.get(device.id, ""):
                yield DeviceStatus(device.id, "unavailable", self._unavailable_reason(device) or reason)
            elif self._unlisted and (unlisted := self._unlisted_units(device)):
                if len(unlisted) == len(self._units(device)):
                    yield DeviceStatus(device.id, "unavailable", next(iter(unlisted.values())))
                else:
                    yield DeviceStatus(device.id, "healthy")
                    yield from (DeviceStatus(unit, "unavailable", why) for unit, why in unlisted.items())
            else:
                yield DeviceStatus(device.id, "healthy")
        for unit, why in self._gone.items():
            yield DeviceStatus(unit, "unhealthy" if why == _GONE else "unavailable", why)

    def rebuild(self, noticed_at: float | None = None) -> None:
        """Compute the list again, and send it if it has changed.

        A leased unit that is gone stays listed: a kubelet reads a missing id as healthy.
        """
        devices = self.allocator.devices
        before = {i: self._was_healthy(self._units(x)[0]) for i, x in devices.items()}
        was_unavailable, was_unlisted = self._unavailable, self._unlisted
        self._unavailable = {x.id: why for x in devices.values() if (why := self._unavailable_reason(x))}
        healthy = {x.id: x.health.healthy and x.id not in self._unavailable for x in devices.values()}
        has_topology = self.resource.topology
        self._unlisted = self._find_unlisted(healthy)
        units = {
            unit: (healthy[x.id] and unit not in self._unlisted, x.numa_nodes if has_topology else ())
            for unit, x in self.allocator.units.items()
        }
        leased = (x for x in self._ledger.of_resource(self.resource.name, API) if x.unit not in units)
        gone = {lease.unit: self._gone_reason(lease) for lease in sorted(leased, key=lambda x: x.unit)}
        units.update((unit, (False, self._advertised.numa_nodes(unit))) for unit in gone)
        newly_gone = {unit: why for unit, why in gone.items() if self._gone.get(unit) != why}
        self._log(
            {
                (logging.WARNING, f"device is unhealthy: {_GONE}"): [
                    x for x, why in newly_gone.items() if why == _GONE
                ],
                (logging.INFO, f"device is unavailable: {_NOT_OFFERED}"): [
                    x for x, why in newly_gone.items() if why != _GONE
                ],
            }
        )
        self._gone = gone
        for unit, why in self._unlisted.items():
            if unit not in was_unlisted:
                self._log({(logging.WARNING, f"device is unavailable: {why}"): [unit]})
        self._log({(logging.INFO, _AVAILABLE_AGAIN): [x for x in was_unlisted if units.get(x, (False,))[0]]})
        if self._advertised.replace(units):
            changes: dict[tuple[int, str], list[str]] = {}
            for device in devices.values():
                if before[device.id] != healthy[device.id]:
                    change = self._change_message(device, before[device.id], was_unavailable.get(device.id, ""))
                    changes.setdefault(change, []).append(device.id)
            self._log(changes)
            self.servicer.publish(noticed_at=noticed_at)

    def needs_rebuild(self, lease: Lease) -> bool:
        """Return whether a lease affects more than its own device.

        Its unit is gone or belongs to another device now, or its device must be described as it was leased.
        """
        known = self.allocator.units.get(lease.unit)
        return known is None or known.id in self._held or known.id not in lease.exclusive

    def _unavailable_reason(self, device: Device) -> str:
        """Return why a healthy device cannot be allocated: its holder, or that its CDI spec is not written yet.

        A withheld device counts as such even while a pod has it: otherwise the kubelet would allocate it as soon as
        that pod ends.
        """
        if device.withheld:
            return device.withheld
        owner = owner_of(self.resource, self._units(device)[0], device)
        for _, lease in self._ledger.conflicts(owner, device.ids, device.parents):
            return taken_reason(lease, self.resource, device)
        if (held := peer_lease(device, self._ledger.of_device)) is not None:
            return str(held)
        if self.resource.needs_cdi and self._is_describable(device) and not self.allocator.is_described(device):
            if device.id in self._held:
                return "a pod has it as it was before other devices were added to it"
            return NOT_DESCRIBED
        if self.resource.ids != "identity" and (other := self._other_device_lease(device)) is not None:
            return f"a pod has {other.unit}, which was another device when it was allocated"
        if not device.unavailable:
            return ""
        is_leased = not self.resource.is_shared and self._lease(self._units(device)[0]) is not None
        return "" if is_leased else device.unavailable  # the kubelet allocates it to no other pod while this one has it

    def _is_in_use(self, device: Device) -> bool:
        """Return whether a device is healthy, and unavailable only because another holder has it."""
        reason = self._unavailable.get(device.id, "")
        return device.health.healthy and reason not in ("", NOT_DESCRIBED) and not _needs_admin(device)

    def _find_unlisted(self, healthy: Mapping[str, bool]) -> dict[str, str]:
        """Return the units of `healthy` devices that forgotten pods have, with the reasons."""
        keys = (x.key for x in self._ledger.unlisted.leases() if x.resource == self.resource.name)
        units = self.allocator.units
        leases = (x for x in filter(None, map(self._ledger.get, keys)) if x.unit in units)
        return {x.unit: unlisted_reason(x) for x in leases if healthy[units[x.unit].id]}

    def _unlisted_units(self, device: Device) -> dict[str, str]:
        return {unit: why for unit in self._units(device) if (why := self._unlisted.get(unit))}

    def _was_healthy(self, unit: str) -> bool | None:
        """Return whether the kubelet last got a unit as healthy, or its device was; None: it was not listed."""
        return True if unit in self._unlisted else self._advertised.is_healthy(unit)

    def _gone_reason(self, lease: Lease) -> str:
        """Return the reason for a held unit whose device is not offered."""
        return _NOT_OFFERED if any(map(self._presence.has_device, lease.exclusive)) else _GONE

    def _units(self, device: Device) -> list[str]:
        return units_of_device(self.resource, device)

    def _lease(self, unit: str) -> Lease | None:
        return self._ledger.get((self.resource.name, API, unit))

    def _other_device_lease(self, device: Device) -> Lease | None:
        """Return the lease of another device under a name that is this one's now: nodes can swap their paths."""
        leases = filter(None, map(self._lease, self._units(device)))
        return next((lease for lease in leases if device.id not in lease.exclusive), None)

    def _change_message(self, device: Device, before: bool | None, was_unavailable: str) -> tuple[int, str]:
        """Return the log level and the text for a change of a device and all its shares.

        `before`: whether the kubelet last got it as healthy, None if it was not listed.
        """
        if not device.health.healthy:
            return logging.WARNING, f"device is unhealthy: {device.health.reason}"
        if reason := self._unavailable.get(device.id):
            if reason == NOT_DESCRIBED and before is None:
                return logging.DEBUG, f"device is unavailable: {reason}"  # every device with CDI begins in this state
            level = logging.WARNING if _needs_admin(device) else logging.INFO
            return level, f"device is unavailable: {reason}"
        if before is None or was_unavailable == NOT_DESCRIBED:
            return logging.INFO, "device is offered"
        return logging.INFO, _AVAILABLE_AGAIN if was_unavailable else "device is healthy again"

    def _log(self, changes: Mapping[tuple[int, str], Sequence[str]]) -> None:
        """Log changes of devices: a line for each, or one line for very many equal ones."""
        for (level, text), ids in changes.items():
            if is_many := len(ids) > _MAX_LINES:
                template = "%s (%d devices, named at the log level debug)"
                log.log(level, template, text, len(ids), extra=self._extra_of(text, ids))
            if not is_many or log.isEnabledFor(logging.DEBUG):
                for i in ids:
                    extra = {**self._extra_of(text, (i,)), "device": i}
                    log.log(logging.DEBUG if is_many else level, "%s", text, extra=extra)

    def _extra_of(self, text: str, ids: Sequence[str]) -> dict[str, object]:
        return {"resource": self.resource.name, "is_current": lambda: any(self._is_still(text, i) for i in ids)}

    def _is_still(self, text: str, i: str) -> bool:
        """Return whether a text that was logged about a device or a unit is still true, apart from the reason."""
        if self._has_ended:
            return False
        if why := self._gone.get(i) or self._unlisted.get(i):
            return text.endswith(why)
        device = self.allocator.devices.get(i)
        if device is None:
            return False
        if not device.health.healthy:
            return text.startswith("device is unhealthy")
        return bool(self._unavailable.get(i)) and text.startswith("device is unavailable")


def _needs_admin(device: Device) -> bool:
    """Return whether an administrator must act: the device is withheld, or lacks what its resource requires."""
    return bool(device.unavailable or device.withheld)


def _is_describable(device: Device, *, with_driver: bool) -> bool:
    """Return whether a device can be described: containers need its nodes and the driver's files."""
    return bool(device.devnodes) and not (with_driver and device.lacks_driver_files)


def _as_leased(device: Device, record: ContainerRecord) -> cdi.Device:
    """Describe a device as it is in a container."""
    return cdi_device(device, record.permissions, record.access, with_driver=record.with_driver)
