"""Long-lived parts beside a test."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def running(*parts: Coroutine[Any, Any, object]) -> AsyncIterator[list[asyncio.Task[object]]]:
    """Run `parts`, and stop them as a daemon does: all at once, by cancelling them. Raises what ended one of them.

    Their tasks are for who waits until one ends by itself: one that is cancelled at its end may not say why it ended.
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
    """Return when something holds that no event tells of, such as what is in a file. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - there is nothing to wait for
            await asyncio.sleep(0.005)
