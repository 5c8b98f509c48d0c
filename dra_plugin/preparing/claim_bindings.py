"""The drivers of claims' devices, for the loop: blocking work is done in threads.

The code for it is imported only if a claim's device needs another driver.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from dra_plugin.preparing.binding_record import Binding
from dra_plugin.preparing.claim_plan import Bindings, Find
from dra_plugin.preparing.claim_record import Record
from dra_plugin.preparing.host_work import HostWork
from hostdevices import Device, Host
from hostdevices.conclusive_calls import call_conclusively
from hostdevices.device import Devnode
from hostdevices.presence import Presence
from hostdevices.readers.pci import is_on
from resourceapi.objects import v1

if TYPE_CHECKING:
    from dra_plugin.preparing.driver_binding import Drivers


class ClaimBindings:
    """Binds and restores the devices of claims. Belongs to the loop."""

    def __init__(self, host: Host, presence: Presence, work: HostWork) -> None:
        """Prepare; nothing is bound yet."""
        self._host = host
        self._presence = presence
        self._work = work
        self._created: Drivers | None = None
        self._tracked: tuple[Binding, ...] = ()  # of all claims; replaced, never changed

    @property
    def _drivers(self) -> "Drivers":  # only on the loop: two objects would not know of each other's blocked writes
        if self._created is None:
            from dra_plugin.preparing.driver_binding import Drivers

            self._created = Drivers(self._host)
        return self._created

    async def plan(self, results: Iterable[v1.DeviceRequestAllocationResult], find: Find) -> Bindings:
        """Return how the devices of these results get their drivers, by device name.

        Raises `BindRefused` and `HostExhausted`.
        """
        found: dict[str, Binding] = {}
        for result in results:
            offered = find(result.device)
            if offered is None or result.admin_access or result.device in found:
                continue
            if (bind := offered.resource.dra.bind) is not None:
                from dra_plugin.preparing.binding_plan import plan_binding

                parts = self._presence.scanned(sorted(offered.device.ids))
                call = partial(plan_binding, self._host, offered.device, parts, bind)
                found[result.device] = await self._work.run_blocking(partial(call_conclusively, call))
        return found

    async def apply(self, record: Record) -> None:
        """Bind the functions of a claim to its driver. Raises `BindRefused` and `HostExhausted`."""
        for binding in bindings_of(record).values():
            await self._work.run_blocking(partial(call_conclusively, partial(self._drivers.bind, binding)))

    async def restore(self, record: Record) -> None:
        """Restore the drivers of a claim's functions. Raises `BindRefused` while one is used, and `HostExhausted`."""
        for binding in bindings_of(record).values():
            await self._work.run_blocking(partial(call_conclusively, partial(self._drivers.restore, binding)))

    def nodes(self, binding: Binding) -> tuple[Devnode, ...]:
        """Return the nodes that containers get of a bound device, as they are now; none while it is unbound.

        Thread-safe.
        """
        from dra_plugin.preparing.driver_binding import bound_nodes

        return bound_nodes(self._host, binding)

    def track(self, records: Iterable[Record]) -> None:
        """Let scans report the devices of exactly these claims as they were; call it before binding them."""
        self._tracked = tuple(x for each in records for x in bindings_of(each).values())

    def with_original_devices(self, devices: Mapping[str, Device]) -> Mapping[str, Device]:
        """Return the devices of a scan, with those of claims as they were before they were bound. Thread-safe.

        For selectors, slices and leases they are unchanged, and the devices that the kernel shows meanwhile (the IOMMU
        group) are not offered. A device that was unplugged is gone.
        """
        if not self._tracked:
            return devices
        found = dict(devices)
        for binding in self._tracked:
            found = _with_original_devices(found, binding)
        return dict(sorted(found.items()))


def bindings_of(record: Record) -> dict[str, Binding]:
    """Return the bindings of a claim, by device name."""
    return {x.name: x.binding for x in record.allocated if x.binding is not None}


def _with_original_devices(devices: Mapping[str, Device], binding: Binding) -> dict[str, Device]:
    functions = [x for x in binding.devices if x.kind == "pci" and x.id in devices]

    def is_part(device: Device) -> bool:
        return device.kind != "pci" and any(is_on(device, x.syspath) for x in functions)

    rest = {i: device for i, device in devices.items() if not is_part(device)}
    parts = {x.id: x for x in binding.devices if is_part(x)}
    as_before = {x.id: structs.replace(devices[x.id], attributes=x.attributes) for x in functions}
    return {**rest, **parts, **as_before}
