"""Long-lived parts beside a test."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def running(*parts: Coroutine[Any, Any, object]) -> AsyncIterator[list[asyncio.Task[object]]]:
    """Run `parts`, and cancel all of them at the end, as a daemon does. Raises the error that ended one of them.

    Yields their tasks, for tests that wait until one ends by itself. A task that is cancelled might lose its error.
    """
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
                raise outcome


async def until(holds: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait for a condition that no event reports, such as a file's content. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.005)
