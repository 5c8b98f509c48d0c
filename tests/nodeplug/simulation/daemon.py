"""The daemon of a simulation: both plugins and the reconciler on one ledger, wired as in the program, without sockets.

The kubelet's calls are made directly: to `servicers`, one for each resource that is registered with the device plugin
API, and to `calls` of DRA.
"""

import asyncio
import contextlib
import inspect
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from checkpoint import Ledger
from checkpoint.reconciler import Reconciler
from deviceplugin import DevicePlugins
from deviceplugin import Paths as PluginPaths
from deviceplugin.resource_plugin import KubeletRegistration
from deviceplugin.server import DevicePluginServicer
from dra_plugin import DraPlugin, DriverOptions, Folders
from dra_plugin.preparing.host_work import HostWork
from dra_plugin.publishing.pool import driver_resources
from dra_plugin.publishing.slices import Controller
from dra_plugin.publishing.slices.desired import validate
from dra_plugin.serving.calls import ClaimCalls
from folderwatch import FolderWatcher
from hostdevices import Device
from hostdevices.pod_cgroups import running_pods
from hostdevices.presence import Presence
from nodeplug.config import Config
from nodeplug.parts import needs_dra
from resourceapi.client import AsyncClient, Credentials
from resourceapi.objects import v1
from resources.assignment import Assignment
from resources.resource import Resource
from tests.nodeplug.simulation.cluster import DRIVER, NODE
from tests.nodeplug.simulation.disk import Disk, ProcessDied
from tests.nodeplug.simulation.host import SimulatedHost
from tests.nodeplug.simulation.process import Loop
from tests.nodeplug.simulation.wire import DirectKubeletPlugin
from witnesses import KubeletFiles, NodeWitnesses, PodResources

Changed = Callable[[str, DevicePluginServicer | None], None]


class _Registration(KubeletRegistration):
    """Registers without a kubelet: `changed` is called with the servicer, and with None when it ends."""

    registrations = 0
    last_error = ""

    def __init__(self, name: str, servicer: DevicePluginServicer, changed: Changed) -> None:
        self._name, self._servicer, self._changed = name, servicer, changed

    async def run(self) -> None:
        self._changed(self._name, self._servicer)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._changed(self._name, None)

    def stream_changed(self) -> None: ...


class Plugins(DevicePlugins):
    """The device plugin side, with calls instead of the kubelet's sockets."""

    def __init__(self, changed: Changed, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._changed = changed

    def _registration(self, name: str, servicer: DevicePluginServicer) -> KubeletRegistration:
        return _Registration(name, servicer, self._changed)


class Dra(DraPlugin):
    """The DRA side, with calls instead of the kubelet's and the API server's sockets."""

    @property
    def calls(self) -> ClaimCalls | None:
        """The handler of calls, while it accepts calls."""
        assert isinstance(self._kubelet, DirectKubeletPlugin)
        return self._kubelet.calls if self._kubelet.serves else None

    def published(self) -> dict[str, v1.Device]:
        """The devices of the slices by name; checks that the slices are valid, whatever claims hold."""
        resources = driver_resources(self._offers, NODE, DRIVER, self._leased())
        validate(resources)
        (pool,) = resources.pools.values()
        return {device.name: device for each in pool.slices for device in each.devices}

    def shares(self, name: str) -> int:
        """The number of claims that can have a published device at the same time."""
        offered = self._offers.find(name)
        return offered.resource.shares if offered is not None else 1

    def write_as(self, fast_write: float) -> None:
        """Write files always in a thread, or always in the loop, to make simulations repeatable."""
        self._preparer._work = HostWork(fast_write)

    def there(self) -> set[str]:
        """The names of offered devices, without those that stay only because of claims."""
        return {name for name in self.published() if not self._offers.is_gone(name)}

    async def _publish(self, slices: Controller) -> None:
        """Nothing is written to a server: `published` is read instead."""


class Folder:
    """The paths of the daemon's and the kubelet's files in the folder of a simulation."""

    def __init__(self, root: Path) -> None:
        self.state = root / "state"
        self.cdi = root / "run/cdi"
        self.kubelet = root / "kubelet"
        self.plugin = self.kubelet / "plugins/nodeplug.dev"
        self.metadata = self.plugin / "dra-device-metadata"
        self.registry = self.kubelet / "plugins_registry"
        self.device_plugins = self.kubelet / "device-plugins"
        self.pod_resources = self.kubelet / "pod-resources/kubelet.sock"
        self.registry.mkdir(parents=True)


class Daemon:
    """One process of the daemon; it simulations while `run` runs."""

    def __init__(self, folder: Folder, resources: Sequence[Resource], host: SimulatedHost, fast_write: float) -> None:
        self.resources = list(resources)
        self.servicers: dict[str, DevicePluginServicer] = {}
        self.registration_changed: Changed = lambda *_: None  # also gets the servicers
        self.dra: Dra | None = None
        self.ledger: Ledger
        self.reconciler: Reconciler
        self.plugins: Plugins
        self.serves = False  # all resources are offered
        self.assignment = Assignment({}, {}, ())
        self._folder, self._host, self._quick = folder, host, fast_write
        self._presence = Presence(host.host)

    @property
    def is_ready(self) -> bool:
        """Return whether both plugins accept calls."""
        return self.serves and (self.dra is None or self.dra.calls is not None)

    async def run(self, boot_id: str) -> None:
        """Run until cancelled."""
        self.ledger = Ledger(self._folder.state, boot_id, fast_write=self._quick)
        watcher = FolderWatcher()
        try:
            await self.ledger.read()
            self._make(watcher)
            self.update(*self._host.assign(self.resources))
            async with asyncio.TaskGroup() as group:
                group.create_task(self.ledger.take(0))
                group.create_task(self._serve(group))
                if self.dra is not None:
                    group.create_task(self.dra.run())
        finally:
            self.serves = False
            watcher.close()
            await self.ledger.close()

    def configure(self, resources: Sequence[Resource]) -> bool:
        """Offer these resources, as after a changed file; False if that needs a restart."""
        if self.dra is None and needs_dra(Config(tuple(resources)), self.ledger):
            return False
        self.resources = list(resources)
        self.plugins.configure([x for x in self.resources if x.api != "dra"])
        if self.dra is not None:
            self.dra.configure([x for x in self.resources if x.api != "device-plugin"])
        self.update(*self._host.assign(self.resources))
        return True

    def update(self, devices: Mapping[str, Device], assignment: Assignment) -> None:
        """Apply the result of a scan."""
        self.assignment = assignment
        offered = [device for found in assignment.devices.values() for device in found]
        self._presence.update(devices, offered, self.ledger.devices())
        self.plugins.update({x.name: assignment.devices[x.name] for x in self.resources if x.api != "dra"})
        if self.dra is not None:
            self.dra.update(assignment.devices)

    async def kill(self, disk: Disk) -> None:
        """Leave the state of a killed process: nothing in memory, and the disk as it was at its death."""
        loop, mine = asyncio.get_running_loop(), asyncio.current_task()
        assert isinstance(loop, Loop)
        loop.end_process()
        with disk.unwatched():  # cleanup that a dead process does not do
            left = self._folder.state.with_name("left")
            if self._folder.state.exists():
                shutil.copytree(self._folder.state, left)  # with the write-ahead log, which closing would merge
            while tasks := asyncio.all_tasks() - {mine}:
                for task in tasks:
                    coroutine = task.get_coro()
                    assert inspect.iscoroutine(coroutine)
                    if inspect.getcoroutinestate(coroutine) != inspect.CORO_CREATED:  # or it is never awaited
                        task.cancel()
                await asyncio.sleep(0)
            with contextlib.suppress(AttributeError, ProcessDied, asyncio.CancelledError):
                await self.ledger.close()
            if left.exists():
                shutil.rmtree(self._folder.state)
                left.rename(self._folder.state)
        disk.recover()

    def _make(self, watcher: FolderWatcher) -> None:
        folder, host = self._folder, self._host.host
        self.plugins = Plugins(
            self._registration_changed,
            [x for x in self.resources if x.api != "dra"],
            host,
            self._presence,
            self.ledger,
            PluginPaths(device_plugins=folder.device_plugins, plugins_registry=folder.registry, cdi=folder.cdi),
            watcher,
            through_watcher=True,
            renumbered=frozenset({"pci", "tty", "usb"}),
        )
        if needs_dra(Config(tuple(self.resources)), self.ledger):
            self.dra = Dra(
                [x for x in self.resources if x.api != "device-plugin"],
                host,
                self._presence,
                self.ledger,
                AsyncClient(lambda: Credentials(server="http://cluster"), attempts=1),
                DriverOptions(
                    driver=DRIVER, node=NODE, folders=Folders(folder.registry, folder.plugin), cdi=folder.cdi
                ),
                watcher,
            )
            self.dra.write_as(self._quick)
        serves, driver = self.plugins.serves, DRIVER if self.dra is not None else ""
        self.reconciler = Reconciler(
            self.ledger,
            NodeWitnesses(
                PodResources(folder.pod_resources, serves, driver, [NODE]),
                KubeletFiles(folder.device_plugins, folder.kubelet, serves, driver),
                lambda: running_pods(host),
                self.dra.wanted if self.dra is not None else None,
            ),
        )
        self.reconciler.units, self.reconciler.claims = (
            self.plugins,
            self.dra.restorer if self.dra is not None else None,
        )

    async def _serve(self, group: asyncio.TaskGroup) -> None:
        await self.ledger.owned()
        group.create_task(self.reconciler.run())
        group.create_task(self.plugins.run())
        self.serves = True

    def _registration_changed(self, name: str, servicer: DevicePluginServicer | None) -> None:
        if servicer is None:
            self.servicers.pop(name, None)
        else:
            self.servicers[name] = servicer
        self.registration_changed(name, servicer)
