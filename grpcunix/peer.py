"""The process at the other end of a unix socket."""

import socket
import struct
from typing import Final, NamedTuple

_CREDENTIALS: Final = struct.Struct("3i")


class Peer(NamedTuple):
    """The process that connected, with its ids at that time (unix(7), `struct ucred`)."""

    pid: int  # 0: its pid namespace is not visible from here
    uid: int


def peer_of(connection: socket.socket) -> Peer:
    """Return the process that connected. Raises OSError if the socket is not a unix socket."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return Peer(pid, uid)
