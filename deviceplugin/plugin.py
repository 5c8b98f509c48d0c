"""The device plugin side as a whole: one plugin per resource, fed by assignments, and what they share.

assignment -> units -> CDI spec -> list -> kubelet
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

import cdi
from checkpoint import Ledger
from deviceplugin.advertise import Advertised
from deviceplugin.allocate import Allocator
from deviceplugin.folder import PluginFolder
from deviceplugin.registration import Registration
from deviceplugin.release import Releaser
from deviceplugin.response import cdi_spec
from deviceplugin.server import DevicePluginServicer
from deviceplugin.units import API, device_of, units_of
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


class ResourceStatus(Struct, frozen=True):
    """How one resource stands, for people and metrics."""

    name: str
    devices: int
    healthy: int
    leased: int
    streaming: bool
    registrations: int
    last_error: str


class DevicePlugins:
    """All resources of a configuration, offered through the device plugin API."""

    def __init__(
        self, resources: Sequence[Resource], host: Host, ledger: Ledger, paths: Paths, through_watcher: bool = False
    ) -> None:
        """Prepare. With `through_watcher` the resources register through plugins_registry, else at kubelet.sock."""
        self._ledger = ledger
        self._folder = PluginFolder(paths.device_plugins)
        self._cdi = cdi.CdiDirectory(paths.cdi)
        self._releaser = Releaser(ledger, paths.pod_resources, {r.name for r in resources}, self._refresh)
        self._plugins = {
            r.name: _Plugin(r, host, ledger, self._releaser, self._folder, paths.plugins_registry, through_watcher)
            for r in resources
        }
        self._through_watcher = through_watcher
        self._started = False

    async def update(self, assigned: Mapping[str, tuple[Device, ...]]) -> None:
        """Take over which devices each resource has now; lists that changed are sent."""
        for name, plugin in self._plugins.items():
            plugin.update(assigned.get(name, ()))
        await self._write_cdi()
        self._refresh()

    async def start(self) -> None:
        """Serve and register. Call `update` before, so that the first list is a true one. Raises OSError."""
        if not self._through_watcher:
            self._folder.start()
        self._folder.remove_stale_sockets()
        self._started = True
        for plugin in self._plugins.values():
            plugin.registration.start()
        self._releaser.start()

    async def stop(self) -> None:
        """Stop serving and remove our sockets; leases stay. Idempotent."""
        if not self._started:
            return
        self._started = False
        self._folder.stop()
        await self._releaser.stop()
        for plugin in self._plugins.values():
            await plugin.registration.stop()

    async def reconcile(self) -> None:
        """Compare the leases with what the kubelet says, now."""
        await self._releaser.reconcile()

    def status(self) -> tuple[ResourceStatus, ...]:
        """Tell how every resource stands."""
        return tuple(plugin.status() for plugin in self._plugins.values())

    async def _write_cdi(self) -> None:
        """Specs come before registering: after a reboot the kubelet replays answers that name them."""
        specs = [plugin.cdi_spec() for plugin in self._plugins.values() if plugin.resource.cdi]
        if specs:
            await asyncio.to_thread(self._cdi.sync, specs)

    def _refresh(self) -> None:
        for plugin in self._plugins.values():
            plugin.refresh()


class _Plugin:
    """One resource."""

    def __init__(
        self,
        resource: Resource,
        host: Host,
        ledger: Ledger,
        releaser: Releaser,
        folder: PluginFolder,
        plugins_registry: Path,
        through_watcher: bool,
    ) -> None:
        self.resource = resource
        self._ledger = ledger
        self._advertised = Advertised()
        self._allocator = Allocator(resource, host, ledger, releaser)
        self._servicer = DevicePluginServicer(host, self._allocator, self._advertised, self._stream_changed)
        serving = handler(_SERVICE, self._servicer)
        self.registration: Registration | WatcherRegistration
        if through_watcher:
            socket = plugins_registry / folder.own_socket(resource.name).name
            self.registration = WatcherRegistration(resource.name, socket, serving, self._is_streaming)
        else:
            self.registration = Registration(resource.name, folder, serving, self._servicer.options, self._is_streaming)

    def update(self, devices: tuple[Device, ...]) -> None:
        self._allocator.update(units_of(self.resource, devices))

    def refresh(self) -> None:
        """Send the list again if devices, leases or withheld devices made it another one."""
        withheld = {w.device: w.reason for w in self._ledger.withheld()}
        before = self._advertised.health()
        if self._advertised.update(self._allocator.units, self._leased(), withheld):
            self._log_changes(before)
            self._servicer.publish()

    def cdi_spec(self) -> cdi.Spec:
        return cdi_spec(self.resource, (unit.device for unit in self._allocator.units.values()))

    def status(self) -> ResourceStatus:
        devices, healthy = self._advertised.counts()
        return ResourceStatus(
            name=self.resource.name,
            devices=devices,
            healthy=healthy,
            leased=len(self._leased()),
            streaming=self._servicer.streaming,
            registrations=self.registration.registrations,
            last_error=self.registration.last_error,
        )

    def _leased(self) -> list[str]:
        return [x.unit for x in self._ledger.leases() if x.api == API and x.resource == self.resource.name]

    def _is_streaming(self) -> bool:
        return self._servicer.streaming

    def _stream_changed(self) -> None:
        self.registration.stream_changed()

    def _log_changes(self, before: Mapping[str, bool]) -> None:
        now = self._advertised.health()
        for unit_id in now.keys() | before.keys():
            was, is_now = before.get(unit_id), now.get(unit_id)
            if was == is_now:
                continue
            extra = {"resource": self.resource.name, "device": unit_id}
            if is_now is None:
                log.info("device is gone", extra=extra)
            elif was is None:
                log.info("device is offered%s", "" if is_now else ", unhealthy", extra=extra)
            else:
                unit = self._allocator.units.get(unit_id)
                reason = unit.device.health.reason if unit else f"{device_of(unit_id)} is gone while leased"
                log.info("device is %s", "healthy again" if is_now else f"unhealthy: {reason}", extra=extra)
