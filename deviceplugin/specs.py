"""The CDI specs of all resources on disk.

What is wanted is written by a thread, and until it is nobody relies on it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from functools import partial

import cdi
from deviceplugin.descriptions import Descriptions, Terms
from hostdevices import Device
from hostdevices.errors import HostExhausted
from hostdevices.threads import in_thread

PAUSE = 1.0  # seconds between two times that removed specs are written: who removes them may do so again and again
RETRY = 10.0  # seconds until specs are written again that could not be: a disk that has room again tells nobody
log = logging.getLogger("nodeplug.deviceplugin")


class Specs:
    """The files of the device plugin side in the runtime's folder; `run` keeps them as they are wanted."""

    def __init__(self, directory: cdi.CdiDirectory, changed: Callable[[], None], retry: float = RETRY) -> None:
        """Prepare; `changed` is called on the loop after something was written, or could not be. `retry` in seconds."""
        self.problem = ""
        self._directory = directory
        self._changed = changed
        self._retry = retry
        self._wanted: Mapping[str, Descriptions] | None = None
        self._written: Mapping[str, Descriptions] | None = None  # None while nobody knows what is on disk
        self._described: Mapping[str, Descriptions] = {}  # what was on disk last for certain
        self._writing: Mapping[str, Descriptions] | None = None  # what takes its place, file by file
        self._pause: asyncio.TimerHandle | None = None
        self._wake = asyncio.Event()
        self._asked = self._settled = 0  # how often something was asked for, and up to which time that was done
        self._progress = asyncio.Condition()  # of the latter

    def want(self, specs: Mapping[str, Descriptions]) -> None:
        """Have exactly these on disk, by their kinds."""
        if specs != self._wanted:
            self._wanted = specs
            self._asked += 1
            self._wake.set()
        elif self._written is self._wanted:
            self._wanted = self._written = self._described = specs  # the same of devices that there are now

    def recheck(self) -> None:
        """Have what is on disk compared with what is wanted: somebody may have removed it."""
        self._written = None
        self._asked += 1
        self._wake.set()

    def concerns(self, entry: str) -> bool:
        """Tell whether a file of this name in the runtime's folder is one of ours."""
        return self._directory.is_ours(entry)

    def look(self) -> None:
        """Have written again what somebody has removed, now or after a pause.

        What is being written is looked at afterwards.
        """
        if self._pause is not None or self._written is None:
            return
        if self._directory.lacks(map(cdi.file_name, self._written)):
            log.warning("CDI specs were removed from %s: they are written again", self._directory.path)
            self._pause = asyncio.get_running_loop().call_later(PAUSE, self._pause_is_over)
            self.recheck()

    def _pause_is_over(self) -> None:
        self._pause = None
        self.look()

    def has(self, kind: str, terms: Terms, device: Device) -> bool:
        """Tell whether a runtime finds this device as it is now, described on these terms."""
        places = (self._described,) if self._writing is None else (self._described, self._writing)
        found = (each.get(kind) for each in places)  # while one file takes another's place either may be read
        return all(known is not None and known.has(terms, device) for known in found)

    async def settled(self, patience: float) -> None:
        """Return once what was asked for until now was written, or could not be; after `patience` seconds anyway."""
        asked = self._asked
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience), self._progress:
                await self._progress.wait_for(lambda: self._settled >= asked)

    async def run(self) -> None:
        """Write what is wanted, whenever that changes; again after a while where it could not be."""
        try:
            await self._write_again_and_again()
        finally:
            if self._pause is not None:
                self._pause.cancel()

    async def _write_again_and_again(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._retry if self.problem else None):
                    await self._wake.wait()
            self._wake.clear()
            asked, wanted, before = self._asked, self._wanted, self._described
            if wanted is not None and wanted is not self._written:
                await self._write(wanted)
                self.look()
            async with self._progress:
                self._settled = asked
                self._progress.notify_all()
            if self._described != before:
                self._changed()

    async def _write(self, wanted: Mapping[str, Descriptions]) -> None:
        self._written, self._writing = None, wanted
        try:
            await in_thread(partial(self._sync, wanted))
        except (OSError, cdi.CdiError, HostExhausted) as error:
            if not isinstance(error, HostExhausted):  # for which no thread was left, so that nothing was touched
                self._described = {}
            reason = str(error)
            if isinstance(error, OSError) and error.filename:
                reason = f"{error.filename}: {error.strerror}"
            problem = f"cannot write CDI specs: {reason}"
            if problem != self.problem:
                log.error("%s; it is tried again every %g s", problem, self._retry)
            self.problem = problem
        else:
            self.problem, self._described = "", wanted
            self._written = None if self._wake.is_set() else wanted  # it may have been removed since it was looked at
        finally:
            self._writing = None

    def _sync(self, wanted: Mapping[str, Descriptions]) -> None:
        self._directory.sync((cdi.file_name(kind), each.spec()) for kind, each in wanted.items())
