"""Wake-ups from folders: names that match configured globs appear or vanish, the folders themselves included.

inotify through watchdog, one watch per folder, never recursive. A glob's folder that does not exist yet is waited for
at its nearest ancestor that does. sysfs tells inotify nothing: this is for /dev.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path, PurePath

from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, ObservedWatch

from hostdevices.matching import path_pattern
from hostdevices.uevents import Wake

# Without a filter every open() of /dev/null would wake us.
_NAMES_ONLY: list[type[FileSystemEvent]] = [
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileMovedEvent,
]

_log = logging.getLogger(__name__)


class PathEvents:
    """Names below `root` that match `patterns`, told as events of `subsystem`."""

    def __init__(self, patterns: Iterable[str], subsystem: str, root: Path | str = "/") -> None:
        """Take absolute globs of the host (`/dev/ttyUSB*`, `/dev/snd/**`); see `matching.path_pattern`."""
        self._root = os.path.realpath(root)
        self._patterns = [self._without_links(PurePath(pattern).parts[1:]) for pattern in patterns]
        self._subsystem = subsystem
        self._wake: Wake = lambda *_: None
        self._observer: BaseObserver | None = None
        self._watches: dict[str, ObservedWatch] = {}

    def start(self, wake: Wake) -> None:
        """Watch the folders; without patterns there is nothing to watch and no thread."""
        self._wake = wake
        if self._patterns:
            self._observer = Observer()
            self._observer.start()
            self._handler = _Forward(self, asyncio.get_running_loop())
            self._follow()

    def close(self) -> None:
        """Stop watching; closing again changes nothing."""
        if self._observer is not None:
            observer, self._observer = self._observer, None
            self._watches.clear()
            observer.stop()
            observer.join()

    def happened(self, paths: Iterable[str]) -> None:
        """Take the paths of an event, on the loop."""
        if self._observer is None:
            return
        for path in paths:
            if path in self._watches:  # a watched folder is gone, and its watch with it
                self._unwatch(path)
        if any(self._concerns(path) for path in paths):
            self._follow()
            self._wake(self._subsystem, "")

    def _concerns(self, path: str) -> bool:
        names = PurePath(os.path.relpath(path, self._root)).parts
        return any(_may_lead_to(names, pattern) for pattern in self._patterns)

    def _without_links(self, pattern: tuple[str, ...]) -> tuple[str, ...]:
        """Resolve the folders before the first wildcard: a watch stays with what a link pointed to."""
        plain = tuple(takewhile(lambda part: not _is_glob(part), pattern[:-1]))
        real = os.path.relpath(os.path.realpath(os.path.join(self._root, *plain)), self._root)
        parts = PurePath(real).parts
        return pattern if ".." in parts else (*parts, *pattern[len(plain) :])

    def _follow(self) -> None:
        """Watch what exists now, again until nothing more turned up while the watches were being made."""
        while (wanted := {f for p in self._patterns for f in _folders(self._root, p)}) != self._watches.keys():
            for folder in self._watches.keys() - wanted:
                self._unwatch(folder)
            for folder in wanted - self._watches.keys():
                if not self._watch(folder):
                    return

    def _watch(self, folder: str) -> bool:
        assert self._observer is not None
        try:
            watch = self._observer.schedule(self._handler, folder, recursive=False, event_filter=_NAMES_ONLY)
        except OSError as error:  # gone again, or the limit of inotify watches: the rescan stays
            _log.warning("%s: no inotify watch (%s); changes here wait for the next rescan", folder, error)
            return False
        self._watches[folder] = watch
        return True

    def _unwatch(self, folder: str) -> None:
        if self._observer is not None:
            self._observer.unschedule(self._watches.pop(folder))


class _Forward(FileSystemEventHandler):
    """Carries events from watchdog's thread to the loop."""

    def __init__(self, events: PathEvents, loop: asyncio.AbstractEventLoop) -> None:
        self._events = events
        self._loop = loop

    def on_any_event(self, event: FileSystemEvent) -> None:
        if type(event) in _NAMES_ONLY:
            paths = [os.fsdecode(path) for path in (event.src_path, event.dest_path) if path]
            with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile: nobody listens any more
                self._loop.call_soon_threadsafe(self._events.happened, paths)


def _is_glob(part: str) -> bool:
    return any(character in part for character in "*?[")


def _fits(name: str, part: str) -> bool:
    return path_pattern(part).fullmatch(name) is not None


def _may_lead_to(names: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Tell whether a path is one that `pattern` means, or a folder on the way to one."""
    for name, part in zip(names, pattern, strict=False):
        if part == "**":
            return True
        if not _fits(name, part):
            return False
    return len(names) <= len(pattern)


def _folders(root: str, pattern: tuple[str, ...]) -> set[str]:
    """Return the existing folders in which a change of names could concern `pattern`."""
    reached = {root}
    watched: set[str] = set()
    for depth, part in enumerate(pattern):
        below = {folder: _subfolders(folder, part) for folder in reached}
        last = depth == len(pattern) - 1
        # A folder called by its name needs no watch of its parent while it exists: its own watch tells of its end.
        watched.update(folder for folder, found in below.items() if last or _is_glob(part) or not found)
        reached = {child for found in below.values() for child in found}
    return watched


def _subfolders(folder: str, part: str) -> list[str]:
    if part == "**":
        return [here for here, _, _ in os.walk(folder)]
    try:
        names = [name for name in os.listdir(folder) if _fits(name, part)] if _is_glob(part) else [part]
    except OSError:
        names = []
    paths = [os.path.join(folder, name) for name in names]
    return [path for path in paths if os.path.isdir(path) and not os.path.islink(path)]
