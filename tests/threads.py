"""A process that gets no thread any more."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

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
    """Have all of the loop's own threads busy, too."""
    loop, over, busy = asyncio.get_running_loop(), threading.Event(), list[asyncio.Future[bool]]()
    with no_more_threads():
        try:
            with suppress(RuntimeError):
                while True:
                    busy.append(loop.run_in_executor(None, over.wait))
            yield
        finally:
            over.set()
            await asyncio.gather(*busy)
