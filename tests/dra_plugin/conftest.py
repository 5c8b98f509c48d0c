"""The plugin's gRPC side on real sockets, with a real API server and a scripted driver."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from controlplane.apiserver import Server
from dra_plugin.driver import Driver
from dra_plugin.serving.claims import ApiClaims, ClaimSource
from dra_plugin.serving.health import HealthPublisher
from dra_plugin.serving.kubelet_plugin import Folders, KubeletPlugin
from dra_plugin.serving.sockets import registration_socket
from folderwatch import FolderWatcher
from resourceapi.client import AsyncClient
from tests.dra_plugin.kubelet_end import DRIVER, POOL, KubeletEnd, ScriptedDriver, api_client, kubelet_end
from tests.running import until


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(collect_after=None) as running:
        yield running


@pytest.fixture
def driver() -> ScriptedDriver:
    return ScriptedDriver()


@pytest.fixture
def board() -> HealthPublisher:
    return HealthPublisher()


@pytest.fixture
def folders(socket_dir: Path) -> Folders:
    """The registry folder exists, as a kubelet creates it; the driver's own folder does not."""
    found = Folders(registry=socket_dir / "plugins_registry", data=socket_dir / "plugins" / DRIVER)
    found.registry.mkdir()
    return found


@pytest.fixture
def client(server: Server) -> Iterator[AsyncClient]:
    found = api_client(server, attempts=1)
    yield found
    found.close()


@pytest.fixture
def claims(client: AsyncClient) -> ClaimSource:
    return ApiClaims(client, DRIVER, POOL)


class RunningPlugin(KubeletPlugin):
    """A plugin that tests can start and stop repeatedly."""

    async def start(self, registration: Path) -> None:
        """Start; wait until the registration socket is new, or an error explains why it cannot be made."""
        before = identity(registration)
        self.running = asyncio.create_task(self.run())
        await until(lambda: self.errors or identity(registration) not in (None, before))

    async def stop(self) -> None:
        self.running.cancel()
        with suppress(asyncio.CancelledError):
            await self.running


def identity(path: Path) -> tuple[int, int] | None:
    """Identify the file at a path; None if there is none."""
    return (path.stat().st_ino, path.stat().st_ctime_ns) if path.exists() else None


StartPlugin = Callable[..., Awaitable[RunningPlugin]]


@pytest.fixture
async def start(
    claims: ClaimSource, driver: ScriptedDriver, board: HealthPublisher, folders: Folders
) -> AsyncIterator[StartPlugin]:
    """Start a plugin, optionally with another driver, health, pod uid or folders."""
    plugins: list[RunningPlugin] = []

    async def begin(
        *,
        driver: Driver | asyncio.Future[Driver] = driver,
        health: HealthPublisher = board,
        pod_uid: str = "",
        folders: Folders = folders,
    ) -> RunningPlugin:
        plugin = RunningPlugin(DRIVER, driver, claims, health, folders, watcher, pod_uid=pod_uid)
        await plugin.start(registration_socket(folders.registry, DRIVER, pod_uid))
        plugins.append(plugin)
        return plugin

    with closing(FolderWatcher()) as watcher:
        yield begin
        for plugin in plugins:
            await plugin.stop()


@pytest.fixture
async def kubelet(start: StartPlugin) -> AsyncIterator[KubeletEnd]:
    """A kubelet that is connected to a started plugin."""
    plugin = await start()
    async with kubelet_end(plugin.endpoint) as connected:
        yield connected
