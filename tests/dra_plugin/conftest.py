"""The plugin's gRPC side on real sockets, with a real API server and a driver that tests steer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from controlplane.apiserver import Server
from dra_plugin.claims import ApiClaims, ClaimSource
from dra_plugin.driver import Driver
from dra_plugin.health import HealthBoard
from dra_plugin.kubelet_plugin import Folders, KubeletPlugin
from tests.dra_plugin.kubelet_end import DRIVER, KubeletEnd, SteeredDriver, api_client, kubelet_end


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(collect_after=None) as running:
        yield running


@pytest.fixture
def driver() -> SteeredDriver:
    return SteeredDriver()


@pytest.fixture
def board() -> HealthBoard:
    return HealthBoard()


@pytest.fixture
def folders(socket_dir: Path) -> Folders:
    """The registry is there, as a kubelet makes it; the driver's own folder is not."""
    found = Folders(registry=socket_dir / "plugins_registry", data=socket_dir / "plugins" / DRIVER)
    found.registry.mkdir()
    return found


@pytest.fixture
async def claims(server: Server) -> AsyncIterator[ClaimSource]:
    client = api_client(server, attempts=1)
    found = ApiClaims(client)
    yield found
    found.close()
    client.close()


StartPlugin = Callable[..., Awaitable[KubeletPlugin]]


@pytest.fixture
async def start(
    claims: ClaimSource, driver: SteeredDriver, board: HealthBoard, folders: Folders
) -> AsyncIterator[StartPlugin]:
    """Start a plugin, with another driver, health or pod uid if the test says so."""
    running: list[KubeletPlugin] = []

    async def begin(
        *, driver: Driver | asyncio.Future[Driver] = driver, health: HealthBoard = board, pod_uid: str = ""
    ) -> KubeletPlugin:
        plugin = KubeletPlugin(DRIVER, driver, claims, health, folders, pod_uid)
        await plugin.start()
        running.append(plugin)
        return plugin

    yield begin
    for plugin in running:
        await plugin.stop()


@pytest.fixture
async def kubelet(start: StartPlugin) -> AsyncIterator[KubeletEnd]:
    """A kubelet that is connected to a started plugin."""
    plugin = await start()
    async with kubelet_end(plugin.endpoint) as connected:
        yield connected
