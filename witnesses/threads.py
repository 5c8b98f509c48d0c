"""Calls a witness in a thread, so that the loop does not block."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(question: Callable[[], T | None]) -> T | None:
    """Return what is answered; None where no thread is left to ask in, which says nothing of who holds what."""
    is_wanted = True

    def answer() -> T | None:
        return question() if is_wanted else None  # an executor keeps what it had no thread for, and asks beside others

    try:
        return await asyncio.to_thread(answer)
    except RuntimeError:
        return None
    finally:
        is_wanted = False
