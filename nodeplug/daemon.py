"""The daemon: host -> inventory -> assignment -> the two fronts; who holds what on disk, and who looks after it.

Every long-lived part runs in one group: one that dies ends them all, with its name in the log, and whoever supervises
the process starts it again. At the end sockets go, and leases stay.
"""

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Collection, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from checkpoint import Ledger
from checkpoint.reconciler import Reconciler
from folderwatch import FolderWatcher
from hostdevices import Diff, Host, Inventory, Scanner
from hostdevices.health import HealthTracker, needs_polling
from hostdevices.presence import Presence
from hostdevices.readers import READERS, paths_reader
from hostdevices.watching.watch import Change, Watcher, default_sources
from nodeplug import logs
from nodeplug.config import Config, overridden
from nodeplug.config_file import ConfigFile
from nodeplug.control.running import Running
from nodeplug.control.server import ControlServer
from nodeplug.digest import sha256
from nodeplug.events.devices import Seen, device_changes, record_devices
from nodeplug.events.leases import observe_ledger
from nodeplug.fronts import (
    CannotOffer,
    cluster_events,
    ddp_profiles,
    device_plugins,
    dra_plugin,
    evictions,
    needs_dra,
    needs_evictions,
    node_features,
    node_labels,
    nvml_monitor,
    of_device_plugins,
    of_dra,
    remove_features,
    traced,
    witnesses,
)
from nodeplug.parts import once_owned, run_together
from nodeplug.readiness import why_not_ready
from nodeplug.systemd import notify, watchdog
from nodeplug.withholding import with_withheld
from resources.assignment import Assignment, assign
from telemetry import Telemetry

if TYPE_CHECKING:
    from deviceplugin import DevicePlugins
    from dra_plugin import DraPlugin
    from nodeplug.ddp_profiles import DdpProfiles
    from nodeplug.events.cluster import ClusterEvents
    from nodeplug.eviction import Evictions
    from nodeplug.metrics import Metric, ScanStatus
    from nodeplug.node_features import NodeFeatures
    from nodeplug.page.site import Site
    from nvml import NvmlMonitor
    from userspace import NvidiaUserspace

LABELS_PATIENCE = 15.0  # seconds that devices which wait for no labels wait for them, too
MOST_LINES = 100  # about devices that are not offered, at once
END_PATIENCE = 8.0  # seconds; systemd and the kubelet kill after more than that
log = logging.getLogger("nodeplug")
Observer = Callable[[Assignment, Diff], None]


class NewConfiguration(Exception):
    """The file has a configuration for which the daemon must start anew: other settings, or the first for DRA."""


class Daemon:
    """One node's devices, offered while `run` runs."""

    def __init__(
        self,
        config: Config,
        host: Host,
        observer: Observer | None = None,
        file: ConfigFile | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        """Prepare. `observer` is told every new assignment and what changed in the inventory before it.

        The resources follow `file`, if there is one.
        """
        self._telemetry = telemetry or Telemetry()
        self._config = config
        self._file = file
        self._until_configured: asyncio.Timeout | None = None  # ends the look at the host that is under way
        self._is_configured = asyncio.Event()  # what the configuration says is offered
        self._inventory: Inventory | None = None
        self._seen = Seen()
        self._cluster_events: ClusterEvents | None = None
        self._evictions: Evictions | None = None
        self._features: NodeFeatures | None = None
        self._host = host
        self._observer = observer
        self._offer_again: Callable[[], None] | None = None  # what was found last, with what is withheld now
        self._presence = Presence(host)
        self._health = HealthTracker(interval=config.settings.health_seconds)
        self._driver_files: NvidiaUserspace | None = None
        self._nvml: NvmlMonitor | None = None
        self._ddp_profiles: DdpProfiles | None = None
        self._scan: Callable[[], ScanStatus] | None = None  # how the host's watcher stands
        self._offered: Collection[str] | None = None  # whose health counts; everybody's before the first assignment
        self._refused: dict[str, str] = {}  # devices that resources mean and cannot have, with the reason
        self._why_waiting = "this node's labels are not read yet"  # for resources that wait for them
        self._may_offer = asyncio.Event()  # the labels are known, or cannot be had now
        self._is_owner = False  # of the state; until then an older instance has it
        self._serves_at_once = bool(os.environ.get("POD_UID"))  # beside an older instance, or once the state is ours
        self._polled = asyncio.Event()  # set while something is offered whose health no kernel event announces

    async def run(self) -> None:
        """Offer the devices until cancelled.

        Raises `StateLocked` where another instance keeps the state, `CannotOffer` where DRA has no API server,
        `PartFailed` where a part ended, `NewConfiguration` where the file has one for which all starts anew.
        """
        settings = self._config.settings
        boot_id = self._host.read("/proc/sys/kernel/random/boot_id") or "unknown"
        telemetry = self._telemetry
        ledger = Ledger(Path(settings.state_directory), boot_id, commit_seconds=telemetry.commit)
        observe_ledger(telemetry.events, ledger)
        ledger.observe_withheld(lambda: self._offer_again() if self._offer_again is not None else None)
        watcher = FolderWatcher()
        try:
            await ledger.read()
            await self._run_parts(ledger, watcher)
        finally:
            notify("STOPPING=1")
            watcher.close()
            await ledger.close()

    async def _run_parts(self, ledger: Ledger, watcher: FolderWatcher) -> None:
        config = self._config
        host, presence, telemetry = self._host, self._presence, self._telemetry
        dra = dra_plugin(config, host, presence, ledger, watcher, telemetry) if needs_dra(config, ledger) else None
        plugins = device_plugins(config, host, presence, ledger, watcher, telemetry)
        labels = node_labels(config, self._file, self._labels_failed)
        if not config.waiting:
            self._may_offer.set()
        reconciler = Reconciler(ledger, witnesses(config, host, plugins, dra))
        reconciler.units, reconciler.claims = plugins, dra.restorer if dra is not None else None

        def starts_anew(new: Config) -> bool:
            is_first = (
                (needs_dra(new, ledger) and dra is None)
                or (needs_evictions(new) and not needs_evictions(config))
                or (new.selects_nodes and labels is None)
            )
            return new.settings != self._config.settings or is_first

        running = Running(
            host=host,
            telemetry=telemetry,
            ledger=ledger,
            reconciler=reconciler,
            plugins=plugins,
            dra=dra,
            file=self._file,
            config=lambda: self._config,
            inventory=lambda: self._inventory,
            scan=lambda: self._scan() if self._scan else None,
            not_ready=lambda: self._not_ready(plugins, dra),
            metrics=lambda: self._metrics(ledger, plugins, dra),
            starts_anew=starts_anew,
            configured=self._is_configured.wait,
            began=asyncio.get_running_loop().time(),
        )
        self._cluster_events = cluster_events(config, telemetry)
        self._evictions = evictions(config, telemetry)
        parts: dict[str, Coroutine[Any, Any, None]] = {
            "state": self._take(ledger),
            "watchdog": watchdog(),
            "reconciler": once_owned(ledger, reconciler.run),
            "host": self._follow_the_host(ledger, plugins, dra),
            # An update starts the next pod beside this one: the kubelet finds it at once, and its calls wait.
            "device plugin API": plugins.run() if self._serves_at_once else once_owned(ledger, plugins.run),
            "control socket": once_owned(ledger, ControlServer(Path(config.settings.state_directory), running).run),
        }
        if dra is not None:
            parts["DRA"] = dra.run()
        if self._cluster_events is not None:
            parts["Events"] = self._cluster_events.run()
        if self._evictions is not None:
            parts["evictions"] = once_owned(ledger, self._evictions.run)
        if (nvml := nvml_monitor(config, host)) is not None:
            self._nvml = nvml
            parts["NVML"] = nvml.run()
        self._features = node_features(config)
        if self._features is not None:
            parts["node features"] = once_owned(ledger, self._features.run)
        if labels is not None:
            parts["node labels"] = labels.run()
        if self._file is not None:
            parts["configuration"] = self._follow_the_file(self._file, watcher, starts_anew)
        self._serve_status(parts, running)
        await run_together(parts, may_end={"state"})

    def _serve_status(self, parts: dict[str, Coroutine[Any, Any, None]], running: Running) -> None:
        """Add what answers over HTTP, where the settings want it."""
        settings = self._config.settings
        if settings.status_page != "none" and not settings.metrics_address:
            log.warning("settings.statusPage: no page is served without settings.metricsAddress")
        if not settings.metrics_address and not settings.status_socket:
            return
        from nodeplug.status_server import StatusServer

        if settings.metrics_address:
            page = None if settings.status_page == "none" else partial(_page, running, settings.status_page)
            served = StatusServer(settings.metrics_address, running.metrics, running.not_ready, page)
            parts["status page"] = served.run()
        if settings.status_socket:
            parts["status socket"] = StatusServer(settings.status_socket, running.metrics, running.not_ready).run()

    async def _take(self, ledger: Ledger) -> None:
        await ledger.take(self._config.settings.lock_wait_seconds)
        self._is_owner = True
        remove_features(self._config.settings)

    def _metrics(self, ledger: Ledger, plugins: "DevicePlugins", dra: "DraPlugin | None") -> "Iterator[Metric]":
        from nodeplug.metrics import collect  # for those who ask

        file = self._file
        return collect(
            plugins.status(),
            dra.status() if dra else None,
            self._scan() if self._scan else None,
            file.status if file else None,
            self._telemetry,
            ledger.leases(),
            sha256(file.content) if file else "",
        )

    def _not_ready(self, plugins: "DevicePlugins", dra: "DraPlugin | None") -> list[str]:
        if not (self._is_owner or self._serves_at_once):
            return []
        if self._offered is None:
            return ["the devices of this node are not read yet"]
        waiting = self._config.waiting
        missing = [f"{', '.join(waiting)}: {self._why_waiting}"] if waiting else []
        return [*missing, *why_not_ready(plugins.status(), dra.status() if dra else None)]

    def _labels_failed(self, why: str) -> None:
        self._why_waiting = why
        self._may_offer.set()

    async def _follow_the_file(
        self, file: ConfigFile, watcher: FolderWatcher, starts_anew: Callable[[Config], bool]
    ) -> None:
        """Offer what the file says from now on. What pods have stays theirs, as after a restart."""
        async for config in file.changes(watcher, starts_anew):
            if starts_anew(config):
                raise NewConfiguration
            self._config = config
            self._may_offer.set()
            self._is_configured.clear()
            if self._until_configured is not None and not self._until_configured.expired():
                self._until_configured.reschedule(0.0)

    async def _follow_the_host(self, ledger: Ledger, plugins: "DevicePlugins", dra: "DraPlugin | None") -> None:
        """Follow the host's devices; with another configuration anew, for it may look at other folders."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LABELS_PATIENCE):  # slices without what a moment decides would look like a fact
                await self._may_offer.wait()
        while True:
            self._until_configured = until_configured = asyncio.timeout(None)
            try:
                async with until_configured:
                    await self._offer(ledger, plugins, dra)
            except TimeoutError:
                if not until_configured.expired():
                    raise

    async def _offer(self, ledger: Ledger, plugins: "DevicePlugins", dra: "DraPlugin | None") -> None:
        config, is_first = self._config, True
        self._driver_files = self._files_of_drivers(config)
        self._ddp_profiles = ddp_profiles(config)
        async with self._watcher(dra) as watcher:
            self._scan = partial(_scan_status, watcher)
            polling = asyncio.create_task(self._poll_health(watcher))
            if self._nvml is not None:
                self._nvml.observe(partial(watcher.request_rescan, []))
            try:
                async for change in watcher:
                    self._take_over(change, config, is_first, watcher.noticed_at, ledger, plugins, dra)
                    del change  # what came is a list of thousands
                    if self._driver_files is not None and self._is_owner:
                        from nodeplug.driver_files import prune

                        await prune(self._driver_files, ledger)
                    if is_first:
                        is_first = False
                        self._is_configured.set()
                        log.info("offering resources: %d", len(config.resources))
                        notify("READY=1")
            finally:
                polling.cancel()

    def _take_over(
        self,
        change: Change,
        config: Config,
        is_first: bool,
        noticed_at: float | None,
        ledger: Ledger,
        plugins: "DevicePlugins",
        dra: "DraPlugin | None",
    ) -> None:
        """Offer what the host has now; `is_first`: for the first time with this configuration."""
        inventory = change.inventory
        for problem in inventory.problems:
            log.debug("unreadable: %s: %s", problem.where, problem.reason)
        assignment = assign(inventory, config.resources)
        self._report_refused(assignment)
        offered = [device for devices in assignment.devices.values() for device in devices]
        self._presence.update(inventory.devices, offered, ledger.devices())
        self._record_changes(Seen(inventory, assignment), ledger)
        if self._features is not None and not config.waiting:
            self._features.update(assignment)
        if self._evictions is not None:
            self._evictions.look(inventory, self._presence, config.resources, ledger)
        if is_first:
            plugins.configure(of_device_plugins(config))
            if dra is not None:
                dra.configure(of_dra(config))
        self._offer_again = partial(_give, config, assignment, ledger, plugins, dra)
        _give(config, assignment, ledger, plugins, dra, noticed_at)
        self._offered, self._inventory = assignment.owners.keys(), inventory
        (self._polled.set if needs_polling(offered) else self._polled.clear)()
        if self._observer is not None:
            self._observer(assignment, change.diff)

    def _record_changes(self, seen: Seen, ledger: Ledger) -> None:
        changes = list(device_changes(self._seen, seen, ledger.of_device))
        self._seen = seen
        record_devices(self._telemetry.events, changes)
        if self._cluster_events is not None:
            self._cluster_events.devices_changed(changes)

    def _report_refused(self, assignment: Assignment) -> None:
        """Say once of each device that a resource means why it is not offered."""
        refused = {x.device.id: x.reason for x in assignment.rest if x.is_refused}
        new = [device for device, reason in refused.items() if self._refused.get(device) != reason]
        for device in new[:MOST_LINES]:
            log.info("device is not offered: %s", refused[device], extra={"device": device})
        if len(new) > MOST_LINES:
            log.info("%d more are not offered; `nodeplug check` says which, and why", len(new) - MOST_LINES)
        self._refused = refused

    def _watcher(self, dra: "DraPlugin | None") -> Watcher:
        def enrich(inventory: Inventory) -> Inventory:
            found = self._enriched(inventory)
            return dra.with_lent(found) if dra is not None else found

        globs = self._config.path_globs
        readers = (*READERS, paths_reader(globs)) if globs else READERS
        return Watcher(
            Scanner(self._host, readers),
            default_sources(self._host, globs),
            interval=self._config.settings.rescan_seconds,
            enrich=enrich,
        )

    def _enriched(self, inventory: Inventory) -> Inventory:
        """Add what takes more than reading names; called in a thread."""
        sampled = self._health.sample(self._host, inventory, self._offered)
        if self._nvml is not None:
            sampled = self._nvml.enrich(sampled)
        if self._ddp_profiles is not None:
            sampled = self._ddp_profiles.enrich(sampled)
        if pipes := [resource.mps for resource in self._config.resources if resource.mps]:
            from userspace import with_mps  # for GPUs alone

            sampled = with_mps(self._host, sampled, pipes, self._config.settings.driver_root)
        return sampled if self._driver_files is None else self._driver_files.enrich(sampled)

    def _files_of_drivers(self, config: Config) -> "NvidiaUserspace | None":
        """Return what gives containers a driver's files; None where nobody is to have them, or has them from before."""
        folder = Path(config.settings.state_directory) / "userspace"
        if not (any(resource.userspace for resource in config.resources) or folder.is_dir()):
            return None
        from nodeplug.driver_files import driver_files  # for GPUs alone

        return driver_files(config, self._host)

    async def _poll_health(self, watcher: Watcher) -> None:
        """Have health sampled in between, while something is offered that needs it: nobody wakes for nothing."""
        while True:
            await self._polled.wait()
            await asyncio.sleep(self._config.settings.health_seconds)
            watcher.request_rescan([])


def _give(
    config: Config,
    assignment: Assignment,
    ledger: Ledger,
    plugins: "DevicePlugins",
    dra: "DraPlugin | None",
    noticed_at: float | None = None,
) -> None:
    """Give the two fronts their devices. `noticed_at` is when the host said so, by the loop's clock."""
    devices = with_withheld(assignment, ledger.withheld).devices
    plugins.update({x.name: devices[x.name] for x in of_device_plugins(config)}, noticed_at)
    if dra is not None:
        dra.update(devices, noticed_at)


def _scan_status(watcher: Watcher) -> "ScanStatus":
    from nodeplug.metrics import ScanStatus  # for those who ask

    return ScanStatus(watcher.scan_seconds, len(watcher.stuck_reads))


def _page(running: Running, whose: Literal["local", "all"]) -> "Site":
    """Make the page for whoever looks."""
    from nodeplug.page.feed import Feed
    from nodeplug.page.site import Site, of_running

    return Site(Feed(of_running(running)), is_local=whose == "local")


async def run_until_signalled(file: ConfigFile, host: Host, telemetry: Telemetry) -> None:
    """Run a daemon until SIGTERM or SIGINT, at whatever moment; a second signal ends the process at once.

    SIGHUP has the configuration read again. Whatever ends the daemon, the process ends some seconds later, also where a
    thread hangs in the kernel. Raises what `Daemon.run` does.
    """
    loop = asyncio.get_running_loop()
    running = asyncio.ensure_future(_run_with(file, host, telemetry))

    def stop(number: signal.Signals) -> None:
        log.info("%s, stopping", number.name)
        _end_in_time()
        running.cancel()
        loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    loop.add_signal_handler(signal.SIGHUP, file.request)
    try:
        await running
    except asyncio.CancelledError:
        log.info("stopped; leases stay")
    finally:
        _end_in_time()


async def _run_with(file: ConfigFile, host: Host, telemetry: Telemetry) -> None:
    """Run a daemon; anew with a configuration that needs that, and with the one before where it cannot be had."""
    config, before = file.config, None
    while True:
        logs.setup(config.settings.log_level, config.settings.log_format)
        for line in overridden(config.settings):
            log.warning("%s: in a pod the folders and the probes are those of the manifest", line)
        try:
            async with traced(config, telemetry):
                await Daemon(config, host, file=file, telemetry=telemetry).run()
        except NewConfiguration:
            log.info("starting anew with the new configuration")
            config, before = file.config, config
        except CannotOffer as error:
            if before is None:
                raise
            file.refuse(before, str(error))
            config, before = before, None


def _end_in_time() -> None:
    """End the process in `END_PATIENCE` seconds, should it not have ended by then."""

    def end() -> None:
        log.error("a thread did not end within %g s: the process ends without it", END_PATIENCE)
        os._exit(1)

    timer = threading.Timer(END_PATIENCE, end)
    timer.daemon = True
    timer.start()
