"""The daemon: the ledger of leases and its reconciler, the host's devices, and the two plugins that offer them.

All long-lived parts run in one task group. If one fails, all end, with its name in the log, and the supervisor starts
the process again. At the end sockets are removed, and leases stay.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import cdi
from checkpoint import Ledger
from checkpoint.reconciler import Reconciler
from folderwatch import FolderWatcher
from hostdevices import Diff, Host
from hostdevices.presence import Presence
from nodeplug.config import Config, Settings, node_name
from nodeplug.config_file import ConfigFile
from nodeplug.control.running import RunningDaemon
from nodeplug.control.server import ControlServer
from nodeplug.events.devices import DeviceRecorder
from nodeplug.events.leases import observe_ledger
from nodeplug.kubelet_root import record_kubelet
from nodeplug.logs import LASTING
from nodeplug.moved_specs import remove_specs_of_previous_folder
from nodeplug.offering import Observer, Offered, Offering
from nodeplug.parts import (
    check_kubelet,
    cluster_events,
    device_plugins,
    dra_plugin,
    evictions,
    needs_dra,
    needs_evictions,
    node_features,
    node_labels,
    nvml_monitor,
    remove_features,
    witnesses,
)
from nodeplug.supervision import run_together
from nodeplug.systemd import notify_ready, watchdog
from nodeplug.unlisted_record import UnlistedRecord
from telemetry import Telemetry

if TYPE_CHECKING:
    from nodeplug.events.cluster import ClusterEvents
    from nodeplug.eviction import Evictions
    from nodeplug.node_features import NodeFeatures
    from nodeplug.page.site import Site

log = logging.getLogger("nodeplug")


class NewConfiguration(Exception):
    """The file has a configuration that requires a restart of the daemon: other settings, or the first for DRA."""


class Renamed(Exception):
    """A kubelet has started since the host's name, and with it the node's, changed: the daemon must restart."""


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
        """Prepare. `observer` is called after each scan, once its devices are offered.

        The resources follow `file`, if there is one.
        """
        self._config = config
        self._host = host
        self._observer = observer
        self._file = file
        self._telemetry = telemetry or Telemetry()
        is_in_pod = bool(os.environ.get("POD_UID"))
        self._serves_without_state = is_in_pod  # beside an older instance; otherwise once it has the state

    async def run(self) -> None:
        """Offer the devices until cancelled.

        Raises `StateLocked` if another instance keeps the state, `CannotOffer` if DRA has no API server or the leases
        belong to pods of another kubelet, `PartFailed` if a part ended, `NewConfiguration` if the file has one that
        requires a restart, `Renamed` if the node has another name.
        """
        boot_id = self._host.read("/proc/sys/kernel/random/boot_id") or "unknown"
        telemetry = self._telemetry
        ledger = Ledger(Path(self._config.settings.state_directory), boot_id, commit_seconds=telemetry.commit)
        observe_ledger(telemetry.events, ledger)
        watcher = FolderWatcher()
        try:
            await ledger.read()
            check_kubelet(self._config.settings, ledger)  # before any kubelet hears of us
            await run_together(self._parts(ledger, watcher), may_end={"state", "readiness"})
        finally:
            watcher.close()
            await ledger.close()

    def _parts(self, ledger: Ledger, watcher: FolderWatcher) -> dict[str, Coroutine[Any, Any, None]]:
        """Connect all parts; return those that run, by name."""
        config, file = self._config, self._file
        host, telemetry, settings = self._host, self._telemetry, config.settings
        node = node_name(settings.node_name)
        presence = Presence(host)
        dra = dra_plugin(config, host, presence, ledger, watcher, telemetry) if needs_dra(config, ledger) else None
        plugins = device_plugins(config, host, presence, ledger, watcher, telemetry)
        nvml = nvml_monitor(config, host)
        features = node_features(config)
        evicting = evictions(config, telemetry)
        to_cluster = cluster_events(config, telemetry)
        observers = self._observers(ledger, presence, features, evicting, to_cluster)
        offering = Offering(config, host, presence, ledger, plugins, dra, nvml, observers)
        ledger.observe_withheld(offering.withheld_changed)
        labels = node_labels(config, file, offering.labels_failed)
        reconciler = Reconciler(ledger, witnesses(config, host, plugins, dra))
        reconciler.units, reconciler.claims = plugins, dra.restorer if dra is not None else None

        def needs_restart(new: Config) -> bool:
            is_first = (
                (needs_dra(new, ledger) and dra is None)
                or (needs_evictions(new) and not needs_evictions(config))
                or (new.selects_nodes and labels is None)
            )
            is_renamed = node_name(new.settings.node_name) != node  # by the host: all other parts use the old name
            return new.settings != settings or is_first or is_renamed

        unlisted = UnlistedRecord(ledger, Path(settings.state_directory))
        unlisted.restore()  # before an older instance has ended, while this one may list units already
        running = RunningDaemon(
            host=host,
            telemetry=telemetry,
            ledger=ledger,
            reconciler=reconciler,
            plugins=plugins,
            dra=dra,
            file=file,
            offering=offering,
            needs_restart=needs_restart,
            serves_without_state=self._serves_without_state,
            started=asyncio.get_running_loop().time(),
        )
        parts: dict[str, Coroutine[Any, Any, None]] = {
            "state": self._take_state(ledger, unlisted),
            "watchdog": watchdog(),
            "readiness": notify_ready(offering.configured),
            "reconciler": _once_owned(ledger, reconciler.run),
            "unlisted units": _once_owned(ledger, unlisted.run),
            "host": offering.run(),
            "health": offering.poll_health(),
            "driver files": offering.prune_driver_files(),
            # An update starts the next pod beside this one: the kubelet finds it at once, and its calls wait.
            "device plugin API": plugins.run() if self._serves_without_state else _once_owned(ledger, plugins.run),
            "control socket": _once_owned(ledger, ControlServer(Path(settings.state_directory), running, watcher).run),
        }
        if dra is not None:
            parts["DRA"] = dra.run()
        if to_cluster is not None:
            parts["Events"] = to_cluster.run()
        if evicting is not None:
            parts["evictions"] = _once_owned(ledger, evicting.run)
        if nvml is not None:
            parts["NVML"] = nvml.run()
        if features is not None:
            parts["node features"] = _once_owned(ledger, features.run)
        if labels is not None:
            parts["node labels"] = labels.run()
        if not settings.node_name:
            parts["node name"] = _follow_node_name(telemetry, node, plugins.kubelet)
        if file is not None:
            parts["configuration"] = _follow_file(file, watcher, needs_restart, offering)
        return parts | dict(_status_servers(settings, running))

    async def _take_state(self, ledger: Ledger, unlisted: UnlistedRecord) -> None:
        await ledger.take(self._config.settings.lock_wait_seconds)
        unlisted.restore()  # before other parts continue, and list units
        check_kubelet(self._config.settings, ledger)
        if ledger.is_loaded:
            record_kubelet(self._config.settings)
        if self._file is not None:
            self._file.is_unproven = False
        remove_specs_of_previous_folder(self._config.settings)
        remove_features(self._config.settings)
        with contextlib.suppress(OSError):  # the ledger reports what is wrong with the disk
            cdi.remove_half_written(Path(self._config.settings.state_directory))

    def _observers(
        self,
        ledger: Ledger,
        presence: Presence,
        features: "NodeFeatures | None",
        evicting: "Evictions | None",
        to_cluster: "ClusterEvents | None",
    ) -> Iterator[Observer]:
        """Yield the observers that are called after each scan, once its devices are offered."""
        report = to_cluster.devices_changed if to_cluster is not None else None
        recorder = DeviceRecorder(self._telemetry.events, ledger.of_device, report)
        yield lambda offered, _: recorder.update(offered.inventory, offered.assignment)
        if features is not None:

            def describe(offered: Offered, _: Diff) -> None:
                if not offered.config.waiting:
                    features.update(offered.assignment)

            yield describe
        if evicting is not None:
            yield lambda offered, _: evicting.note_scan(offered.inventory, presence, offered.config.resources, ledger)
        if self._observer is not None:
            yield self._observer


async def _follow_file(
    file: ConfigFile, watcher: FolderWatcher, needs_restart: Callable[[Config], bool], offering: Offering
) -> None:
    """Offer what the file describes, from now on. Pods keep their devices, as after a restart."""
    configurations = file.changes(watcher, needs_restart)
    async with contextlib.aclosing(configurations) as changes:  # else it is closed some time later
        async for config in changes:
            if needs_restart(config):
                raise NewConfiguration
            offering.configure(config)


async def _follow_node_name(telemetry: Telemetry, node: str, identify: Callable[[], object]) -> None:
    """Raise `Renamed` once a kubelet has started under another name.

    Until then it uses the name of its start, as we do.
    """
    registered = asyncio.Event()
    kubelet: object = None
    unsubscribe = telemetry.events.subscribe(lambda x: registered.set() if x.kind == "registered" else None)
    try:
        while True:
            await registered.wait()
            registered.clear()
            before, kubelet = kubelet, identify()
            if kubelet != before and (now := node_name()) != node:
                raise Renamed(
                    f"the kubelet has restarted after the host name changed from {node} to {now}: nodeplug restarts"
                )
    finally:
        unsubscribe()


async def _once_owned(ledger: Ledger, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    await ledger.owned()
    await run()


def _status_servers(settings: Settings, running: RunningDaemon) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
    """Yield, by name, the HTTP servers that the settings ask for."""
    if settings.metrics_address:
        page = None if settings.status_page == "none" else partial(_page, running, settings.status_page)
        yield "status page", _status_server(settings.metrics_address, running, page)
    elif settings.status_page != "none":
        text = "settings.statusPage: no page is served, because settings.metricsAddress is not set"
        log.warning(text, extra=LASTING)
    if settings.status_socket:
        yield "status socket", _status_server(settings.status_socket, running)


async def _status_server(address: str, running: RunningDaemon, page: "Callable[[], Site] | None" = None) -> None:
    from nodeplug.status_server import StatusServer  # imported only if the settings ask for a server

    await StatusServer(address, running.metrics, running.not_ready, page).run()


def _page(running: RunningDaemon, clients: Literal["local", "all"]) -> "Site":
    """Make the page for a browser that asks for it."""
    from nodeplug.page.feed import Feed
    from nodeplug.page.site import Site, ask_in_process

    return Site(Feed(ask_in_process(running)), is_local=clients == "local")
