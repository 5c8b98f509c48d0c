"""Time, passed in: the kubelet's grace periods are minutes, a test's are not."""

import asyncio
import heapq
import itertools
import time
from typing import Protocol

_FAKE_DAY = 1_767_225_600_000_000_000  # 2026-01-01T00:00:00Z


class Clock(Protocol):
    """What the stand-in needs of time."""

    def now(self) -> float:
        """Seconds since an arbitrary moment; never goes back."""
        ...

    def wall_ns(self) -> int:
        """Nanoseconds since 1970, for what is written to files."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return when `seconds` have passed on this clock."""
        ...


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Seconds since the machine started."""
        return time.monotonic()

    def wall_ns(self) -> int:
        """The machine's time of day."""
        return time.time_ns()

    async def sleep(self, seconds: float) -> None:
        """Sleep on the event loop."""
        await asyncio.sleep(seconds)


class FakeClock:
    """A clock that moves only when a test moves it."""

    def __init__(self) -> None:
        """Start at zero."""
        self._now = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        """Seconds that the test has let pass."""
        return self._now

    def wall_ns(self) -> int:
        """A fixed day of 2026, and the seconds that the test has let pass."""
        return _FAKE_DAY + round(self._now * 1e9)

    async def sleep(self, seconds: float) -> None:
        """Wait until a test has moved the clock by `seconds`."""
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Move the clock; sleepers wake at their own moments, in order, and each acts before the next wakes."""
        for _ in range(2):
            await asyncio.sleep(0)  # what was begun gets to its first wait
        end = self._now + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            self._now, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
        self._now = end
        await asyncio.sleep(0)
