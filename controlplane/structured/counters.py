"""Counters that the devices of a pool share (partitionable devices).

Rules: a device takes everything that it draws, or nothing. A device that is allocated already, on any node, has taken
its part. If any counter of a pool is overdrawn, no device of the pool that draws on counters is available. Amounts are
integers in billionths.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from controlplane.structured.capacity import billionths
from resourceapi.objects.v1 import CounterSet, Device


class CounterName(NamedTuple):
    """A counter in a pool."""

    counter_set: str
    counter: str


Draw = Mapping[CounterName, int]
"""What one device draws on each counter, in billionths."""


def draws_of(device: Device) -> Draw:
    """What a device draws on its pool's counters; several draws on one counter add up."""
    draw: dict[CounterName, int] = {}
    for part in device.consumes_counters:
        for name, counter in part.counters.items():
            key = CounterName(part.counter_set, name)
            draw[key] = draw.get(key, 0) + billionths(counter.value)
    return draw


def declared(counter_sets: Iterable[CounterSet]) -> dict[CounterName, int]:
    """The declared amount of every counter."""
    return {
        CounterName(counter_set.name, name): billionths(counter.value)
        for counter_set in counter_sets
        for name, counter in counter_set.counters.items()
    }


class Counters:
    """One pool's counters during one search: what remains, and what the search has taken."""

    __slots__ = ("_available", "_is_overdrawn", "_order", "taken")

    def __init__(self, declared_amounts: Mapping[CounterName, int], allocated: Iterable[Draw]) -> None:
        self._order = {name: index for index, name in enumerate(declared_amounts)}
        self._available = list(declared_amounts.values())
        for draw in allocated:
            for name, amount in draw.items():
                self._available[self._order[name]] -= amount
        self._is_overdrawn = any(amount < 0 for amount in self._available)
        self.taken = [0] * len(self._available)

    def take(self, draw: Draw) -> bool:
        """Take what a device draws if every counter has enough; return whether it was taken."""
        if self._is_overdrawn:
            return False
        taken, available, order = self.taken, self._available, self._order
        for name, amount in draw.items():
            index = order[name]
            if taken[index] + amount > available[index]:
                return False
        for name, amount in draw.items():
            taken[order[name]] += amount
        return True

    def left(self) -> list[int]:
        """What remains of each counter, in the order of declaration. Negative if the pool is overdrawn."""
        if self._is_overdrawn:
            return [-1] * len(self._available)
        return [available - taken for available, taken in zip(self._available, self.taken, strict=True)]

    def give_back(self, draw: Draw) -> None:
        """Undo `take`."""
        for name, amount in draw.items():
            self.taken[self._order[name]] -= amount
