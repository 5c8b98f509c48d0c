"""Channels to unix sockets."""

import socket
from pathlib import Path

import grpc.aio

_OPTIONS = [
    # channels to one path would otherwise share a subchannel, and with it the back-off after an earlier refusal
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.min_reconnect_backoff_ms", 20),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


def connect(path: Path, authority: str = "localhost") -> grpc.aio.Channel:
    """Open a channel to the socket at `path`; it dials with the first call. Close it when done.

    kubelet's own clients name the authority `localhost`, and old servers reject the socket path that gRPC would send.
    """
    return grpc.aio.insecure_channel(f"unix:{path}", options=[*_OPTIONS, ("grpc.default_authority", authority)])


def is_live(path: Path) -> bool:
    """Tell whether somebody listens at `path`. Never blocks: a full backlog counts as somebody."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True
