"""The last reason why no lease could be written to the disk, and when the next attempt is due."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

log = logging.getLogger("nodeplug.leases")

AGAIN: Final = 30.0
"""Seconds after which a disk that refused is tried again, unless a request was written before."""


class DiskProblem:
    """The problem of one ledger; belongs to its event loop."""

    def __init__(self, check: Callable[[], None], again: float = AGAIN) -> None:
        """Start without a problem.

        `check` is called `again` seconds after one was found, and reports its result here.
        """
        self.words = ""  # empty if the last read or write succeeded
        self._check = check
        self._again = again
        self._later: asyncio.TimerHandle | None = None
        self._is_closed = False

    def found(self, words: str) -> None:
        """Record a problem, or with an empty text that there is none; changes are logged."""
        if not (words or self.words):
            return
        if words != self.words:
            level = logging.ERROR if words else logging.INFO
            extra = {"is_current": lambda: self.words == words}
            log.log(level, "%s", words or "leases can be written again", extra=extra)
        self.words = words
        if self._later is not None:
            self._later.cancel()
        later = asyncio.get_running_loop().call_later
        self._later = later(self._again, self._check) if words and not self._is_closed else None

    def close(self) -> None:
        """Stop trying again."""
        self._is_closed = True
        if self._later is not None:
            self._later.cancel()
