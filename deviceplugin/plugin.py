"""The device plugin side as a whole: all resources of a configuration, fed by assignments, and what they share.

assignment -> units -> CDI specs -> lists -> kubelet
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from msgspec import Struct

import cdi
from checkpoint import Api, Lease, Ledger
from deviceplugin.folder import PluginFolder, remove_stale_sockets
from deviceplugin.lifecycle import Timings
from deviceplugin.registration import Registration
from deviceplugin.release import Releaser
from deviceplugin.resource_plugin import Registered, ResourcePlugin, ResourceStatus
from deviceplugin.server import DevicePluginServicer
from deviceplugin.units import API
from deviceplugin.watcher_registration import WatcherRegistration
from grpcunix import handler
from hostdevices import Device, Host
from hostdevices.resource import Resource
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api

log = logging.getLogger("nodeplug.deviceplugin")
_SERVICE = api.DESCRIPTOR.services_by_name["DevicePlugin"]


class Paths(Struct, frozen=True):
    """Where the kubelet and the container runtime look, on this host."""

    device_plugins: Path
    plugins_registry: Path
    pod_resources: Path  # the socket
    cdi: Path


class DevicePlugins:
    """All resources of a configuration, offered through the device plugin API."""

    def __init__(
        self,
        resources: Sequence[Resource],
        host: Host,
        ledger: Ledger,
        paths: Paths,
        through_watcher: bool = False,
        timings: Timings = Timings(),
    ) -> None:
        """Prepare. With `through_watcher` the resources register through plugins_registry, else at kubelet.sock."""
        self._ledger = ledger
        self._paths = paths
        self._through_watcher = through_watcher
        self._timings = timings
        self._folder = PluginFolder(paths.device_plugins)
        self._cdi = cdi.CdiDirectory(paths.cdi, API)
        self._releaser = Releaser(
            ledger, paths.pod_resources, {r.name for r in resources}, self._refresh, self._lease_of, timings
        )
        self._plugins = {r.name: ResourcePlugin(r, host, ledger, self._releaser, self._registration) for r in resources}
        self._described: dict[str, cdi.Spec] | None = None  # the specs on disk; None while nobody knows
        self._describing = asyncio.Lock()
        self._again: asyncio.TimerHandle | None = None
        self._repeated: asyncio.Task[None] | None = None
        self._started = False
        ledger.observe(self._leases_changed)
        ledger.ask_before_refusing(self._releaser.reconcile)

    async def update(self, assigned: Mapping[str, tuple[Device, ...]]) -> None:
        """Take over which devices each resource has now; lists that changed are sent.

        CDI specs are written first: a list is a promise, and after a reboot the kubelet replays answers that name them.
        """
        for name, plugin in self._plugins.items():
            plugin.update(assigned.get(name, ()))
        await self._describe()
        self._refresh()

    async def start(self) -> None:
        """Serve and register. Call `update` before, so that the first list is a true one. Raises OSError."""
        if self._through_watcher:
            remove_stale_sockets(self._paths.plugins_registry)
        else:
            remove_stale_sockets(self._paths.device_plugins)
            self._folder.start()
        self._started = True
        for plugin in self._plugins.values():
            plugin.registration.start()
        self._releaser.start()

    async def stop(self) -> None:
        """Stop serving and remove our sockets; leases stay. Idempotent."""
        if self._repeated is not None:
            await asyncio.wait([self._repeated])
        if self._again is not None:
            self._again.cancel()
        if not self._started:
            return
        self._started = False
        self._folder.stop()
        await self._releaser.stop()
        await asyncio.gather(*(plugin.registration.stop() for plugin in self._plugins.values()))

    async def reconcile(self) -> None:
        """Compare the leases with what the kubelet says, now."""
        await self._releaser.reconcile()

    def status(self) -> tuple[ResourceStatus, ...]:
        """Tell how every resource stands."""
        return tuple(plugin.status() for plugin in self._plugins.values())

    def _registration(self, name: str, servicer: DevicePluginServicer) -> Registered:
        serving = handler(_SERVICE, servicer)
        if self._through_watcher:
            registry = self._paths.plugins_registry
            return WatcherRegistration(name, registry, serving, lambda: servicer.streaming, self._timings)
        return Registration(name, self._folder, serving, servicer.options, lambda: servicer.streaming, self._timings)

    def _lease_of(self, resource: str, unit_id: str, holder: str) -> Lease | None:
        return self._plugins[resource].adopt(unit_id, holder)

    async def _describe(self) -> None:
        """Write the CDI specs, if they are not what was written last: most changes do not concern them."""
        async with self._describing:
            specs = {cdi.file_name(spec.kind): spec for plugin in self._plugins.values() if (spec := plugin.cdi_spec())}
            if specs == self._described:
                return
            self._described = None
            try:
                await asyncio.to_thread(self._cdi.sync, specs)
            except OSError as error:
                log.error("cannot write CDI specs, what needs them is not handed out: %s", error)
                self._without_cdi(f"no CDI spec could be written: {error}; it is tried again")
                self._describe_again()
            else:
                self._described = specs
                self._without_cdi("")

    def _describe_again(self) -> None:
        """Try again in a while: a disk that has room again tells nobody."""

        def repeat() -> None:
            self._repeated = asyncio.ensure_future(self._describe())

        if self._again is not None:
            self._again.cancel()
        self._again = asyncio.get_running_loop().call_later(self._timings.cdi, repeat)

    def _without_cdi(self, reason: str) -> None:
        for plugin in self._plugins.values():
            plugin.without_cdi(reason)

    def _leases_changed(self, apis: Set[Api]) -> None:
        """What the other API hands out or gets back cannot be had or can be had here, at once."""
        if apis - {API}:
            self._refresh()

    def _refresh(self) -> None:
        obstacles = self._ledger.obstacles(API)
        withheld = {each.device: each.reason for each in self._ledger.withheld()}
        for plugin in self._plugins.values():
            plugin.refresh(obstacles, withheld)
