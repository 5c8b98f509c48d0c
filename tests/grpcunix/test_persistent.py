"""A server that restores its socket."""

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

from folderwatch import FolderWatcher
from grpcunix import Client, PersistentServer, handler, is_live, remove_dead_sockets
from kubelet.rpc import connect
from kubeletapi.pluginregistration.v1 import api_pb2 as api
from tests.running import running

SERVICE = api.DESCRIPTOR.services_by_name["Registration"]


class Plugin:
    async def get_info(self, request: api.InfoRequest, context: object) -> api.PluginInfo:
        return api.PluginInfo(name="p")


class Failures:
    """Collects the reported reasons, and wakes a waiting test."""

    def __init__(self) -> None:
        self.reasons: asyncio.Queue[str] = asyncio.Queue()


def fixed(path: Path) -> Callable[[], Path]:
    return lambda: path


@asynccontextmanager
async def persistent_server(path: Callable[[], Path], failures: Failures) -> AsyncIterator[PersistentServer]:
    """A server that runs meanwhile."""
    with closing(FolderWatcher()) as watcher:
        server = PersistentServer(
            path, [handler(SERVICE, Plugin())], failures.reasons.put_nowait, watcher, max_backoff=0.01
        )
        async with running(server.run()):
            yield server


async def name_at(path: Path) -> str:
    """Wait until a server listens at `path`, and return its name."""
    async with connect(path) as channel, asyncio.timeout(30):
        await channel.grpc.channel_ready()
        found: api.PluginInfo = await Client(channel, SERVICE).call("GetInfo", api.InfoRequest())
        return found.name


async def test_removed_socket_is_restored(socket_dir: Path) -> None:
    path = socket_dir / "p.sock"
    async with persistent_server(fixed(path), Failures()) as server:
        await server.served.wait()
        assert is_live(path)
        for _ in range(3):
            path.unlink()
            assert await name_at(path) == "p"
    assert os.listdir(socket_dir) == []


async def test_socket_is_restored_after_its_folder_is_recreated(socket_dir: Path) -> None:
    folder, failures = socket_dir / "registry", Failures()
    folder.mkdir()
    async with persistent_server(fixed(folder / "p.sock"), failures) as server:
        await server.served.wait()
        shutil.rmtree(folder)
        assert str(folder) in await failures.reasons.get()
        assert str(folder) in server.error
        folder.mkdir()
        assert await name_at(folder / "p.sock") == "p"
        (folder / "p.sock").unlink()  # the new folder is also watched
        assert await name_at(folder / "p.sock") == "p"


async def test_missing_folder_is_reported_once_and_served_when_it_appears(socket_dir: Path) -> None:
    folder, failures = socket_dir / "registry", Failures()
    tries: asyncio.Queue[None] = asyncio.Queue()

    def path() -> Path:
        tries.put_nowait(None)
        return folder / "p.sock"

    async with persistent_server(path, failures) as server:
        for _ in range(3):
            await tries.get()
        assert not server.served.is_set()
        folder.mkdir()
        await asyncio.wait_for(server.served.wait(), 30)
        assert server.error == ""
    assert failures.reasons.qsize() == 1


async def test_path_is_served_after_another_process_closes_its_live_socket(socket_dir: Path) -> None:
    path, failures = socket_dir / "p.sock", Failures()
    with socket.socket(socket.AF_UNIX) as owner:
        owner.bind(str(path))
        owner.listen()
        async with persistent_server(fixed(path), failures) as server:
            assert "another process listens here" in await failures.reasons.get()
            assert is_live(path)
            owner.close()
            await asyncio.wait_for(server.served.wait(), 30)
    assert os.listdir(socket_dir) == []


async def test_renewed_socket_is_a_new_inode(socket_dir: Path) -> None:
    path = socket_dir / "p.sock"
    async with persistent_server(fixed(path), Failures()) as server:
        await server.served.wait()
        before = os.open(path, os.O_PATH)  # prevents the reuse of its inode
        try:
            await server.renew()
            assert await name_at(path) == "p"
            assert os.fstat(before).st_ino != path.stat().st_ino
        finally:
            os.close(before)


async def test_server_can_be_renewed_and_stopped_before_it_first_serves(socket_dir: Path) -> None:
    async with persistent_server(fixed(socket_dir / "p.sock"), Failures()) as server:
        await server.renew()
    assert os.listdir(socket_dir) == []


def test_only_matching_dead_sockets_are_removed(socket_dir: Path) -> None:
    with socket.socket(socket.AF_UNIX) as live:
        live.bind(str(socket_dir / "our-live"))
        live.listen()
        for name in ("our-dead", "their-dead"):
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(str(socket_dir / name))
        (socket_dir / "our-file").touch()
        remove_dead_sockets(socket_dir, lambda name: name.startswith("our"))
        assert sorted(os.listdir(socket_dir)) == ["our-file", "our-live", "their-dead"]
    remove_dead_sockets(socket_dir / "missing", lambda _: True)
