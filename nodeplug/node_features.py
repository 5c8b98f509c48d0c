"""The offered devices as labels of the Node: a feature file for node-feature-discovery's local source.

    assignment -> lines `RESOURCE.PROPERTY=VALUE` -> `features.d/nodeplug` -> nfd-worker -> labels

Rules:
1. All listed devices count, healthy or not: a label is for choosing nodes, and `allocatable` shows what is free. A
   property that differs between the devices of a resource gets no label.
2. A file is complete when it appears, is written when its contents change, and expires (`EXPIRES`) unless it is
   renewed: if nodeplug is removed from a node, nothing else would remove its labels.
3. A stop leaves the file, because an update or a restart must not remove labels, and pods keep their devices. A start
   without the setting removes the file of the previous setting, whose path is in `node-features` in the state
   directory.
4. While the resources of a node are not known completely, because its labels are not read yet, the previous file stays.

Source: node-feature-discovery, `source/local` (lines, `# +expiry-time`, 64 KiB, hidden files are skipped); label values
in Kubernetes' form.
"""

import asyncio
import contextlib
import datetime
import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import cdi
from folderwatch import is_missing
from hostdevices import Device
from hostdevices.device import AttributeValue
from resources.assignment import Assignment

NAME: Final = "nodeplug"
EXPIRES: Final = 3600.0  # seconds
RENEWAL: Final = 1200.0
RETRY: Final = 30.0
CLOCK_INTERVAL: Final = 60.0  # the longest time between two readings of the clock
LARGEST_FILE: Final = 65_536  # bytes; nfd-worker reads no larger file
_MAX_LABEL_LENGTH = 63  # the most characters of a label's name, and of its value
_MARK = "node-features"
_MIB = 1 << 20
_PROPERTIES = (("model", "model"), ("driver-version", "driverVersion"), ("memory", "memory"))
"""Suffixes of labels, and the attributes that they show; memory in MiB."""
log = logging.getLogger("nodeplug")


class NodeFeatures:
    """Keeps the file up to date while `run` runs. Belongs to the event loop."""

    def __init__(self, directory: Path, state: Path, clock: Callable[[], float] = time.time) -> None:
        """Prepare to write into NFD's `directory`, and to record that in the folder `state`. `clock` is the host's."""
        self._path = directory / NAME
        self._state = state
        self._clock = clock
        self._lines: tuple[str, ...] | None = None
        self._changed = asyncio.Event()
        self._problem = ""
        self._expires = 0.0  # by the clock

    def update(self, assignment: Assignment) -> None:
        """Take the devices that are offered now."""
        lines = tuple(feature_lines(assignment))
        if lines != self._lines:
            self._lines = lines
            self._changed.set()

    async def run(self) -> None:
        """Write the file whenever its content changes, and before it expires, until cancelled."""
        await self._changed.wait()
        while True:
            self._changed.clear()
            if await self._write():
                while not self._changed.is_set() and self._is_fresh():
                    await self._changed_within(CLOCK_INTERVAL)
            else:
                await self._changed_within(RETRY)

    def _is_fresh(self) -> bool:
        """Return whether the file need not be renewed yet.

        A clock that is set can bring that time nearer, or move it away.
        """
        return EXPIRES - RENEWAL < self._expires - self._clock() <= EXPIRES

    async def _changed_within(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def _write(self) -> bool:
        self._expires = self._clock() + EXPIRES
        try:
            await asyncio.to_thread(self._replace, _text(self._lines or (), self._expires))
        except (OSError, RuntimeError) as error:  # RuntimeError: no thread is available
            problem = f"features of this node are not written: {error}"
            if problem != self._problem:
                extra = {"is_current": lambda: self._problem == problem}
                log.warning("%s; nodeplug tries again every %g s", problem, RETRY, extra=extra)
            self._problem = problem
            return False
        self._problem = ""
        return True

    def _replace(self, text: bytes) -> None:
        mark = self._state / _MARK
        if recorded_path(self._state) != self._path:
            remove_stale_file(self._state)
            self._state.mkdir(0o700, parents=True, exist_ok=True)
            cdi.replace_file(mark, f"{self._path}\n".encode())
        cdi.replace_file(self._path, text)


def recorded_path(state: Path) -> Path | None:
    """Return the path of the file that was written, which the folder `state` records; None if there is none."""
    try:
        text = (state / _MARK).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return Path(text) if text.startswith("/") and text.endswith(f"/{NAME}") else None


def remove_stale_file(state: Path) -> None:
    """Remove the file that was written while the settings asked for one. Raises OSError."""
    path = recorded_path(state)
    if path is not None and not is_missing(path):  # without the folder, each start would report an error
        path.unlink(missing_ok=True)
        log.info("features of this node are no longer configured: %s is removed", path)
    (state / _MARK).unlink(missing_ok=True)


def feature_lines(assignment: Assignment) -> Iterator[str]:
    """Yield the lines of each resource that has devices, in the order of the configuration."""
    for resource, devices in assignment.devices.items():
        if not devices:
            continue
        yield from _line(resource, "count", str(len(devices)))
        for end, attribute in _PROPERTIES:
            if (value := _common(devices, attribute)) is not None:
                is_memory = attribute == "memory" and isinstance(value, int)
                yield from _line(resource, end, str(int(value) // _MIB if is_memory else value))  # type: ignore[arg-type]


def _common(devices: Sequence[Device], attribute: str) -> AttributeValue | None:
    """Return the value that all devices have; None if one has another value, or none."""
    first = devices[0].attributes.get(attribute)
    return first if all(x.attributes.get(attribute) == first for x in devices) else None


def _line(resource: str, end: str, text: str) -> Iterator[str]:
    """Yield a label; none if its name would be too long, or no character of the value is allowed."""
    value = re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:_MAX_LABEL_LENGTH].strip("._-")
    if value and len(resource.rpartition("/")[2]) + 1 + len(end) <= _MAX_LABEL_LENGTH:
        yield f"{resource}.{end}={value}"


def _text(lines: Sequence[str], expires: float) -> bytes:
    when = datetime.datetime.fromtimestamp(expires, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    text = f"# Written by nodeplug.\n# +expiry-time={when}\n"
    for line in lines:
        if len(text) + len(line) + 1 > LARGEST_FILE:
            break
        text += line + "\n"
    return text.encode()
