"""gRPC sessions of both sides, damaged and split into pieces."""

import functools
from random import Random

from grpcunix.http2 import ClientConnection, Ended, Limits, Request, ServerConnection, frames
from grpcunix.status import Status
from tests.fuzz.mutation import mutated
from tests.grpcunix.http2.fuzz import request_frames

_WORDS = (
    frames.PREFACE,
    frames.frame(frames.SETTINGS, 0, 0),
    frames.frame(frames.PING, 0, 0, bytes(8)),
    frames.rst_stream(1, frames.ErrorCode.CANCEL),
    frames.window_update(1, 1),
    frames.frame(frames.DATA, frames.END_STREAM, 1, b"\0\0\0\0\0"),
    b"\0\xff\xff\xff\xff",
)
_MAX_UNSENT = 1 << 20  # bytes of output that 4 KiB of input can cause


@functools.cache
def _sessions() -> tuple[bytes, ...]:
    client = ClientConnection("localhost", Limits(), clock=lambda: 0.0)
    client.request("/v1beta1.DevicePlugin/Allocate", b"\x0a\x03abc", 1.5)
    client.request("/v1beta1.DevicePlugin/ListAndWatch", b"", None)
    return (client.take(), *(b"".join(request_frames(Random(seed)))[:3000] for seed in range(20)))


def session(seed: int) -> str:
    """For any bytes in any pieces: complete requests or the end of the connection, and no exception."""
    source = Random(seed)
    data = mutated(source, _sessions(), _WORDS)
    server = ServerConnection(clock=lambda: 0.0)
    client = ClientConnection("localhost", Limits(message=1 << 16), clock=lambda: 0.0)
    begun = client.request("/package.Service/Method", b"x", None)
    requests, ended, at = 0, 0, 0
    while at < len(data):
        piece = data[at : at + source.choice((1, 9, 100, 5000))]
        at += len(piece)
        requests += sum(isinstance(event, Request) for event in server.receive(piece))
        ended += sum(isinstance(event, Ended) and event.stream == begun for event in client.receive(piece))
        assert len(server.take()) + len(client.take()) <= _MAX_UNSENT
    ended += sum(isinstance(event, Ended) for event in client.abandon(Status.UNAVAILABLE, "gone"))
    assert ended == 1, "a call ends once"
    return f"{min(requests, 2)} requests{', refused' if server.fault else ''}"
