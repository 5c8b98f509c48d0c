"""Shared counters: they keep the scheduler from allocating two devices that exclude each other.

The rule is that of leases (checkpoint/lease.py): an exclusive holder of an id excludes every other holder of it, and
shared holders exclude only exclusive ones. As a counter: an exclusive holder takes all of it, a shared holder takes
one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

from hostdevices import device_id
from resourceapi.objects import Quantity, v1

MAX_SETS_PER_DEVICE = 2  # that one device can draw on
MAX_COUNTERS = 32  # in one set
FULL_VALUE = 65536
"""The value of the counter for an id: larger than the number of parts of any device."""

_FULL, _ONE = v1.Counter(value=Quantity.of(FULL_VALUE)), v1.Counter(value=Quantity.of(1))
_Pair: TypeAlias = frozenset[str]


class Excluding(Protocol):
    """A device as far as counters are concerned."""

    @property
    def exclusive(self) -> frozenset[str]:
        """Return the ids that the device takes as a whole."""
        ...

    @property
    def shared(self) -> frozenset[str]:
        """Return the ids that the device takes a part of."""
        ...

    @property
    def partition(self) -> str:
        """Return the partition that the device is, which also draws on its layout's counters; empty for a whole one."""
        ...


class Counters(Struct, frozen=True):
    """Sets of counters by name, and what each device takes from them. `left_out` are devices beyond the limits."""

    sets: Mapping[str, v1.CounterSet] = {}
    taken: Mapping[str, tuple[v1.DeviceCounterConsumption, ...]] = {}
    left_out: Mapping[str, str] = {}


def exclusion(devices: Mapping[str, Excluding]) -> Counters:
    """Return the counters for all devices that exclude each other, by name; most devices have none."""
    exclusive, shared = _by_id(devices)
    contested = {i: [*names, *shared.get(i, ())] for i, names in exclusive.items() if len(names) > 1 or i in shared}
    if not contested:
        return Counters()
    taken: dict[str, list[v1.DeviceCounterConsumption]] = {}
    sets: dict[str, v1.CounterSet] = {}
    for ids in _sets(_needed(contested, exclusive), contested):
        name = device_id("shared", ids[0])
        sets[name] = v1.CounterSet(name=name, counters=dict.fromkeys(ids, _FULL))
        for device in sorted({device for i in ids for device in contested[i]}):
            amounts = {i: _FULL if device in exclusive[i] else _ONE for i in ids if device in contested[i]}
            taken.setdefault(device, []).append(v1.DeviceCounterConsumption(counter_set=name, counters=amounts))
    left_out = {
        device: f"it shares counter sets with other devices: {len(consumed)}, and the limit for a device is"
        f" {MAX_SETS_PER_DEVICE}"
        for device, consumed in taken.items()
        if len(consumed) + bool(devices[device].partition) > MAX_SETS_PER_DEVICE
    }
    return Counters(sets, {x: tuple(consumed) for x, consumed in taken.items() if x not in left_out}, left_out)


def _by_id(devices: Mapping[str, Excluding]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return by id the names of the devices that have it exclusively, and of those that only share it."""
    exclusive: dict[str, list[str]] = {}
    shared: dict[str, list[str]] = {}
    for name in sorted(devices):
        own = devices[name].exclusive
        for i in own:
            exclusive.setdefault(i, []).append(name)
        for i in devices[name].shared - own:
            shared.setdefault(i, []).append(name)
    return exclusive, shared


def _needed(contested: Mapping[str, Sequence[str]], exclusive: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the ids that keep all devices apart.

    Two devices need one counter, however many ids they have in common.
    """
    apart: set[_Pair] = set()
    needed: list[str] = []
    for i in sorted(contested, key=lambda i: (-len(contested[i]), i)):
        pairs = {frozenset((x, y)) for x in exclusive[i] for y in contested[i] if x != y}
        if not pairs <= apart:
            apart |= pairs
            needed.append(i)
    return needed


def _sets(ids: Iterable[str], contested: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    """Yield the ids in sets: ids with a device in common are together, and no set exceeds the limit."""
    group_of: dict[str, list[str]] = {}  # by device: the ids in the same group as the device's own
    for i in ids:
        merged = [i]
        for group in _distinct(group_of[device] for device in contested[i] if device in group_of):
            merged += group
        group_of.update((device, merged) for j in merged for device in contested[j])
    for group in _distinct(group_of.values()):
        ordered = sorted(group)
        for start in range(0, len(ordered), MAX_COUNTERS):
            yield ordered[start : start + MAX_COUNTERS]


def _distinct(groups: Iterable[list[str]]) -> list[list[str]]:
    """Return each list object once. Equal lists that are different objects stay."""
    return list({id(group): group for group in groups}.values())
