"""The one thread in which the database is worked with.

The first call alone needs one from the system, and keeps it. While none is to be had a new one is asked for with each
call: that of before would do its call later, once it has a thread.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from checkpoint.errors import LedgerUnavailable

T = TypeVar("T")


class LedgerThread:
    """Runs one call at a time, in the order of arrival."""

    def __init__(self, database: Path) -> None:
        """Prepare; `database` is only for error texts."""
        self._database = database
        self._thread = _one_thread()
        self.has_ended = False

    async def run(self, call: Callable[..., T], *arguments: Any) -> T:
        """Return the result of `call`. Raises its errors, and `LedgerUnavailable` if no thread can be started."""
        try:
            done = asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)
        except RuntimeError as error:
            self._thread = _one_thread()
            raise LedgerUnavailable(
                f"cannot open the lease database {self._database}: no thread is left: {error};"
                " Allocate and NodePrepareResources are refused until this is fixed"
            ) from error
        return await done

    def end(self) -> None:
        """End the thread; no call follows."""
        self._thread.shutdown(wait=False)
        self.has_ended = True


def _one_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="ledger")
