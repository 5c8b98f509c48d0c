"""The operating system of a process: a clock, and threads whose work is done in a random order.

All work runs in one thread, so that a seed determines the interleaving. Waiting takes no real time: when the process
only waits, the clock jumps.
"""

import asyncio
import random
import selectors
from collections.abc import Callable
from typing import Any
from weakref import WeakSet


class Stuck(AssertionError):
    """A task waits, and nothing is left that could wake it."""


class Clock:
    """The time in seconds."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.day = 1_800_000_000.0  # the time of day when `now` was 0; steps can set it

    def wall(self) -> float:
        """The time of day; never the same twice."""
        self.now += 0.001
        return self.day + self.now


class _Selector(selectors.SelectSelector):
    """Advances the clock instead of waiting."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self.waiting: list[asyncio.Future[None]] = []  # set when all tasks wait

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if (timeout is None or timeout > 0) and self.waiting:
            waiting, self.waiting = self.waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)
            return []
        if timeout is None:
            raise Stuck("nothing will ever happen again")
        self._clock.now += timeout + 1e-6  # an iteration of the loop takes time as well
        return []


class Loop(asyncio.SelectorEventLoop):
    """An event loop without threads: calls for threads run in a random iteration of the loop."""

    def __init__(self, clock: Clock) -> None:
        self._time = _Selector(clock)
        super().__init__(self._time)
        self.random = random.Random()
        self._clock = clock
        self._timers: WeakSet[asyncio.TimerHandle] = WeakSet()
        self._calls: list[tuple[asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]]] = []

    def time(self) -> float:
        """The loop uses the same clock."""
        return self._clock.now

    def run_in_executor(  # type: ignore[override]  # a future is an awaitable
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        """Run `func` later, whichever executor was named."""
        if getattr(executor, "_shutdown", False):
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: asyncio.Future[Any] = self.create_future()
        self._calls.append((future, func, args))
        if len(self._calls) == 1:
            self.call_soon(self._do_one)
        return future

    def call_at(  # type: ignore[override]  # the signature is less precise
        self, when: float, callback: Callable[..., object], *args: Any, **options: Any
    ) -> asyncio.TimerHandle:
        """Record the timer, for `end_process`."""
        handle = super().call_at(when, callback, *args, **options)
        self._timers.add(handle)
        return handle

    async def idle(self) -> None:
        """Wait until all tasks wait for a time."""
        future = self.create_future()
        self._time.waiting.append(future)
        await future

    def end_process(self) -> None:
        """Drop calls that no thread has started, and all timers: the process is dead."""
        self._calls.clear()
        for timer in self._timers:
            timer.cancel()

    def _do_one(self) -> None:
        if not self._calls:
            return
        if self.random.random() < 0.3:
            self.call_soon(self._do_one)
            return
        future, func, args = self._calls.pop(self.random.randrange(len(self._calls)))
        if self._calls:
            self.call_soon(self._do_one)
        if future.cancelled() and self.random.random() < 0.5:
            return  # the caller is gone: a thread might have started the call, or not
        try:
            result = func(*args)
        except BaseException as error:  # as an executor does
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(result)


async def turns(count: int) -> None:
    """Let other tasks run for some iterations of the loop."""
    for _ in range(count):
        await asyncio.sleep(0)
