"""Groups: several devices that are allocated as one, like the nodes of a camera with its microphone.

A group defines what its devices have in common; devices with the same value become one combined `Device`. Its id is
made from the resource's name and this value, so it stays when one of them is renumbered. Devices that have nothing in
common with others are allocated alone.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct, structs

from hostdevices.device import HEALTHY, PCI_BUS_ID, AttributeValue, Device, Devnode, Health
from hostdevices.globs import path_pattern
from hostdevices.identity import MAX_LENGTH, device_id

_USB_ADDRESS = "usbAddress"


class Within(Struct, frozen=True, tag="within"):
    """Devices that are parts of one device of this kind (`usb`, `pci`), including it; default: of their parent."""

    kind: str = ""


class SameAttribute(Struct, frozen=True, tag="attribute"):
    """Devices that have the same value of this attribute."""

    name: str


class Functions(Struct, frozen=True, tag="functions"):
    """Functions of one PCI device: the same address up to the function's number."""


class PathMember(Struct, frozen=True):
    """One node of a set of paths, and its path in the container."""

    glob: str
    container_path: str = ""
    optional: bool = False


class PathSet(Struct, frozen=True, tag="paths"):
    """Nodes whose paths match these globs, one each; the wildcards of all globs match the same text."""

    members: tuple[PathMember, ...]


class Folder(Struct, frozen=True, tag="folder"):
    """All nodes in a folder below /dev and in its subfolders, whichever devices they belong to: /dev/snd."""

    path: str

    @property
    def glob(self) -> str:
        """Return the glob that matches its nodes."""
        return f"{self.path}/**/*"


Group: TypeAlias = Within | SameAttribute | Functions | PathSet | Folder


class Bundle(Struct, frozen=True):
    """Devices to allocate as one: `key` is what they have in common, `devnodes` are the nodes for a container."""

    key: str
    devices: tuple[Device, ...]
    devnodes: tuple[Devnode, ...]


class Grouping(Struct, frozen=True):
    """The result of `group` for some devices; `left_out` has the reasons for those in no bundle."""

    bundles: tuple[Bundle, ...]
    left_out: Mapping[str, str] = {}


def group(rule: Group, devices: Sequence[Device], ancestors: Callable[[str], Sequence[Device]]) -> Grouping:
    """Group `devices` by `rule`; `ancestors` returns the wholes of the device with an id, the nearest first."""
    if isinstance(rule, PathSet):
        return _by_paths(rule, devices)
    if isinstance(rule, Folder):
        return _in_folder(rule, devices)
    found: dict[str, list[Device]] = {}
    for device in devices:
        found.setdefault(_key(rule, device, ancestors), []).append(device)
    return Grouping(tuple(Bundle(key, tuple(parts), united_devnodes(parts)) for key, parts in found.items()))


def combine(resource: str, bundle: Bundle) -> Device:
    """Make one device of a bundle: nodes and attributes united, NUMA nodes merged, health the worst of its members."""
    members = tuple(device.id for device in bundle.devices)
    return Device(
        id=device_id(resource, bundle.key),
        kind="group",
        name=bundle.key,
        syspath=_common_folder(device.syspath for device in bundle.devices),
        attributes=_united(bundle.devices),
        devnodes=bundle.devnodes,
        numa_nodes=tuple(sorted({node for device in bundle.devices for node in device.numa_nodes})),
        parents=tuple(sorted({whole for device in bundle.devices for whole in device.parents} - set(members))),
        children=members,
        functions=united_functions(bundle.devices),
        enumeration=",".join(dict.fromkeys(device.enumeration for device in bundle.devices if device.enumeration)),
        health=_worst(bundle.devices),
        driver_files=next((device.driver_files for device in bundle.devices if device.driver_files), None),
        absent_services=tuple(dict.fromkeys(each for device in bundle.devices for each in device.absent_services)),
    )


def is_group_id(text: str, resource: str) -> bool:
    """Return whether an id belongs to a group of `resource`, present or former; other ids begin with their kind."""
    return text.startswith(re.sub(r"[^a-z0-9]+", "-", resource.lower())[: MAX_LENGTH // 2])


def united_devnodes(devices: Iterable[Device]) -> tuple[Devnode, ...]:
    """Return the nodes of all of `devices`, each once even if it has several names, ordered by path."""
    found: dict[tuple[str, int, int], Devnode] = {}
    for device in devices:
        for node in device.devnodes:
            found.setdefault((node.kind, node.major, node.minor), node)
    return tuple(sorted(found.values()))


def united_functions(devices: Iterable[Device]) -> tuple[str, ...]:
    """Return the addresses of all PCI functions of `devices`, each once."""
    return tuple(dict.fromkeys(address for device in devices for address in device.pci_functions))


def _key(rule: Within | SameAttribute | Functions, device: Device, ancestors: Callable[[str], Sequence[Device]]) -> str:
    match rule:
        case Within(""):
            return next((whole.id for whole in ancestors(device.id)), device.id)
        case Within(kind):
            return next((x.id for x in (device, *ancestors(device.id)) if x.kind == kind), device.id)
        case SameAttribute(name):
            value = device.attributes.get(name)
            return device.id if value is None else f"{name}-{value}"
        case Functions():
            address = device.attributes.get(PCI_BUS_ID)
            return f"pci-{address.rpartition('.')[0]}" if isinstance(address, str) else device.id


def _by_paths(rule: PathSet, devices: Sequence[Device]) -> Grouping:
    found: dict[tuple[str, ...], list[tuple[PathMember, Device, Devnode]]] = {}
    for device in devices:
        for member, node, wildcards in _fitting(rule, device):
            found.setdefault(wildcards, []).append((member, device, node))
    bundles: list[Bundle] = []
    left_out = {device.id: "none of its nodes matches the group's paths" for device in devices}
    for wildcards in sorted(found):
        present = {member: (device, node) for member, device, node in reversed(found[wildcards])}
        missing = [member.glob for member in rule.members if member not in present and not member.optional]
        for _, device, _ in found[wildcards]:
            lacking = f"the group also needs a node that matches {' and '.join(missing)}"
            left_out[device.id] = lacking if missing else "the group has another device with the same path"
        if missing:
            continue
        chosen = [(member, *present[member]) for member in rule.members if member in present]
        parts = tuple(dict.fromkeys(device.id for _, device, _ in chosen))
        by_id = {device.id: device for _, device, _ in chosen}
        nodes = tuple(structs.replace(node, container_path=member.container_path) for member, _, node in chosen)
        bundles.append(Bundle(parts[0], tuple(by_id[part] for part in parts), nodes))
    taken = {device.id for bundle in bundles for device in bundle.devices}
    return Grouping(tuple(bundles), {i: reason for i, reason in left_out.items() if i not in taken})


def _in_folder(rule: Folder, devices: Sequence[Device]) -> Grouping:
    inside = path_pattern(rule.glob)
    nodes = {x.id: [n for n in united_devnodes([x]) if inside.fullmatch(n.path)] for x in devices}
    members = tuple(device for device in sorted(devices, key=_is_link) if nodes[device.id])
    left_out = {device.id: f"it has no node in {rule.path}" for device in devices if not nodes[device.id]}
    bundle = united_devnodes(structs.replace(device, devnodes=tuple(nodes[device.id])) for device in members)
    return Grouping((Bundle(rule.path, members, bundle),) if members else (), left_out)


def _is_link(device: Device) -> bool:
    """Return whether a device is another name for a node, which comes after the node itself."""
    return any(node.target for node in device.devnodes)


def _fitting(rule: PathSet, device: Device) -> Iterator[tuple[PathMember, Devnode, tuple[str, ...]]]:
    for member in rule.members:
        for node in device.devnodes:
            if found := path_pattern(member.glob).fullmatch(node.path):
                yield member, node, found.groups()


def _united(devices: Iterable[Device]) -> dict[str, AttributeValue]:
    """Unite attributes; those on which members disagree belong to none of them in particular and are dropped.

    An exception are USB addresses: a machine that gets a group needs all of them.
    """
    values: dict[str, dict[AttributeValue, None]] = {}
    for device in devices:
        for name, value in device.attributes.items():
            values.setdefault(name, {})[value] = None
    united = {name: next(iter(found)) for name, found in sorted(values.items()) if len(found) == 1}
    addresses = values.get(_USB_ADDRESS, {})
    return {**united, _USB_ADDRESS: ",".join(map(str, addresses))} if addresses else united


def _common_folder(syspaths: Iterable[str]) -> str:
    """Return the common folder of all members in sysfs, which determines their distance to other devices."""
    known = [path for path in syspaths if path.startswith("/sys/devices/")]
    return os.path.commonpath(known) if known else ""


def _worst(devices: Iterable[Device]) -> Health:
    reasons = [f"{device.id}: {device.health.reason}" for device in devices if not device.health.healthy]
    return Health(False, "; ".join(reasons)) if reasons else HEALTHY
