"""Many connections at once: floods share the server's time, and the process with the most connections loses some."""

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from grpcunix import Client, Messages, RpcError, connect
from grpcunix.http2 import Limits, frames
from grpcunix.http2.frames import ErrorCode
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from tests.grpcunix.attacks import request
from tests.grpcunix.serving import SERVICE, Waiting, serving

HELLO = frames.PREFACE + frames.frame(frames.SETTINGS, 0, 0)
CROWD = """
import socket, sys
crowd = []
for _ in range(10):
    crowd.append(socket.socket(socket.AF_UNIX))
    crowd[-1].connect(sys.argv[1])
    crowd[-1].recv(9)
print(flush=True)
sys.stdin.read()
"""


async def test_flooding_clients_are_served_in_turns_with_other_clients(socket_dir: Path) -> None:
    server = await serving(socket_dir, Waiting())
    asked = b"".join(request(stream, "Unknown") for stream in range(1, 401, 2))
    floods = [await asyncio.open_unix_connection(str(socket_dir / "p.sock")) for _ in range(30)]
    for reader, writer in floods:
        await reader.readexactly(9)
        writer.write(HELLO + asked)
    async with connect(socket_dir / "p.sock") as channel:
        with pytest.raises(RpcError):
            await Client(channel, SERVICE).call("GetDevicePluginOptions", api.Empty(), timeout=20)
    answered = sum(endpoint._connection._last // 2 for endpoint in server.endpoints)
    assert answered < 3 * 16 * len(floods)  # each got about as many answers as one round allows
    for _, writer in floods:
        writer.close()
    await server.stop(None)


async def test_idle_connections_are_evicted_when_limit_is_reached(socket_dir: Path) -> None:
    limits = Limits(connections_guaranteed=2, connections_total=3)
    server = await serving(socket_dir, Waiting(), limits)
    listed = asyncio.Event()

    async def watch(stream: Messages) -> None:
        with contextlib.suppress(RpcError):
            async for _ in stream:
                listed.set()

    async with connect(socket_dir / "p.sock") as watching, connect(socket_dir / "p.sock") as late:
        stream = Client(watching, SERVICE).stream("ListAndWatch", api.Empty())
        watcher = asyncio.create_task(watch(stream))
        await listed.wait()
        idle = []
        for _ in range(10):
            idle.append(await asyncio.open_unix_connection(str(socket_dir / "p.sock")))
            await idle[-1][0].readexactly(9)
        for reader, _ in idle[:-2]:
            assert (await reader.read()).endswith(frames.goaway(0, ErrorCode.NO_ERROR, "the server stops"))
        with pytest.raises(RpcError, match="UNIMPLEMENTED"):
            await Client(late, SERVICE).call("Allocate", api.AllocateRequest(), timeout=20)
        assert sum(len(endpoint.calls) for endpoint in server.endpoints) == 1  # connections with a call are kept
        for _, writer in idle:
            writer.close()
        stream.cancel()
        await watcher
    await server.stop(None)
    assert server.shared.connections == 0


async def test_connections_of_the_process_with_most_are_evicted_first(socket_dir: Path) -> None:
    server = await serving(socket_dir, Waiting(), Limits(connections_guaranteed=2, connections_total=4))
    reader, writer = await asyncio.open_unix_connection(str(socket_dir / "p.sock"))  # quiet for longer than all others
    await reader.readexactly(9)
    (quiet,) = server.endpoints
    crowd = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CROWD, str(socket_dir / "p.sock"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert crowd.stdin is not None
    assert crowd.stdout is not None
    await crowd.stdout.readline()
    assert [endpoint.pid for endpoint in server.endpoints if endpoint is not quiet] == [crowd.pid] * 3
    assert quiet in server.endpoints
    crowd.stdin.close()
    await crowd.wait()
    writer.close()
    await server.stop(None)


async def test_connections_that_never_called_are_evicted_before_those_that_did(socket_dir: Path) -> None:
    server = await serving(socket_dir, Waiting(), Limits(connections_guaranteed=2, connections_total=3))
    async with connect(socket_dir / "p.sock") as channel:
        client = Client(channel, SERVICE)
        stream = client.stream("ListAndWatch", api.Empty())
        await anext(aiter(stream))
        (known,) = server.endpoints
        (call,) = known.calls.values()
        stream.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call.task
        strangers = []
        for _ in range(5):
            strangers.append(await asyncio.open_unix_connection(str(socket_dir / "p.sock")))
            await strangers[-1][0].readexactly(9)
        assert known in server.endpoints
        for _, writer in strangers:
            writer.close()
    await server.stop(None)
