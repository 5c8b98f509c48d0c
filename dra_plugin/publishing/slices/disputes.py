"""Detects another program that writes our ResourceSlices, such as a second instance with the same node name.

If a comparison has to restore slices although nothing else was desired since the last one, another program has changed
them. Created slices do not count: a kubelet deletes slices, or they are deleted with their Node, and others of the pool
are then updated.
"""

import logging
import time
from collections import deque
from typing import Final

from dra_plugin.publishing.slices.publisher import Statistics

_OFTEN: Final = (3, 600.0)  # times within so many seconds
_SAID_AGAIN: Final = 3600.0  # seconds
log = logging.getLogger("nodeplug.dra")


class Disputes:
    """Says so when slices are set right again and again."""

    def __init__(self) -> None:
        """Nothing is desired so far."""
        self.desires = 0
        """How often something else was desired, or the server may be another one."""
        self._settled: dict[str, int] = {}  # the last of them with which a pool was found or made as desired
        self._set_right: deque[float] = deque(maxlen=_OFTEN[0])  # when what others wrote was, lately
        self._said_at = -_SAID_AGAIN

    def note_synced(self, pool: str, desire: int, before: Statistics, now: Statistics) -> None:
        """Note that a pool is as was desired when a look began, `desire`, and what was written before it and by now."""
        if self._settled.get(pool) == desire and now.creates == before.creates and now != before:
            self._note(pool)
        self._settled[pool] = desire

    def _note(self, pool: str) -> None:
        now, (count, seconds) = time.monotonic(), _OFTEN
        self._set_right.append(now)
        is_often = len(self._set_right) == count and now - self._set_right[0] < seconds
        if is_often and now - self._said_at >= _SAID_AGAIN:
            self._said_at = now
            log.warning(
                "ResourceSlices of pool %s are changed by another program again and again, and restored each time;"
                " check whether another nodeplug runs with the same settings.nodeName and settings.driverName",
                pool,
            )
