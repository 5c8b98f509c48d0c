"""The last reason why no lease could be written to the disk, and when the next attempt is due."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

log = logging.getLogger("nodeplug.leases")

RETRY_INTERVAL: Final = 30.0
"""Seconds after which the disk is tried again after a failed write, unless a request was written before."""


class DiskProblem:
    """The problem of one ledger; belongs to its event loop."""

    def __init__(self, check: Callable[[], None], retry_interval: float = RETRY_INTERVAL) -> None:
        """Start without a problem.

        `check` is called `retry_interval` seconds after one was found, and reports its result here.
        """
        self.text = ""  # empty if the last read or write succeeded
        self._check = check
        self._retry_interval = retry_interval
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def report(self, text: str) -> None:
        """Record a problem, or with an empty text that there is none; changes are logged."""
        if not (text or self.text):
            return
        if text != self.text:
            level = logging.ERROR if text else logging.INFO
            extra = {"is_current": lambda: self.text == text}
            log.log(level, "%s", text or "leases can be written again", extra=extra)
        self.text = text
        if self._timer is not None:
            self._timer.cancel()
        call_later = asyncio.get_running_loop().call_later
        self._timer = call_later(self._retry_interval, self._check) if text and not self._is_closed else None

    def close(self) -> None:
        """Stop trying again."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
