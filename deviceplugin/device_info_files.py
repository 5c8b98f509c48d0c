"""The device-info files of all resources, in the folder where Multus and CNI plugins read them.

A file exists while its device is offered or held: so it is there before an allocation, and again after a crash or a
reboot. Another plugin can use the same folder: only names of nodeplug's resources with a PCI address are ever removed.
"""

import asyncio
import contextlib
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Set
from functools import partial
from pathlib import Path

import cdi
from hostdevices.errors import HostExhausted
from hostdevices.readers.pci import ADDRESS
from hostdevices.threads import in_thread

RETRY = 10.0  # seconds until failed writes are repeated
log = logging.getLogger("nodeplug.deviceplugin")


class DeviceInfoFiles:
    """The files in a folder; `run` keeps them as desired."""

    def __init__(self, folder: Path, retry: float = RETRY) -> None:
        """Prepare; no file is touched yet. `retry` is in seconds."""
        self._folder = folder
        self._retry = retry
        self._resources: dict[str, None] = {}  # all that ever had files
        self._desired: Mapping[str, bytes] = {}
        self._kept: frozenset[str] = frozenset()
        self._problem = ""
        self._wake = asyncio.Event()

    def set_desired(self, resources: Iterable[str], files: Mapping[str, bytes], kept: Iterable[str]) -> None:
        """Set the desired files of these resources; existing files among `kept` stay as well."""
        names = dict.fromkeys(name.replace("/", "-") for name in resources)
        now = (dict(files), frozenset(kept))
        if names.keys() <= self._resources.keys() and now == (self._desired, self._kept):
            return
        self._resources.update(names)
        self._desired, self._kept = now
        self._wake.set()

    async def run(self) -> None:
        """Write the desired files whenever they change; repeat failed writes."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._retry if self._problem else None):
                    await self._wake.wait()
            self._wake.clear()
            before = self._problem
            try:
                sync = partial(self._sync, tuple(self._resources), self._desired, self._kept)
                self._problem = await in_thread(sync)
            except HostExhausted as error:
                self._problem = str(error)
            if self._problem and self._problem != before:
                self._report(self._problem)

    def _report(self, problem: str) -> None:
        text = "cannot write device-info files: %s; nodeplug tries again; only Multus reads these files"
        log.error(text, problem, extra={"is_current": lambda: self._problem == problem})

    def _sync(self, resources: Iterable[str], desired: Mapping[str, bytes], kept: frozenset[str]) -> str:
        """Write and remove files as far as possible; return the first problem, in words."""
        steps = [partial(self._write, name, content) for name, content in desired.items()]
        steps.append(partial(self._remove_stale, resources, desired.keys() | kept))
        return next(filter(None, [self._attempt(step) for step in steps]), "")

    def _attempt(self, step: Callable[[], None]) -> str:
        try:
            step()
        except OSError as error:
            return f"{error.filename or self._folder}: {error.strerror}"  # a failed read has no filename
        return ""

    def _write(self, name: str, content: bytes) -> None:
        path = self._folder / name
        if _content(path) != content:
            cdi.replace_file(path, content)

    def _remove_stale(self, resources: Iterable[str], kept: Set[str]) -> None:
        for name in _own_files(self._folder, resources) - kept:
            (self._folder / name).unlink(missing_ok=True)


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _own_files(folder: Path, resources: Iterable[str]) -> set[str]:
    names = "|".join(map(re.escape, resources))
    own_name = re.compile(rf"({names})-{ADDRESS.pattern}(::[0-9]+)?-device\.json")
    try:
        return {name for name in os.listdir(folder) if own_name.fullmatch(name)}
    except (FileNotFoundError, NotADirectoryError):
        return set()
