"""`Watcher`: provides the host's inventory at first and after each change.

Sources (uevents.py, paths.py) trigger scans; the state is always read. Events make it fast, and a periodic full rescan
makes it correct: level, not edge.

Each scan runs in its own thread. A scan that hangs in a read of the kernel is abandoned, and another one skips the
hanging hardware (reads.py): so its devices are unhealthy, and nothing else is delayed.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, Self

from folderwatch import FolderWatcher
from hostdevices.conclusive_calls import call_conclusively
from hostdevices.errors import HostExhausted
from hostdevices.host import Host
from hostdevices.inventory import Diff, Inventory, diff
from hostdevices.readers.pci import function_above, pci_id
from hostdevices.reads import Attempt, StuckRead
from hostdevices.scan import Scanner
from hostdevices.watching.paths import PathEvents
from hostdevices.watching.uevents import Source, UdevEvents

RESCAN_INTERVAL = 60.0  # seconds
RETRY_INTERVAL = 5.0  # seconds until a failed scan is repeated, for example after file descriptors or threads ran out
SLOW_SCAN = 1.0  # seconds after which a scan is logged
NEVER = float("inf")
MAX_SYSPATHS = 1000  # devices that events name before a scan; after more, no earlier read is trusted

_INTERFACES, _FUNCTIONS = "net", "pci"  # subsystems
_UDEVD = "/run/udev/control"
# Created by nvidia-modprobe with mknod at their first use, without an event of the kernel.
_NVIDIA_NODES = ("/dev/nvidia*", "/dev/nvidia-caps/*")

_log = logging.getLogger(__name__)


def default_sources(host: Host, path_globs: Iterable[str] = ()) -> list[Source]:
    """Return the sources of changes on `host`: the kernel, udevd if one runs, and inotify for `path_globs`.

    Changes of the globs' names are reported as events of the subsystem `path`. A stored tree has no kernel events, and
    a capture does not change.

    The kernel is a source even if a udevd runs: it is earlier, and udevd does not send to other network namespaces.
    udevd adds a second read after its rules have run (permissions, links).
    """
    if not host.root.is_dir():
        return []
    folders = FolderWatcher()
    sources: list[Source] = [PathEvents(path_globs, "path", host, folders)]
    if host.exists("/proc/driver/nvidia"):
        sources.append(PathEvents(_NVIDIA_NODES, "drm", host, folders))
    if host.is_live():
        sources.append(UdevEvents("kernel"))
        if os.path.exists(_UDEVD):
            sources.append(UdevEvents("udev"))
    return sources


class Change(NamedTuple):
    """A new inventory, and its difference from the one before. The diff is empty if only problems changed."""

    inventory: Inventory
    diff: Diff


class _Task(NamedTuple):
    """What to scan; None stands for all."""

    subsystems: frozenset[str] | None
    syspaths: frozenset[str] | None
    noticed_at: float | None = None  # the time of the first event that called for it


class _Scan(NamedTuple):
    """A scan in progress: its task, and its thread."""

    task: _Task
    attempt: "Attempt[Change | None]"
    result: "asyncio.Future[Change | None]"
    started: float


class ScanThrottle:
    """When to scan: at once after a quiet time, then at growing intervals while a burst lasts.

    A burst ends after `QUIET` seconds without an event, and is scanned for the last time then. During a burst, scans
    follow after 1 ms (a device's parts and peers arrive within that), 70 ms, and every 5 s; scans that find nothing new
    extend the interval to at most 250 ms. So 512 virtual functions give five results, if they are created within 9 s.
    """

    QUIET = 0.2
    _FIRST, _FACTOR, _IDLE, _BUSY = 0.001, 70.0, 0.25, 5.0

    def __init__(self) -> None:
        """Begin in a quiet time."""
        self._last_event = self._last_scan = float("-inf")
        self._scan_interval = 0.0
        self._pending = False

    def event(self, now: float) -> None:
        """Record an event that calls for a scan."""
        if not self._pending and now - self._last_event >= self.QUIET:
            self._scan_interval = 0.0
        self._last_event = now
        self._pending = True

    def due(self) -> float:
        """Return when to scan, which can be past; `NEVER` if no event calls for it."""
        if not self._pending:
            return NEVER
        return min(self._last_event + self.QUIET, self._last_scan + self._scan_interval)

    def scanning(self) -> None:
        """Record that a scan begins: later events call for another one."""
        self._pending = False

    def scanned(self, now: float, changed: bool) -> None:
        """Record that a scan ended, and whether it found anything new."""
        limit = max(self._scan_interval, self._BUSY if changed else self._IDLE)
        self._scan_interval = min(max(self._scan_interval * self._FACTOR, self._FIRST), limit)
        self._last_scan = now


class Watcher:
    """Iterate to get the first inventory and then every change; use as an asynchronous context manager.

    The next scan starts when the next change is requested: a slow consumer gets fewer changes, never stale ones.
    """

    def __init__(
        self,
        scanner: Scanner,
        sources: Sequence[Source],
        *,
        interval: float = RESCAN_INTERVAL,
        enrich: Callable[[Inventory], Inventory] | None = None,
    ) -> None:
        """Prepare to read with `scanner` after each wake-up from `sources`, and everything every `interval` seconds.

        `enrich` is applied to each inventory before it is compared, in the thread that scans.
        """
        self._scanner = scanner
        self._sources = sources
        self._unavailable: list[Source] = []  # those that could not be started
        self._interval = interval
        self._enrich = enrich
        self._woken = asyncio.Event()
        self._throttle = ScanThrottle()
        self._subsystems: set[str] = set()
        self._syspaths: set[str] = set()
        self._everything = False  # the pending scan is a full one
        self._every_device = False  # the pending scan trusts no earlier read
        self._at_once = False  # the pending scan is not throttled
        self._full_scan_at = float("-inf")  # when a scan without any event is due: the first one is now
        self._scan: _Scan | None = None
        self.problem = ""  # why the last scan failed, for want of a file descriptor or thread as a rule
        self.inventory: Inventory | None = None
        self._noticed_at: float | None = None  # the time of the first event that calls for the pending scan
        self.scan_seconds = 0.0  # the duration of the last scan, hangs included
        self.noticed_at: float | None = None  # the time, by the loop's clock, of the event that led to the last change

    @property
    def stuck_reads(self) -> tuple[StuckRead, ...]:
        """Return the reads that have not returned; the devices behind them are unhealthy."""
        return self._scanner.reads.stuck

    async def __aenter__(self) -> Self:
        """Start the sources, before the first scan so that no change is missed in between."""
        self._loop = asyncio.get_running_loop()
        self._start(self._sources)
        return self

    def _start(self, sources: Iterable[Source]) -> None:
        """Start sources; an unavailable one is retried with each full scan, and logged once."""
        unavailable, self._unavailable = self._unavailable, []
        for source in sources:
            try:
                source.start(self._wake)
            except OSError as error:  # netlink refused, or no descriptor left: it works, but slower
                self._unavailable.append(source)
                if source not in unavailable:
                    extra = {"is_current": partial(self._is_unavailable, source)}
                    _log.warning("no %s (%s): changes wait for a rescan", type(source).__name__, error, extra=extra)

    def _is_unavailable(self, source: Source) -> bool:
        return source in self._unavailable

    async def __aexit__(self, *_: object) -> None:
        """Close the sources. A scan in progress ends after its present read, and is not waited for."""
        for source in self._sources:
            source.close()
        if self._scan is not None:
            self._scan.attempt.abandon()
            self._scan.result.cancel()
            self._scan = None

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> Change:
        """Wait for the next change. Can be cancelled and called again without losing one."""
        while True:
            if self._scan is None:
                await self._until_due()
                self._scan = self._begin(self._take(self._loop.time()), self._loop.time())
            noticed_at = self._scan.task.noticed_at
            change = await self._finished()
            if change is not None:
                self.inventory, self.noticed_at = change.inventory, noticed_at
                return change

    def _begin(self, task: _Task, started: float) -> _Scan:
        # Always in a thread. Starting one takes 0.1 ms, which a scan on the loop would save. But full scans take up to
        # 0.3 s (512 VFs), and a driver that blocks a read of its attribute would stall every server.
        attempt = self._scanner.reads.attempt(lambda: self._read(task), self._read_returned)
        return _Scan(task, attempt, asyncio.wrap_future(attempt.future), started)

    async def _finished(self) -> Change | None:
        """Wait for the scan in progress, and start it again if it hangs."""
        while True:
            assert self._scan is not None
            scan = self._scan
            await asyncio.wait([scan.result], timeout=self._scanner.reads.limit / 2)
            if scan.result.done():
                break
            if scan.attempt.is_stuck() and not self._scanner.reads.is_full:
                scan.attempt.abandon_as_stuck()
                scan.result.cancel()
                self._scan = self._begin(scan.task, scan.started)
        self._scan = None
        self.scan_seconds = self._loop.time() - scan.started
        if self.scan_seconds >= SLOW_SCAN:
            _log.info("a scan took %.1f s", self.scan_seconds)
        try:
            change = scan.result.result()
        except Exception as error:  # a defect of ours also ends a scan and not the daemon
            change, self._full_scan_at = None, min(self._full_scan_at, self._loop.time() + RETRY_INTERVAL)
            is_defect = not isinstance(error, HostExhausted)
            if not self.problem:
                words = "the scan failed" if is_defect else str(error)
                _log.error(
                    "%s: devices keep their last state; nodeplug tries again every %g s",
                    words,
                    RETRY_INTERVAL,
                    exc_info=is_defect,
                    extra={"is_current": lambda: bool(self.problem)},
                )
            self.problem = f"the scan failed: {type(error).__name__}: {error}" if is_defect else str(error)
        else:
            self.problem = ""
        self._throttle.scanned(self._loop.time(), change is not None)
        return change

    def _read_returned(self) -> None:
        """Request a full scan; called in the thread whose read has returned."""
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            self._loop.call_soon_threadsafe(self.request_rescan)

    def request_rescan(self, subsystems: Iterable[str] | None = None) -> None:
        """Request a scan now, whatever the throttle: of everything, or of what events of `subsystems` concern.

        With an empty list nothing is read again, and `enrich` is applied again to the last result.
        """
        if subsystems is None:
            self._everything = True
        else:
            asked = set(subsystems)
            self._subsystems |= asked
            self._every_device |= bool(asked)
        self._at_once = True
        self._woken.set()

    def _wake(self, subsystem: str | None, syspath: str) -> None:
        if subsystem is None:
            self._everything = True
        elif affected := self._affected_subsystems(subsystem, syspath):
            self._subsystems |= affected
            if syspath and len(self._syspaths) < MAX_SYSPATHS:
                self._syspaths.add(syspath)
            else:
                self._every_device = True
        else:
            return
        now = asyncio.get_running_loop().time()
        self._noticed_at = self._noticed_at or now
        self._throttle.event(now)
        self._woken.set()

    def _affected_subsystems(self, subsystem: str, syspath: str) -> frozenset[str]:
        """Return the subsystems that have readers and that an event of a device concerns.

        The functions of a card have the name of its own interface (`pfName`), and no event of theirs reports a new
        name. The interface of a virtual function concerns no other device: each pod that gets one moves it.
        """
        found = {subsystem}
        if subsystem == _INTERFACES and (function := function_above(syspath)) is not None:
            known = self.inventory.devices.get(pci_id(function.rpartition("/")[2])) if self.inventory else None
            if known is None or known.attributes.get("sriov") != "vf":
                found.add(_FUNCTIONS)
        return self._scanner.subsystems & found

    async def _until_due(self) -> None:
        while not self._at_once and (due := min(self._full_scan_at, self._throttle.due())) > self._loop.time():
            self._woken.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due if due < NEVER else None):
                    await self._woken.wait()

    def _take(self, now: float) -> _Task:
        """Return what to scan, and begin to collect again."""
        syspaths = None if self._every_device else frozenset(self._syspaths)
        task = _Task(frozenset(self._subsystems), syspaths, self._noticed_at)
        if self._everything or self._full_scan_at <= now:
            self._start(self._unavailable)  # before the scan, as at the beginning
            task, self._full_scan_at = _Task(None, None, self._noticed_at), now + self._interval
        self._noticed_at = None
        self._subsystems, self._syspaths = set(), set()
        self._everything = self._every_device = self._at_once = False
        self._throttle.scanning()
        return task

    def _read(self, task: _Task) -> Change | None:
        """Scan and compare, in the thread; no other code writes `inventory` meanwhile. Raises `HostExhausted`."""
        found = self._scanner.scan(task.subsystems, task.syspaths)
        if self._enrich:
            found = call_conclusively(partial(self._enrich, found))
        before = self.inventory or Inventory()
        found = found.sharing(before)
        return None if found == self.inventory else Change(found, diff(before, found))
