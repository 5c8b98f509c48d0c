"""One socket, one owner."""

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from grpc.aio import ServicerContext

from grpcunix import Client, SocketInUse, SocketPathTooLong, UnixServer, connect, handler, is_live
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from tests.grpcunix.hanging import hang_listening

SERVICE = api.DESCRIPTOR.services_by_name["DevicePlugin"]


class Plugin:
    async def get_device_plugin_options(self, _: api.Empty, context: ServicerContext) -> api.DevicePluginOptions:
        return api.DevicePluginOptions(pre_start_required=True)

    async def list_and_watch(self, _: api.Empty, context: ServicerContext) -> AsyncIterator[bytes]:
        yield api.ListAndWatchResponse(devices=[api.Device(ID="a")]).SerializeToString()


def server_at(path: Path) -> UnixServer:
    return UnixServer(path, [handler(SERVICE, Plugin())])


async def test_calls_and_streams_reach_the_servicer(tmp_path: Path) -> None:
    server = server_at(tmp_path / "p.sock")
    await server.start()
    async with connect(server.path) as channel:
        client = Client(channel, SERVICE)
        assert (await client.call("GetDevicePluginOptions", api.Empty())).pre_start_required
        assert [list(m.devices) async for m in client.stream("ListAndWatch", api.Empty())] == [[api.Device(ID="a")]]
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await client.call("Allocate", api.AllocateRequest())
        assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED
    await server.stop()
    assert os.listdir(tmp_path) == []


async def test_a_live_socket_is_never_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    with socket.socket(socket.AF_UNIX) as owner:
        owner.bind(str(path))
        owner.listen()
        with pytest.raises(SocketInUse, match=r"p\.sock: another process listens here"):
            await server_at(path).start()
        assert is_live(path)
    assert os.listdir(tmp_path) == ["p.sock"]


async def test_of_two_that_start_at_once_one_wins(tmp_path: Path) -> None:
    servers = [server_at(tmp_path / "p.sock") for _ in range(8)]
    outcomes = await asyncio.gather(*(server.start() for server in servers), return_exceptions=True)
    assert [type(o) for o in outcomes].count(SocketInUse) == 7
    assert sum(server.is_in_place() for server in servers) == 1
    for server in servers:
        await server.stop()


async def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    server = server_at(path)
    await server.start()
    assert is_live(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await server.stop()


async def test_only_our_own_socket_is_unlinked(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    old, new = server_at(path), server_at(path)
    await old.start()
    path.unlink()  # as the kubelet does when it starts
    assert not old.is_in_place()
    await new.start()
    await old.stop()
    assert new.is_in_place()
    assert is_live(path)
    await new.stop()


async def test_a_path_that_is_too_long_is_named(tmp_path: Path) -> None:
    with pytest.raises(SocketPathTooLong, match="the limit is 107"):
        await server_at(tmp_path / ("x" * 120)).start()


async def test_a_missing_folder_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await server_at(tmp_path / "missing" / "p.sock").start()


async def test_a_client_that_hangs_is_noticed(tmp_path: Path) -> None:
    ended = asyncio.Event()

    class Lasting(Plugin):
        async def list_and_watch(self, _: api.Empty, context: ServicerContext) -> AsyncIterator[bytes]:
            try:
                yield b""
                await asyncio.Event().wait()
            finally:
                ended.set()

    server = UnixServer(tmp_path / "p.sock", [handler(SERVICE, Lasting())], keepalive=0.1)
    await server.start()
    client = await hang_listening(server.path)
    await ended.wait()
    client.kill()
    await client.wait()
    await server.stop()
