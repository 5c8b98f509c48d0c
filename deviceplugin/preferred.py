"""Which units of a resource go best together: the answer to GetPreferredAllocation.

A choice costs the sum over its pairs of units (how far apart they are, in PCIe and NUMA) and over its units (how used
their devices are). The cheapest choice is found exactly: devices form a tree (NUMA node, PCIe root, bridge, device),
and the cheapest way to take n units below a node follows from its children. Ties go to the first in natural order.

| policy | units of one device | otherwise |
|---|---|---|
| numa | apart, if there are others | close together |
| packed | together | close together; of those equally close, devices in use first |
| spread | apart, if there are others | anywhere, the least used devices first |
| distinct | never together (Allocate refuses it) | close together |
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TypeAlias

from deviceplugin.units import Unit
from hostdevices import Device
from hostdevices.resource import PreferredPolicy

_TOGETHER = 1 << 20  # two units of one device, where that is to be avoided: more than any sum of the others
_APART = (64, 16, 4, 1)  # two devices that part at: NUMA node, PCIe root, bridge; or share all three
_USE = 1 / (1 << 20)  # a unit of a device, for each of the device's units in use: less than any distance
_Choice: TypeAlias = tuple[float, tuple[str, ...]]  # cost, unit ids
_Place: TypeAlias = tuple[str, str, str]


def prefer(
    policy: PreferredPolicy,
    units: Mapping[str, Unit],
    available: Sequence[str],
    must_include: Sequence[str],
    size: int,
) -> list[str]:
    """Choose `size` of the `available` unit ids, all of `must_include` among them; fewer where there are not enough.

    Ids that the resource does not have are passed over: the kubelet may still know units that are gone.
    """
    required = frozenset(u for u in must_include if u in units)
    candidates = {u: units[u] for u in (*must_include, *available) if u in units}
    wanted = min(size, len(candidates)) - len(required)
    if wanted <= 0:
        return [u for u in candidates if u in required]
    ordered = sorted(
        candidates.values(), key=lambda u: (_place(u.device), u.device.id, u.id not in required, _natural(u.id))
    )
    choices = _below(ordered, 0, required, wanted, _Costs(policy, units, available))
    return list(choices[wanted][1])


def cost_of(
    policy: PreferredPolicy, units: Mapping[str, Unit], available: Sequence[str], chosen: Sequence[str]
) -> float:
    """Return what choosing `chosen` costs when `available` are free: the sum that `prefer` makes smallest."""
    costs = _Costs(policy, units, available)
    total = sum(costs.unit(units[u].device) for u in chosen)
    for i, a in enumerate(chosen):
        total += sum(costs.pair(units[a].device, units[b].device) for b in chosen[i + 1 :])
    return total


class _Costs:
    """What a unit and a pair of units cost under one policy."""

    def __init__(self, policy: PreferredPolicy, units: Mapping[str, Unit], available: Iterable[str]) -> None:
        self.together = 0 if policy == "packed" else _TOGETHER
        self.apart = (0, 0, 0, 0) if policy == "spread" else _APART
        self._weight = {"packed": -_USE, "spread": _USE}.get(policy, 0.0)
        self._used: Counter[str] = Counter()
        if self._weight:
            self._used.update(unit.device.id for unit in units.values())
            self._used.subtract(units[u].device.id for u in available if u in units)

    def unit(self, device: Device) -> float:
        return self._weight * self._used[device.id]

    def pair(self, one: Device, other: Device) -> float:
        if one.id == other.id:
            return self.together
        parted = (level for level, (a, b) in enumerate(zip(_place(one), _place(other), strict=True)) if a != b)
        return self.apart[next(parted, 3)]


def _place(device: Device) -> _Place:
    """Return where a device sits: NUMA nodes, PCIe root, the bridge above it."""
    root = str(device.attributes.get("resource.kubernetes.io/pcieRoot", ""))
    return ",".join(map(str, device.numa_nodes)), root, device.syspath.rpartition("/")[0] if root else ""


def _below(units: list[Unit], level: int, required: frozenset[str], wanted: int, costs: _Costs) -> list[_Choice]:
    """Return the cheapest choices below one node of the tree, by how many units they take beyond the required ones."""
    best: list[_Choice] = [(0.0, ())]
    forced = 0  # required units so far
    for _, group in groupby(units, key=lambda u: _place(u.device)[level] if level < 3 else u.device.id):
        members = list(group)
        if level < 3:
            choices = _below(members, level + 1, required, wanted, costs)
        else:
            choices = _of_device(members, required, wanted, costs)
        below = sum(u.id in required for u in members)
        best = _merge(best, forced, choices, below, costs.apart[level], wanted)
        forced += below
    return best


def _of_device(units: list[Unit], required: frozenset[str], wanted: int, costs: _Costs) -> list[_Choice]:
    """Units of one device are alike; the required ones come first in `units`."""
    forced = sum(u.id in required for u in units)
    each = costs.unit(units[0].device)
    counts = range(forced, min(forced + wanted, len(units)) + 1)
    return [(n * each + n * (n - 1) // 2 * costs.together, tuple(u.id for u in units[:n])) for n in counts]


def _merge(
    left: list[_Choice], left_forced: int, right: list[_Choice], right_forced: int, apart: float, wanted: int
) -> list[_Choice]:
    best: dict[int, _Choice] = {}
    for i, (left_cost, left_ids) in enumerate(left):
        for j, (right_cost, right_ids) in enumerate(right[: wanted - i + 1]):
            total = left_cost + right_cost + (left_forced + i) * (right_forced + j) * apart
            if i + j not in best or total <= best[i + j][0]:  # on a tie, the one that takes more from the left
                best[i + j] = (total, left_ids + right_ids)
    return [best[n] for n in sorted(best)]


def _natural(text: str) -> list[tuple[int, str]]:
    """Sort key under which share 10 comes after share 9."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text)]
