"""The CDI specs of all resources on disk.

Rules:
1. A thread writes the desired specs. Nothing relies on a spec before it is written.
2. Files with our names that this process did not write are from an earlier instance. They are removed with the first
   write, and when this process gets the state directory. A file that appears later belongs to another daemon that
   shares the folder: it stays.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial

import cdi
from deviceplugin.descriptions import Descriptions, Terms
from folderwatch import FolderWatch, FolderWatcher
from hostdevices import Device
from hostdevices.errors import HostExhausted
from hostdevices.threads import in_thread

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
        self._names: set[str] = set()  # of the files that we wrote and have not removed
        self._removes_others = True
        self._watch: FolderWatch | None = None
        self._is_logged = False  # that somebody changes them, who may go on with it
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
        """Have what is on disk compared with what is wanted: somebody may have changed it."""
        self._written = None
        self._asked += 1
        self._wake.set()

    @property
    def are_in_use(self) -> bool:
        """Whether there is a file that a runtime may want, or is to be one."""
        return bool(self._wanted or self._described)

    async def keep(self, watcher: FolderWatcher) -> None:
        """Have the specs on disk to ourselves, and those written again that others change, until cancelled."""
        self._removes_others = True
        self.recheck()
        self._watch = watcher.watch(self._directory.path, self._check, self._directory.is_ours, contents=True)
        try:
            await asyncio.Event().wait()
        finally:
            self._watch.close()
            self._watch = None

    def _check(self) -> None:
        """Have written again what somebody has changed. What is being written is looked at afterwards."""
        if self._watch is None or self._written is None:
            return
        is_touched = any(map(self._directory.is_touched, map(cdi.file_name, self._written)))
        was_logged, self._is_logged = self._is_logged, is_touched
        if is_touched:
            if not was_logged:
                text = "CDI specs in %s were removed or changed by somebody: they are written again"
                log.warning(text, self._directory.path)
            self._watch.pause()
            self.recheck()

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
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._retry if self.problem else None):
                    await self._wake.wait()
            self._wake.clear()
            asked, wanted, before = self._asked, self._wanted, self._described
            if wanted is not None and wanted is not self._written:
                await self._write(wanted)
                if self._watch is not None:
                    self._watch.notify()
            async with self._progress:
                self._settled = asked
                self._progress.notify_all()
            if self._described != before:
                self._changed()

    async def _write(self, wanted: Mapping[str, Descriptions]) -> None:
        self._written, self._writing = None, wanted
        stale, self._removes_others = None if self._removes_others else self._names.copy(), False
        self._names.update(names := set(map(cdi.file_name, wanted)))
        try:
            await in_thread(partial(self._sync, wanted, stale))
        except (OSError, cdi.CdiError, HostExhausted) as error:
            self._removes_others |= stale is None
            if not isinstance(error, HostExhausted):  # for which no thread was left, so that nothing was touched
                self._described = {}
            reason = str(error)
            if isinstance(error, OSError) and error.filename:
                reason = f"{error.filename}: {error.strerror}"
            problem = f"cannot write CDI specs: {reason}"
            if problem != self.problem:
                log.error("%s; nodeplug tries again every %g s", problem, self._retry)
            self.problem = problem
        else:
            self.problem, self._described, self._names = "", wanted, names
            self._written = None if self._wake.is_set() else wanted  # it may have been removed since it was looked at
        finally:
            self._writing = None

    def _sync(self, wanted: Mapping[str, Descriptions], stale: Collection[str] | None) -> None:
        self._directory.sync(((cdi.file_name(kind), each.spec()) for kind, each in wanted.items()), stale)
