"""The cheapest choice among a few devices with a distance for each pair: GPUs and their links.

Choices are extended device by device, in order, the most units first. A branch is dropped if its lower bound is not
below the best cost known. So of equally cheap choices the first one is found.

Source of the rule that the sum over all pairs counts: NVIDIA's go-gpuallocator, policy "best effort".
"""

from collections.abc import Sequence

_STEPS_OF_A_BRANCH = 10


class _TooManySteps(Exception):
    """An exact choice would take too long."""


def cheapest(
    distances: Sequence[Sequence[float]], costs: Sequence[float], room: Sequence[int], size: int, steps: int
) -> list[int] | None:
    """Return how many units each device gives so that `size` units cost least; `room` suffices for them.

    `distances` are the costs of each pair of units, by their devices (also within one device), none negative; `costs`
    are those of a single unit. None if the search takes more than `steps`.
    """
    try:
        return _Search(distances, room, steps).best(costs, size)
    except _TooManySteps:
        return None


class _Search:
    def __init__(self, distances: Sequence[Sequence[float]], room: Sequence[int], steps: int) -> None:
        self._distances = distances
        self._room = room
        self._steps = steps
        self._least = min((x for i, row in enumerate(distances) for j, x in enumerate(row) if i != j or room[i] > 1))
        self._cost = float("inf")
        self._best: list[int] = []

    def best(self, costs: Sequence[float], size: int) -> list[int]:
        self._extend([], costs, 0, size)
        return self._best + [0] * (len(self._room) - len(self._best))

    def _extend(self, counts: list[int], costs: Sequence[float], cost: float, left: int) -> None:
        """Try all choices that begin with `counts`; `costs` are those of one more unit of each device."""
        if left == 0:
            if cost < self._cost:
                self._cost, self._best = cost, counts
            return
        self._steps -= _STEPS_OF_A_BRANCH
        if self._steps < 0:
            raise _TooManySteps
        device = len(counts)
        if cost + self._bound(costs, device, left) >= self._cost:
            return
        row, own = self._distances[device], self._distances[device][device]
        after = sum(self._room[device + 1 :])
        for n in range(min(self._room[device], left), max(left - after, 0) - 1, -1):
            total = cost + costs[device] * n + own * n * (n - 1) / 2
            more = [x + n * apart for x, apart in zip(costs, row, strict=True)] if n else costs
            self._extend([*counts, n], more, total, left - n)

    def _bound(self, costs: Sequence[float], device: int, left: int) -> float:
        """Return a lower bound for the cost of `left` more units, from `device` on."""
        bound = self._least * left * (left - 1) / 2
        for each, room in sorted(zip(costs[device:], self._room[device:], strict=True)):
            taken = min(room, left)
            bound += each * taken
            left -= taken
            if left == 0:
                break
        return bound
