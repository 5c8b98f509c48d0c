"""The CDI specs of all resources on disk.

Rules:
1. The desired specs are written by a thread, and are not relied on until they are written.
2. Files that this instance did not write are left from an earlier one. They are removed with the first write, and again
   when this instance owns the state. A file that appears later belongs to another daemon that shares the folder: it
   stays.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial

import cdi
from deviceplugin.descriptions import Descriptions, SpecSettings
from folderwatch import FolderWatch, FolderWatcher
from hostdevices import Device
from hostdevices.errors import HostExhausted
from hostdevices.threads import in_thread

RETRY = 10.0  # seconds until failed writes are repeated: nothing reports that a disk has room again
log = logging.getLogger("nodeplug.deviceplugin")


class Specs:
    """The files of the device plugin side in the runtime's folder; `run` keeps them as desired."""

    def __init__(self, directory: cdi.CdiDirectory, changed: Callable[[], None], retry: float = RETRY) -> None:
        """Prepare; `changed` is called on the loop after a successful or failed write. `retry` is in seconds."""
        self.problem = ""
        self._directory = directory
        self._changed = changed
        self._retry = retry
        self._desired: Mapping[str, Descriptions] | None = None
        self._written: Mapping[str, Descriptions] | None = None  # None while the content on disk is uncertain
        self._described: Mapping[str, Descriptions] = {}  # the last content that was certainly on disk
        self._writing: Mapping[str, Descriptions] | None = None  # what replaces it, file by file
        self._names: set[str] = set()  # of the files that this object wrote and has not removed
        self._removes_others = True
        self._watch: FolderWatch | None = None
        self._is_logged = False  # that others change the specs; it can recur
        self._wake = asyncio.Event()
        self._requests = self._done = 0  # number of requests, and the number up to which they are done
        self._progress = asyncio.Condition()  # of `_done`

    def set_desired(self, specs: Mapping[str, Descriptions]) -> None:
        """Set the specs that should be on disk, by their kinds."""
        if specs != self._desired:
            self._desired = specs
            self._requests += 1
            self._wake.set()
        elif self._written is self._desired:
            self._desired = self._written = self._described = specs  # equal specs, of the current device objects

    def recheck(self) -> None:
        """Compare the files on disk with the desired ones: another program might have changed them."""
        self._written = None
        self._requests += 1
        self._wake.set()

    @property
    def are_in_use(self) -> bool:
        """Return whether any spec is on disk or desired."""
        return bool(self._desired or self._described)

    async def watch(self, watcher: FolderWatcher) -> None:
        """Remove unknown specs, and restore those that others change, until cancelled."""
        self._removes_others = True
        self.recheck()
        self._watch = watcher.watch(self._directory.path, self._check, self._directory.is_own_file, contents=True)
        try:
            await asyncio.Event().wait()
        finally:
            self._watch.close()
            self._watch = None

    def _check(self) -> None:
        """Restore specs that others have changed.

        During a write nothing is checked; the write is followed by a check.
        """
        if self._watch is None or self._written is None:
            return
        is_modified = any(map(self._directory.is_modified, map(cdi.file_name, self._written)))
        was_logged, self._is_logged = self._is_logged, is_modified
        if is_modified:
            if not was_logged:
                text = "CDI specs in %s were removed or changed by another program: they are written again"
                log.warning(text, self._directory.path)
            self._watch.pause()
            self.recheck()

    def has(self, kind: str, settings: SpecSettings, device: Device) -> bool:
        """Return whether a runtime finds this device as it is now, described with these settings."""
        places = (self._described,) if self._writing is None else (self._described, self._writing)
        found = (each.get(kind) for each in places)  # while one file replaces another a runtime can read either
        return all(known is not None and known.has(settings, device) for known in found)

    async def wait_written(self, seconds: float) -> None:
        """Wait until what was requested so far was written or has failed, at most `seconds`."""
        requests = self._requests
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._progress:
                await self._progress.wait_for(lambda: self._done >= requests)

    async def run(self) -> None:
        """Write the desired specs whenever they change; repeat failed writes."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._retry if self.problem else None):
                    await self._wake.wait()
            self._wake.clear()
            requests, desired, before = self._requests, self._desired, self._described
            if desired is not None and desired is not self._written:
                await self._write(desired)
                if self._watch is not None:
                    self._watch.notify()
            async with self._progress:
                self._done = requests
                self._progress.notify_all()
            if self._described != before:
                self._changed()

    async def _write(self, desired: Mapping[str, Descriptions]) -> None:
        self._written, self._writing = None, desired
        stale, self._removes_others = None if self._removes_others else self._names.copy(), False
        self._names.update(names := set(map(cdi.file_name, desired)))
        try:
            await in_thread(partial(self._sync, desired, stale))
        except (OSError, cdi.CdiError, HostExhausted) as error:
            self._removes_others |= stale is None
            if not isinstance(error, HostExhausted):  # HostExhausted: no thread was available, so no file was touched
                self._described = {}
            reason = str(error)
            if isinstance(error, OSError) and error.filename:
                reason = f"{error.filename}: {error.strerror}"
            problem = f"cannot write CDI specs: {reason}"
            if problem != self.problem:
                extra = {"is_current": lambda: self.problem == problem}
                log.error("%s; nodeplug tries again every %g s", problem, self._retry, extra=extra)
            self.problem = problem
        else:
            self.problem, self._described, self._names = "", desired, names
            # a file might have been removed since it was checked
            self._written = None if self._wake.is_set() else desired
        finally:
            self._writing = None

    def _sync(self, desired: Mapping[str, Descriptions], stale: Collection[str] | None) -> None:
        self._directory.sync(((cdi.file_name(kind), each.spec()) for kind, each in desired.items()), stale)
