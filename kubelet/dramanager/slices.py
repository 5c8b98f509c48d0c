"""The kubelet deletes ResourceSlices: all of its node when it starts, a driver's when that is gone for 30 s.

It cannot know which drivers will come back, and pods must not be scheduled to devices that nobody can prepare.
Source: DRA specification, section 4.8; observations 68 and 69.
"""

import asyncio
import logging

from kubelet.clock import Clock
from kubelet.dramanager.cluster import Cluster, ClusterError

WIPING_DELAY = 30.0  # seconds
FIRST_RETRY = 1.0
LONGEST_RETRY = 300.0
ATTEMPTS = 100

log = logging.getLogger(__name__)


class SliceWiper:
    """Deletes the slices of one node, later and again if need be."""

    def __init__(self, cluster: Cluster, node_name: str, clock: Clock) -> None:
        self._cluster = cluster
        self._node_name = node_name
        self._clock = clock
        self._running: dict[str | None, asyncio.Task[None]] = {}  # by driver, None for all

    def wipe_all(self) -> None:
        """Delete the slices of all drivers, in the background."""
        self._begin(None, 0.0)

    def driver_lost(self, driver: str) -> None:
        """No instance of a driver is connected any more. What runs already goes on."""
        self._begin(driver, WIPING_DELAY)

    def driver_back(self, driver: str) -> None:
        """A driver can be used again."""
        running = self._running.pop(driver, None)
        if running is not None:
            running.cancel()

    async def stop(self) -> None:
        """Delete nothing more. Idempotent."""
        running, self._running = list(self._running.values()), {}
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _begin(self, driver: str | None, delay: float) -> None:
        if driver not in self._running:
            task = self._running[driver] = asyncio.create_task(self._wipe(driver, delay), name=f"slices of {driver}")
            task.add_done_callback(lambda done: self._done(driver, done))

    def _done(self, driver: str | None, task: asyncio.Task[None]) -> None:
        if self._running.get(driver) is task:
            del self._running[driver]

    async def _wipe(self, driver: str | None, delay: float) -> None:
        if delay:
            await self._clock.sleep(delay)
        wait = FIRST_RETRY
        for _ in range(ATTEMPTS):
            try:
                await self._cluster.delete_slices(self._node_name, driver)
            except ClusterError as error:
                log.error("deleting ResourceSlices of %s: %s", driver or "all drivers", error)
            else:
                return
            await self._clock.sleep(wait)
            wait = min(2 * wait, LONGEST_RETRY)
