"""Tests without a free thread."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager

_TOO_LARGE = 1 << 46  # bytes; more than the kernel maps for any process, including root's


@contextmanager
def no_more_threads() -> Iterator[None]:
    """Make the kernel refuse this process every new thread, as at the limit of a node or a cgroup."""
    before = threading.stack_size(_TOO_LARGE)
    try:
        yield
    finally:
        threading.stack_size(before)


@asynccontextmanager
async def no_free_threads() -> AsyncIterator[None]:
    """Additionally leave the event loop without a worker thread."""
    with no_more_threads():
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))  # it has not started its first thread
        yield
