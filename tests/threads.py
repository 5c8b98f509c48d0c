"""A process that gets no thread any more."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager

_TOO_LARGE = 1 << 46  # bytes; more than the kernel maps for a process, be it root's


@contextmanager
def no_more_threads() -> Iterator[None]:
    """Have the kernel refuse this process any other thread, as where a node or a cgroup has its most."""
    before = threading.stack_size(_TOO_LARGE)
    try:
        yield
    finally:
        threading.stack_size(before)


@asynccontextmanager
async def no_free_threads() -> AsyncIterator[None]:
    """Have the loop without a thread of its own, too."""
    with no_more_threads():
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))  # which is to start its first
        yield
