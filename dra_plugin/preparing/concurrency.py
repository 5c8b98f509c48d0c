"""Concurrent work for several claims of a call.

Most calls are for one claim: its work runs without a task, which would cost extra iterations of the loop.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


async def gather_all(works: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of all `works`, in their order. Raises the first error, as `asyncio.gather`."""
    if len(works) == 1:
        return [await works[0]]
    return await asyncio.gather(*works)
