"""The queue in which requests wait: `MAX_IDLE_CONNECTIONS` run at once, and more beside them if those take long.

That many connections are kept open, and a new TLS handshake takes longer than the wait for one of them: reading 64
claims at once takes 40 ms instead of 95, and 1 MiB instead of 14. A request waits behind slow answers for at most
`QUEUE_SECONDS`, unless `MAX_RUNNING` requests are running.
"""

import asyncio

from resourceapi.client.connections import MAX_IDLE_CONNECTIONS

MAX_RUNNING = 2 * MAX_IDLE_CONNECTIONS  # the most requests at once
QUEUE_SECONDS = 0.1  # seconds that a request waits for a regular place


class RequestQueue:
    """A queue of requests. It belongs to the event loop that uses it first."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(MAX_RUNNING)
        self._regular_places = asyncio.Semaphore(MAX_IDLE_CONNECTIONS)

    @property
    def is_free(self) -> bool:
        """Whether `enter` would return without waiting."""
        return not self._regular_places.locked() and not self._places.locked()

    async def enter(self) -> bool:
        """Wait until a request can be sent; return whether it has a regular place. Pass the result to `leave`."""
        await self._places.acquire()
        try:
            async with asyncio.timeout(QUEUE_SECONDS):
                await self._regular_places.acquire()
        except TimeoutError:
            return False
        except BaseException:
            self._places.release()
            raise
        return True

    def leave(self, is_regular: bool) -> None:
        """Make the place available to another request."""
        self._places.release()
        if is_regular:
            self._regular_places.release()
