"""Which units of a resource go best together: the answer to GetPreferredAllocation.

A choice costs the sum over its pairs of units (their distance by xGMI or NVLink, NUMA and PCIe; how many links fewer
they have than others) and over its units (how used their devices are). Ties go to the first in natural order.

| policy | units of one device | otherwise |
|---|---|---|
| numa | apart, if there are others | close together |
| packed | together | close together; of those equally close, devices in use first |
| spread | apart, if there are others | anywhere, the least used devices first |
| distinct | never together (Allocate refuses it) | close together |

It runs on the loop, so time and memory grow at most linearly with the units (10,000 devices or 40,000 shares: 20 to 50
ms of a slow core, less than 8 MiB; 40,000 devices: 100 ms):

1. Only counts are computed, because units of one device are alike. If they are to be apart, the counts of all devices
   differ by at most one, as far as there are units; it remains to choose which devices give one more.
2. `spread`: the least used devices do. That is exact.
3. Otherwise devices form a tree (hive, NUMA node, PCIe root, bridge or the GPU of partitions, device), and the cheapest
   way to take n units below a node follows from its children. That is exact; it compares up to MAX_STEPS pairs of
   counts, which is enough for 8 devices with any number of shares, for some units of 10,000 devices, and for 300 units
   of any.
4. Beyond that, from the top down: the node in which all n have room (the one with the most units that are fixed
   already, then the tightest), or else the largest one, and the rest elsewhere. Units of one device are as much apart,
   or together, as with 3; only the distance between devices can be worse (by how much:
   tests/deviceplugin/test_preferred.py).
5. GPUs of which some pairs have more links than others form no tree: among up to MAX_LINKED devices all choices are
   searched (linked.py). That is exact. Among more, or beyond MAX_STEPS, only hives count, by 3 and 4.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import combinations, groupby
from operator import add
from typing import NamedTuple, TypeAlias

from deviceplugin.units import Units
from hostdevices import Device
from hostdevices.device import PCI_BUS_ID
from resources.resource import PreferredPolicy

MAX_STEPS = 100_000
"""The most steps of an exact choice: some 20 ms."""
MAX_LINKED = 16
"""The most devices whose numbers of links count."""
MAX_DEVICES = 10_000
"""The most devices whose places count; of more, all are taken as equally close."""
_STEPS_PER_NODE = 20
_SAME_DEVICE_COST = 1 << 20  # two units of one device, if they should be apart: more than any sum of other costs
_LEVEL_DISTANCES = (256, 64, 16, 4, 1)
"""Distances of two devices that differ in: hive, NUMA node, PCIe root, bridge; or in none of the four."""
_DEVICE_LEVEL = 4  # below hive, NUMA node, PCIe root and bridge
_LINK_COST = 64  # a link fewer: more than the distance of any two devices of a hive
_USE_COST = 1 / (1 << 20)  # a unit of a device, for each of the device's units in use: less than any distance
_WEIGHTS: Mapping[PreferredPolicy, float] = {"numa": 0.0, "packed": -_USE_COST, "spread": _USE_COST, "distinct": 0.0}
_Location: TypeAlias = tuple[str, tuple[int, ...], str, str]
_Node: TypeAlias = Sequence[tuple[_Location, Sequence[int]]]  # the places below it, with their devices


def prefer(
    policy: PreferredPolicy,
    units: Units,
    available: Sequence[str],
    must_include: Sequence[str],
    size: int,
    *,
    steps: int = MAX_STEPS,
) -> list[str]:
    """Choose `size` of the `available` unit ids, including all of `must_include`; fewer if there are not enough.

    `units` are all units of the resource, from `units_of`: device by device, each device's in natural order. Unknown
    ids are ignored: the kubelet can still know units that are gone. A choice that needs more than `steps` follows rule
    4.
    """
    required = {u for u in must_include if u in units}
    free = {u for u in available if u in units}
    total = min(size, len(required | free))
    devices = _Devices(units, free, required)
    if total > len(required):
        choice = _Choice(policy, devices, total)
        if policy == "spread":
            choice.choose_least_used()
        else:
            choice.choose(steps)
        return [*devices.required, *choice.spare_units()]
    return devices.required


def cost_of(policy: PreferredPolicy, units: Units, available: Sequence[str], chosen: Sequence[str]) -> float:
    """Return the cost of choosing `chosen` while `available` are free: the sum that `prefer` minimizes."""
    found = _Devices(units, set(available), set(chosen))
    used = {device.id: count for device, count in zip(found.devices, found.used, strict=True)}
    devices = [units[u] for u in chosen]
    total = _WEIGHTS[policy] * sum(used[device.id] for device in devices)
    usable = [x for x, fixed, spare in zip(found.devices, found.fixed, found.spare, strict=True) if fixed or spare]
    max_links = max((_links(one, other) for one, other in combinations(usable, 2)), default=0)
    for one, other in combinations(devices, 2):
        if one.id == other.id:
            total += 0 if policy == "packed" else _SAME_DEVICE_COST
        elif policy != "spread":
            total += _location_distance(_location(one), _location(other)) + _LINK_COST * (
                max_links - _links(one, other)
            )
    return total


class _Devices:
    """The possible choices as lists by device: there can be thousands, of which few matter."""

    def __init__(self, units: Units, free: Set[str], required: Set[str]) -> None:
        self.devices: list[Device] = []
        self.used: list[int] = []  # units that are not available
        self.fixed: list[int] = []  # units that are required
        self.spare: list[int] = []  # units that are available and not required
        self.starts: list[int] = []  # where a device's spare units begin in `spare_units`
        self.spare_units: list[str] = []  # all spare units
        self.required: list[str] = []
        last: Device | None = None
        for u, device in units.items():
            if device is not last:
                last = device
                self.devices.append(last)
                self.used.append(0)
                self.fixed.append(0)
                self.spare.append(0)
                self.starts.append(len(self.spare_units))
            if u not in free:
                self.used[-1] += 1
            if u in required:
                self.fixed[-1] += 1
                self.required.append(u)
            elif u in free:
                self.spare[-1] += 1
                self.spare_units.append(u)

    def root(self) -> _Node:
        """Return the devices with any fixed or spare units, by place and id."""
        ids = [device.id for device in self.devices]
        usable = sorted((i for i in range(len(ids)) if self.fixed[i] or self.spare[i]), key=ids.__getitem__)
        if len(usable) > MAX_DEVICES:
            return [(("", (), "", ""), usable)]
        places: dict[_Location, list[int]] = {}
        for i in usable:
            places.setdefault(_location(self.devices[i]), []).append(i)
        return sorted(places.items())


class _TooManySteps(Exception):
    """An exact choice would take too long."""


class _Part:
    """A part of the tree: `fixed` units are taken there in any case, and n more for `costs[n]`.

    The devices of a leaf are alike. Other parts have children; `splits` has how many of n each child but the first
    takes.
    """

    def __init__(self, fixed: int, costs: list[float], leaf: _Node = ()) -> None:
        self.fixed, self.costs, self.leaf = fixed, costs, leaf
        self.children: list[_Part] = []
        self.splits: list[list[int]] = []


class _Group(NamedTuple):
    """What the devices below a node give in any case, what more they can give, and how used the first of them is."""

    fixed: int
    capacity: int
    used: int
    node: _Node


class _Choice:
    """How many units each device gives: `counts`, which start with what it gives in any case."""

    def __init__(self, policy: PreferredPolicy, devices: _Devices, total: int) -> None:
        self._devices = devices
        self._root = devices.root()
        self._weight = _WEIGHTS[policy]
        fixed = devices.fixed
        sizes = list(map(add, fixed, devices.spare))
        if policy == "packed":
            self.counts, limits = fixed.copy(), sizes
        else:
            self.counts, limits = _even_bounds(fixed, sizes, total)
        self._capacity = [each - count for each, count in zip(limits, self.counts, strict=True)]
        self._remaining = total - sum(self.counts)
        self._steps = 0
        are_interchangeable = policy != "packed" or all(
            sizes[i] == 1 and not devices.used[i] for i in _devices(self._root)
        )
        # of devices at one place that are alike only the count matters
        self._depth = _DEVICE_LEVEL if are_interchangeable else _DEVICE_LEVEL + 1

    def spare_units(self) -> Iterator[str]:
        """Yield the chosen units besides the required ones."""
        devices = self._devices
        for i in _devices(self._root):
            start = devices.starts[i]
            yield from devices.spare_units[start : start + self.counts[i] - devices.fixed[i]]

    def choose(self, steps: int) -> None:
        """Rule 5 if the numbers of links differ, otherwise rule 3; rule 4 if that takes more steps."""
        if self._choose_linked(steps):
            return
        try:
            self._choose_cheapest(steps)
        except _TooManySteps:
            self._choose_closest()

    def choose_least_used(self) -> None:
        """Rule 2: no device has room for more than one."""
        self._fill(sorted(_devices(self._root), key=self._devices.used.__getitem__), self._remaining)

    def _choose_linked(self, steps: int) -> bool:
        """Rule 5, if it applies; return whether it did."""
        if sum(len(devices) for _, devices in self._root) > MAX_LINKED:
            return False
        members = list(_devices(self._root))
        distances = _distances([self._devices.devices[i] for i in members])
        if distances is None:
            return False
        from deviceplugin.linked import cheapest  # on first use: few nodes have such GPUs

        costs = [
            self._weight * self._devices.used[i]
            + sum(self.counts[j] * distance for j, distance in zip(members, row, strict=True))
            for i, row in zip(members, distances, strict=True)
        ]
        chosen_counts = cheapest(distances, costs, [self._capacity[i] for i in members], self._remaining, steps)
        if chosen_counts is None:
            return False
        for i, n in zip(members, chosen_counts, strict=True):
            self.counts[i] += n
        return True

    def _choose_cheapest(self, steps: int) -> None:
        """Rule 3. Raises _TooManySteps."""
        self._steps = steps
        pending = [(self._part(self._root, 0), self._remaining)]
        while pending:
            part, n = pending.pop()
            for child, split in zip(reversed(part.children[1:]), reversed(part.splits), strict=True):
                pending.append((child, split[n]))
                n -= split[n]
            pending += [(child, n) for child in part.children[:1]]
            self._fill(_devices(part.leaf), n)

    def _choose_closest(self) -> None:
        """Rule 4."""
        pending = [(0, self._root, self._remaining)]
        while pending:
            level, node, n = pending.pop()
            if level == self._depth:
                self._fill(_devices(node), n)
                continue
            groups = sorted(map(self._group, _children(node, level)), key=lambda x: -x.fixed - x.capacity)
            for i, group in enumerate(groups):
                if group.capacity >= n:
                    fitting = (x for x in groups[i:] if x.capacity >= n)
                    best = min(fitting, key=lambda x: (-x.fixed, self._weight * x.used, x.capacity))
                    pending.append((level + 1, best.node, n))
                    break
                pending.append((level + 1, group.node, group.capacity))
                n -= group.capacity

    def _part(self, node: _Node, level: int) -> _Part:
        if level == self._depth:
            group = self._group(node)
            counts = range(group.fixed, group.fixed + min(group.capacity, self._remaining) + 1)
            if level == _DEVICE_LEVEL:
                return _Part(group.fixed, [_LEVEL_DISTANCES[_DEVICE_LEVEL] * n * (n - 1) / 2 for n in counts], node)
            return _Part(group.fixed, [self._weight * group.used * n for n in counts], node)
        parts = [self._part(child, level + 1) for child in _children(node, level)]
        merged = _Part(parts[0].fixed, parts[0].costs)
        merged.children = parts
        for part in parts[1:]:
            merged.costs, split = self._merged(merged, part, _LEVEL_DISTANCES[level])
            merged.splits.append(split)
            merged.fixed += part.fixed
        return merged

    def _merged(self, left: _Part, right: _Part, distance: int) -> tuple[list[float], list[int]]:
        """Return the costs of n units in both, and how many of them are on the right: on a tie, as few as possible."""
        self._steps -= len(left.costs) * len(right.costs) + _STEPS_PER_NODE
        if self._steps < 0:
            raise _TooManySteps
        length = min(len(left.costs) + len(right.costs) - 1, self._remaining + 1)
        best, split = [float("inf")] * length, [0] * length
        for i, left_cost in enumerate(left.costs):
            between = (left.fixed + i) * distance
            for j, right_cost in enumerate(right.costs[: length - i]):
                total = left_cost + right_cost + between * (right.fixed + j)
                if total <= best[i + j]:
                    best[i + j], split[i + j] = total, j
        return best, split

    def _group(self, node: _Node) -> _Group:
        counts, capacity, used = self.counts, self._capacity, self._devices.used
        found = list(_devices(node))
        return _Group(sum(counts[i] for i in found), sum(capacity[i] for i in found), used[found[0]], node)

    def _fill(self, members: Iterable[int], n: int) -> None:
        """Take n units, from the first devices that have room."""
        for i in members:
            if n == 0:
                break
            chosen_counts = min(self._capacity[i], n)
            self.counts[i] += chosen_counts
            n -= chosen_counts


def _devices(node: _Node) -> Iterator[int]:
    return (i for _, devices in node for i in devices)


def _children(node: _Node, level: int) -> Iterator[_Node]:
    """Yield the nodes below a node; below a place these are its devices."""
    if level == _DEVICE_LEVEL:
        return (((place, (i,)),) for place, devices in node for i in devices)
    return (list(group) for _, group in groupby(node, lambda each: each[0][level]))


def _location(device: Device) -> _Location:
    """Return a device's place: its hive, NUMA nodes, PCIe root, and the bridge above it, or a partition's GPU."""
    attributes = device.attributes
    root = str(attributes.get("resource.kubernetes.io/pcieRoot", ""))
    below = device.syspath.rpartition("/")[0] if root else ""
    if "partition" in attributes:
        below = str(attributes.get(PCI_BUS_ID, ""))
    return str(attributes.get("hive", "")), device.numa_nodes, root, below


def _distances(devices: Sequence[Device]) -> list[list[int]] | None:
    """Return the distance of each pair; None if all pairs have equally many links, so that places suffice."""
    if not any(device.links for device in devices):
        return None
    links = [[_links(one, other) for other in devices] for one in devices]
    pairs = {links[i][j] for i in range(len(devices)) for j in range(i)}
    if len(pairs) < 2:
        return None
    max_links, places = max(pairs), [_location(device) for device in devices]
    return [
        [
            0 if i == j else _location_distance(one, other) + _LINK_COST * (max_links - links[i][j])
            for j, other in enumerate(places)
        ]
        for i, one in enumerate(places)
    ]


def _links(one: Device, other: Device) -> int:
    """Return how many links join two devices, as both report them."""
    ends = one.attributes.get(PCI_BUS_ID), other.attributes.get(PCI_BUS_ID)
    first, second = dict(one.links), dict(other.links)
    return min(first.get(str(ends[1]), 0), second.get(str(ends[0]), 0)) if first and second else 0


def _location_distance(one: _Location, other: _Location) -> int:
    return _LEVEL_DISTANCES[
        next((level for level, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), _DEVICE_LEVEL)
    ]


def _even_bounds(fixed: Sequence[int], sizes: Sequence[int], total: int) -> tuple[list[int], list[int]]:
    """Return what each device gives at least and at most, so that no two counts differ by more than one."""

    def at(level: int) -> list[int]:
        return [max(least, min(size, level)) for least, size in zip(fixed, sizes, strict=True)]

    level = bisect_left(range(max(sizes)), total, key=lambda level: sum(at(level)))
    return at(level - 1), at(level)
