"""The layout of devices: NUMA node, PCI root, device. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, TypeAlias, TypeVar

from msgspec import Struct

from checkpoint.lease import UNREPORTED_POD
from hostdevices import Device
from hostdevices.readers.pci import PCIE_ROOT
from nodeplug.control.leases import LeaseView
from nodeplug.control.status import Answer, DeviceView

State: TypeAlias = Literal["healthy", "unhealthy", "unavailable"]


class Item(Struct, frozen=True):
    """A device: its state and the reason, the resources that offer it, and the holders of it or of a part of it."""

    id: str
    kind: str
    state: State = "healthy"
    reason: str = ""
    resources: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()
    is_leased: bool = False

    def __str__(self) -> str:
        """Describe the device in one line."""
        offered = f"offered as {', '.join(self.resources)}" if self.resources else "not offered"
        reason = f" ({self.reason})" if self.reason else ""
        with_whom = f"; leased to {', '.join(self.holders) or UNREPORTED_POD}" if self.is_leased else ""
        return f"{self.id}, {self.kind or 'device'}: {self.state}{reason}; {offered}{with_whom}"


class Root(Struct, frozen=True):
    """A PCI root; without a name, the devices that are on none."""

    name: str
    items: tuple[Item, ...]


class NumaNode(Struct, frozen=True):
    """A NUMA node by its number; without a name, the devices whose node the host does not report."""

    name: str
    roots: tuple[Root, ...]


T = TypeVar("T")


def layout(devices: Mapping[str, Device], status: Answer | None) -> tuple[NumaNode, ...]:
    """Arrange all devices of the host; with the daemon's state, also those that it offers and that are gone.

    A group has the location of a member if it is leased.
    """
    items: dict[str, Item] = {}
    if status is not None:
        items = {each.id: each for each in _offered(devices, status)}
    for device in devices.values():
        state: State = "healthy" if device.health.healthy else "unhealthy"
        items.setdefault(device.id, Item(device.id, device.kind, state, device.health.reason))
    members = _members(devices, status.leases) if status is not None else {}
    return arranged((*_location(devices.get(item.id) or members.get(item.id)), item) for item in items.values())


def arranged(located: Iterable[tuple[str, str, Item]]) -> tuple[NumaNode, ...]:
    """Arrange devices by the names of their NUMA nodes and PCI roots, which are empty if they are not known."""
    placed: dict[str, dict[str, list[Item]]] = {}
    for numa, root, item in located:
        placed.setdefault(numa, {}).setdefault(root, []).append(item)
    return tuple(
        NumaNode(numa, tuple(Root(root, tuple(sorted(found, key=_order))) for root, found in _sorted(roots)))
        for numa, roots in _sorted(placed)
    )


def _offered(devices: Mapping[str, Device], status: Answer) -> Iterator[Item]:
    views: dict[str, list[DeviceView]] = {}
    units = {(x.resource, x.unit): (*x.devices, *x.shared) for x in status.leases}
    known = {view.id for view in status.devices}
    for view in status.devices:
        # a share of a device that is gone, or no longer offered in this way, has the name of its unit
        device, *others = units.get((view.resource, view.id)) or (view.id,)
        name = view.id if others else device
        if name == view.id or name not in known:
            views.setdefault(name, []).append(view)
    leases: dict[str, list[LeaseView]] = {}
    for lease in status.leases:
        for name in {*lease.devices, *lease.shared}:
            leases.setdefault(name, []).append(lease)
    for name, found in views.items():
        order = ("healthy", "unavailable", "unhealthy")
        held = leases.get(name, [])
        if held and all(view.health != "unhealthy" for view in found):
            order = ("unavailable", "healthy", "unhealthy")  # one API has it, which the other reports as the reason
        shown = max(found, key=lambda view: order.index(view.health))
        yield Item(
            name,
            devices[name].kind if name in devices else "",
            shown.health,
            shown.reason,
            tuple(dict.fromkeys(view.resource for view in found)),
            tuple(dict.fromkeys(filter(None, map(_holder, held)))),
            bool(held) or any(view.leased for view in found),
        )


def _holder(lease: LeaseView) -> str:
    name = lease.pod or lease.claim
    return f"{lease.namespace}/{name}" if name else ""


def _members(devices: Mapping[str, Device], leases: Iterable[LeaseView]) -> dict[str, Device]:
    """Return a member of each leased group, by the group's id: a lease names both."""
    found: dict[str, Device] = {}
    for lease in leases:
        if (member := next((devices[x] for x in lease.devices if x in devices), None)) is not None:
            for name in lease.devices:
                found.setdefault(name, member)
    return found


def _location(device: Device | None) -> tuple[str, str]:
    """Return NUMA node and PCI root of a device; empty if it is not known."""
    if device is None:
        return "", ""
    return ",".join(map(str, device.numa_nodes)), str(device.attributes.get(PCIE_ROOT, ""))


def _sorted(named: Mapping[str, T]) -> Iterable[tuple[str, T]]:
    """Sorted by name, the nameless last."""
    return sorted(named.items(), key=lambda each: (not each[0], each[0]))


def _order(item: Item) -> tuple[str, str]:
    return item.kind, item.id
