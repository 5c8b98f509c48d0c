"""A plugin side on real sockets: made-up host, real ledger, and whatever kubelet a test brings."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from checkpoint import Ledger
from deviceplugin import DevicePlugins, Paths
from deviceplugin.lifecycle import Timings
from hostdevices.resource import Resource
from hostdevices.selector import Ids
from tests.deviceplugin.host import MadeUpHost


@pytest.fixture
def made_up(tmp_path: Path) -> MadeUpHost:
    return MadeUpHost(tmp_path / "host", "fuse", "kvm")


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    opened = await Ledger.open(tmp_path / "state", "this-boot")
    yield opened
    await opened.close()


@pytest.fixture
def paths(tmp_path: Path, socket_dir: Path) -> Paths:
    found = Paths(
        device_plugins=socket_dir / "device-plugins",
        plugins_registry=socket_dir / "plugins_registry",
        pod_resources=socket_dir / "pod-resources/kubelet.sock",
        cdi=tmp_path / "cdi",
    )
    found.device_plugins.mkdir(parents=True)
    found.plugins_registry.mkdir(parents=True)
    return found


StartPlugins = Callable[..., Awaitable[DevicePlugins]]


@pytest.fixture
async def start(made_up: MadeUpHost, ledger: Ledger, paths: Paths) -> AsyncIterator[StartPlugins]:
    """Start a plugin side for some resources; each one has the devices that its selector means."""
    running: list[DevicePlugins] = []

    async def begin(
        resources: Sequence[Resource], through_watcher: bool = False, timings: Timings = Timings()
    ) -> DevicePlugins:
        plugins = DevicePlugins(resources, made_up.host, ledger, paths, through_watcher, timings)
        devices = made_up.devices().values()
        await plugins.update({r.name: tuple(d for d in devices if not r.selector.why_not(d)) for r in resources})
        await plugins.start()
        running.append(plugins)
        return plugins

    yield begin
    for plugins in running:
        await plugins.stop()


def resource(name: str = "fuse", **options: object) -> Resource:
    """A resource `example.com/NAME` of the misc device of that name."""
    return Resource(f"example.com/{name}", Ids((f"misc-{name}",)), **options)  # type: ignore[arg-type]  # tests name real fields
