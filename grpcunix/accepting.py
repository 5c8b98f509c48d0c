"""Servers of asyncio in a process that may have no descriptor left.

asyncio accepts as many connections in a row as it thinks may wait. Where none can be accepted it says so for each of
them and tries again for each a second later, each time for as many: within seconds it does nothing else, and the log
has a hundred thousand lines. So it is told that one may wait, and the kernel that more may.

Source: asyncio, selector_events.py (_accept_connection), in Python 3.11 to 3.13.
"""

import asyncio
from typing import Final

ONE_AT_ONCE: Final = 1
"""`backlog` for asyncio."""
_WAITING: Final = 100  # connections that the kernel keeps


def let_others_wait(server: asyncio.Server) -> None:
    """Have the kernel keep connections for a server that was started with `ONE_AT_ONCE`."""
    for each in server.sockets:
        with each.dup() as same:
            same.listen(_WAITING)
