"""Assignment: which resource owns which device. Pure: the same inventory and resources give the same answer.

Rules:
1. The first resource that means a device owns it.
2. Who owns a whole owns its parts (`Device.within`, `Device.members`) and hands them out with it. So a device is not
   for a resource when another one owns a part of it, and within one resource the whole goes before its parts.
3. A dangerous device, or a whole with a dangerous part, is owned only by a resource that says `dangerous: true`.
4. A physical function and its virtual functions may have different owners; each knows the other (`Device.beside`).
5. Every device that nobody owns has a reason in words.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, structs

from hostdevices.danger import why_dangerous
from hostdevices.device import HEALTHY, Device, Devnode
from hostdevices.groups import Bundle, Grouping, PathSet, combine, group, united_devnodes
from hostdevices.identity import device_id
from hostdevices.inventory import Inventory
from hostdevices.matching import path_pattern
from hostdevices.resource import Resource
from hostdevices.selector import concerns

_PHYSICAL = "pf"  # a virtual function's attribute: the address of its physical one
_SHOWN_REASONS = 2  # of resources that are about a device's kind and do not mean it


class Unassigned(Struct, frozen=True):
    """A device that no resource owns, and why."""

    device: Device
    reason: str


class Assignment(Struct, frozen=True):
    """Who owns what.

    `devices` has an entry for every resource, in their order; its devices are in the order of their ids and have the
    health that the resource's policy gives them. `owners` tells the resource of each id: of the devices as offered,
    and of their members. `rest` are the other devices of the inventory.
    """

    devices: Mapping[str, tuple[Device, ...]] = {}
    owners: Mapping[str, str] = {}
    rest: tuple[Unassigned, ...] = ()


def assign(inventory: Inventory, resources: Sequence[Resource]) -> Assignment:
    """Give each device of `inventory` to the first of `resources` that means it and may have it."""
    family = _Family(inventory)
    by_kind: dict[str, list[Device]] = {}
    for device in inventory.devices.values():
        by_kind.setdefault(device.kind, []).append(device)
    about = {kind: [x for x in resources if concerns(x.selector, kind)] for kind in by_kind}
    owners: dict[str, str] = {}
    refusals: dict[str, list[str]] = {}
    devices: dict[str, tuple[Device, ...]] = {}
    for resource in resources:
        eligible = (x for kind in by_kind if concerns(resource.selector, kind) for x in by_kind[kind])
        meant = [x for x in eligible if x.id not in owners and not resource.selector.why_not(x)]
        refused = {device.id: reason for device in meant if (reason := _why_refused(device, resource, family, owners))}
        grouping = _bundles(resource, [device for device in meant if device.id not in refused], family)
        refused.update(grouping.left_out)
        offered: list[Device] = []
        for bundle in grouping.bundles:
            if taken := next((x.id for x in bundle.devices if x.id in owners), ""):
                refused.update({x.id: f"{taken} goes with another device of {resource.name}" for x in bundle.devices})
                continue
            device = _offered(resource, bundle)
            offered.append(device)
            owners.update(dict.fromkeys((device.id, *device.members), resource.name))
        devices[resource.name] = tuple(sorted(offered, key=lambda device: device.id))
        for i, reason in refused.items():
            refusals.setdefault(i, []).append(f"{resource.name}: {reason}")
    beside = _beside(devices, inventory)
    if beside:
        devices = {
            name: tuple(structs.replace(x, beside=beside[x.id]) if x.id in beside else x for x in offered)
            for name, offered in devices.items()
        }
    rest = (device for device in inventory.devices.values() if device.id not in owners)
    return Assignment(
        devices, owners, tuple(Unassigned(x, _why_nobody(x, about[x.kind], family, owners, refusals)) for x in rest)
    )


def _why_refused(device: Device, resource: Resource, family: "_Family", owners: Mapping[str, str]) -> str:
    """Return why a resource that means `device` may not have it; empty when it may."""
    if taken := family.why_owned(device.id, owners):
        return taken
    if resource.dangerous:
        return ""
    if reason := why_dangerous(structs.replace(device, devnodes=_handed_out(resource, device.devnodes))):
        return f"{reason}; only a resource with `dangerous: true` may offer it"
    for part in family.parts(device.id):
        if reason := why_dangerous(part):
            return f"its part {part.id} is dangerous: {reason}; only a resource with `dangerous: true` may offer it"
    return ""


def _bundles(resource: Resource, devices: Sequence[Device], family: "_Family") -> Grouping:
    """Return what is handed out as one, each with all its parts, wholes first."""
    wholes_first = sorted(devices, key=lambda device: len(family.wholes(device.id)))
    if resource.group:
        grouping = group(resource.group, wholes_first, family.wholes)
    else:
        grouping = Grouping(tuple(Bundle(device.id, (device,), device.devnodes) for device in wholes_first))
    return Grouping(tuple(_with_parts(resource, bundle, family) for bundle in grouping.bundles), grouping.left_out)


def _with_parts(resource: Resource, bundle: Bundle, family: "_Family") -> Bundle:
    everything = {device.id: device for device in bundle.devices}
    for device in bundle.devices:
        everything.update((part.id, part) for part in family.parts(device.id))
    devices = tuple(everything.values())
    devnodes = bundle.devnodes if isinstance(resource.group, PathSet) else united_devnodes(devices)
    return Bundle(bundle.key, devices, _handed_out(resource, devnodes))


def _offered(resource: Resource, bundle: Bundle) -> Device:
    first, *others = bundle.devices
    if resource.group:
        device = combine(resource.name, bundle)
    elif others:
        united = combine(resource.name, bundle)
        members = tuple(part.id for part in others)
        device = structs.replace(
            first, devnodes=united.devnodes, numa_nodes=united.numa_nodes, members=members, health=united.health
        )
    else:
        device = structs.replace(first, devnodes=bundle.devnodes)
    return structs.replace(device, health=HEALTHY) if resource.health == "present" else device


def _beside(devices: Mapping[str, Sequence[Device]], inventory: Inventory) -> dict[str, tuple[str, ...]]:
    """Return for each virtual function the ids of its physical one's devices, and the other way round."""
    virtual: dict[str, set[str]] = {}  # by the id of the physical function
    for device in (device for offered in devices.values() for device in offered):
        for part in (inventory.devices[i] for i in device.ids if i in inventory.devices):
            if isinstance(address := part.attributes.get(_PHYSICAL), str):
                virtual.setdefault(device_id("pci", address), set()).add(device.id)
    found: dict[str, set[str]] = {}
    for device in (device for offered in devices.values() for device in offered) if virtual else ():
        for function in (device.ids | set(device.within)) & virtual.keys():
            for i in virtual[function] - {device.id}:
                found.setdefault(device.id, set()).add(i)
                found.setdefault(i, set()).add(device.id)
    return {name: tuple(sorted(ids)) for name, ids in found.items()}


def _handed_out(resource: Resource, devnodes: Iterable[Devnode]) -> tuple[Devnode, ...]:
    patterns = [path_pattern(glob) for glob in resource.nodes]
    return tuple(node for node in devnodes if not patterns or any(p.fullmatch(node.path) for p in patterns))


def _why_nobody(
    device: Device,
    about: Sequence[Resource],
    family: "_Family",
    owners: Mapping[str, str],
    refusals: Mapping[str, Sequence[str]],
) -> str:
    """Return the nearest reason: refused by who means it, bound to an owned device, or what it lacks to be meant."""
    if device.id in refusals:
        return "; ".join(refusals[device.id])
    if taken := family.why_owned(device.id, owners):
        return taken
    reasons = [f"{resource.name}: {resource.selector.why_not(device)}" for resource in about[:_SHOWN_REASONS]]
    if len(about) > _SHOWN_REASONS:
        reasons.append(f"nor do {len(about) - _SHOWN_REASONS} more resources mean it")
    return "; ".join(reasons) or f"no resource is about devices of kind {device.kind}"


class _Family:
    """The wholes and parts of an inventory's devices."""

    def __init__(self, inventory: Inventory) -> None:
        self._devices = inventory.devices
        self._wholes: dict[str, tuple[str, ...]] = {x.id: x.within for x in inventory.devices.values() if x.within}
        self._parts: dict[str, list[str]] = {}
        self._all_wholes: dict[str, tuple[Device, ...]] = {}
        self._all_parts: dict[str, tuple[Device, ...]] = {}
        for device in inventory.devices.values():
            for member in device.members:
                self._wholes[member] = (*self._wholes.get(member, ()), device.id)
        for part, wholes in self._wholes.items():
            for whole in wholes:
                self._parts.setdefault(whole, []).append(part)

    def wholes(self, device: str) -> tuple[Device, ...]:
        """Return the devices that `device` is a part of, directly or not, the nearest first."""
        return self._reached(device, self._wholes, self._all_wholes)

    def parts(self, device: str) -> tuple[Device, ...]:
        """Return the devices that are parts of `device`, directly or not, the nearest first."""
        return self._reached(device, self._parts, self._all_parts)

    def why_owned(self, device: str, owners: Mapping[str, str]) -> str:
        """Return who owns a whole or a part of `device`, in words; empty when nobody does."""
        for whole in self.wholes(device):
            if whole.id in owners:
                return f"it is a part of {whole.id}, which {owners[whole.id]} owns"
        for part in self.parts(device):
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
