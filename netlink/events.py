"""The kernel's events of interfaces that are added, changed or removed, and of network namespaces that end.

An event triggers a read, and is never a fact.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable

from netlink.links import Link, decode
from netlink.messages import DELLINK, DELNSID, NEWLINK, NEWNSID, messages

_LINKS, _NAMESPACES = 1, 28  # RTNLGRP_LINK, RTNLGRP_NSID
_SOL_NETLINK, _ADD_MEMBERSHIP = 270, 1
_MAX_DATAGRAM = 1 << 16
_MAX_DATAGRAMS_PER_TURN = 64  # datagrams before the loop continues
_SOCKET_BUFFER = 1 << 20

OnLink = Callable[[Link | None], None]


class LinkEvents:
    """Calls `on_link` on the running loop with each interface of an event; None: any interface might have changed."""

    def __init__(self, on_link: OnLink) -> None:
        """Start, in the network namespace of this thread. Raises OSError."""
        self._on_link = on_link
        self._loop = asyncio.get_running_loop()
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        try:
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER)
            self._socket.bind((0, 0))
            for group in (_LINKS, _NAMESPACES):
                self._socket.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)
            self._loop.add_reader(self._socket, self._read)
        except OSError:
            self._socket.close()
            raise

    def close(self) -> None:
        """Stop."""
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for _ in range(_MAX_DATAGRAMS_PER_TURN):
                try:
                    data = self._socket.recv(_MAX_DATAGRAM)
                except BlockingIOError:
                    raise
                except OSError:  # the buffer was too small for a burst: events are lost
                    self._on_link(None)
                    return
                for each in messages(data):
                    if each.type in (NEWLINK, DELLINK):
                        self._on_link(decode(each.body))
                    elif each.type in (NEWNSID, DELNSID):
                        self._on_link(None)
