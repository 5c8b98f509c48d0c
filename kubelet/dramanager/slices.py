"""Deletes ResourceSlices: all of the node when the kubelet starts, a driver's when the driver is gone for 30 s.

The kubelet cannot know which drivers will return, and pods must not be scheduled to devices that cannot be prepared.
Source: DRA specification, section 4.8; observations 68 and 69.
"""

import asyncio
import logging
from functools import partial

from kubelet.clock import Clock, Timer
from kubelet.dramanager.cluster import Cluster, ClusterError

WIPING_DELAY = 30.0  # seconds
FIRST_RETRY = 1.0
MAX_RETRY = 300.0  # no further attempt when the delay would exceed this: a Go Backoff ends at its cap

log = logging.getLogger(__name__)


class SliceWiper:
    """Deletes the slices of one node, after a delay, with retries."""

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

    def driver_disconnected(self, driver: str) -> None:
        """Schedule the deletion for a driver without a connected instance; one in progress continues."""
        if driver not in self._due and driver not in self._wiping:
            self._due[driver] = self._clock.call_later(WIPING_DELAY, partial(self._begin, driver))

    def driver_connected(self, driver: str) -> None:
        """Cancel the scheduled deletion of a driver that is back; a deletion that has begun continues, with retries."""
        due = self._due.pop(driver, None)
        if due is not None:
            due.cancel()
        self._wiping.pop(driver, None)

    async def stop(self) -> None:
        """Cancel all deletions. Idempotent."""
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
        while wait <= MAX_RETRY:
            try:
                await self._cluster.delete_slices(self._node_name, driver)
            except ClusterError as error:
                log.error("deleting ResourceSlices of %s: %s", driver or "all drivers", error)
            else:
                return
            await self._clock.sleep(wait)
            wait *= 2
