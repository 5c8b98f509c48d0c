"""What the host has, offered: scans -> assignment -> the two fronts, then whoever else wants to know.

With another configuration the host is followed again, for that may look at other folders; what pods have stays theirs.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from checkpoint import Ledger
from hostdevices import Diff, Host, Inventory, Scanner
from hostdevices.health import HealthTracker, needs_polling
from hostdevices.presence import Presence
from hostdevices.readers import READERS, paths_reader
from hostdevices.watching.watch import Watcher, default_sources
from nodeplug.config import Config
from nodeplug.enrichment import Enrichment
from nodeplug.fronts import of_device_plugins, of_dra
from nodeplug.withholding import with_withheld
from resources.assignment import Assignment, assign
from resources.selector import concerns

if TYPE_CHECKING:
    from deviceplugin import DevicePlugins
    from dra_plugin import DraPlugin
    from nodeplug.metrics import ScanStatus
    from nvml import NvmlMonitor
    from userspace import NvidiaUserspace

LABELS_PATIENCE: Final = 15.0  # seconds that devices which wait for no labels wait for them, too
MOST_LINES: Final = 100  # about devices that are not offered, at once
log = logging.getLogger("nodeplug")


class Offered(Struct, frozen=True):
    """What is offered since a scan, and by which configuration."""

    config: Config
    inventory: Inventory
    assignment: Assignment


Observer = Callable[[Offered, Diff], None]
"""Is told what is offered, and what the scan found changed."""


class Offering:
    """Keeps what the kubelet is offered true to host and configuration. Belongs to the loop.

    `run` does, while `poll_health` and `prune_driver_files` run beside it.
    """

    def __init__(
        self,
        config: Config,
        host: Host,
        presence: Presence,
        ledger: Ledger,
        plugins: "DevicePlugins",
        dra: "DraPlugin | None" = None,
        nvml: "NvmlMonitor | None" = None,
        observers: Iterable[Observer] = (),
    ) -> None:
        """Prepare. `presence` follows each scan; `observers` are told of it once the fronts have the devices."""
        self.config = config
        self._host = host
        self._presence = presence
        self._ledger = ledger
        self._plugins = plugins
        self._dra = dra
        self._nvml = nvml
        self._observers = tuple(observers)
        self._health = HealthTracker(interval=config.settings.health_seconds)
        self._watcher: Watcher | None = None
        self._driver_files: NvidiaUserspace | None = None
        self._latest: Offered | None = None
        self._empty: tuple[Offered | None, Mapping[str, str]] = (None, {})  # why resources have no device, of an offer
        self._refused: dict[str, str] = {}  # devices that resources mean and cannot have, with the reason
        self._why_waiting = "this node's labels are not read yet"  # for resources that wait for them
        self._may_begin = asyncio.Event()  # the labels are known, or cannot be had now
        if not config.waiting:
            self._may_begin.set()
        self._until_configured: asyncio.Timeout | None = None  # ends the look at the host that is under way
        self._is_configured = asyncio.Event()  # what the configuration says is offered
        self._needs_polling = asyncio.Event()  # something is offered whose health no kernel event announces
        self._may_prune = asyncio.Event()  # a driver's files may be nobody's by now
        ledger.observe(lambda *_: self._files_may_be_free())
        if nvml is not None:
            nvml.observe(self._enrich_again)

    @property
    def inventory(self) -> Inventory | None:
        """What the host has; None before it was first read."""
        return self._latest.inventory if self._latest is not None else None

    def scan_status(self) -> "ScanStatus | None":
        """Return how the watcher of the host stands; None before there is one."""
        from nodeplug.metrics import ScanStatus  # for those who ask

        watcher = self._watcher
        if watcher is None:
            return None
        is_successful = not (watcher.problem or list(self._unread_kinds()))
        return ScanStatus(watcher.scan_seconds, len(watcher.stuck_reads), is_successful)

    def why_incomplete(self) -> list[str]:
        """Return what keeps the configuration from being offered, in words."""
        problem = self._watcher.problem if self._watcher is not None else ""
        if self._latest is None:
            return ["the devices of this node are not read yet" + (f": {problem}" if problem else "")]
        why = [f"{problem}; what was found before is offered"] if problem else []
        why += [f"devices of kind {kind} cannot be read: {reason}" for kind, reason in self._unread_kinds()]
        waiting = self.config.waiting
        return [*why, f"{', '.join(waiting)}: {self._why_waiting}"] if waiting else why

    def _unread_kinds(self) -> Iterator[tuple[str, str]]:
        """Yield the kinds of devices that resources may mean and that could not be read, and why."""
        latest = self._latest
        for problem in latest.inventory.problems if latest is not None else ():
            kind = problem.hidden_kind
            if kind and any(concerns(x.selector, kind) for x in self.config.resources):
                yield kind, problem.reason

    def why_empty(self) -> Mapping[str, str]:
        """Return of each resource without a device why it has none. It takes a while once after a scan: in a thread."""
        offered, found = self._empty
        latest = self._latest
        if latest is not offered and latest is not None:
            from resources.emptiness import why_empty  # for those who ask

            without = [x for x in latest.config.resources if not latest.assignment.devices[x.name]]
            found = {x.name: why_empty(x, latest.inventory, latest.assignment) for x in without}
            self._empty = latest, found
        return found

    async def configured(self) -> None:
        """Return once what the configuration says is offered."""
        await self._is_configured.wait()

    def configure(self, config: Config) -> None:
        """Offer what another configuration says from now on."""
        self.config = config
        self._may_begin.set()
        self._is_configured.clear()
        if self._until_configured is not None and not self._until_configured.expired():
            self._until_configured.reschedule(0.0)

    def labels_failed(self, why: str) -> None:
        """Begin without the node's labels; what waits for them is not offered, and `why` says why."""
        self._why_waiting = why
        self._may_begin.set()

    def withheld_changed(self) -> None:
        """Offer what was found last again, with what is withheld now."""
        if self._latest is not None:
            self._give(self._latest.config, self._latest.assignment)

    async def run(self) -> None:
        """Follow the host until cancelled."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LABELS_PATIENCE):  # slices without what a moment decides would look like a fact
                await self._may_begin.wait()
        while True:
            self._until_configured = until_configured = asyncio.timeout(None)
            try:
                async with until_configured:
                    await self._follow(self.config)
            except TimeoutError:
                if not until_configured.expired():
                    raise

    async def poll_health(self) -> None:
        """Have health sampled in between, while something is offered that needs it: nobody wakes for nothing."""
        while True:
            await self._needs_polling.wait()
            await asyncio.sleep(self.config.settings.health_seconds)
            self._enrich_again()

    async def prune_driver_files(self) -> None:
        """Remove a driver's files with the last lease of their time, once the state is ours."""
        await self._ledger.owned()
        while True:
            await self._may_prune.wait()
            self._may_prune.clear()
            if self._driver_files is not None:
                from nodeplug.driver_files import prune  # for GPUs alone

                await prune(self._driver_files, self._ledger)

    def _files_may_be_free(self) -> None:
        """Take note that leases or devices have changed, where that may free a driver's files."""
        if self._driver_files is not None:
            self._may_prune.set()

    def _enrich_again(self) -> None:
        """Have what no scan reads looked at again, of what was found last."""
        if self._watcher is not None:
            self._watcher.request_rescan([])

    async def _follow(self, config: Config) -> None:
        is_first = True
        enrichment = Enrichment(config, self._host, self._health, self._nvml, self._dra)
        async with self._watch(config, enrichment) as watcher:
            self._watcher, self._driver_files = watcher, enrichment.driver_files
            async for change in watcher:
                assignment = self._assign(config, change.inventory)
                enrichment.assigned(change.inventory, assignment)
                if is_first:
                    self._plugins.configure(of_device_plugins(config))
                    if self._dra is not None:
                        self._dra.configure(of_dra(config))
                self._latest = Offered(config, change.inventory, assignment)
                self._give(config, assignment, watcher.noticed_at)
                for observer in self._observers:
                    observer(self._latest, change.diff)
                del change  # the difference is a list of thousands, which need not wait for the next one
                self._files_may_be_free()
                if is_first:
                    is_first = False
                    if config is self.config:  # and not another one since a moment ago
                        self._is_configured.set()
                    log.info("offering resources: %d", len(config.resources))

    def _watch(self, config: Config, enrichment: Enrichment) -> Watcher:
        globs = config.path_globs
        readers = (*READERS, paths_reader(globs)) if globs else READERS
        return Watcher(
            Scanner(self._host, readers),
            default_sources(self._host, globs),
            interval=config.settings.rescan_seconds,
            enrich=enrichment.enrich,
        )

    def _assign(self, config: Config, inventory: Inventory) -> Assignment:
        """Return which resource has which device; have everybody know where those are that are offered or leased."""
        for problem in inventory.problems:
            log.debug("unreadable: %s: %s", problem.where, problem.reason)
        assignment = assign(inventory, config.resources)
        self._report_refused(assignment)
        offered = [device for devices in assignment.devices.values() for device in devices]
        self._presence.update(inventory.devices, offered, self._ledger.devices())
        is_polled = needs_polling(offered) or bool(config.settings.health_directory)
        (self._needs_polling.set if is_polled else self._needs_polling.clear)()
        return assignment

    def _report_refused(self, assignment: Assignment) -> None:
        """Say once of each device that a resource means why it is not offered."""
        refused = {x.device.id: x.reason for x in assignment.rest if x.is_refused}
        new = [device for device, reason in refused.items() if self._refused.get(device) != reason]
        for device in new[:MOST_LINES]:
            log.info("device is not offered: %s", refused[device], extra={"device": device})
        if len(new) > MOST_LINES:
            log.info("%d more are not offered; `nodeplug check` says which, and why", len(new) - MOST_LINES)
        self._refused = refused

    def _give(self, config: Config, assignment: Assignment, noticed_at: float | None = None) -> None:
        """Give the two fronts their devices. `noticed_at` is when the host said so, by the loop's clock."""
        devices = with_withheld(assignment, self._ledger.withheld).devices
        listed = {x.name: devices[x.name] for x in of_device_plugins(config)}
        claimed = ((x, devices[x.name]) for x in config.resources if x.name not in listed)
        self._plugins.update(listed, noticed_at, claimed)
        if self._dra is not None:
            self._dra.update(devices, noticed_at)
