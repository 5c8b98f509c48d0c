"""One resource on the device plugin side: its list, its allocations and its registration, fed with its devices."""

import logging
from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from msgspec import Struct

import cdi
from checkpoint import Lease, Ledger, Obstacles
from deviceplugin.advertise import Advertised
from deviceplugin.allocate import Allocator
from deviceplugin.release import Releaser
from deviceplugin.response import cdi_spec
from deviceplugin.server import DevicePluginServicer
from deviceplugin.units import API, device_of, units_of
from hostdevices import Device, Host
from hostdevices.resource import Resource

log = logging.getLogger("nodeplug.deviceplugin")


class ResourceStatus(Struct, frozen=True):
    """How one resource stands, for people and metrics."""

    name: str
    devices: int
    healthy: int
    leased: int
    streaming: bool
    registrations: int
    last_error: str


class Registered(Protocol):
    """A way to be registered with the kubelet: at kubelet.sock or through the plugin watcher."""

    registrations: int
    last_error: str

    def start(self) -> None:
        """Begin serving and registering."""
        ...

    async def stop(self) -> None:
        """Stop serving."""
        ...

    def stream_changed(self) -> None:
        """Take note that the kubelet opened or ended ListAndWatch."""
        ...


MakeRegistration: TypeAlias = Callable[[str, DevicePluginServicer], Registered]


class ResourcePlugin:
    """Offers one resource."""

    def __init__(
        self, resource: Resource, host: Host, ledger: Ledger, releaser: Releaser, register: MakeRegistration
    ) -> None:
        """Prepare; `register` makes the registration for a resource's name and servicer."""
        self.resource = resource
        self._ledger = ledger
        self._advertised = Advertised()
        self._gone: dict[str, Device] = {}  # leased devices that are not there any more
        self._allocator = Allocator(resource, host, ledger, releaser)
        self._servicer = DevicePluginServicer(
            host, self._allocator, self._advertised, lambda: self.registration.stream_changed()
        )
        self.registration = register(resource.name, self._servicer)

    def update(self, devices: tuple[Device, ...]) -> None:
        """Take over which devices there are now; `refresh` sends them."""
        leased = {device_of(unit_id) for unit_id in self._leased()}
        known = self._allocator.devices | self._gone
        present = {device.id for device in devices}
        self._gone = {i: device for i, device in known.items() if i in leased and i not in present}
        self._allocator.update(units_of(self.resource, devices))

    def refresh(self, obstacles: Obstacles, withheld: Mapping[str, str]) -> None:
        """Send the list again if devices, leases or withheld devices made it another one.

        `obstacles` is what DRA has given out; `withheld` has the reason by device.
        """
        barred = {**self._barred(obstacles), **withheld}
        before = self._advertised.health()
        if self._advertised.update(self._allocator.units, self._leased(), barred):
            self._log_changes(before, barred)
            self._servicer.publish()

    def cdi_spec(self) -> cdi.Spec | None:
        """Describe the resource's devices to the container runtime; None where nothing needs it.

        What a container still holds stays described: the kubelet restarts the container with the name that it has.
        """
        if not self.resource.cdi:
            return None
        spec = cdi_spec(self.resource, (self._gone | self._allocator.devices).values())
        return spec if spec.devices else None

    def without_cdi(self, reason: str) -> None:
        """Hand out nothing that needs a CDI spec while there is a reason; empty: all is well."""
        self._allocator.unavailable = reason if self.resource.cdi else ""

    def adopt(self, unit_id: str, holder: str) -> Lease | None:
        """Return the lease for a unit that the kubelet holds without one; None for a unit that is not offered."""
        return self._allocator.lease_of(unit_id, holder)

    def status(self) -> ResourceStatus:
        """Tell how the resource stands."""
        devices, healthy = self._advertised.counts()
        return ResourceStatus(
            name=self.resource.name,
            devices=devices,
            healthy=healthy,
            leased=len(self._leased()),
            streaming=self._servicer.streaming,
            registrations=self.registration.registrations,
            last_error=self.registration.last_error,
        )

    def _leased(self) -> list[str]:
        return [x.unit for x in self._ledger.leases() if x.api == API and x.resource == self.resource.name]

    def _barred(self, obstacles: Obstacles) -> dict[str, str]:
        """Return why devices cannot be handed out though they are well: who has them through DRA."""
        taken = {i: obstacles.why_not(d.ids, d.within) for i, d in self._allocator.devices.items()} if obstacles else {}
        return {device: reason for device, reason in taken.items() if reason}

    def _log_changes(self, before: Mapping[str, bool], barred: Mapping[str, str]) -> None:
        now = self._advertised.health()
        for unit_id in sorted(now.keys() | before.keys()):
            was, is_now = before.get(unit_id), now.get(unit_id)
            if was == is_now:
                continue
            if is_now is None:
                text = "device is gone"
            elif is_now:
                text = "device is offered" if was is None else "device is healthy again"
            else:
                unit = self._allocator.units.get(unit_id)
                device = device_of(unit_id)
                reason = (
                    unit.device.health.reason or barred.get(device, "") if unit else f"{device} is gone while leased"
                )
                text = f"device is unhealthy: {reason}"
            log.info("%s", text, extra={"resource": self.resource.name, "device": unit_id})
