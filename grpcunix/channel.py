"""Channels to unix sockets, over either transport."""

import errno
import socket
from pathlib import Path
from typing import Final, Literal, TypeAlias

from grpcunix.builtin_channel import BuiltinChannel
from grpcunix.http2 import DEFAULT_LIMITS
from grpcunix.service import Channel

Transport: TypeAlias = Literal["builtin", "grpcio"]

_NOT_LISTENING: Final = (  # errors that mean that no process listens
    errno.ECONNREFUSED,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.ELOOP,
    errno.EPROTOTYPE,
    None,  # Python's own error: no socket can have such a path
)


def connect(
    path: Path,
    authority: str = "localhost",
    *,
    max_message: int = DEFAULT_LIMITS.message,
    transport: Transport = "builtin",
) -> Channel:
    """Open a channel to the socket at `path`; it dials with the first call. Close it when done.

    The kubelet's own clients use the authority `localhost`, and old servers reject the socket path that gRPC would
    send. `max_message` limits a message of an answer in bytes; a larger one fails with RESOURCE_EXHAUSTED.
    """
    if transport == "builtin":
        return BuiltinChannel(path, authority, max_message)
    from grpcunix.grpcio import GrpcioChannel  # on first use: it costs memory

    return GrpcioChannel(path, authority, max_message)


def is_live(path: Path) -> bool:
    """Return whether a process listens at `path`. Never blocks: a full backlog counts as listening.

    So does a state that cannot be determined, for lack of a file descriptor or of permission: that is no evidence of
    absence.
    """
    try:
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError:
        return True
    with probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except OSError as error:
            return error.errno not in _NOT_LISTENING
        return True
