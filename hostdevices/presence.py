"""The host's devices as the last scan found them, and whether a device that was seen before is still there.

What was handed out long ago is found again by its identity, wherever its nodes are now. A device that no scan can name
any more (a group that the configuration does not have today) is there as long as nothing about it has changed.
"""

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct, structs

from hostdevices.device import Device, Devnode
from hostdevices.host import Host
from hostdevices.verify import Fingerprint, Fingerprints, fingerprint


class Seen(Struct, frozen=True):
    """A device at one moment: what it is and where its nodes are, without attributes and health."""

    device: Device
    fingerprint: Fingerprint


class Presence:
    """Belongs to the loop; what it reads of the host takes microseconds."""

    def __init__(self, host: Host) -> None:
        """Start without devices."""
        self._host = host
        self._devices: Mapping[str, Device] = {}
        self._fingerprints = Fingerprints(host)

    def update(self, devices: Mapping[str, Device], offered: Iterable[Device], leased: Iterable[str] = ()) -> None:
        """Take over what a scan has found, right after it: all devices by id, those offered, the ids of those leased.

        Of two offered with one id the last one counts.
        """
        watched = [*(devices[each] for each in leased if each in devices), *offered]
        self._devices = {**devices, **{device.id: device for device in watched}}
        self._fingerprints.update(watched)

    def get(self, device_id: str) -> Device | None:
        """Return a device as the last scan found it."""
        return self._devices.get(device_id)

    def devices(self) -> Iterable[Device]:
        """Return all devices as the last scan found them."""
        return self._devices.values()

    def owner_of(self, path: str) -> str:
        """Return the id of a device that has the node at `path`, in words; `nothing` where none has."""
        return next((x.id for x in self._devices.values() if any(n.path == path for n in x.devnodes)), "nothing")

    def why_changed(self, device: Device) -> str:
        """Return what makes an offered or leased device another one than at the scan; empty when nothing does."""
        return self._fingerprints.why_changed(device)

    def seen(self, device: Device) -> Seen:
        """Return an offered device as it is now, for a record; it was checked with `why_changed`."""
        plain = Device(
            device.id, device.kind, device.name, device.syspath, devnodes=device.devnodes, children=device.children
        )
        return Seen(plain, self._fingerprints.taken(device))

    def is_same(self, seen: Seen) -> bool:
        """Tell whether a device is where it was, and nothing else has taken its place."""
        return fingerprint(self._host, seen.device) == seen.fingerprint

    def find(self, seen: Seen) -> Device | None:
        """Return the device that was seen, as it is now; None where it is not there.

        A group has the members of then, as far as they are there, whatever belongs to it today. Nodes are at the paths
        in the container at which they were given, whatever the configuration says today.
        """
        found = self._devices.get(seen.device.id)
        if found is None:
            return seen.device if self.is_same(seen) else None
        if found.kind == "group" and found.ids != seen.device.ids:
            found = self._with_members(found, seen.device.children)
        return found if are_given_alike(found.devnodes, seen.device.devnodes) else _as_given(found, seen.device)

    def _with_members(self, group: Device, ids: Iterable[str]) -> Device:
        """Return a group as it would be with these members. What is in it today keeps its paths in containers."""
        members = tuple(i for i in ids if i in self._devices)
        own = {_number(x) for i in members for x in self._devices[i].devnodes}
        others = (x for i in members if i not in group.children for x in self._devices[i].devnodes)
        nodes = {_number(x): x for x in (*others, *(x for x in group.devnodes if _number(x) in own))}
        return structs.replace(group, children=members, devnodes=tuple(sorted(nodes.values())))


def are_given_alike(now: Iterable[Devnode], before: Iterable[Devnode]) -> bool:
    """Tell whether nodes are at the same paths in a container: mostly none has another than on the host."""
    return _paths_inside(now) == _paths_inside(before)


def _paths_inside(nodes: Iterable[Devnode]) -> set[tuple[str, str]]:
    return {(_form(node), node.container_path) for node in nodes if node.container_path}


def _as_given(found: Device, given: Device) -> Device | None:
    """Return `found` with the nodes that were given, at their paths in the container; None where none is there.

    A node is known by its path but for the numbers that the kernel counts up, in their order; an only one in any case.
    Where there are more or fewer of one form, only those at the path of then are meant for certain.
    """
    pairs: list[tuple[Devnode, Devnode]] = []
    if len(found.devnodes) == len(given.devnodes) == 1:
        pairs.append((found.devnodes[0], given.devnodes[0]))
    else:
        now, before = _by_form(found.devnodes), _by_form(given.devnodes)
        for form, nodes in before.items():
            there = now.get(form, [])
            if len(there) == len(nodes):
                pairs += zip(there, nodes, strict=True)
            else:
                pairs += [(x, y) for x in there for y in nodes if x.path == y.path]
    placed = (structs.replace(node, container_path=old.container_path) for node, old in pairs)
    return structs.replace(found, devnodes=tuple(sorted(placed))) if pairs else None


def _form(node: Devnode) -> str:
    return re.sub("[0-9]+", "#", node.path)


def _by_form(nodes: Iterable[Devnode]) -> dict[str, list[Devnode]]:
    found: dict[str, list[Devnode]] = {}
    for node in sorted(nodes, key=lambda x: (len(x.path), x.path)):
        found.setdefault(_form(node), []).append(node)
    return found


def _number(node: Devnode) -> tuple[str, int, int]:
    return node.kind, node.major, node.minor
