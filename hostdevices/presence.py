"""The host's devices as the last scan found them, and whether a device that was seen before still exists.

A device that was allocated long ago is found by its identity, wherever its nodes are now. A device that no scan
contains any more (a group that the configuration no longer has) exists as long as nothing about it has changed.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

from msgspec import Struct, structs

from hostdevices.conclusive_calls import call_conclusively
from hostdevices.device import Device, Devnode
from hostdevices.errors import HostExhausted
from hostdevices.host import Host
from hostdevices.inventory import known_ids
from hostdevices.verify import Fingerprint, Fingerprints, fingerprint


class Seen(Struct, frozen=True):
    """A device at one moment: its identity and its nodes, without attributes and health."""

    device: Device
    fingerprint: Fingerprint
    left_out: tuple[Devnode, ...] = ()  # further nodes of the device that its holder did not get


class Presence:
    """Belongs to the event loop; its reads of the host take microseconds."""

    def __init__(self, host: Host) -> None:
        """Start without devices."""
        self._host = host
        self._scanned: Mapping[str, Device] = {}  # with all their nodes, whatever is offered of them
        self._known: frozenset[str] | None = None  # all their ids, computed at the first question
        self._offered: dict[str, Device] = {}  # those that are offered in another form than they were scanned
        self._fingerprints = Fingerprints(host)

    def update(self, devices: Mapping[str, Device], offered: Iterable[Device], leased: Iterable[str] = ()) -> None:
        """Take the results of a scan, right after it: all devices by id, the offered ones, and the ids of leased ones.

        If two offered devices have the same id, the last one counts.
        """
        self._scanned, self._known = devices, None
        watched = [*(devices[each] for each in leased if each in devices), *offered]
        last = {device.id: device for device in watched}
        self._offered = {i: device for i, device in last.items() if devices.get(i) is not device}
        self._fingerprints.update(watched)

    def get(self, device_id: str) -> Device | None:
        """Return a device as the last scan found it."""
        return self._offered.get(device_id) or self._scanned.get(device_id)

    def has_device(self, device_id: str) -> bool:
        """Return whether the last scan has found a device, under any of its ids: they change with a similar device."""
        if self.get(device_id) is not None:
            return True
        if self._known is None:  # thousands can have gone at once, and each is checked
            self._known = known_ids(self._scanned)
        return device_id in self._known

    def scanned(self, ids: Iterable[str]) -> list[Device]:
        """Return those of these devices that the last scan has found, with all their nodes, whatever is offered."""
        return [self._scanned[i] for i in ids if i in self._scanned]

    def devices(self) -> Iterable[Device]:
        """Return all devices as the last scan found them."""
        yield from (self._offered.get(i, device) for i, device in self._scanned.items())
        yield from (device for i, device in self._offered.items() if i not in self._scanned)

    def missing_node(self, paths: Iterable[str]) -> str:
        """Return the first of these paths below /dev that has no node now; empty if all have one."""
        return next((path for path in paths if self._host.devnode(path) is None), "")

    def owner_of(self, path: str) -> str:
        """Return the id of a device that has the node at `path`; `nothing` if there is none."""
        return next((x.id for x in self.devices() if any(n.path == path for n in x.devnodes)), "nothing")

    def devices_at(self, paths: Collection[str]) -> frozenset[str]:
        """Return the ids of the devices that have nodes at these paths."""
        return frozenset(x.id for x in self._scanned.values() if any(n.path in paths for n in x.devnodes))

    def change_since_scan(self, device: Device) -> str:
        """Return what distinguishes an offered or leased device from the scanned one; empty if nothing does.

        If that cannot be read because no file descriptor is left, that is the reason, and not that the device is gone.
        """
        if not self._fingerprints.change_since_scan(device):
            return ""
        try:
            return call_conclusively(partial(self._fingerprints.change_since_scan, device))
        except HostExhausted as error:
            return str(error)

    def seen(self, device: Device) -> Seen:
        """Return an offered device as it is now, for a record; the caller has checked it with `change_since_scan`."""
        plain = Device(
            device.id, device.kind, device.name, device.syspath, devnodes=device.devnodes, children=device.children
        )
        scanned = self._scanned.get(device.id)
        is_complete = not device.children and scanned is not None and scanned.devnodes == device.devnodes
        return Seen(
            plain, self._fingerprints.scanned_fingerprint(device), () if is_complete else self._left_out(device)
        )

    def _left_out(self, device: Device) -> tuple[Devnode, ...]:
        """Return the nodes of a device and of its members that its holder does not get, under any name."""
        allocated = {_number(node) for node in device.devnodes}
        nodes = (node for each in self.scanned(sorted(device.ids)) for node in each.devnodes)
        return tuple(dict.fromkeys(node for node in nodes if _number(node) not in allocated))

    def is_same(self, seen: Seen) -> bool:
        """Return whether a device is where it was, and no other one has taken its place."""
        return fingerprint(self._host, seen.device) == seen.fingerprint

    def find(self, seen: Seen) -> Device | None:
        """Return the device that was seen, as it is now; None if it is gone, or if some of the allocated nodes are.

        A group keeps its former members, if they exist, whatever belongs to it now. The nodes are the allocated ones,
        at their paths in the container, whatever the present configuration says. A device that a resource identifies by
        its USB port is the one that is plugged in there.
        """
        before = seen.device
        found = self.get(before.id)
        if found is None:
            return before if self.is_same(seen) else None
        is_group = before.kind == "group"
        if before.ids != found.ids and before.id not in self._scanned and not is_group:  # another device at its port
            placed, _ = _with_allocated_paths(found.devnodes, before.devnodes)
            return structs.replace(found, devnodes=placed) if placed or not before.devnodes else None
        members = tuple(i for i in before.children if i in self._scanned)
        own = (before.id, *members) if before.id in self._scanned else members
        nodes = {node.path: node for i in own for node in self._scanned[i].devnodes}
        placed, are_all = _with_allocated_paths(nodes.values(), before.devnodes, seen.left_out)
        if not are_all and (not is_group or len(members) == len(before.children) or not placed):
            return None
        return structs.replace(found, children=members, devnodes=placed)


def are_equivalent(now: Iterable[Devnode], before: Iterable[Devnode]) -> bool:
    """Return whether nodes are equal except for the numbers that the kernel counts up, at the same container paths."""
    return _forms(now) == _forms(before)


def _forms(nodes: Iterable[Devnode]) -> list[tuple[str, str]]:
    return sorted((_form(node), node.container_path) for node in nodes)


def _with_allocated_paths(
    now: Iterable[Devnode], before: Sequence[Devnode], left_out: Sequence[Devnode] = ()
) -> tuple[tuple[Devnode, ...], bool]:
    """Return the allocated nodes as they are now, at their paths in the container, and whether all were found.

    Nodes are matched by their paths without the numbers that the kernel counts up, in their order; a single node always
    matches. If there are more or fewer of one form, only those with the same path match.
    """
    current = tuple(now)
    pairs: list[tuple[Devnode, Devnode]] = []
    if len(current) == len(before) == 1 and not left_out:
        pairs.append((current[0], before[0]))
    else:
        by_form = _by_form(current)
        for form, nodes in _by_form((*before, *left_out)).items():
            alike = by_form.get(form, [])
            if len(alike) == len(nodes):
                pairs += [(x, y) for x, y in zip(alike, nodes, strict=True) if y in before]
            else:
                pairs += [(x, y) for x in alike for y in nodes if x.path == y.path and y in before]
    placed = (structs.replace(node, container_path=old.container_path) for node, old in pairs)
    return tuple(sorted(placed)), len(pairs) == len(before)


def _form(node: Devnode) -> str:
    return re.sub("[0-9]+", "#", node.path)


def _by_form(nodes: Iterable[Devnode]) -> dict[str, list[Devnode]]:
    found: dict[str, list[Devnode]] = {}
    for node in sorted(nodes, key=lambda x: (len(x.path), x.path)):
        found.setdefault(_form(node), []).append(node)
    return found


def _number(node: Devnode) -> tuple[str, int, int]:
    return node.kind, node.major, node.minor
