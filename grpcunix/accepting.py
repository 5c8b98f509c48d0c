"""Servers of asyncio in a process that may have no file descriptor left.

asyncio accepts up to `backlog` connections in a row. If none can be accepted, it logs an error for each of them and
tries again for each a second later, each time for as many: within seconds it does nothing else, and the log has a
hundred thousand lines. So asyncio gets the smallest possible backlog, and the kernel a larger one.

Source: asyncio, selector_events.py (_accept_connection), in Python 3.11 to 3.14; one more than may wait is accepted
since 3.14 (gh-90871), and in later ones the first that fails is the last of its row (gh-151615).
"""

import asyncio
import sys
from typing import Final

ASYNCIO_BACKLOG: Final = 0 if sys.version_info >= (3, 14) else 1
"""The `backlog` for asyncio."""
_LISTEN_BACKLOG: Final = 100  # connections in the kernel's queue


def set_kernel_backlog(server: asyncio.Server) -> None:
    """Set the kernel's queue of connections for a server that was started with `ASYNCIO_BACKLOG`."""
    for each in server.sockets:
        with each.dup() as duplicate:
            duplicate.listen(_LISTEN_BACKLOG)
