"""Calls a witness in a thread, so that the loop does not block."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(call: Callable[[], T | None]) -> T | None:
    """Return the result of `call`; None if no thread is available, which is no evidence about holders."""
    is_wanted = True

    def run() -> T | None:
        # an executor keeps calls that it had no thread for, and would run this one beside a later one
        return call() if is_wanted else None

    try:
        return await asyncio.to_thread(run)
    except RuntimeError:
        return None
    finally:
        is_wanted = False
