"""The daemon of a life: both fronts on one ledger, wired as the program wires them, without their sockets.

What the kubelet would reach through sockets is called directly: `servicers`, one for each resource of the device plugin
API, and `calls` of DRA.
"""

import asyncio
import contextlib
import inspect
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from checkpoint import Ledger
from deviceplugin import DevicePlugins
from deviceplugin import Paths as PluginPaths
from deviceplugin.resource_plugin import Registered
from deviceplugin.server import DevicePluginServicer
from dra_plugin import DraPlugin, Folders, Place
from dra_plugin.calls import ClaimCalls
from dra_plugin.offers import Offers
from dra_plugin.pool import driver_resources
from hostdevices import Device, Host
from hostdevices.resource import Resource
from resourceapi.client import Client, Credentials
from resourceapi.objects import v1
from tests.nodeplug.two_fronts.disk import Died, Disk
from tests.nodeplug.two_fronts.process import Loop

DRIVER, NODE = "nodeplug.dev", "worker-1"


class _NotRegistered(Registered):
    """No kubelet is asked to register anything."""

    registrations = 0
    last_error = ""

    def start(self) -> None: ...

    async def stop(self) -> None: ...

    def stream_changed(self) -> None: ...


class Plugins(DevicePlugins):
    """The device plugin side, open where the kubelet's sockets would be."""

    def __init__(self, resources: Sequence[Resource], host: Host, ledger: Ledger, paths: PluginPaths) -> None:
        self.servicers: dict[str, DevicePluginServicer] = {}
        super().__init__(resources, host, ledger, paths)

    def _registration(self, name: str, servicer: DevicePluginServicer) -> Registered:
        self.servicers[name] = servicer
        return _NotRegistered()


class Dra(DraPlugin):
    """The DRA side, open where the kubelet's and the API server's sockets would be."""

    async def open(self) -> None:
        """Take calls, as `start` does; `take` and `update` come first."""
        assert self._preparer is not None
        await self._preparer.recall()
        self.calls = ClaimCalls(self._preparer, self._claims)

    @property
    def offers(self) -> Offers:
        """What is offered."""
        return self._offers

    async def reconcile(self) -> None:
        """Look for claims that are over, as `start` has it done now and then."""
        assert self._preparer is not None
        await self._preparer.reconcile()

    def published(self) -> dict[str, v1.Device]:
        """What the slices say, by the devices' names."""
        (pool,) = driver_resources(self._offers, NODE, DRIVER).pools.values()
        return {device.name: device for each in pool.slices for device in each.devices}


class Folder:
    """Where the daemon's files lie in the folder of a life."""

    def __init__(self, root: Path) -> None:
        self.state = root / "state"
        self.cdi = root / "run/cdi"
        self.plugin = root / "plugins/nodeplug.dev"
        self.metadata = self.plugin / "dra-device-metadata"
        self.registry = root / "plugins_registry"
        self.device_plugins = root / "device-plugins"
        self.pod_resources = root / "kubelet.sock"


class Daemon:
    """One process of the daemon, from `begin` to `end` or `bury`."""

    def __init__(self, folder: Folder, resources: Sequence[Resource], host: Host) -> None:
        self._folder = folder
        client = Client(lambda: Credentials(server="http://cluster"), wait=lambda _: None)
        place = Place(
            driver=DRIVER,
            node=NODE,
            folders=Folders(folder.registry, folder.plugin),
            pod_resources=folder.pod_resources,
            cdi=folder.cdi,
        )
        self.resources, self._host = resources, host
        self.dra = Dra([x for x in resources if x.api != "device-plugin"], host, client, place)
        self.ledger: Ledger

    async def begin(self, boot_id: str) -> None:
        """Take the state over."""
        self.ledger = await Ledger.open(self._folder.state, boot_id)
        self.plugins = Plugins(
            [x for x in self.resources if x.api != "dra"],
            self._host,
            self.ledger,
            PluginPaths(
                device_plugins=self._folder.device_plugins,
                plugins_registry=self._folder.registry,
                pod_resources=self._folder.pod_resources,
                cdi=self._folder.cdi,
            ),
        )

    async def repair(self, assigned: Mapping[str, tuple[Device, ...]]) -> None:
        """Do all that comes before the first answer."""
        await self.dra.take(self.ledger)
        await self.update(assigned)
        await self.dra.open()

    async def update(self, assigned: Mapping[str, tuple[Device, ...]]) -> None:
        """Take over what a scan has found."""
        await self.plugins.update({x.name: assigned[x.name] for x in self.resources if x.api != "dra"})
        await self.dra.update(assigned)

    async def end(self) -> None:
        """Stop as the daemon does, once no calls come any more."""
        await self.dra.calls.finish(5.0)
        await self.dra.stop()
        await self.plugins.stop()
        await self.ledger.close()

    async def bury(self, disk: Disk) -> None:
        """Leave what a dead process leaves: nothing in memory, and on the disk what was there when it died."""
        loop, mine = asyncio.get_running_loop(), asyncio.current_task()
        assert isinstance(loop, Loop)
        loop.end_process()
        while tasks := asyncio.all_tasks() - {mine}:
            for task in tasks:
                coroutine = task.get_coro()
                assert inspect.iscoroutine(coroutine)
                if inspect.getcoroutinestate(coroutine) != inspect.CORO_CREATED:  # or it would never be awaited
                    task.cancel()
            await asyncio.sleep(0)
        with disk.unwatched():
            left = self._folder.state.with_name("left")
            if self._folder.state.exists():
                shutil.copytree(self._folder.state, left)  # with its write-ahead log, which a close would fold in
            with contextlib.suppress(AttributeError, Died, asyncio.CancelledError):
                await self.ledger.close()
            if left.exists():
                shutil.rmtree(self._folder.state)
                left.rename(self._folder.state)
        disk.recover()
