"""The process at the other end of a unix socket."""

import socket
import struct
from typing import Final, NamedTuple

_CREDENTIALS: Final = struct.Struct("3i")


class Peer(NamedTuple):
    """The process that connected, as it was then (unix(7), `struct ucred`)."""

    pid: int  # 0: it is in a pid namespace that cannot be seen from here
    uid: int


def peer_of(connection: socket.socket) -> Peer:
    """Return who connected. Raises OSError for a socket that is no unix socket."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return Peer(pid, uid)
