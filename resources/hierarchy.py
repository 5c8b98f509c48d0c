"""The wholes and the parts of each device, direct and indirect, over a whole inventory."""

from collections.abc import Mapping, Sequence

from msgspec import structs

from hostdevices.device import Device
from hostdevices.inventory import Inventory

PHYSICAL = "pf"  # a virtual function's attribute: the address of its physical one


class Hierarchy:
    """The wholes and parts of an inventory's devices."""

    def __init__(self, inventory: Inventory) -> None:
        """Follow `Device.parents` and `Device.children` of all devices."""
        self._devices = inventory.devices
        self._parents: dict[str, tuple[str, ...]] = {x.id: x.parents for x in inventory.devices.values() if x.parents}
        self._children: dict[str, list[str]] = {}
        self._ancestors: dict[str, tuple[Device, ...]] = {}
        self._descendants: dict[str, tuple[Device, ...]] = {}
        for device in inventory.devices.values():
            for member in device.children:
                self._parents[member] = (*self._parents.get(member, ()), device.id)
        for part, wholes in self._parents.items():
            for whole in wholes:
                self._children.setdefault(whole, []).append(part)

    def of_kind(self, kind: str) -> list[Device]:
        """Return the inventory's devices of a kind, in the order of their ids."""
        return [device for device in self._devices.values() if device.kind == kind]

    def ancestors(self, device: str) -> tuple[Device, ...]:
        """Return the devices that `device` is a part of, directly or not, the nearest first."""
        return self._reached(device, self._parents, self._ancestors)

    def descendants(self, device: str) -> tuple[Device, ...]:
        """Return the devices that are parts of `device`, directly or not, the nearest first."""
        return self._reached(device, self._children, self._descendants)

    def physical_functions(self, device: Device) -> frozenset[str]:
        """Return the addresses of the physical functions of a device, or of its members, that are virtual functions."""
        parts = (self._devices[i] for i in device.ids if i in self._devices)
        return frozenset(x for part in parts if isinstance(x := part.attributes.get(PHYSICAL), str))

    def device_of_path(self, device: Device) -> Device | None:
        """Return the device whose node a `path` device names, with that node only; None for devices of other kinds."""
        if device.kind != "path":
            return None
        whole = next((x for x in self.ancestors(device.id) if x.kind != "path"), None)
        numbers = {(node.kind, node.major, node.minor) for node in device.devnodes}
        nodes = (x for x in whole.devnodes if (x.kind, x.major, x.minor) in numbers) if whole else ()
        return structs.replace(whole, devnodes=tuple(nodes)) if whole else None

    def ownership_problem(self, device: str, owners: Mapping[str, str]) -> str:
        """Return the owner of a whole or a part of `device`, as text; empty if there is none."""
        for whole in self.ancestors(device):
            if whole.id in owners:
                return f"it is a part of {whole.id}, which {owners[whole.id]} owns"
        for part in self.descendants(device):
            if part.id in owners:
                return f"{owners[part.id]} owns a part of it, {part.id}"
        return ""

    def _reached(
        self, start: str, links: Mapping[str, Sequence[str]], known: dict[str, tuple[Device, ...]]
    ) -> tuple[Device, ...]:
        if start not in links:
            return ()
        if start not in known:
            found: dict[str, None] = {}
            near: Sequence[str] = (start,)
            while near:
                near = [i for x in near for i in links.get(x, ()) if i not in found and i != start]
                found.update(dict.fromkeys(near))
            known[start] = tuple(self._devices[i] for i in found if i in self._devices)
        return known[start]
