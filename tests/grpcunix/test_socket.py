"""A socket path has a single owner."""

import asyncio
import fcntl
import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from grpcunix import Context, GrpcUnixError, SocketInUse, SocketPathTooLong, Transport, handler, is_live
from grpcunix.socket import UnixServer, _remove_if_dead, remove_dead_sockets
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from tests.descriptors import no_more_descriptors
from tests.grpcunix.hanging import start_hanging_client
from tests.running import until

SERVICE = api.DESCRIPTOR.services_by_name["DevicePlugin"]


def server_at(path: Path, transport: Transport = "builtin") -> UnixServer:
    return UnixServer(path, [handler(SERVICE, object())], transport=transport)


def leave_dead_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))


def test_dead_socket_counts_as_live_without_free_descriptors(tmp_path: Path) -> None:
    leave_dead_socket(tmp_path / "p.sock")
    with no_more_descriptors():
        assert is_live(tmp_path / "p.sock")
    assert not is_live(tmp_path / "p.sock")


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_dead_socket_counts_as_live_without_permission_to_connect(tmp_path: Path) -> None:
    leave_dead_socket(tmp_path / "p.sock")
    (tmp_path / "p.sock").chmod(0)
    os.seteuid(65534)
    try:
        assert is_live(tmp_path / "p.sock")
    finally:
        os.seteuid(0)


async def test_client_without_free_descriptors_is_logged_once_and_served_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = server_at(tmp_path / "p.sock")
    await server.start()
    with socket.socket(socket.AF_UNIX) as client:
        client.setblocking(False)
        with no_more_descriptors():
            client.connect(str(tmp_path / "p.sock"))
            await until(lambda: "out of system resource" in caplog.text)
        assert caplog.text.count("out of system resource") == 1
        assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 4096), 30)  # the server's SETTINGS
    await server.stop()


async def test_live_socket_is_never_replaced(tmp_path: Path, serving: Transport) -> None:
    path = tmp_path / "p.sock"
    with socket.socket(socket.AF_UNIX) as owner:
        owner.bind(str(path))
        owner.listen()
        with pytest.raises(SocketInUse, match=r"p\.sock: another process listens here"):
            await server_at(path, serving).start()
        assert is_live(path)
    assert os.listdir(tmp_path) == ["p.sock"]


@pytest.mark.parametrize("has_dead_socket", [False, True], ids=["free", "dead"])
async def test_one_of_several_concurrent_servers_gets_the_path(
    tmp_path: Path, serving: Transport, has_dead_socket: bool
) -> None:
    path = tmp_path / "p.sock"
    if has_dead_socket:
        leave_dead_socket(path)
    servers = [server_at(path, serving) for _ in range(8)]
    outcomes = await asyncio.gather(*(server.start() for server in servers), return_exceptions=True)
    assert [type(o) for o in outcomes].count(SocketInUse) == 7
    assert sum(server.is_in_place() for server in servers) == 1
    for server in servers:
        await server.stop()
    assert os.listdir(tmp_path) == []


async def test_dead_socket_is_replaced(tmp_path: Path, serving: Transport) -> None:
    path = tmp_path / "p.sock"
    leave_dead_socket(path)
    server = server_at(path, serving)
    await server.start()
    assert is_live(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["p.sock"]
    await server.stop()


async def test_socket_found_live_during_its_removal_is_put_back(tmp_path: Path) -> None:
    server = server_at(tmp_path / "p.sock")
    await server.start()
    assert not _remove_if_dead(server.path)  # as if an earlier check had found it dead
    assert server.is_in_place()
    assert os.listdir(tmp_path) == ["p.sock"]
    await server.stop()


async def test_lock_on_the_folder_does_not_prevent_serving(tmp_path: Path, serving: Transport) -> None:
    leave_dead_socket(tmp_path / "old.sock")
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        server = server_at(tmp_path / "p.sock", serving)
        await server.start()
        remove_dead_sockets(tmp_path, lambda name: name.endswith(".sock"))
        assert os.listdir(tmp_path) == ["p.sock"]
        await server.stop()
    finally:
        os.close(folder)


def test_temporary_sockets_of_killed_servers_are_removed(tmp_path: Path) -> None:
    for name in (".0123abcd.tmp", ".grpc.tmp", "ours.sock"):
        leave_dead_socket(tmp_path / name)
    (tmp_path / ".89abcdef.tmp").touch()  # a file of another program
    remove_dead_sockets(tmp_path, lambda name: name == "ours.sock")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".89abcdef.tmp", ".grpc.tmp"]


async def test_socket_in_an_unwritable_folder_is_an_error(serving: Transport) -> None:
    with pytest.raises((GrpcUnixError, OSError), match=r"/proc/self|No such file"):
        await server_at(Path("/proc/self/p.sock"), serving).start()


async def test_stopped_server_does_not_unlink_the_socket_of_another(tmp_path: Path, serving: Transport) -> None:
    path = tmp_path / "p.sock"
    old, new = server_at(path, serving), server_at(path, serving)
    await old.start()
    path.unlink()  # the kubelet does so when it starts
    assert not old.is_in_place()
    await new.start()
    await old.stop()
    assert new.is_in_place()
    assert is_live(path)
    await new.stop()


async def test_too_long_path_is_refused_with_the_limit(tmp_path: Path) -> None:
    with pytest.raises(SocketPathTooLong, match="the limit is 107"):
        await server_at(tmp_path / ("x" * 120)).start()


async def test_missing_folder_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await server_at(tmp_path / "missing" / "p.sock").start()


async def test_calls_of_a_hanging_client_are_ended(tmp_path: Path, serving: Transport) -> None:
    ended = asyncio.Event()

    class Endless:
        async def list_and_watch(self, _: api.Empty, context: Context) -> AsyncIterator[bytes]:
            try:
                yield b""
                await asyncio.Event().wait()
            finally:
                ended.set()

    server = UnixServer(tmp_path / "p.sock", [handler(SERVICE, Endless())], keepalive=0.1, transport=serving)
    await server.start()
    client = await start_hanging_client(server.path)
    await ended.wait()
    client.kill()
    await client.wait()
    await server.stop()
