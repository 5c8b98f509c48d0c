"""The plugin watcher: scans `plugins_registry`, and registers and deregisters plugins accordingly.

It scans the folder every second. This finds everything that the kubelet gets as file events and misses nothing: a
socket that was replaced in between has another inode or creation time. Other changes of a socket (its mode, additional
links) are no events for the kubelet either. Then it deregisters plugins whose socket is gone, and registers new ones. A
failed registration is retried after 0.5 s, 1 s, 2 s and so on. The back-off belongs to the path: it also applies to a
new socket with that path, and only a success ends it.
Source: device manager specification, section 2.4; observations 1.5; the kubelet's `goroutinemap`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

from kubelet.clock import Clock
from kubelet.devicemanager.manager import PluginHandler
from kubelet.errors import RegistrationError
from kubelet.pluginwatcher.operations import Operations
from kubelet.pluginwatcher.snapshot import Snapshot
from kubelet.pluginwatcher.states import ActualState, DesiredState
from kubelet.release import LATEST, Release
from kubelet.rpc import DEFAULT_TIMEOUTS, Timeouts

FIRST_BACK_OFF = 0.5  # seconds
MAX_BACK_OFF = 122.0

log = logging.getLogger(__name__)


def _ignore_refusal(path: Path, why: str) -> None:
    """Ignore the refusal: the default of `on_refusal`."""


class PluginWatcher:
    """Registers the plugins whose sockets are below a folder."""

    def __init__(
        self,
        folder: Path,
        handlers: Mapping[str, PluginHandler],
        clock: Clock,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        period: float = 1.0,
        release: Release = LATEST,
        on_refusal: Callable[[Path, str], None] = _ignore_refusal,
    ) -> None:
        """`handlers` are by plugin type, `period` is in seconds. `on_refusal` gets the socket and the reason."""
        self.desired = DesiredState(clock)
        self.actual = ActualState()
        self._folder = folder
        self._clock = clock
        self._period = period
        self._on_refusal = on_refusal
        self._operations = Operations(handlers, self.actual, timeouts, release)
        self._seen = Snapshot()
        self._running: dict[Path, asyncio.Task[None]] = {}
        self._back_off: dict[Path, tuple[float, float]] = {}  # path -> (not before, next wait)
        self._loop: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Create the folder and start to watch it."""
        self._folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        self._loop = asyncio.create_task(self._run(), name="plugin watcher")

    async def stop(self) -> None:
        """Stop watching. Idempotent."""
        loop, self._loop = self._loop, None
        tasks = [task for task in (loop, *self._running.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._running.clear()

    def scan(self) -> None:
        """Update the desired state from the folder; if the folder cannot be read, the state is unchanged."""
        try:
            found = Snapshot.take(self._folder, self._seen)
        except OSError as error:
            log.warning("%s: %s", self._folder, error)
            return
        for path in self._seen.sockets.keys() - found.sockets.keys():
            self.desired.remove(path)
        for path, identity in found.sockets.items():
            if self._seen.sockets.get(path) != identity:
                self.desired.add_or_update(path)
        self._seen = found

    def reconcile(self) -> None:
        """Start the necessary operations: first deregister lost plugins, then register new ones."""
        for plugin in self.actual.plugins():
            if not self.desired.has(plugin.socket):
                self._begin(plugin.socket.path, partial(self._operations.deregister, plugin))
        for socket in self.desired.sockets():
            if not self.actual.has(socket):
                self._begin(socket.path, partial(self._operations.register, socket))

    async def idle(self) -> None:
        """Wait until no operation is running."""
        while self._running:
            await asyncio.wait(self._running.values())

    async def _run(self) -> None:
        while True:
            self.scan()
            self.reconcile()
            await self._clock.sleep(self._period)

    def _begin(self, path: Path, operation: Callable[[], Awaitable[None]]) -> None:
        """Start an operation, unless one is running for the path or its back-off is not over."""
        not_before, _ = self._back_off.get(path, (0.0, 0.0))
        if path in self._running or self._clock.now() < not_before:
            return
        task = self._running[path] = asyncio.create_task(self._finish(path, operation))
        task.add_done_callback(lambda _: self._running.pop(path, None))

    async def _finish(self, path: Path, operation: Callable[[], Awaitable[None]]) -> None:
        try:
            await operation()
        except Exception as error:  # a failing handler must not affect other plugins
            if not isinstance(error, RegistrationError):
                log.error("%s", error, exc_info=error)
            self._on_refusal(path, str(error))
            _, wait = self._back_off.get(path, (0.0, FIRST_BACK_OFF))
            self._back_off[path] = (self._clock.now() + wait, min(2 * wait, MAX_BACK_OFF))
        else:
            self._back_off.pop(path, None)
