"""Clocks that are passed in, so that tests need not wait for the kubelet's grace periods of minutes."""

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from typing import Protocol

_FAKE_DAY = 1_767_225_600_000_000_000  # 2026-01-01T00:00:00Z


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call."""
        ...


class Clock(Protocol):
    """The interface of a clock."""

    def now(self) -> float:
        """Return the seconds since an arbitrary time; never goes back."""
        ...

    def wall_ns(self) -> int:
        """Return the nanoseconds since 1970, for times in files."""
        ...

    def call_later(self, seconds: float, call: Callable[[], object]) -> Timer:
        """Schedule `call` for when `seconds` have passed on this clock."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return when `seconds` have passed on this clock."""
        ...


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Return the seconds since the machine started."""
        return time.monotonic()

    def wall_ns(self) -> int:
        """Return the machine's time of day in nanoseconds since 1970."""
        return time.time_ns()

    def call_later(self, seconds: float, call: Callable[[], object]) -> Timer:
        """Schedule the call on the event loop."""
        return asyncio.get_running_loop().call_later(seconds, call)

    async def sleep(self, seconds: float) -> None:
        """Sleep on the event loop."""
        await asyncio.sleep(seconds)


class _FakeTimer:
    def __init__(self, call: Callable[[], object]) -> None:
        self.call: Callable[[], object] | None = call

    def cancel(self) -> None:
        self.call = None


class FakeClock:
    """A clock that moves only when a test moves it."""

    def __init__(self) -> None:
        """Start at zero."""
        self._now = 0.0
        self._order = itertools.count()
        self._timers: list[tuple[float, int, _FakeTimer]] = []

    def now(self) -> float:
        """Return the seconds by which the test has moved the clock."""
        return self._now

    def wall_ns(self) -> int:
        """Return 2026-01-01 plus the seconds by which the test has moved the clock, in nanoseconds since 1970."""
        return _FAKE_DAY + round(self._now * 1e9)

    def call_later(self, seconds: float, call: Callable[[], object]) -> Timer:
        """Schedule `call` for when a test has moved the clock by `seconds`."""
        timer = _FakeTimer(call)
        heapq.heappush(self._timers, (self._now + seconds, next(self._order), timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        """Wait until a test has moved the clock by `seconds`."""
        woken = asyncio.Event()
        timer = self.call_later(seconds, woken.set)
        try:
            await woken.wait()
        finally:
            timer.cancel()

    async def advance(self, seconds: float) -> None:
        """Move the clock. Timers fire at their own times, in order; the woken task runs before the next timer fires."""
        for _ in range(2):
            await asyncio.sleep(0)  # let tasks that were just started reach their first wait
        end = self._now + seconds
        while self._timers and self._timers[0][0] <= end:
            self._now, _, timer = heapq.heappop(self._timers)
            if timer.call is not None:
                timer.call()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
        self._now = end
        await asyncio.sleep(0)
