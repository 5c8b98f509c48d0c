"""The interfaces of claims, for the loop: blocking work is done in threads, and the kernel's events are received.

Unless a claim has an interface that moves, the code for it is not imported and no event wakes the daemon.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from msgspec import structs

from checkpoint import Lease
from dra_plugin.preparing.claim_plan import Find, HeldInterfaces, Plan, nics_of
from dra_plugin.preparing.claim_record import Record, record_of
from dra_plugin.preparing.host_work import HostWork
from dra_plugin.preparing.interface_config import InterfaceRefused
from dra_plugin.preparing.interface_record import MARK, Interface, Location
from hostdevices import Device, Health, Host
from hostdevices.conclusive_calls import call_conclusively
from hostdevices.presence import Presence
from resourceapi.objects import v1

if TYPE_CHECKING:
    from dra_plugin.preparing.interface_moves import Interfaces
    from dra_plugin.preparing.interface_plan import Links
    from netlink import Link, LinkEvents

_LOST = Health(False, "its interface has left the network namespace of its pod and is not back")
T = TypeVar("T")
log = logging.getLogger("nodeplug.dra")


class ClaimInterfaces:
    """Moves and restores the interfaces of claims. Belongs to the loop."""

    def __init__(self, host: Host, presence: Presence, work: HostWork, runtime: str, moved: Callable[[], None]) -> None:
        """Prepare. `runtime` is the setting `ociRuntime`; `moved` is called when an interface might have moved."""
        self._host = host
        self._presence = presence
        self._work = work
        self._runtime = runtime
        self._moved = moved
        self._created: Interfaces | None = None
        self._events: LinkEvents | None = None
        self._tracked: Mapping[str, Interface] = {}  # of all claims, by device; replaced, never changed

    @property
    def _interfaces(self) -> "Interfaces":  # only on the loop: two objects would not know of each other's places
        if self._created is None:
            from dra_plugin.preparing.interface_moves import Interfaces
            from dra_plugin.preparing.oci_runtime import OciRuntime

            self._created = Interfaces(self._host, OciRuntime(self._runtime))
        return self._created

    async def links(self, results: Iterable[v1.DeviceRequestAllocationResult], find: Find) -> "Links | None":
        """Return all interfaces if one of these results moves, otherwise None.

        Raises `InterfaceRefused` if no interface can be moved, and `HostExhausted` if that cannot be determined now.
        """
        found = [find(x.device) for x in results if not x.admin_access]
        moving = [x.device for x in found if x is not None and x.resource.dra.interface is not None]
        if not moving:
            return None
        nics = [nic for device in moving for nic in nics_of(device, self._presence)]
        links = await self._run_blocking(partial(self._interfaces.read_links, nics))
        # the `lower` of a veth is its peer
        uppers = (x for x in self._tracked.values() if x.lower and x.kind != "veth")
        return structs.replace(links, claimed_uppers={x.lower: x.home.name for x in uppers})

    def check_names(self, plan: Plan, others: Iterable[Lease]) -> None:
        """Refuse interfaces that would have the same name in their pod; `others` are the leases of other claims.

        Raises `InterfaceRefused`.
        """
        from dra_plugin.preparing.interface_plan import check_names

        records = (record_of(lease) for lease in others if lease.pods & plan.pods)
        check_names(plan.record, [record for record in records if record is not None])

    async def apply(self, record: Record) -> None:
        """Find the interfaces of a claim; configure those at home for its pod. Raises `InterfaceRefused`."""
        if moves_interface(record):
            await self._run_blocking(partial(self._interfaces.apply, record))

    async def restore(self, record: Record) -> None:
        """Restore the interfaces of a claim. Raises `InterfaceRefused` while one is away."""
        if moves_interface(record):
            await self._run_blocking(partial(self._interfaces.restore, record))

    def location(self, interface: Interface) -> Location:
        """Return where an interface was when it was last searched; before that, at home. Thread-safe."""
        return self._created.location(interface) if self._created is not None else Location.HOME

    def locations(self, record: Record) -> tuple[Location, ...]:
        """Return where the interfaces of a claim were when they were last searched."""
        return tuple(self.location(x.interface) for x in record.allocated if x.interface is not None)

    def held(self, record: Record) -> HeldInterfaces:
        """Return the interfaces of a claim, each with whether it is away."""
        return {
            (x.request, x.name): (x.interface, self.location(x.interface) is not Location.HOME)
            for x in record.allocated
            if x.interface is not None
        }

    def track(self, records: Sequence[Record]) -> None:
        """Receive events of the interfaces of exactly these claims; call it before the interfaces can move."""
        self._tracked = {
            x.interface.device.id: x.interface for each in records for x in each.allocated if x.interface is not None
        }
        if not self._tracked:
            self.close()
        elif self._events is None:
            from netlink import LinkEvents

            try:
                self._events = LinkEvents(self._on_event)
            except OSError as error:
                text = "no events of network interfaces (%s): a moved interface is noticed only at the next scan"
                log.warning(text, error, extra={"is_current": lambda: bool(self._tracked) and self._events is None})

    def close(self) -> None:
        """Stop receiving events."""
        if self._events is not None:
            self._events.close()
            self._events = None

    def with_original_devices(self, devices: Mapping[str, Device]) -> Mapping[str, Device]:
        """Return the devices of a scan, with the interfaces of claims as they were when planned. Thread-safe.

        They stay the node's devices even inside a pod, and their configuration for the pod is not published: slices do
        not change.
        """
        if not self._tracked:
            return devices
        found = {i: self._original_device(each, devices.get(i)) for i, each in self._tracked.items()}
        return dict(sorted({**devices, **found}.items()))

    def _original_device(self, interface: Interface, scanned: Device | None) -> Device:
        if scanned is not None:
            return structs.replace(scanned, attributes=interface.device.attributes)
        is_lost = self.location(interface) is Location.LOST
        return structs.replace(interface.device, health=_LOST) if is_lost else interface.device

    async def _run_blocking(self, call: Callable[[], T]) -> T:
        try:
            return await self._work.run_blocking(partial(call_conclusively, call))
        except OSError as error:
            raise InterfaceRefused(f"the kernel cannot list or change network interfaces: {error}") from error

    def _on_event(self, link: "Link | None") -> None:
        parents = {x.parent for x in self._tracked.values()} - {""}
        if link is None or link.alias.startswith(MARK) or link.parent in parents:
            self._moved()


def moves_interface(record: Record) -> bool:
    """Return whether a claim has an interface that moves."""
    return any(x.interface is not None for x in record.allocated)
