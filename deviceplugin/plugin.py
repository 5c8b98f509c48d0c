"""The device plugin side as a whole: all resources of a configuration, fed by assignments, and what they share.

    assignment -> units -> lists -> kubelet            leases -> other holders
                        -> CDI specs -> runtime

It also serves resources that the configuration no longer has, or not for this API, while pods still have units of them,
until the last of those leases ends.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

import cdi
from checkpoint import Lease, Ledger
from checkpoint.holdings import UnitEntry
from deviceplugin.descriptions import Descriptions
from deviceplugin.device_info import file_name, files_of
from deviceplugin.folder import PluginFolder, new_instance, remove_stale_sockets
from deviceplugin.lifecycle import Timings
from deviceplugin.registration import Registration
from deviceplugin.resource_plugin import DeviceStatus, KubeletRegistration, ResourcePlugin, ResourceStatus
from deviceplugin.server import DevicePluginServicer
from deviceplugin.specs import RETRY, Specs
from deviceplugin.units import API
from deviceplugin.watcher_registration import WatcherRegistration
from folderwatch import FolderWatcher, check_mounts, is_missing
from grpcunix import Transport, handler
from hostdevices import Device, Host
from hostdevices.presence import Presence
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from resources.resource import Resource
from resources.selector import NOTHING
from resources.unit_names import unit_name
from telemetry import Telemetry

if TYPE_CHECKING:
    from deviceplugin.device_info_files import DeviceInfoFiles
    from deviceplugin.dry_run import DryRun

log = logging.getLogger("nodeplug.deviceplugin")
_SERVICE = api.DESCRIPTOR.services_by_name["DevicePlugin"]
_SPECS_TIMEOUT = 2.0  # seconds that the first list waits for CDI specs


class Paths(Struct, frozen=True):
    """The folders of the kubelet and the container runtime on this host."""

    device_plugins: Path
    plugins_registry: Path
    cdi: Path
    device_info: Path = Path("/var/run/k8s.cni.cncf.io/devinfo/dp")


class DevicePlugins:
    """All resources of a configuration, offered through the device plugin API while `run` runs."""

    def __init__(
        self,
        resources: Sequence[Resource],
        host: Host,
        presence: Presence,
        ledger: Ledger,
        paths: Paths,
        watcher: FolderWatcher,
        *,
        through_watcher: bool = False,
        renumbered: frozenset[str] = frozenset(),
        timings: Timings = Timings(),
        transport: Transport = "builtin",
        retry: float = RETRY,
        telemetry: Telemetry | None = None,
    ) -> None:
        """Prepare. With `through_watcher` the resources register through plugins_registry, otherwise at kubelet.sock.

        `renumbered` are the kinds of devices that can be renumbered; `retry` is the delay, in seconds, until failed
        writes of CDI specs are repeated.
        """
        self._resources = {resource.name: resource for resource in resources}
        self._telemetry = telemetry or Telemetry()
        self._host = host
        self._presence = presence
        self._ledger = ledger
        self._paths = paths
        self._through_watcher = through_watcher
        self._renumbered = renumbered
        self._timings = timings
        self._transport: Transport = transport
        self._watcher = watcher
        self._instance = new_instance()
        self._folder = PluginFolder(
            paths.device_plugins, self._instance, watcher, timings.recheck, self._telemetry.events
        )
        self._specs = Specs(cdi.CdiDirectory(paths.cdi, API), self._specs_changed, retry)
        self._device_info: DeviceInfoFiles | None = None  # created with the first resource that has any
        self._claims_keep_files = False  # files of devices that are not offered
        self._plugins: dict[str, ResourcePlugin] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._stopping: dict[str, set[asyncio.Task[None]]] = {}  # earlier servers of a resource that have not ended
        self._group: asyncio.TaskGroup | None = None
        self._assigned: Mapping[str, tuple[Device, ...]] = {}
        self._claimed: tuple[tuple[Resource, tuple[Device, ...]], ...] = ()
        self._related: Mapping[str, Sequence[tuple[ResourcePlugin, Device]]] = {}
        self._updated = asyncio.Event()
        ledger.observe(self._leases_changed)
        ledger.unlisted.observe(self._unlisted_changed)

    def configure(self, resources: Sequence[Resource]) -> None:
        """Offer these resources from the next `update` on. Raises nothing; units that pods have stay theirs."""
        self._resources = {resource.name: resource for resource in resources}
        for name, plugin in list(self._plugins.items()):
            if not plugin.configure(self._resources.get(name) or _empty_resource(name)):
                self._stop_plugin(name)

    def update(
        self,
        assigned: Mapping[str, tuple[Device, ...]],
        noticed_at: float | None = None,
        claimed: Iterable[tuple[Resource, tuple[Device, ...]]] = (),
    ) -> None:
        """Store which devices each resource has now; lists and CDI specs follow.

        `noticed_at` is when the host reported the change, by the loop's clock. `claimed` are devices that only claims
        can have: their files for Multus are in the same folder.
        """
        self._assigned = assigned
        self._claimed = tuple(each for each in claimed if each[0].device_info)
        self._sync_plugins()
        for name, plugin in self._plugins.items():
            plugin.update(assigned.get(name, ()) if name in self._resources else (), noticed_at)
        self._related = _by_relation(self._plugins.values())
        self._describe()
        self._updated.set()

    async def run(self) -> None:
        """Serve and register after the first `update`. Raises `FolderGone`.

        The first list waits for the CDI specs: the kubelet can allocate what is listed, and it can reuse stored answers
        that name them.
        """
        folders = (self._paths.device_plugins, self._paths.plugins_registry)
        own, other = reversed(folders) if self._through_watcher else folders
        try:
            remove_stale_sockets(own)
        except OSError as error:  # a folder that cannot be served in is reported and retried later, too
            log.warning("cannot remove sockets of earlier instances: %s", error)
        with contextlib.suppress(OSError):  # a kubelet keeps calling sockets left from the other way of registration
            remove_stale_sockets(other)
        try:
            async with asyncio.TaskGroup() as self._group:
                self._group.create_task(self._specs.run(), name="CDI specs")
                self._group.create_task(self._watch_specs(), name="folder of CDI specs")
                self._group.create_task(check_mounts(self._mounts, self._timings.recheck), name="mounted folders")
                if self._device_info is not None:
                    self._group.create_task(self._device_info.run(), name="device-info files")
                if not self._through_watcher:
                    self._group.create_task(self._folder.run(), name="device-plugins folder")
                await self._updated.wait()
                self._run_plugins()
        finally:
            self._group = None

    def kubelet(self) -> object:
        """Identify the current kubelet by its socket, which each start creates again. None without any."""
        return self._folder.kubelet()

    def status(self) -> tuple[ResourceStatus, ...]:
        """Return the state of every resource."""
        return tuple(plugin.status() for plugin in tuple(self._plugins.values()))

    def devices(self) -> dict[str, tuple[DeviceStatus, ...]]:
        """Return the state of the devices of every resource."""
        return {name: tuple(plugin.devices()) for name, plugin in self._plugins.items()}

    def dry_run(self, resource: str, count: int, wanted: Sequence[str]) -> "DryRun":
        """Return what a container that requests units of an offered resource would get, without any effect.

        Raises `AllocationRefused`.
        """
        return self._plugins[resource].dry_run(count, wanted)

    def serves(self, resource: str) -> bool:
        """Return whether units of this name belong to this plugin (`checkpoint.plugin_apis.DevicePluginApi`)."""
        return resource in self._resources or resource in self._plugins

    def restore_units(self, resource: str, units: Sequence[str], entry: UnitEntry | None) -> Sequence[Lease]:
        """Return leases for units that a container holds without a lease (`checkpoint.plugin_apis.DevicePluginApi`)."""
        plugin = self._plugins.get(resource) or self._make_plugin(self._resources[resource])
        return plugin.allocator.restore_leases(units, entry.response if entry else None)

    def republish(self, resources: Iterable[str]) -> None:
        """Send these lists once more: the kubelet then writes its file (`checkpoint.plugin_apis.DevicePluginApi`)."""
        for name in resources:
            if name in self._plugins:
                self._plugins[name].servicer.publish(force=True)

    async def _watch_specs(self) -> None:
        """Restore CDI specs that another program removes, once no older instance manages its own there."""
        await self._ledger.owned()
        await self._specs.watch(self._watcher)

    def _mounts(self) -> Iterator[Path]:
        """Yield the node's folders that are in use, except the one that `PluginFolder` checks."""
        if self._through_watcher:
            yield self._paths.plugins_registry
        if self._specs.are_in_use:
            yield self._paths.cdi

    def _sync_plugins(self) -> None:
        """Have a plugin for each resource that is configured, or of which a pod has a unit."""
        leased = self._ledger.resources(API)
        for name in (*self._resources, *sorted(leased - self._resources.keys())):
            if name not in self._plugins:
                resource = self._resources.get(name)
                if resource is None:
                    log.info("pods have devices of a resource that is not offered any more", extra={"resource": name})
                    resource = _empty_resource(name)
                self._plugins[name] = self._make_plugin(resource)
        for name in [x for x in self._plugins if x not in self._resources and x not in leased]:
            self._stop_plugin(name)
            log.info("no pod has devices of the resource any more", extra={"resource": name})
        self._run_plugins()

    def _stop_plugin(self, name: str) -> None:
        del self._plugins[name]
        if (task := self._running.pop(name, None)) is not None:
            stopping = self._stopping.setdefault(name, set())
            stopping.add(task)
            task.add_done_callback(stopping.discard)
            task.cancel()

    def _run_plugins(self) -> None:
        if self._group is None or not self._updated.is_set():
            return
        for name, plugin in self._plugins.items():
            if name not in self._running:
                self._running[name] = self._group.create_task(self._serve(name, plugin), name=f"resource {name}")

    async def _serve(self, name: str, plugin: ResourcePlugin) -> None:
        """Serve a resource after its earlier servers have stopped: a stream that ends also closes a newer one."""
        if stopping := self._stopping.get(name):
            await asyncio.wait(tuple(stopping))
        await self._specs.wait_written(_SPECS_TIMEOUT)
        await plugin.run()

    def _make_plugin(self, resource: Resource) -> ResourcePlugin:
        return ResourcePlugin(
            resource,
            self._host,
            self._presence,
            self._ledger,
            self._specs,
            self._renumbered,
            self._registration,
            self._telemetry,
        )

    def _registration(self, name: str, servicer: DevicePluginServicer) -> KubeletRegistration:
        service = handler(_SERVICE, servicer)
        if self._through_watcher:
            registry = self._paths.plugins_registry
            return WatcherRegistration(
                name,
                registry,
                self._instance,
                service,
                streaming=lambda: servicer.streaming,
                suspend_lists=servicer.suspend_lists,
                watcher=self._watcher,
                timings=self._timings,
                transport=self._transport,
                telemetry=self._telemetry,
            )
        return Registration(
            name,
            self._folder,
            service,
            options=servicer.options,
            streaming=lambda: servicer.streaming,
            suspend_lists=servicer.suspend_lists,
            wait_idle=servicer.wait_idle,
            timings=self._timings,
            transport=self._transport,
            telemetry=self._telemetry,
        )

    def _describe(self) -> None:
        specs: dict[str, Descriptions] = {}
        for plugin in self._plugins.values():
            if (described := plugin.describe()) is not None:
                specs[described.kind] = described
        self._specs.set_desired(specs)
        self._describe_for_multus()

    def _describe_for_multus(self) -> None:
        """Update the device-info files of what is offered or held."""
        with_device_info = [each for each in self._plugins.values() if each.resource.device_info]
        if self._device_info is None and (with_device_info or self._claimed or self._may_have_files_of_claims()):
            from deviceplugin.device_info_files import DeviceInfoFiles  # on first use: most nodes have none

            self._device_info = DeviceInfoFiles(self._paths.device_info)
            if self._group is not None:
                self._group.create_task(self._device_info.run(), name="device-info files")
        if self._device_info is not None:
            files = {name: content for each in with_device_info for name, content in each.device_info().items()}
            for resource, devices in self._claimed:
                files |= files_of(resource, {unit_name("pciBusID", x): x for x in devices}, self._presence.get)
            kept = {name for each in self._plugins.values() for name in each.held_device_info()}
            of_claims = self._device_info_of_claims()
            self._claims_keep_files = not of_claims.keys() <= files.keys()
            names = [each.resource.name for each in with_device_info] + [resource.name for resource, _ in self._claimed]
            self._device_info.set_desired([*names, *of_claims.values()], files, kept | of_claims.keys())

    def _may_have_files_of_claims(self) -> bool:
        """Return whether there might be files of earlier claims' devices, even of resources that no longer exist."""
        folder = self._paths.device_info
        return not is_missing(folder) and any(not is_missing(folder / x) for x in self._device_info_of_claims())

    def _device_info_of_claims(self) -> dict[str, str]:
        """Return the names of the device-info files of all devices that claims have, with the resources."""
        leases = (lease for name in self._ledger.resources("dra") for lease in self._ledger.of_resource(name, "dra"))
        held = ((x.resource, self._presence.get(device_id)) for x in leases for device_id in x.exclusive)
        named = ((name, unit_name("pciBusID", device)) for name, device in held if device is not None)
        return {file_name(resource, address): resource for resource, address in named if address}

    def _specs_changed(self) -> None:
        """Offer devices whose CDI spec is written now, and withdraw those whose spec is not."""
        for plugin in self._plugins.values():
            if plugin.resource.needs_cdi:
                plugin.rebuild()

    def _leases_changed(self, leases: Sequence[Lease] | None) -> None:
        """Update at once which devices are free after leases of either API have changed."""
        if not self._updated.is_set():
            return
        served = len(self._plugins)
        if leases is None or any(x.api == API and x.resource not in self._resources for x in leases):
            self._sync_plugins()
        other = (lease.resource for lease in leases or () if self._needs_rebuild(lease))
        rebuilt = list(self._plugins if leases is None else dict.fromkeys(other))
        for name in rebuilt:
            self._plugins[name].rebuild()
        for device_id in {i: None for lease in leases or () for i in lease.devices}:
            for plugin, device in self._affected(device_id):
                plugin.refresh(device)
        if rebuilt or len(self._plugins) != served:  # remove the descriptions of devices that are no longer held
            self._describe()
        elif self._claims_keep_files and any(x.api == "dra" for x in leases or ()):
            self._describe_for_multus()

    def _unlisted_changed(self, leases: Sequence[Lease]) -> None:
        """List units of forgotten pods as unhealthy, or offer them again."""
        for name in dict.fromkeys(lease.resource for lease in leases):
            if self._updated.is_set() and name in self._plugins:
                self._plugins[name].rebuild()

    def _affected(self, device_id: str) -> Iterator[tuple[ResourcePlugin, Device]]:
        """Yield offered devices that a lease of this device affects: itself, and those on the same hardware."""
        for plugin in self._plugins.values():
            if (device := plugin.allocator.devices.get(device_id)) is not None:
                yield plugin, device
        yield from self._related.get(device_id, ())

    def _needs_rebuild(self, lease: Lease) -> bool:
        plugin = self._plugins.get(lease.resource) if lease.api == API else None
        return plugin is not None and plugin.needs_rebuild(lease)


def _by_relation(plugins: Iterable[ResourcePlugin]) -> dict[str, list[tuple[ResourcePlugin, Device]]]:
    """Return the offered devices by the ids of their members, wholes and peers."""
    related: dict[str, list[tuple[ResourcePlugin, Device]]] = {}
    for plugin in plugins:
        for device in plugin.allocator.devices.values():
            for i in {*device.children, *device.parents, *device.sriov_peers} - {device.id}:
                related.setdefault(i, []).append((plugin, device))
    return related


def _empty_resource(name: str) -> Resource:
    return Resource(name, NOTHING)
