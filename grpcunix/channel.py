"""Channels to unix sockets, over either transport."""

import errno
import socket
from pathlib import Path
from typing import Final, Literal, TypeAlias

from grpcunix.builtin_channel import BuiltinChannel
from grpcunix.http2 import DEFAULT_LIMITS
from grpcunix.service import Channel

Transport: TypeAlias = Literal["builtin", "grpcio"]

_NOBODY: Final = (  # what is answered where nobody listens
    errno.ECONNREFUSED,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.ELOOP,
    errno.EPROTOTYPE,
    None,  # Python's own: no socket can have such a path
)


def connect(
    path: Path,
    authority: str = "localhost",
    *,
    max_message: int = DEFAULT_LIMITS.message,
    transport: Transport = "builtin",
) -> Channel:
    """Open a channel to the socket at `path`; it dials with the first call. Close it when done.

    kubelet's own clients name the authority `localhost`, and old servers reject the socket path that gRPC would send.
    `max_message` bounds a message of an answer in bytes; a larger one fails with RESOURCE_EXHAUSTED.
    """
    if transport == "builtin":
        return BuiltinChannel(path, authority, max_message)
    from grpcunix.grpcio import GrpcioChannel  # only who asks for grpcio pays for it

    return GrpcioChannel(path, authority, max_message)


def is_live(path: Path) -> bool:
    """Tell whether somebody listens at `path`. Never blocks: a full backlog counts as somebody.

    So does what cannot be found out, for want of a file descriptor or of a right: nobody is taken for gone because of
    that.
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
            return error.errno not in _NOBODY
        return True
