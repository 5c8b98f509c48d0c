"""The plugin side on real sockets: a made-up host, a real ledger and reconciler, and any kubelet that a test brings."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from checkpoint import Ledger
from checkpoint.reconciler import INTERVAL, Reconciler
from deviceplugin import DevicePlugins, Paths
from deviceplugin.lifecycle import Timings
from folderwatch import FolderWatcher
from hostdevices import Device
from hostdevices.pod_cgroups import pods_with_processes, running_pods
from hostdevices.presence import Presence
from resources.resource import Resource
from resources.selector import Ids
from tests.checkpoint.build import opened
from tests.deviceplugin.host import MadeUpHost
from witnesses import KubeletFiles, NodeWitnesses, PodResources


@pytest.fixture
def made_up(tmp_path: Path) -> MadeUpHost:
    return MadeUpHost(tmp_path / "host", "fuse", "kvm")


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    found = await opened(tmp_path / "state", "this-boot")
    found.is_complete = True
    yield found
    await found.close()


@pytest.fixture
def paths(tmp_path: Path, socket_dir: Path) -> Paths:
    found = Paths(
        device_plugins=socket_dir / "device-plugins",
        plugins_registry=socket_dir / "plugins_registry",
        cdi=tmp_path / "cdi",
        device_info=tmp_path / "devinfo",
    )
    found.device_plugins.mkdir(parents=True)
    found.plugins_registry.mkdir(parents=True)
    return found


class Side:
    """The device plugin side of a node, running, and the reconciler."""

    def __init__(
        self,
        resources: Sequence[Resource],
        made_up: MadeUpHost,
        ledger: Ledger,
        paths: Paths,
        timings: Timings,
        through_watcher: bool,
        grace: float,
        interval: float,
        max_wait: float,
    ) -> None:
        self.resources = resources
        self.presence = Presence(made_up.host)
        self._made_up = made_up
        self._ledger = ledger
        self._watcher = FolderWatcher()
        self.plugins = DevicePlugins(
            resources,
            made_up.host,
            self.presence,
            ledger,
            paths,
            self._watcher,
            through_watcher=through_watcher,
            timings=timings,
            renumbered=frozenset({"tty"}),
            retry=0.01,
        )
        kubelet = paths.device_plugins.parent
        witnesses = NodeWitnesses(
            PodResources(kubelet / "pod-resources/kubelet.sock", self.plugins.serves, nodes=["node"]),
            KubeletFiles(paths.device_plugins, kubelet, self.plugins.serves),
            partial(running_pods, made_up.host),
            running=partial(pods_with_processes, made_up.host),
        )
        self.reconciler = Reconciler(ledger, witnesses, grace=grace, interval=interval, max_wait=max_wait)
        self.reconciler.units = self.plugins
        self.running: asyncio.Task[None] | None = None
        self._reconciling: asyncio.Task[None] | None = None

    def update(self, assigned: Mapping[str, tuple[Device, ...]] | None = None) -> None:
        """Offer the devices of a new scan, or those that the test passes."""
        devices = self._made_up.devices()
        if assigned is None:
            assigned = {
                r.name: tuple(d for d in devices.values() if not r.selector.mismatch(d)) for r in self.resources
            }
        offered = (device for found in assigned.values() for device in found)
        self.presence.update(devices, offered, self._ledger.devices())
        self.plugins.update(assigned)

    def start(self) -> None:
        self.running = asyncio.create_task(self.plugins.run())
        self._reconciling = asyncio.create_task(self.reconciler.run())

    async def stop(self) -> None:
        for task in filter(None, (self.running, self._reconciling)):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._watcher.close()


StartPlugins = Callable[..., Awaitable[Side]]


@pytest.fixture
async def start(made_up: MadeUpHost, ledger: Ledger, paths: Paths) -> AsyncIterator[StartPlugins]:
    """Start a plugin side for some resources; each offers the devices that match its selector."""
    running: list[Side] = []

    async def begin(
        resources: Sequence[Resource],
        through_watcher: bool = False,
        timings: Timings = Timings(),
        grace: float = 0.0,
        interval: float = INTERVAL,
        max_wait: float = 3.0,
        on: Ledger = ledger,
    ) -> Side:
        side = Side(resources, made_up, on, paths, timings, through_watcher, grace, interval, max_wait)
        side.update()
        side.start()
        running.append(side)
        return side

    yield begin
    for side in running:
        await side.stop()


def resource(name: str = "fuse", **options: object) -> Resource:
    """A resource `example.com/NAME` of the misc device of that name."""
    selector = options.pop("selector", Ids((f"misc-{name}",)))
    return Resource(f"example.com/{name}", selector, **options)  # type: ignore[arg-type]  # tests name real fields
