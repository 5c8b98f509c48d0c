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
