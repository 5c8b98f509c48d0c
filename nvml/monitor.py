"""The daemon's side of NVML: it supervises the process that calls NVML, and adds its reports to the inventory.

    GPUs found -> a process -> its lines -> the state of GPUs -> the inventory is updated

Rules:
1. Only its process waits for the library, and the first scan of the GPUs, for `Timings.first` seconds: so that a
   starting daemon has the names of all GPUs.
2. A process that writes nothing for `Timings.silence` seconds is killed; at its start it has longer. If the kernel does
   not end it, it is left alone, and no second one is started.
3. The end of the process is logged once with its reason, and it is started again after `Timings.again` seconds; at once
   if the driver or the GPUs have changed.
"""

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Collection

import msgspec
from msgspec import Struct

from hostdevices import Host, Inventory
from hostdevices import Problem as Unreadable
from hostdevices.device import PCI_BUS_ID
from hostdevices.tree import Folder
from nvml.gpu_states import GpuStates, gpus_in
from nvml.report import SONAME, Problem, Report, Xid, decode
from userspace import nvidia

_MAX_LINE = 1024 * 1024  # bytes of a line
_KILL_TIMEOUT = 2.0  # seconds for a killed process to end
log = logging.getLogger("nodeplug.nvml")


class Timings(Struct, frozen=True):
    """Time limits, in seconds."""

    interval: float = 5.0  # between reports
    start: float = 60.0  # until the first line
    silence: float = 30.0  # until the next one
    retry: float = 60.0  # after a failure
    first_report: float = 10.0  # that an inventory waits for the first line


_DEFAULT_TIMINGS = Timings()


class _Ended(Exception):
    """Why the process is no longer usable, in words."""


class NvmlMonitor:
    """Asks NVML while `run` runs. `enrich` is called in threads, everything else in the loop."""

    def __init__(
        self, host: Host, driver_root: str, ignored: Collection[int], timings: Timings = _DEFAULT_TIMINGS
    ) -> None:
        """Prepare, in the loop.

        The driver is below `driver_root` of the host; `ignored` XIDs do not affect a GPU's health.
        """
        root = os.path.realpath(f"{host.root}/{driver_root}")
        self._root = "" if root == "/" else root
        self._driver_root = driver_root
        self._ignored = ignored
        self._timings = timings
        self._states = GpuStates()
        self._problem = ""
        self._gpus: frozenset[tuple[str, str]] = frozenset()  # addresses and driver versions, as the host has them
        self._first_line = threading.Event()  # set after the first line, or when none will come
        self._changed = asyncio.Event()  # the host's GPUs or driver have changed
        self._loop = asyncio.get_running_loop()
        self._process: Process | None = None  # the last one
        self._observe: Callable[[], None] = lambda: None

    def observe(self, changed: Callable[[], None]) -> None:
        """Call `changed` in the loop whenever the result of `enrich` changes."""
        self._observe = changed

    def enrich(self, inventory: Inventory) -> Inventory:
        """Return the inventory with the library's data of NVIDIA's GPUs; without such GPUs the library is not used."""
        gpus = frozenset(
            (str(x.attributes[PCI_BUS_ID]), str(x.attributes.get("driverVersion", ""))) for x in gpus_in(inventory)
        )
        if not (gpus or self._gpus):
            return inventory
        if gpus != self._gpus:
            self._gpus = gpus
            with contextlib.suppress(RuntimeError):  # the loop is closed: the daemon is stopping
                self._loop.call_soon_threadsafe(self._changed.set)
        if gpus:
            self._first_line.wait(self._timings.first_report)
            self._first_line.set()
        known = self._states.added_to(inventory)
        if gpus and (problem := self._problem):
            return Inventory(known.devices, (*known.problems, Unreadable("NVML", problem)))
        return known

    async def run(self) -> None:
        """Ask until cancelled. Raises no errors of the library."""
        try:
            await self._monitor()
        finally:
            self._first_line.set()  # no line will come any more

    async def _monitor(self) -> None:
        drivers = {driver for _, driver in self._gpus}
        while True:
            if not self._gpus:
                await self._changed.wait()
            self._changed.clear()
            now = {driver for _, driver in self._gpus}
            # Loading a driver again resets its GPUs.
            self._states = self._states.only({address for address, _ in self._gpus}) if now <= drivers else GpuStates()
            drivers = now
            if not self._gpus:
                continue
            try:
                await self._read_lines()
            except _Ended as error:
                self._report_problem(str(error))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._timings.retry):
                    await self._changed.wait()

    async def _read_lines(self) -> None:
        """Process a process's lines until the host's GPUs change. Raises `_Ended`."""
        process = await self._start()
        assert process.stdout is not None
        changed = asyncio.ensure_future(self._changed.wait())
        line = asyncio.ensure_future(process.stdout.readline())
        timeout = self._timings.start
        try:
            while True:
                done, _ = await asyncio.wait({line, changed}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    raise _Ended(f"NVIDIA's library has not answered for {timeout:g} s")
                if line not in done:
                    return
                try:
                    self._take(await line)
                except ValueError as error:  # from the stream: a line exceeds the limit
                    raise _Ended(f"the process that asks NVIDIA's library sent too much: {error}") from None
                line, timeout = asyncio.ensure_future(process.stdout.readline()), self._timings.silence
        finally:
            changed.cancel()
            line.cancel()
            await _end(process)

    async def _start(self) -> Process:
        if self._process is not None and self._process.returncode is None:
            raise _Ended("the process that asks NVIDIA's library hangs in the driver and cannot be ended")
        library = self._library()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        addresses = sorted(address for address, _ in self._gpus)
        arguments = [sys.executable, "-m", "nvml.child", str(self._timings.interval), library, *addresses]
        try:
            self._process = await asyncio.create_subprocess_exec(
                *arguments, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, env=environment, limit=_MAX_LINE
            )
        except (OSError, RuntimeError) as error:  # RuntimeError: no thread is available to wait for its end
            raise _Ended(f"the process that asks NVIDIA's library cannot be started: {error}") from error
        return self._process

    def _library(self) -> str:
        """Return the library's path; empty if the loader finds it. Raises `_Ended`."""
        if not self._root:
            return ""
        root = Folder(self._root)
        found = (root.resolve(f"{folder}/{SONAME}") for folder in nvidia.LIBRARY_FOLDERS)
        if (path := next(filter(None, found), None)) is None:
            raise _Ended(f"there is no {SONAME} below {self._driver_root}; set settings.driverRoot")
        return f"{self._root}{path}"

    def _take(self, line: bytes) -> None:
        """Process a line. Raises `_Ended`."""
        if not line:
            raise _Ended("the process that asks NVIDIA's library ended without a message")
        try:
            message = decode(line)
        except msgspec.MsgspecError as error:
            raise _Ended(f"the process that asks NVIDIA's library sent an invalid message: {error}") from None
        before, problem = self._states, self._problem
        if isinstance(message, Problem):
            raise _Ended(message.text)
        if isinstance(message, Xid):
            self._states = before.failed(message, self._ignored)
            effect = "an error of the application" if self._states is before else "the GPU counts as unhealthy"
            log.warning("XID %d of GPU %s: %s", message.number, message.address, effect)
        elif isinstance(message, Report):
            self._states = before.reported(message, time.monotonic())
            self._problem = ""
        self._first_line.set()
        if _visible_state(self._states) != _visible_state(before) or self._problem != problem:
            self._observe()

    def _report_problem(self, problem: str) -> None:
        if problem != self._problem:
            extra = {"is_current": lambda: self._problem == problem}
            log.warning("%s; GPUs keep their last state, and nodeplug tries again", problem, extra=extra)
            self._problem = problem
            self._observe()
        self._first_line.set()


async def read_once(host: Host, driver_root: str, ignored: Collection[int], inventory: Inventory) -> Inventory:
    """Return an inventory as a monitor would after its first report."""
    monitor = NvmlMonitor(host, driver_root, ignored)
    monitoring = asyncio.ensure_future(monitor.run())
    try:
        return await asyncio.to_thread(monitor.enrich, inventory)
    finally:
        monitoring.cancel()
        await asyncio.wait([monitoring])
        if not monitoring.cancelled():
            monitoring.result()


def _visible_state(known: GpuStates) -> object:
    """Return the parts of the state that appear in an inventory."""
    gpus = {x.address: (x.uuid, x.memory, x.instances, x.links, x.is_mig) for x in known.gpus.values()}
    return gpus, known.xids, {address: x.health for address, x in known.histories.items()}


async def _end(process: Process) -> None:
    """Kill a process, and wait briefly for its end: a hanging driver can keep it for ever."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_KILL_TIMEOUT):
            await process.wait()
