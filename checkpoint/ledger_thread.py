"""The one thread that works with the database.

Only the first call needs a new thread from the system; the thread then stays. While the system has none, each call asks
for a new one: a call that was queued for an earlier attempt would be executed later, when a thread is available.
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
