"""Detects another writer of this driver's ResourceSlices: two instances would overwrite each other without any error.

If a synchronization corrects a slice although the desired state has not changed since the last one, another program
changed the slice. Slices that are created again do not count: a kubelet deleted them, or they went with their Node, and
then other slices of the pool are updated, too.
"""

import logging
import time
from collections import deque
from typing import Final

from dra_plugin.publishing.slices.publisher import Statistics

_FREQUENT: Final = (3, 600.0)  # corrections within so many seconds
_WARN_INTERVAL: Final = 3600.0  # seconds between warnings
log = logging.getLogger("nodeplug.dra")


class ConflictDetector:
    """Logs a warning if slices are corrected again and again."""

    def __init__(self) -> None:
        """Nothing is desired so far."""
        self.desired_version = 0
        """Incremented when another state is desired, or when the server might be another one."""
        # by pool: the value of `desired_version` at its last successful synchronization
        self._synced: dict[str, int] = {}
        # times of the last corrections of what others wrote
        self._corrections: deque[float] = deque(maxlen=_FREQUENT[0])
        self._warned_at = -_WARN_INTERVAL

    def note_synced(self, pool: str, version: int, before: Statistics, now: Statistics) -> None:
        """Record that a pool is as desired; `version` and `before` are the values from before the synchronization."""
        if self._synced.get(pool) == version and now.creates == before.creates and now != before:
            self._record_correction(pool)
        self._synced[pool] = version

    def _record_correction(self, pool: str) -> None:
        now, (count, seconds) = time.monotonic(), _FREQUENT
        self._corrections.append(now)
        is_frequent = len(self._corrections) == count and now - self._corrections[0] < seconds
        if is_frequent and now - self._warned_at >= _WARN_INTERVAL:
            self._warned_at = now
            log.warning(
                "ResourceSlices of pool %s are changed by another program again and again, and restored each time;"
                " check whether another nodeplug runs with the same settings.nodeName and settings.driverName",
                pool,
            )
