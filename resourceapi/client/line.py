"""The queue in which requests wait: `MOST_IDLE` run at once, and more beside them if those take long.

`MOST_IDLE` connections are kept open, and a new TLS handshake takes longer than the wait for one of them: reading 64
claims at once takes 40 ms instead of 95, and 1 MiB instead of 14. A request waits behind slow answers for at most
`PATIENCE`, unless `MANY` requests are running.
"""

import asyncio

from resourceapi.client.connections import MOST_IDLE

MANY = 2 * MOST_IDLE  # the most requests at once
PATIENCE = 0.1  # seconds that a request waits for one of the `MOST_IDLE` places


class Line:
    """A queue of requests. It belongs to the event loop that uses it first."""

    def __init__(self) -> None:
        self._many = asyncio.Semaphore(MANY)
        self._few = asyncio.Semaphore(MOST_IDLE)

    @property
    def is_free(self) -> bool:
        """Whether `enter` would return without waiting."""
        return not self._few.locked() and not self._many.locked()

    async def enter(self) -> bool:
        """Wait until a request can be sent. Pass the result to `leave`."""
        await self._many.acquire()
        try:
            async with asyncio.timeout(PATIENCE):
                await self._few.acquire()
        except TimeoutError:
            return False
        except BaseException:
            self._many.release()
            raise
        return True

    def leave(self, is_one_of_few: bool) -> None:
        """Make the place available to another request."""
        self._many.release()
        if is_one_of_few:
            self._few.release()
