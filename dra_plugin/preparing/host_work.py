"""Work on the host for claims: files are written, devices are reset.

Rule: files are written on the loop while the disk is fast, because handing them to a thread takes longer than writing
them; a slow disk is written by threads. Work that might wait for a device never runs on the loop, and no file waits for
it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

from hostdevices.threads import in_thread

_AT_ONCE = 8  # calls of either kind; in threads they mostly wait
QUICK = 0.002  # seconds; above this moving average (over about `_LATELY` calls) threads write
_LATELY = 8

T = TypeVar("T")


class HostWork:
    """Runs this work. Belongs to the loop."""

    def __init__(self, quick: float = QUICK) -> None:
        """Prepare; threads start with the first call that needs one. `quick` in seconds, see `QUICK`."""
        self._quick = quick
        self._threads = ThreadPoolExecutor(2 * _AT_ONCE, "claims")
        self._waits = asyncio.Semaphore(_AT_ONCE)
        # holding all of them excludes other writers, whatever the devices do
        self._writes = asyncio.Semaphore(_AT_ONCE)
        self._seconds_lately = 0.0  # moving average of a call's duration
        self._under_way = 0  # writing calls

    async def write(self, call: Callable[[], T]) -> T:
        """Run `call`, which writes or removes a few files. Raises its errors, and `HostExhausted`."""
        async with self._writes:
            self._under_way += 1
            try:
                if self._seconds_lately <= self._quick:
                    result, seconds = _timed(call)
                else:
                    result, seconds = await self.in_thread(lambda: _timed(call))
                    seconds /= self._under_way  # threads take turns with the interpreter
            finally:
                self._under_way -= 1
            self._seconds_lately += (seconds - self._seconds_lately) / _LATELY
            return result

    async def wait(self, call: Callable[[], T]) -> T:
        """Run `call` in a thread; it can take long. Raises its errors, and `HostExhausted`."""
        async with self._waits:
            return await self.in_thread(call)

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Prevent all other writes; the caller itself writes with `in_thread`."""
        async with AsyncExitStack() as slots:
            for _ in range(_AT_ONCE):
                await slots.enter_async_context(self._writes)
            yield

    async def close(self) -> None:
        """Wait until all work has ended, also that of cancelled callers."""
        try:
            await asyncio.to_thread(self._threads.shutdown)
        except RuntimeError:  # no thread is available to wait in
            self._threads.shutdown()

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Run `call` in a thread. Raises its errors, and `HostExhausted` if no thread is available."""
        return await in_thread(call, self._threads)


def _timed(call: Callable[[], T]) -> tuple[T, float]:
    began = time.perf_counter()
    return call(), time.perf_counter() - began
