"""Connections that end at any point: after each frame of a client, after each byte of a server."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from grpcunix import Client, RpcError, Status, connect
from grpcunix.http2 import frames
from grpcunix.http2.frames import ErrorCode, frame
from grpcunix.http2.hpack import encode
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from tests.grpcunix.attacks import request
from tests.grpcunix.serving import SERVICE, Waiting, serving

GOAWAY = frames.goaway(0, ErrorCode.NO_ERROR, "")
END = frame(frames.DATA, frames.END_STREAM, 1)

CLIENT = [
    frames.PREFACE + frame(frames.SETTINGS, 0, 0),
    request(1, "ListAndWatch", None),
    frame(frames.DATA, 0, 1, b"\0\0"),
    frame(frames.DATA, frames.END_STREAM, 1, b"\0\0\0"),
    frame(frames.SETTINGS, frames.ACK, 0),
    frame(frames.PING, 0, 0, bytes(8)),
    frames.window_update(1, 9),
    request(3, "ListAndWatch"),
]


@pytest.mark.parametrize("ending", ["close", "half-close", "goaway", "reset", "end of stream"])
async def test_client_that_ends_after_any_frame_leaves_no_state(socket_dir: Path, ending: str) -> None:
    waiting = Waiting()
    server = await serving(socket_dir, waiting)
    for count in range(1, len(CLIENT) + 1):
        reader, writer = await asyncio.open_unix_connection(str(socket_dir / "p.sock"))
        await reader.readexactly(9)  # the server has accepted it
        writer.write(b"".join(CLIENT[:count]))
        if ending == "half-close":
            writer.write_eof()
        elif ending == "goaway":
            writer.write(GOAWAY)
        elif ending == "reset" and count > 1:
            writer.write(frames.rst_stream(1, ErrorCode.CANCEL))
        elif ending == "end of stream":
            writer.write(END)
        if ending != "half-close":
            writer.write(frame(frames.PING, 0, 0, b"lastping"))
        with contextlib.suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"lastping")  # the server has processed everything
        lost = [endpoint.lost for endpoint in server.endpoints]
        writer.close()
        if lost:
            await asyncio.wait(lost, timeout=30)
        await asyncio.sleep(0)  # the turn in which cancelled calls end
        assert (waiting.running, server.shared.streams, server.shared.unfinished, len(server.endpoints)) == (0, 0, 0, 0)
    await server.stop(None)


async def test_client_that_never_reads_is_disconnected(socket_dir: Path) -> None:
    server = await serving(socket_dir, Waiting())
    reader, writer = await asyncio.open_unix_connection(str(socket_dir / "p.sock"), limit=1)
    await reader.readexactly(9)
    (endpoint,) = server.endpoints
    endpoint._connection._frame_budget.credit = 1 << 30  # as if it had collected for a month
    writer.write(CLIENT[0] + frame(frames.PING, 0, 0, bytes(8)) * 40_000)
    await asyncio.wait_for(endpoint.lost, 30)
    writer.close()
    await server.stop(None)


ANSWER = [
    frame(frames.SETTINGS, 0, 0),
    frame(frames.SETTINGS, frames.ACK, 0),
    frame(
        frames.HEADERS,
        frames.END_HEADERS,
        1,
        encode([(b":status", b"200"), (b"content-type", b"application/grpc")]),
    ),
    frame(frames.DATA, 0, 1, b"\0\0\0\0\0"),
    frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, 1, encode([(b"grpc-status", b"0")])),
]


async def _call(path: Path, answer: bytes, *, keeps_open: bool = False) -> Status:
    """Call a server that sends `answer` to each connection, for any request."""
    connections = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(asyncio.current_task())
        await reader.readuntil(frame(frames.DATA, frames.END_STREAM, 1, b"\0\0\0\0\0"))
        writer.write(answer)
        if keeps_open:
            await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(serve, path)
    try:
        async with connect(path, transport="builtin") as channel, asyncio.timeout(30):
            try:
                await Client(channel, SERVICE).call("GetDevicePluginOptions", api.Empty())
            except RpcError as error:
                return error.code
            return Status.OK
    finally:
        server.close()
        await asyncio.gather(*filter(None, connections), return_exceptions=True)
        path.unlink(missing_ok=True)  # asyncio itself does so since 3.13


async def test_call_is_unavailable_when_server_ends_after_any_byte(socket_dir: Path) -> None:
    whole = b"".join(ANSWER)
    for size in range(len(whole)):
        assert await _call(socket_dir / "p.sock", whole[:size]) is Status.UNAVAILABLE
    assert await _call(socket_dir / "p.sock", whole) is Status.OK


@pytest.mark.parametrize(
    ("last", "status"),
    [
        (frames.rst_stream(1, ErrorCode.CANCEL), Status.CANCELLED),
        (frames.rst_stream(1, ErrorCode.ENHANCE_YOUR_CALM), Status.RESOURCE_EXHAUSTED),
        (frames.rst_stream(1, ErrorCode.REFUSED_STREAM), Status.UNAVAILABLE),
        (frames.rst_stream(1, ErrorCode.INTERNAL_ERROR), Status.INTERNAL),
        (GOAWAY, Status.UNAVAILABLE),
        (END, Status.UNKNOWN),
        (frame(frames.PUSH_PROMISE, 0, 1, bytes(8)), Status.INTERNAL),
        (frames.settings({frames.Setting.ENABLE_PUSH: 1}), Status.INTERNAL),
        (frame(frames.DATA, 0, 1, bytes(17_000)), Status.INTERNAL),
    ],
)
@pytest.mark.parametrize("count", range(len(ANSWER)))
async def test_aborted_response_has_the_status_of_its_last_frame(
    socket_dir: Path, last: bytes, status: Status, count: int
) -> None:
    if count == 0 or (last == END and count < 3):
        status = Status.INTERNAL  # SETTINGS must come first, and HEADERS before DATA
    keeps_open = last != frames.rst_stream(1, ErrorCode.REFUSED_STREAM)  # the client retries this call
    assert await _call(socket_dir / "p.sock", b"".join(ANSWER[:count]) + last, keeps_open=keeps_open) is status
