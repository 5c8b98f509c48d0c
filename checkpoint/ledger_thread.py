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
    """Does one call at a time, in the order in which they come."""

    def __init__(self, database: Path) -> None:
        """Prepare; `database` is for words."""
        self._database = database
        self._thread = _one_thread()
        self.has_ended = False

    async def run(self, call: Callable[..., T], *arguments: Any) -> T:
        """Return what `call` returns. Raises what it raises, and `LedgerUnavailable` where no thread is to be had."""
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
        """Have it end; nothing is called any more."""
        self._thread.shutdown(wait=False)
        self.has_ended = True


def _one_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="ledger")
