"""A histogram as in Prometheus: the number of observations up to each bound, and the sum of all."""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

CALL_BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds in seconds for calls of the kubelet, writes, and the time until the kubelet knows a device."""


class Histogram:
    """Counts of observations by upper bounds, ascending, with one more count for larger values."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...] = CALL_BOUNDS) -> None:
        """Start without observations."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Yield each bound, the last one infinite, with the number of values up to it."""
        total = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            yield bound, total
