"""The cheapest choice among a few devices with a distance for each pair: GPUs and their links.

Choices are extended device by device, in order, the most units first. A branch is dropped if its lower bound is not
below the best cost known. So of equally cheap choices the first one is found.

Source of the rule that the sum over all pairs counts: NVIDIA's go-gpuallocator, policy "best effort".
"""

from collections.abc import Sequence

_STEPS_PER_BRANCH = 10


class _TooManySteps(Exception):
    """An exact choice would take too long."""


def cheapest(
    distances: Sequence[Sequence[float]], costs: Sequence[float], capacity: Sequence[int], size: int, steps: int
) -> list[int] | None:
    """Return how many units each device gives so that `size` units cost least; `capacity` suffices for them.

    `distances` are the costs of each pair of units, by their devices (also within one device), none negative; `costs`
    are those of a single unit. None if the search takes more than `steps`.
    """
    try:
        return _Search(distances, capacity, steps).best(costs, size)
    except _TooManySteps:
        return None


class _Search:
    def __init__(self, distances: Sequence[Sequence[float]], capacity: Sequence[int], steps: int) -> None:
        self._distances = distances
        self._capacity = capacity
        self._steps = steps
        self._min_distance = min(
            (x for i, row in enumerate(distances) for j, x in enumerate(row) if i != j or capacity[i] > 1)
        )
        self._cost = float("inf")
        self._best: list[int] = []

    def best(self, costs: Sequence[float], size: int) -> list[int]:
        self._extend([], costs, 0, size)
        return self._best + [0] * (len(self._capacity) - len(self._best))

    def _extend(self, counts: list[int], costs: Sequence[float], cost: float, left: int) -> None:
        """Try all choices that begin with `counts`; `costs` are those of one more unit of each device."""
        if left == 0:
            if cost < self._cost:
                self._cost, self._best = cost, counts
            return
        self._steps -= _STEPS_PER_BRANCH
        if self._steps < 0:
            raise _TooManySteps
        device = len(counts)
        if cost + self._bound(costs, device, left) >= self._cost:
            return
        row, own_distance = self._distances[device], self._distances[device][device]
        after = sum(self._capacity[device + 1 :])
        for n in range(min(self._capacity[device], left), max(left - after, 0) - 1, -1):
            total = cost + costs[device] * n + own_distance * n * (n - 1) / 2
            next_costs = [x + n * distance for x, distance in zip(costs, row, strict=True)] if n else costs
            self._extend([*counts, n], next_costs, total, left - n)

    def _bound(self, costs: Sequence[float], device: int, left: int) -> float:
        """Return a lower bound for the cost of `left` more units, from `device` on."""
        bound = self._min_distance * left * (left - 1) / 2
        for each, capacity in sorted(zip(costs[device:], self._capacity[device:], strict=True)):
            count = min(capacity, left)
            bound += each * count
            left -= count
            if left == 0:
                break
        return bound
