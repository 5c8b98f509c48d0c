"""The daemon: host -> inventory -> assignment -> the two fronts, and what was handed out on disk.

Order at start: lock the state, read the ledger, scan, write CDI specs, serve, register. At the end: sockets go, leases
stay.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from checkpoint import Ledger, StateLocked
from hostdevices import Diff, Host, Scanner
from hostdevices.assignment import Assignment, assign
from hostdevices.health import HealthTracker, needs_polling
from hostdevices.readers import READERS, paths_reader
from hostdevices.watch import Watcher, default_sources
from nodeplug.config import Config, Settings
from nodeplug.fronts import Front, WithinLimits, device_plugins, dra_plugin
from nodeplug.systemd import notify

if TYPE_CHECKING:
    from dra_plugin import DraPlugin

log = logging.getLogger("nodeplug")
Observer = Callable[[Assignment, Diff], None]


class Daemon:
    """One node's devices, offered while `run` runs."""

    def __init__(self, config: Config, host: Host, observer: Observer | None = None) -> None:
        """Prepare. `observer` is told every new assignment and what changed in the inventory before it."""
        self._config = config
        self._host = host
        self._observer = observer
        self._stopping = asyncio.Event()
        self._health = HealthTracker(interval=config.settings.health_seconds)
        self._offered: Collection[str] | None = None  # whose health counts; everybody's before the first assignment
        self._polled = asyncio.Event()  # set while something is offered whose health no kernel event announces

    def stop(self) -> None:
        """Ask `run` to end."""
        self._stopping.set()

    async def run(self) -> None:
        """Offer the devices until `stop`.

        Raises `StateLocked`, OSError where a folder cannot be used, `CannotOffer` where DRA has no API server.
        """
        settings = self._config.settings
        async with contextlib.AsyncExitStack() as stack:
            dra = dra_plugin(self._config, self._host)
            if dra is not None:
                stack.push_async_callback(dra.stop)
                await dra.serve_early()
            ledger = await _open_ledger(settings, self._host)
            stack.push_async_callback(ledger.close)
            plugins = device_plugins(self._config, self._host, ledger)
            if plugins is not None:
                stack.push_async_callback(plugins.stop)
            if dra is not None:
                stack.push_async_callback(dra.stop)  # what it still does needs the ledger
                await dra.take(ledger)
            stack.enter_context(_metrics(settings, plugins, dra))
            stack.callback(notify, "STOPPING=1")
            # DRA first: where the ledger was lost it leases again what pods have, before the other API gives it away
            await self._until_stopped([front for front in (dra, plugins) if front is not None])
        log.info("stopped; leases stay")

    async def _until_stopped(self, fronts: Sequence[Front]) -> None:
        tasks = [asyncio.ensure_future(work) for work in (self._follow_the_host(fronts), self._stopping.wait())]
        try:
            (first, *_), _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            first.result()  # raises what ended it
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _follow_the_host(self, fronts: Sequence[Front]) -> None:
        started = False
        async with self._watcher() as watcher, _background(self._poll_health(watcher)):
            async for inventory, diff in watcher:
                for problem in inventory.problems:
                    log.debug("unreadable: %s: %s", problem.where, problem.reason)
                assignment = assign(inventory, self._config.resources)
                for front in fronts:
                    await front.update(assignment.devices)
                self._offered = assignment.owners.keys()
                offered = [device for devices in assignment.devices.values() for device in devices]
                (self._polled.set if needs_polling(offered) else self._polled.clear)()
                if self._observer is not None:
                    self._observer(assignment, diff)
                if not started:
                    for front in fronts:
                        await front.start()
                    started = True
                    log.info("offering %d resources", len(self._config.resources))
                    notify("READY=1")

    def _watcher(self) -> Watcher:
        globs = self._config.path_globs
        readers = (*READERS, paths_reader(globs)) if globs else READERS
        return Watcher(
            Scanner(self._host, readers),
            default_sources(self._host, globs),
            interval=self._config.settings.rescan_seconds,
            enrich=lambda inventory: self._health.sample(self._host, inventory, self._offered),
        )

    async def _poll_health(self, watcher: Watcher) -> None:
        """Have health sampled in between, while something is offered that needs it: nobody wakes for nothing."""
        while True:
            await self._polled.wait()
            await asyncio.sleep(self._config.settings.health_seconds)
            watcher.request_rescan([])


async def run_until_signalled(config: Config, host: Host) -> None:
    """Run a daemon until SIGTERM or SIGINT; a second signal ends the process at once. Raises what `Daemon.run` does."""
    daemon = Daemon(config, host)
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        log.info("%s, stopping", number.name)
        daemon.stop()
        loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    await daemon.run()


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


@contextlib.asynccontextmanager
async def _background(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


@contextlib.contextmanager
def _metrics(settings: Settings, plugins: WithinLimits | None, dra: "DraPlugin | None") -> Iterator[None]:
    if not settings.metrics_address:
        yield
        return
    from nodeplug.metrics import Metrics  # 5 MiB that only those carry who want them

    host, _, port = settings.metrics_address.rpartition(":")
    metrics = Metrics(plugins.status if plugins else tuple, dra.status if dra else None)
    metrics.start(host.strip("[]"), int(port))
    try:
        yield
    finally:
        metrics.stop()
