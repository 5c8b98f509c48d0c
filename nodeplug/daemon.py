"""The daemon: host -> inventory -> assignment -> kubelet, and what was handed out on disk.

Order at start: lock the state, read the ledger, scan, write CDI specs, serve, register. At the end: sockets go, leases
stay.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from pathlib import Path

from checkpoint import Ledger, StateLocked
from deviceplugin import DevicePlugins, Paths
from hostdevices import Diff, Host, Scanner
from hostdevices.assignment import Assignment, assign
from hostdevices.health import HealthTracker
from hostdevices.paths import PathEvents
from hostdevices.readers import READERS, paths_reader
from hostdevices.uevents import Source, UdevEvents
from hostdevices.watch import Watcher
from nodeplug.config import Config, Settings
from nodeplug.systemd import notify

log = logging.getLogger("nodeplug")
Observer = Callable[[Assignment, Diff], None]


class Daemon:
    """One node's devices, offered while `run` runs."""

    def __init__(self, config: Config, host: Host, observer: Observer | None = None) -> None:
        """Prepare. `observer` is told every new assignment and what changed in the inventory before it."""
        self.plugins: DevicePlugins | None = None
        self._config = config
        self._host = host
        self._observer = observer
        self._stopping = asyncio.Event()
        self._health = HealthTracker()
        self._offered: Collection[str] | None = None  # whose health counts; all before the first assignment

    def stop(self) -> None:
        """Ask `run` to end."""
        self._stopping.set()

    async def run(self) -> None:
        """Offer the devices until `stop`. Raises `StateLocked`, and OSError where a folder cannot be used."""
        settings = self._config.settings
        ledger = await _open_ledger(settings, self._host)
        try:
            for loss in ledger.set_aside:
                log.error("%s", loss)
            plugins = self.plugins = DevicePlugins(
                self._config.resources, self._host, ledger, paths_of(settings), settings.register_through_plugin_watcher
            )
            following = asyncio.ensure_future(self._follow_the_host(plugins))
            stopping = asyncio.ensure_future(self._stopping.wait())
            try:
                await asyncio.wait([following, stopping], return_when=asyncio.FIRST_COMPLETED)
                if following.done():
                    following.result()  # raises what ended it
            finally:
                notify("STOPPING=1")
                for task in (following, stopping):
                    task.cancel()
                await asyncio.wait([following, stopping])
                await plugins.stop()
        finally:
            await ledger.close()
        log.info("stopped; leases stay")

    async def _follow_the_host(self, plugins: DevicePlugins) -> None:
        started = False
        async with self._watcher() as watcher:
            async for inventory, diff in watcher:
                for problem in inventory.problems:
                    log.debug("unreadable: %s: %s", problem.where, problem.reason)
                assignment = assign(inventory, self._config.resources)
                self._offered = assignment.owners.keys()
                await plugins.update(assignment.devices)
                if self._observer is not None:
                    self._observer(assignment, diff)
                if not started:
                    await plugins.start()
                    started = True
                    log.info("offering %d resources", len(self._config.resources))
                    notify("READY=1")

    def _watcher(self) -> Watcher:
        globs = self._config.path_globs
        readers = (*READERS, paths_reader(globs)) if globs else READERS
        sources: list[Source] = [UdevEvents(), PathEvents(globs, "path")] if self._host.is_live() else []
        return Watcher(
            Scanner(self._host, readers),
            sources,
            interval=self._config.settings.rescan_seconds,
            enrich=lambda inventory: self._health.sample(self._host, inventory, self._offered),
        )


def paths_of(settings: Settings) -> Paths:
    """Return where the kubelet and the runtime look, by the settings."""
    kubelet = Path(settings.kubelet_root)
    return Paths(
        device_plugins=kubelet / "device-plugins",
        plugins_registry=kubelet / "plugins_registry",
        pod_resources=kubelet / "pod-resources" / "kubelet.sock",
        cdi=Path(settings.cdi_directory),
    )


async def _open_ledger(settings: Settings, host: Host) -> Ledger:
    """Open the ledger; during an upgrade the old instance may hold it for a moment still."""
    boot_id = host.read("/proc/sys/kernel/random/boot_id") or "unknown"
    deadline = asyncio.get_running_loop().time() + settings.lock_wait_seconds
    while True:
        try:
            return await Ledger.open(Path(settings.state_directory), boot_id)
        except StateLocked:
            if asyncio.get_running_loop().time() >= deadline:
                raise
            await asyncio.sleep(0.05)
