"""Offers the host's devices: scans -> assignment -> the two plugins, then other observers.

With another configuration the watch of the host restarts, because it may need other folders; pods keep their devices.
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
from nodeplug.parts import device_plugin_resources, dra_resources
from nodeplug.withholding import with_withheld
from resources.assignment import Assignment, assign
from resources.selector import concerns

if TYPE_CHECKING:
    from deviceplugin import DevicePlugins
    from dra_plugin import DraPlugin
    from nodeplug.metrics import ScanStatus
    from nvml import NvmlMonitor
    from userspace import NvidiaUserspace

LABELS_TIMEOUT: Final = 15.0  # seconds that all devices wait for the labels, also those that do not depend on them
MAX_LINES: Final = 100  # of the log about devices that are not offered, at once
log = logging.getLogger("nodeplug")


class Offered(Struct, frozen=True):
    """What is offered since a scan, and the configuration of it."""

    config: Config
    inventory: Inventory
    assignment: Assignment


Observer = Callable[[Offered, Diff], None]
"""Called with what is offered, and with the changes that the scan found."""


class Offering:
    """Keeps what is offered to the kubelet up to date with host and configuration. Belongs to the event loop.

    `run` does this, while `poll_health` and `prune_driver_files` run beside it.
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
        """Prepare. `presence` follows each scan; `observers` are called after it once the plugins have the devices."""
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
        self._empty: tuple[Offered | None, Mapping[str, str]] = (None, {})  # why resources are empty, for one offer
        self._refused: dict[str, str] = {}  # devices that resources select and cannot have, with the reason
        self._waiting_reason = "this node's labels are not read yet"  # the reason for resources that wait for them
        self._may_begin = asyncio.Event()  # the labels are known, or cannot be read now
        if not config.waiting:
            self._may_begin.set()
        self._until_configured: asyncio.Timeout | None = None  # ends the present watch of the host
        self._is_configured = asyncio.Event()  # the configuration's devices are offered
        self._needs_polling = asyncio.Event()  # a device is offered whose health has no kernel events
        self._may_prune = asyncio.Event()  # a driver's files might be unused by now
        ledger.observe(lambda *_: self._request_pruning())
        if nvml is not None:
            nvml.observe(self._enrich_again)

    @property
    def inventory(self) -> Inventory | None:
        """The host's devices; None before the first scan."""
        return self._latest.inventory if self._latest is not None else None

    def scan_status(self) -> "ScanStatus | None":
        """Return the state of the watcher of the host; None before there is one."""
        from nodeplug.metrics import ScanStatus  # imported on first use

        watcher = self._watcher
        if watcher is None:
            return None
        is_successful = not (watcher.problem or list(self._unread_kinds()))
        return ScanStatus(watcher.scan_seconds, len(watcher.stuck_reads), is_successful)

    def incomplete_reasons(self) -> list[str]:
        """Return what keeps the configuration from being offered, in words."""
        problem = self._watcher.problem if self._watcher is not None else ""
        if self._latest is None:
            return ["the devices of this node are not read yet" + (f": {problem}" if problem else "")]
        why = [f"{problem}; what was found before is offered"] if problem else []
        why += [f"devices of kind {kind} cannot be read: {reason}" for kind, reason in self._unread_kinds()]
        waiting = self.config.waiting
        return [*why, f"{', '.join(waiting)}: {self._waiting_reason}"] if waiting else why

    def _unread_kinds(self) -> Iterator[tuple[str, str]]:
        """Yield the kinds of devices that resources may mean and that could not be read, and why."""
        latest = self._latest
        for problem in latest.inventory.problems if latest is not None else ():
            kind = problem.hidden_kind
            if kind and any(concerns(x.selector, kind) for x in self.config.resources):
                yield kind, problem.reason

    def empty_reasons(self) -> Mapping[str, str]:
        """Return for each resource without a device why it has none. Slow once after each scan: call it in a thread."""
        offered, found = self._empty
        latest = self._latest
        if latest is not offered and latest is not None:
            from resources.emptiness import empty_reason  # imported on first use

            without = [x for x in latest.config.resources if not latest.assignment.devices[x.name]]
            found = {x.name: empty_reason(x, latest.inventory, latest.assignment) for x in without}
            self._empty = latest, found
        return found

    async def configured(self) -> None:
        """Wait until the configuration's devices are offered."""
        await self._is_configured.wait()

    def configure(self, config: Config) -> None:
        """Offer the resources of another configuration from now on."""
        self.config = config
        self._may_begin.set()
        self._is_configured.clear()
        if self._until_configured is not None and not self._until_configured.expired():
            self._until_configured.reschedule(0.0)

    def labels_failed(self, why: str) -> None:
        """Begin without the node's labels. The resources that wait for them are not offered, with the reason `why`."""
        self._waiting_reason = why
        self._may_begin.set()

    def withheld_changed(self) -> None:
        """Offer the devices of the last scan again, with the present withholdings."""
        if self._latest is not None:
            self._publish(self._latest.config, self._latest.assignment)

    async def run(self) -> None:
        """Follow the host until cancelled."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LABELS_TIMEOUT):  # incomplete slices would look like a fact
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
        """Sample health periodically while a device is offered that needs it.

        Otherwise the process does not wake up.
        """
        while True:
            await self._needs_polling.wait()
            await asyncio.sleep(self.config.settings.health_seconds)
            self._enrich_again()

    async def prune_driver_files(self) -> None:
        """Remove a driver's files after the last lease that uses them, once this instance has the state."""
        await self._ledger.owned()
        while True:
            await self._may_prune.wait()
            self._may_prune.clear()
            if self._driver_files is not None:
                from nodeplug.driver_files import prune  # imported here: only GPUs need it

                await prune(self._driver_files, self._ledger)

    def _request_pruning(self) -> None:
        """Record that leases or devices have changed, which can free a driver's files."""
        if self._driver_files is not None:
            self._may_prune.set()

    def _enrich_again(self) -> None:
        """Request that the sources beside the scan are read again for the devices of the last scan."""
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
                    self._plugins.configure(device_plugin_resources(config))
                    if self._dra is not None:
                        self._dra.configure(dra_resources(config))
                self._latest = Offered(config, change.inventory, assignment)
                self._publish(config, assignment, watcher.noticed_at)
                for observer in self._observers:
                    observer(self._latest, change.diff)
                del change  # the difference is a list of thousands, which should not stay in memory until the next one
                self._request_pruning()
                if is_first:
                    is_first = False
                    if config is self.config:  # and not replaced a moment ago
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
        """Return which resource has which device; update the presence of those that are offered or leased."""
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
        """Log once for each device that a resource selects why it is not offered."""
        refused = {x.device.id: x.reason for x in assignment.rest if x.is_refused}
        new = [device for device, reason in refused.items() if self._refused.get(device) != reason]
        for device in new[:MAX_LINES]:
            log.info("device is not offered: %s", refused[device], extra={"device": device})
        if len(new) > MAX_LINES:
            log.info("%d more are not offered; `nodeplug check` says which, and why", len(new) - MAX_LINES)
        self._refused = refused

    def _publish(self, config: Config, assignment: Assignment, noticed_at: float | None = None) -> None:
        """Pass the devices to the two plugins. `noticed_at` is the time of the host's event, by the loop's clock."""
        devices = with_withheld(assignment, self._ledger.withheld).devices
        listed = {x.name: devices[x.name] for x in device_plugin_resources(config)}
        claimed = ((x, devices[x.name]) for x in config.resources if x.name not in listed)
        self._plugins.update(listed, noticed_at, claimed)
        if self._dra is not None:
            self._dra.update(devices, noticed_at)
