"""What a process gets from its operating system: a clock, and threads whose work is done in a random order.

Everything happens in one thread, so the same seed gives the same interleaving. Waiting costs nothing: when there is
nothing to do but to wait, it is later.
"""

import asyncio
import random
import selectors
from collections.abc import Callable
from typing import Any
from weakref import WeakSet


class Stuck(AssertionError):
    """Somebody waits, and nothing is left that could wake them."""


class Clock:
    """The time, in seconds."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.day = 1_800_000_000.0  # the time of day when the other clock was at 0; somebody may set it

    def wall(self) -> float:
        """The time of day; never twice the same."""
        self.now += 0.001
        return self.day + self.now


class _Selector(selectors.SelectSelector):
    """Lets time pass instead of waiting."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self.waiting: list[asyncio.Future[None]] = []  # for everybody else to have nothing to do

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if (timeout is None or timeout > 0) and self.waiting:
            waiting, self.waiting = self.waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)
            return []
        if timeout is None:
            raise Stuck("nothing will ever happen again")
        self._clock.now += timeout + 1e-6  # a turn of the loop takes time, too
        return []


class Loop(asyncio.SelectorEventLoop):
    """An event loop without threads: calls for them wait until a random turn of the loop."""

    def __init__(self, clock: Clock) -> None:
        self._time = _Selector(clock)
        super().__init__(self._time)
        self.random = random.Random()
        self._clock = clock
        self._timers: WeakSet[asyncio.TimerHandle] = WeakSet()
        self._calls: list[tuple[asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]]] = []

    def time(self) -> float:
        """The loop's clock goes with the other one."""
        return self._clock.now

    def run_in_executor(  # type: ignore[override]  # a future is an awaitable
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        """Have `func` done in a while, whichever thread it was meant for."""
        if getattr(executor, "_shutdown", False):
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: asyncio.Future[Any] = self.create_future()
        self._calls.append((future, func, args))
        if len(self._calls) == 1:
            self.call_soon(self._do_one)
        return future

    def call_at(  # type: ignore[override]  # what is called with what is its own business
        self, when: float, callback: Callable[..., object], *args: Any, **options: Any
    ) -> asyncio.TimerHandle:
        """Remember who is to be woken later."""
        handle = super().call_at(when, callback, *args, **options)
        self._timers.add(handle)
        return handle

    async def idle(self) -> None:
        """Return when there is nothing to do but to wait for a time."""
        future = self.create_future()
        self._time.waiting.append(future)
        await future

    def end_process(self) -> None:
        """What no thread has begun will never be done, and nobody is woken later: the process is dead."""
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
            return  # who asked is gone: a thread may have begun, or not
        try:
            result = func(*args)
        except BaseException as error:  # as an executor does
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(result)


async def turns(count: int) -> None:
    """Let others go on for some turns of the loop."""
    for _ in range(count):
        await asyncio.sleep(0)
