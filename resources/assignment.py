"""Assignment: which resource owns which device. Pure: the same inventory and resources give the same answer.

Rules:
1. The first resource that selects a device owns it.
2. The owner of a whole device owns its parts (`Device.parents`, `Device.children`) and allocates them with it. So a
   resource cannot own a device if another one owns a part of it, and within one resource the whole precedes its parts.
3. A dangerous device, a whole with a dangerous part, or the path of a dangerous device's node is owned only by a
   resource that says `dangerous: true`; the node's uplink, or a whole of which it is a part, by none.
4. A physical function and its virtual functions may have different owners; each refers to the others
   (`Device.sriov_peers`).
5. A resource with `reset` owns only devices that can be reset, and whose reset affects no other offered device.
6. A device that lacks an attribute that its resource uses stays with the resource, as unavailable (container_view.py).
7. A resource does not own a device whose id (`ids`) is not unique.
8. A resource that binds functions to another driver owns whole IOMMU groups (iommu_groups.py).
9. Every device without an owner has a reason in words.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, structs

from hostdevices.device import HEALTHY, Device, Devnode
from hostdevices.globs import path_pattern
from hostdevices.identity import device_id, port_id
from hostdevices.inventory import Inventory
from resources.container_view import ContainerView
from resources.danger import DANGEROUS, danger_reason, exclusion_reason
from resources.groups import Bundle, Folder, Grouping, PathSet, combine, group, united_devnodes
from resources.hierarchy import PHYSICAL, Hierarchy
from resources.iommu_groups import whole_groups
from resources.resource import Resource
from resources.selector import concerns
from resources.unit_names import naming_problems

_SHOWN_REASONS = 2  # of resources for the device's kind that do not select it

_SHOWN_NODES = 3
_MORE_THAN_NODES = frozenset({"nic", "pci"})  # an interface or a function can be allocated without a node


class Unassigned(Struct, frozen=True):
    """A device without an owner, and why; refused if a resource selects it and cannot have it."""

    device: Device
    reason: str
    is_refused: bool = False


class Assignment(Struct, frozen=True):
    """The owner of each device.

    `devices` has an entry for every resource, in their order; its devices are in the order of their ids and have their
    health according to the resource's policy. `owners` has the resource of each id: of the devices as offered, and of
    their members. `rest` are the other devices of the inventory. `refusals` has, by device id and resource name, why a
    resource that selects a device cannot have it, also for devices that another resource owns.
    """

    devices: Mapping[str, tuple[Device, ...]] = {}
    owners: Mapping[str, str] = {}
    rest: tuple[Unassigned, ...] = ()
    refusals: Mapping[str, Mapping[str, str]] = {}


def assign(inventory: Inventory, resources: Sequence[Resource]) -> Assignment:
    """Assign each device of `inventory` to the first of `resources` that selects it and can have it."""
    hierarchy = Hierarchy(inventory)
    by_kind: dict[str, list[Device]] = {}
    for device in inventory.devices.values():
        by_kind.setdefault(device.kind, []).append(device)
    owners: dict[str, str] = {}
    refusals: dict[str, dict[str, str]] = {}
    devices: dict[str, tuple[Device, ...]] = {}
    for resource in resources:
        eligible = (x for kind in by_kind if concerns(resource.selector, kind) for x in by_kind[kind])
        selected = [x for x in eligible if x.id not in owners and not resource.selector.mismatch(x)]
        refused = {
            device.id: reason for device in selected if (reason := _refusal(device, resource, hierarchy, owners))
        }
        grouping = _bundles(resource, [device for device in selected if device.id not in refused], hierarchy, owners)
        refused.update(grouping.left_out)
        offered: list[Device] = []
        view = ContainerView(resource)
        for bundle in grouping.bundles:
            device = _offered(resource, bundle, view)
            if taken := next((x.id for x in bundle.devices if x.id in owners), ""):
                refused.update({x.id: f"{taken} belongs to another device of {resource.name}" for x in bundle.devices})
            elif resource.identity == "port" and not port_id(device.kind, (device.id,)):
                refused.update(
                    {
                        x.id: "it is on no USB port, and `identity: port` identifies a device by its port"
                        for x in bundle.devices
                    }
                )
            elif resource.reset and not device.pci_functions:
                refused.update({x.id: "it is on no PCI bus and cannot be reset" for x in bundle.devices})
            else:
                offered.append(device)
                owners.update(dict.fromkeys((device.id, *device.children), resource.name))
        unnamed = naming_problems(resource.ids, offered)
        for device in (x for x in offered if x.id in unnamed):
            refused.update(dict.fromkeys(device.ids, unnamed[device.id]))
            for i in device.ids:
                owners.pop(i, None)
        named = (device for device in offered if device.id not in unnamed)
        devices[resource.name] = tuple(sorted(named, key=lambda device: device.id))
        for i, reason in refused.items():
            refusals.setdefault(i, {})[resource.name] = reason
    _withdraw_harmful_resets(devices, owners, refusals, resources, hierarchy)
    rest = (device for device in inventory.devices.values() if device.id not in owners)
    for_kind = {kind: [x for x in resources if concerns(x.selector, kind)] for kind in by_kind}
    return Assignment(
        _with_sriov_peers(devices, inventory, hierarchy),
        owners,
        tuple(
            Unassigned(x, _unassigned_reason(x, for_kind[x.kind], hierarchy, owners, refusals), x.id in refusals)
            for x in rest
        ),
        refusals,
    )


def _withdraw_harmful_resets(
    devices: dict[str, tuple[Device, ...]],
    owners: dict[str, str],
    refusals: dict[str, dict[str, str]],
    resources: Sequence[Resource],
    hierarchy: Hierarchy,
) -> None:
    """Remove devices whose reset would affect another one: on the same PCI function, or a virtual function of it."""
    resetting = [resource for resource in resources if resource.reset]
    if not resetting:
        return
    on_function: dict[str, list[Device]] = {}
    for device in (device for offered in devices.values() for device in offered):
        for address in {*device.pci_functions, *hierarchy.physical_functions(device)}:
            on_function.setdefault(address, []).append(device)
    for resource in reversed(resetting):  # of two, the first can stay
        for device in reversed(devices[resource.name]):
            hit = next((x for a in device.pci_functions for x in on_function[a] if x.id != device.id), None)
            if hit is None:
                continue
            devices[resource.name] = tuple(x for x in devices[resource.name] if x is not device)
            for there in on_function.values():
                there[:] = [x for x in there if x is not device]
            reason = f"a reset of it would also reset {hit.id}, which {owners[hit.id]} offers"
            for i in (device.id, *device.children):
                owners.pop(i, None)
                refusals.setdefault(i, {})[resource.name] = reason


def _refusal(device: Device, resource: Resource, hierarchy: Hierarchy, owners: Mapping[str, str]) -> str:
    """Return why a resource that selects `device` cannot have it; empty if it can."""
    if taken := hierarchy.ownership_problem(device.id, owners):
        return taken
    if never := exclusion_reason(device):
        return never
    parts = tuple(hierarchy.descendants(device.id))
    for part in parts:
        if never := exclusion_reason(part):
            return f"its part {part.id} cannot be offered: {never}"
    if resource.dangerous:
        return ""
    allocated = (
        structs.replace(device, devnodes=_matching_nodes(resource, device.devnodes)) if resource.nodes else device
    )
    if reason := danger_reason(allocated):
        return f"{reason}; only a resource with {DANGEROUS} may offer it"
    if (whole := hierarchy.device_of_path(device)) and (reason := danger_reason(whole)):
        return f"it is a node of {whole.id}: {reason}; only a resource with {DANGEROUS} may offer it"
    for part in parts:
        if reason := danger_reason(part):
            return f"its part {part.id} is dangerous: {reason}; only a resource with {DANGEROUS} may offer it"
    return ""


def _bundles(
    resource: Resource, devices: Sequence[Device], hierarchy: Hierarchy, owners: Mapping[str, str]
) -> Grouping:
    """Return the bundles, each with all parts of its devices, wholes first."""
    wholes_first = sorted(devices, key=lambda device: len(hierarchy.ancestors(device.id)))
    if resource.dra.bind:

        def refusal(device: Device) -> str:
            owner = owners.get(device.id)
            return f"{owner} owns it" if owner else _refusal(device, resource, hierarchy, owners)

        grouping = whole_groups(wholes_first, hierarchy.of_kind("pci"), refusal)
    elif resource.group:
        grouping = group(resource.group, wholes_first, hierarchy.ancestors)
    else:
        grouping = Grouping(tuple(Bundle(device.id, (device,), device.devnodes) for device in wholes_first))
    return Grouping(tuple(_with_parts(resource, bundle, hierarchy) for bundle in grouping.bundles), grouping.left_out)


def _with_parts(resource: Resource, bundle: Bundle, hierarchy: Hierarchy) -> Bundle:
    parts = [part for device in bundle.devices for part in hierarchy.descendants(device.id)]
    devices = tuple({x.id: x for x in (*bundle.devices, *parts)}.values()) if parts else bundle.devices
    has_own_nodes = resource.dra.bind or isinstance(resource.group, PathSet | Folder)
    devnodes = bundle.devnodes if has_own_nodes else united_devnodes(devices)
    return Bundle(bundle.key, devices, _matching_nodes(resource, devnodes))


def _offered(resource: Resource, bundle: Bundle, view: ContainerView) -> Device:
    first, *others = bundle.devices
    if resource.group:
        device = combine(resource.name, bundle)
    elif others:
        united = combine(resource.name, bundle)
        device = structs.replace(
            first,
            devnodes=united.devnodes,
            numa_nodes=united.numa_nodes,
            children=tuple(part.id for part in others),
            functions=united.functions if united.functions != first.pci_functions else first.functions,
            health=united.health,
        )
    else:
        device = first if first.devnodes == bundle.devnodes else structs.replace(first, devnodes=bundle.devnodes)
    if resource.identity == "port" and (known := port_id(device.kind, device.parents)):
        wholes = tuple(x for x in device.parents if x != known)
        device = structs.replace(device, id=known, parents=wholes, children=(device.id, *device.children))
    device = view.of(device)
    if reason := _missing_nodes_problem(resource, bundle):
        device = structs.replace(device, unavailable=device.unavailable or reason)
    is_unhealthy = device.health != HEALTHY
    return structs.replace(device, health=HEALTHY) if is_unhealthy and resource.health == "present" else device


def _with_sriov_peers(
    devices: Mapping[str, tuple[Device, ...]], inventory: Inventory, hierarchy: Hierarchy
) -> Mapping[str, tuple[Device, ...]]:
    """Return the devices; virtual functions and their physical ones have each other's ids as peers."""
    if not any(PHYSICAL in device.attributes for device in inventory.devices.values()):
        return devices
    offered = {device.id: device for each in devices.values() for device in each}
    everything = {**inventory.devices, **offered}
    virtual: dict[str, set[str]] = {}  # by the id of the physical function
    for device in everything.values():
        for address in hierarchy.physical_functions(device):
            virtual.setdefault(device_id("pci", address), set()).add(device.id)
    found: dict[str, set[str]] = {}
    for device in everything.values():
        for function in (device.ids | set(device.parents)) & virtual.keys():
            for i in virtual[function] - device.ids:
                found.setdefault(device.id, set()).add(i)
                found.setdefault(i, set()).add(device.id)

    def with_peers(device: Device) -> Device:
        peers = tuple(sorted(found.get(device.id, ())))
        return structs.replace(device, sriov_peers=peers, offered_peers=tuple(i for i in peers if i in offered))

    return {name: tuple(map(with_peers, each)) for name, each in devices.items()}


def _matching_nodes(resource: Resource, devnodes: Iterable[Devnode]) -> tuple[Devnode, ...]:
    if not resource.nodes:
        return tuple(devnodes)
    patterns = [path_pattern(glob) for glob in resource.nodes]
    return tuple(node for node in devnodes if any(p.fullmatch(node.path) for p in patterns))


def _missing_nodes_problem(resource: Resource, bundle: Bundle) -> str:
    """Return that `nodes` leaves a container no node of a device; empty if a device is more than its nodes."""
    if not resource.nodes or bundle.devnodes or resource.cdi_devices or bundle.devices[0].kind in _MORE_THAN_NODES:
        return ""
    kept = [node.path for device in bundle.devices for node in device.devnodes]
    return f"`nodes` of {resource.name} matches none of its nodes, {', '.join(kept[:_SHOWN_NODES])}" if kept else ""


def _unassigned_reason(
    device: Device,
    for_kind: Sequence[Resource],
    hierarchy: Hierarchy,
    owners: Mapping[str, str],
    refusals: Mapping[str, Mapping[str, str]],
) -> str:
    """Return the nearest reason: a refusal, an owned whole or part, or the unmet condition of a selector."""
    if device.id in refusals:
        return "; ".join(f"{name}: {reason}" for name, reason in refusals[device.id].items())
    if taken := hierarchy.ownership_problem(device.id, owners):
        return taken
    reasons = [f"{resource.name}: {resource.selector.mismatch(device)}" for resource in for_kind[:_SHOWN_REASONS]]
    if len(for_kind) > _SHOWN_REASONS:
        reasons.append(f"nor do {len(for_kind) - _SHOWN_REASONS} more resources select it")
    return "; ".join(reasons) or f"no resource selects devices of kind {device.kind}"
