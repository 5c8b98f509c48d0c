"""The kubelet deletes ResourceSlices: all of its node when it starts, a driver's when that is gone for 30 s.

It cannot know which drivers will come back, and pods must not be scheduled to devices that nobody can prepare.
Source: DRA specification, section 4.8; observations 68 and 69.
"""

import asyncio
import logging
from functools import partial

from kubelet.clock import Clock, Timer
from kubelet.dramanager.cluster import Cluster, ClusterError

WIPING_DELAY = 30.0  # seconds
FIRST_RETRY = 1.0
LONGEST_RETRY = 300.0  # where the wait would grow beyond it there is no further attempt: a Go Backoff ends at its cap

log = logging.getLogger(__name__)


class SliceWiper:
    """Deletes the slices of one node, later and again if need be."""

    def __init__(self, cluster: Cluster, node_name: str, clock: Clock) -> None:
        self._cluster = cluster
        self._node_name = node_name
        self._clock = clock
        self._due: dict[str, Timer] = {}  # by driver
        self._wiping: dict[str | None, asyncio.Task[None]] = {}  # by driver, None for all
        self._tasks: set[asyncio.Task[None]] = set()

    def wipe_all(self) -> None:
        """Delete the slices of all drivers, in the background."""
        self._begin(None)

    def driver_lost(self, driver: str) -> None:
        """No instance of a driver is connected any more. What runs already goes on."""
        if driver not in self._due and driver not in self._wiping:
            self._due[driver] = self._clock.call_later(WIPING_DELAY, partial(self._begin, driver))

    def driver_back(self, driver: str) -> None:
        """A driver can be used again. A deletion that has begun is not called off, not even between its attempts."""
        due = self._due.pop(driver, None)
        if due is not None:
            due.cancel()
        self._wiping.pop(driver, None)

    async def stop(self) -> None:
        """Delete nothing more. Idempotent."""
        for due in self._due.values():
            due.cancel()
        self._due.clear()
        running = list(self._tasks)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _begin(self, driver: str | None) -> None:
        if driver is not None:
            self._due.pop(driver, None)
        task = self._wiping[driver] = asyncio.create_task(self._wipe(driver), name=f"slices of {driver}")
        self._tasks.add(task)
        task.add_done_callback(partial(self._done, driver))

    def _done(self, driver: str | None, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._wiping.get(driver) is task:
            del self._wiping[driver]

    async def _wipe(self, driver: str | None) -> None:
        wait = FIRST_RETRY
        while wait <= LONGEST_RETRY:
            try:
                await self._cluster.delete_slices(self._node_name, driver)
            except ClusterError as error:
                log.error("deleting ResourceSlices of %s: %s", driver or "all drivers", error)
            else:
                return
            await self._clock.sleep(wait)
            wait *= 2
