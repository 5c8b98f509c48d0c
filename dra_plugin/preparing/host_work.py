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

_MAX_CONCURRENT = 8  # calls of either kind; in threads they mostly wait
FAST_CALL = 0.002  # seconds; above this moving average (over about `_AVERAGED_CALLS` calls) threads write
_AVERAGED_CALLS = 8

T = TypeVar("T")


class HostWork:
    """Runs this work. Belongs to the loop."""

    def __init__(self, fast_call: float = FAST_CALL) -> None:
        """Prepare; threads start with the first call that needs one. `fast_call` in seconds, see `FAST_CALL`."""
        self._fast_call = fast_call
        self._threads = ThreadPoolExecutor(2 * _MAX_CONCURRENT, "claims")
        self._blocking_slots = asyncio.Semaphore(_MAX_CONCURRENT)
        # holding all of them excludes other writers, whatever the devices do
        self._write_slots = asyncio.Semaphore(_MAX_CONCURRENT)
        self._average_seconds = 0.0  # moving average of a call's duration
        self._active_writes = 0  # writing calls

    async def write(self, call: Callable[[], T]) -> T:
        """Run `call`, which writes or removes a few files. Raises its errors, and `HostExhausted`."""
        async with self._write_slots:
            self._active_writes += 1
            try:
                if self._average_seconds <= self._fast_call:
                    result, seconds = _timed(call)
                else:
                    result, seconds = await self.in_thread(lambda: _timed(call))
                    seconds /= self._active_writes  # threads take turns with the interpreter
            finally:
                self._active_writes -= 1
            self._average_seconds += (seconds - self._average_seconds) / _AVERAGED_CALLS
            return result

    async def run_blocking(self, call: Callable[[], T]) -> T:
        """Run `call` in a thread; it can take long. Raises its errors, and `HostExhausted`."""
        async with self._blocking_slots:
            return await self.in_thread(call)

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Prevent all other writes; the caller itself writes with `in_thread`."""
        async with AsyncExitStack() as slots:
            for _ in range(_MAX_CONCURRENT):
                await slots.enter_async_context(self._write_slots)
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
