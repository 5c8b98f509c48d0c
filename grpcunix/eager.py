"""Tasks that take their first step at once.

A handler that awaits nothing finishes before the next turn of the loop, and its answer is written together with others.
Python 3.12 has such tasks. For older versions, the first step that a new task schedules on its loop is executed here,
with the same effect: the task is the current one from its first line on.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any

if sys.version_info >= (3, 12):

    def start(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task; call it only from callbacks of `loop`. It can be done when this returns."""
        return asyncio.Task(coroutine, loop=loop, eager_start=True)

else:

    def start(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task; call it only from callbacks of `loop`. It can be done when this returns."""
        steps: list[tuple[Callable[[], object], Context]] = []
        loop.call_soon = lambda step, *, context: steps.append((step, context))  # type: ignore
        try:
            task = asyncio.Task(coroutine, loop=loop)
        finally:
            del loop.call_soon
        ((step, context),) = steps
        context.run(step)
        return task
