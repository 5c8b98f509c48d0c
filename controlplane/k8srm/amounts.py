"""Amounts of resources split over devices.

A claim requests a sum over all devices that it gets. Devices with the same blocks and the same remaining amounts have
the same shape; a split is how many devices of each shape provide how much. Fewer devices come first. For the same
devices there are two kinds of split: as evenly as possible, and with all devices but one used up. Rules: each device
provides at least one block of everything requested; portions are whole blocks; a limit applies to the sum of the
portions. Amounts are integers in billionths. Source: allocator specification 6.3.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, islice
from math import lcm

from msgspec import Struct

from controlplane.structured.capacity import billionths
from resourceapi.objects import Quantity
from resourceapi.objects.quantity import Format

Amounts = Mapping[str, int]

UNIT = 10**9
_MAX_SPLITS = 1000
_MAX_CHOICES = 1000  # for each number of devices
_MAX_STEPS = 10_000  # for each number of devices


class Supply(Struct, frozen=True, order=True):
    """What a device can still provide of one resource, in whole blocks."""

    name: str
    block: int
    usable: int


class DeviceShape(Struct, frozen=True):
    """What a device can still provide of everything requested; resources are in the order of their names."""

    supplies: tuple[Supply, ...]


class Slot(Struct, frozen=True):
    """Devices of one shape that provide the same portions. Without a shape: whole devices."""

    count: int
    shape: DeviceShape | None = None
    portions: tuple[tuple[str, int], ...] = ()


class Demand(Struct, frozen=True):
    """The minimum and maximum number of devices, the amounts requested in total, and the limits of the totals."""

    minimum: int
    maximum: int
    amounts: Amounts = {}
    limits: Amounts = {}


def quantity_of(amount: int, fmt: Format = "DecimalSI") -> Quantity:
    """Return billionths as a quantity, written with suffixes of that format."""
    whole, rest = divmod(amount, UNIT)
    return Quantity.of(amount, fmt, exponent=-9) if rest else Quantity.of(whole, fmt)


def in_blocks(amount: int, block: int) -> int:
    """Return the amount rounded up to whole blocks."""
    return -(-amount // block) * block


def block_of(block_size: Quantity | None) -> int:
    """Return the size of a block; 1 if it is missing or not positive."""
    return UNIT if block_size is None or block_size.sign <= 0 else billionths(block_size)


def splits(demand: Demand, available: Mapping[DeviceShape, int]) -> Iterator[tuple[Slot, ...]]:
    """Return the ways to satisfy a demand with these numbers of devices per shape, the fewest devices first.

    The search has limits: with very many shapes of devices, unusual ways can be missed.
    """
    return islice(_all_splits(demand, available), _MAX_SPLITS)


def _all_splits(demand: Demand, available: Mapping[DeviceShape, int]) -> Iterator[tuple[Slot, ...]]:
    max_devices = min(demand.maximum, sum(available.values()))
    choices = _Choices(demand, available, max_devices)
    for number in range(max(demand.minimum, 1), max_devices + 1):
        for chosen in islice(choices.of_size(number), _MAX_CHOICES):
            offered: set[tuple[Slot, ...]] = set()
            for portions in _portions(demand, chosen):
                split = _slots_of(chosen, portions)
                if split not in offered:
                    offered.add(split)
                    yield split


class _Choices:
    """The ways to choose devices, by shape, that together have the requested amounts.

    As many as possible of the largest come first. Dead ends are found early: the rest of a choice is bounded by the
    most that this number of devices can provide of each resource, and of all resources added up, because a device with
    much of one resource can have little of another.
    """

    def __init__(self, demand: Demand, available: Mapping[DeviceShape, int], max_devices: int) -> None:
        self._shapes = sorted(available, key=lambda shape: tuple(-supply.usable for supply in shape.supplies))
        self._counts = [available[shape] for shape in self._shapes]
        wanted = [demand.amounts[name] for name in sorted(demand.amounts)]
        whole = lcm(*wanted)  # a common multiple, so that each resource has the same weight in the sum
        self._wanted = [*wanted, whole * len(wanted)]
        self._provided = []
        for shape in self._shapes:
            usable = [min(supply.usable, amount) for supply, amount in zip(shape.supplies, wanted, strict=True)]
            weighted_sum = sum(amount * (whole // requested) for amount, requested in zip(usable, wanted, strict=True))
            self._provided.append([*usable, weighted_sum])
        self._largest = [self._largest_sums(place, max_devices) for place in range(len(self._wanted))]
        self._steps = 0

    def of_size(self, number: int) -> Iterator[tuple[DeviceShape, ...]]:
        """Return the choices of this number of devices."""
        self._steps = 0
        return self._choose(0, number, self._wanted)

    def _choose(self, first: int, number: int, wanted: Sequence[int]) -> Iterator[tuple[DeviceShape, ...]]:
        if number == 0:
            if all(amount <= 0 for amount in wanted):
                yield ()
            return
        for index in range(first, len(self._shapes)):
            self._steps += 1
            if self._steps > _MAX_STEPS or len(self._largest[0][index]) <= number:
                return
            if any(amount > best[index][number] for amount, best in zip(wanted, self._largest, strict=True)):
                return
            for count in range(min(self._counts[index], number), 0, -1):
                left = [
                    amount - count * provided for amount, provided in zip(wanted, self._provided[index], strict=True)
                ]
                for others in self._choose(index + 1, number - count, left):
                    yield (self._shapes[index],) * count + others

    def _largest_sums(self, place: int, max_devices: int) -> list[list[int]]:
        """By index and number: the most that this number of devices of the shapes from the index on can provide."""
        largest: list[int] = []
        sums = []
        for provided, count in zip(reversed(self._provided), reversed(self._counts), strict=True):
            largest = sorted([*largest, *[provided[place]] * min(count, max_devices)], reverse=True)[:max_devices]
            sums.append(list(accumulate(largest, initial=0)))
        return sums[::-1]


def _portions(demand: Demand, chosen: Sequence[DeviceShape]) -> Iterator[list[dict[str, int]]]:
    """What each device provides: first evenly, then for each shape with its last device providing the rest."""
    orders: list[Sequence[int] | None] = [None]
    for last in dict.fromkeys(chosen):
        rest = len(chosen) - 1 - list(reversed(chosen)).index(last)
        orders.append([*(i for i in range(len(chosen)) if i != rest), rest])
    for order in orders:
        portions: list[dict[str, int]] = [{} for _ in chosen]
        for index, name in enumerate(sorted(demand.amounts)):
            supplies = [shape.supplies[index] for shape in chosen]
            wanted = demand.amounts[name]
            amounts = _even_amounts(wanted, supplies) if order is None else _drained_amounts(wanted, supplies, order)
            if sum(amounts) < wanted or sum(amounts) > demand.limits.get(name, sum(amounts)):
                break
            for portion, amount in zip(portions, amounts, strict=True):
                portion[name] = amount
        else:
            yield portions


def _even_amounts(wanted: int, supplies: Sequence[Supply]) -> list[int]:
    amounts = [0] * len(supplies)
    left = wanted
    by_size = sorted(range(len(supplies)), key=lambda i: supplies[i].usable)
    for place, i in enumerate(by_size):
        share = -(-max(left, 1) // (len(by_size) - place))
        amounts[i] = min(in_blocks(share, supplies[i].block), supplies[i].usable)
        left -= amounts[i]
    return amounts


def _drained_amounts(wanted: int, supplies: Sequence[Supply], order: Sequence[int]) -> list[int]:
    """Devices earlier in the order provide all they have, except that each later one keeps at least one block."""
    amounts = [0] * len(supplies)
    left = wanted
    for place, i in enumerate(order):
        reserved = sum(supplies[j].block for j in order[place + 1 :])
        share = max(left - reserved, 1)
        amounts[i] = min(in_blocks(share, supplies[i].block), supplies[i].usable)
        left -= amounts[i]
    return amounts


def _slots_of(chosen: Sequence[DeviceShape], portions: Sequence[Mapping[str, int]]) -> tuple[Slot, ...]:
    counts: dict[tuple[DeviceShape, tuple[tuple[str, int], ...]], int] = {}
    for shape, portion in zip(chosen, portions, strict=True):
        key = (shape, tuple(sorted(portion.items())))
        counts[key] = counts.get(key, 0) + 1
    return tuple(Slot(count, shape, portion) for (shape, portion), count in counts.items())
