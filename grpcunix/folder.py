"""Watching a folder of sockets: a callback in the event loop whenever a name in it comes, goes or moves.

Events are wake-ups, not facts: the callback looks at the folder itself. Several changes may come as one call.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from watchdog.events import (
    DirDeletedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

_KINDS: list[type[FileSystemEvent]] = [DirDeletedEvent, FileCreatedEvent, FileDeletedEvent, FileMovedEvent]


class FolderWatch(FileSystemEventHandler):
    """Calls `changed()` in the loop after any change in `folder` (not below it), from `start` to `stop`."""

    def __init__(self, folder: Path, changed: Callable[[], None]) -> None:
        """Prepare a watch; nothing is watched yet."""
        self._folder = folder.resolve()  # inotify would watch a link and not what it leads to
        self._changed = changed
        self._observer: BaseObserver | None = None  # one that is not started never gives back what it takes
        self._pending = False

    def start(self) -> None:
        """Watch. Raises OSError where the folder is missing."""
        self._loop = asyncio.get_running_loop()
        os.stat(self._folder)  # watchdog's own error does not name the folder
        self._observer = Observer()
        self._observer.schedule(self, str(self._folder), event_filter=_KINDS)
        self._observer.start()

    def stop(self) -> None:
        """Stop watching; the thread has ended when this returns. Idempotent."""
        if self._observer is not None and self._observer.is_alive():
            self._observer.stop()
            self._observer.join()

    def on_any_event(self, event: FileSystemEvent) -> None:  # noqa: ARG002 - watchdog calls it so
        """Hand an event of watchdog's thread over to the loop; a burst becomes one call."""
        if not self._pending:
            self._pending = True
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._pending = False
        self._changed()
