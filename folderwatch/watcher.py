"""`FolderWatcher`: calls back on the event loop when names in a folder have changed.

Rules:
1. Several changes may result in one call. Nothing here raises if a folder, an inotify instance or a watch is not
   available: a caller could not do better than the states below.
2. A folder is in one of three states, and every event and every check puts it into the right one:

   | state | the folder | what wakes its watchers |
   |---|---|---|
   | watched | exists | inotify |
   | awaited | does not exist | its parent, which is watched instead |
   | polled | exists, and no inotify is left (EMFILE, ENOSPC) | its time of change; for contents every check |

3. Level, not edge: every folder is checked periodically, because inotify does not report that a parent was moved away
   or mounted over. If the kernel lost events (IN_Q_OVERFLOW), every folder counts as changed.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from inotify_simple import INotify, flags, parse_events

CHECK_INTERVAL = 30.0  # seconds between checks while inotify works
POLL_INTERVAL = 5.0  # seconds between checks of a folder that cannot be watched
PAUSE = 1.0  # seconds without calls after a repair, because the other program might continue with its changes
_MAX_NAMES = 1000  # names in one call; with more of them the call has none, and any name can have changed
_CHUNK = 16384  # bytes of events; the loop continues between two chunks
_NAMES = flags.CREATE | flags.DELETE | flags.MOVED_FROM | flags.MOVED_TO
_MASK = _NAMES | flags.DELETE_SELF | flags.MOVE_SELF | flags.ONLYDIR
_GONE = flags.DELETE_SELF | flags.MOVE_SELF | flags.IGNORED | flags.UNMOUNT

_Identity: TypeAlias = tuple[int, int]  # device and inode
_log = logging.getLogger(__name__)


class FolderWatch:
    """One watch, from `FolderWatcher.watch` until `close`."""

    def __init__(self, folder: "_Folder", changed: Callable[[], None], concerns: Callable[[str], bool] | None) -> None:
        """Created by `FolderWatcher.watch`."""
        self._folder = folder
        self._changed = changed
        self._concerns = concerns
        self._is_pending = self._is_closed = False
        self._pause: asyncio.TimerHandle | None = None
        self._names: set[str] | None = set()
        self.names: frozenset[str] | None = None  # that came or went before the call of `changed`; None: unknown

    def close(self) -> None:
        """Stop watching: `changed` is not called any more. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            if self._pause is not None:
                self._pause.cancel()
            self._folder.remove(self)

    def pause(self, seconds: float = PAUSE) -> None:
        """Collect changes from now on into one call, `seconds` from now."""
        if self._pause is not None:
            self._pause.cancel()
        self._pause = asyncio.get_running_loop().call_later(seconds, self._resume)

    def notify(self, name: str = "") -> None:
        """Schedule a call of `changed` if it concerns `name`; without a name in any case."""
        if name and self._concerns is not None and not self._concerns(name):
            return
        if not name or self._names is None or len(self._names) == _MAX_NAMES:
            self._names = None
        else:
            self._names.add(name)
        if not self._is_pending:
            self._is_pending = True
            if self._pause is None:
                asyncio.get_running_loop().call_soon(self._deliver)

    def _resume(self) -> None:
        self._pause = None
        if self._is_pending:
            self._deliver()

    def _deliver(self) -> None:
        if self._pause is not None:
            return  # a pause that began meanwhile
        self._is_pending = False
        self.names, self._names = None if self._names is None else frozenset(self._names), set()
        if not self._is_closed:
            self._changed()


class _Folder:
    """A path with its watches and its state: watched (`descriptor`), awaited (`parent`) or polled (neither)."""

    def __init__(self, path: str, forget: Callable[["_Folder"], None]) -> None:
        self.path = path
        self.watches: list[FolderWatch] = []
        self.descriptor: int | None = None  # of inotify's watch
        self.parent: FolderWatch | None = None
        self.mask = _MASK  # the events that the kernel is asked for
        self.identity: _Identity | None = None
        self.changed_at = 0  # nanoseconds: the folder's modification time, while it is polled
        self.poll_again = False  # time stamps are coarse: after a change the next poll also counts as a change
        self._forget = forget

    def remove(self, watch: FolderWatch) -> None:
        self.watches.remove(watch)
        if not self.watches:
            self._forget(self)

    def notify(self, name: str = "") -> None:
        for watch in tuple(self.watches):
            watch.notify(name)


class FolderWatcher:
    """Watches any number of folders with one inotify instance, which is open while there is anything to watch."""

    def __init__(self, poll_interval: float = POLL_INTERVAL, check_interval: float = CHECK_INTERVAL) -> None:
        """Prepare; nothing is opened yet. Intervals are in seconds."""
        self._poll_interval = poll_interval
        self._check_interval = check_interval
        self._inotify: INotify | None = None
        self._folders: dict[str, _Folder] = {}
        self._watched: dict[int, list[_Folder]] = {}  # by descriptor: two paths can lead to one folder
        self._timer: asyncio.TimerHandle | None = None
        self._is_polling = False

    def watch(
        self,
        folder: Path | str,
        changed: Callable[[], None],
        concerns: Callable[[str], bool] | None = None,
        *,
        contents: bool = False,
    ) -> FolderWatch:
        """Call `changed` on the running loop whenever names in `folder` come, go or move, or the folder itself does.

        With `concerns` only names for which it is true count. With `contents` a file also counts as changed when it is
        closed after writing, or when its permissions change; if the kernel has no watch left, every check counts as a
        change.
        """
        path = os.path.abspath(folder)
        known = self._folders.get(path)
        entry = known or self._folders.setdefault(path, _Folder(path, self._forget))
        watch = FolderWatch(entry, changed, concerns)
        entry.watches.append(watch)
        if contents:
            entry.mask |= flags.CLOSE_WRITE | flags.ATTRIB
        if known is None or contents:
            self._update_watch(entry)
        if self._timer is None:
            self._check_after(self._check_interval)
        return watch

    def close(self) -> None:
        """Close all watches. Idempotent."""
        for watch in [watch for folder in self._folders.values() for watch in folder.watches]:
            watch.close()

    def _update_watch(self, folder: _Folder) -> None:
        """Set the state of a folder to what is at its path."""
        self._unwatch(folder)
        status = _status(folder.path)
        if status is None and folder.parent is None and folder.path != "/":
            parent, name = os.path.split(folder.path)
            folder.parent = self.watch(parent, lambda: self._on_parent_event(folder), lambda changed: changed == name)
            status = _status(folder.path)  # it might have been created meanwhile
        if status is None:
            return
        if folder.parent is not None:
            folder.parent.close()
            folder.parent = None
        folder.identity, folder.changed_at = (status.st_dev, status.st_ino), status.st_mtime_ns
        try:
            # the kernel has one watch for a folder, whatever paths lead to it: MASK_ADD keeps the events of other paths
            folder.descriptor = self._open().add_watch(folder.path, folder.mask | flags.MASK_ADD)
        except (FileNotFoundError, NotADirectoryError):
            self._update_watch(folder)  # gone again
        except OSError as error:
            if not self._is_polling:
                text = "%s cannot be watched (%s): nodeplug checks such folders every %g s"
                extra = {"is_current": lambda: self._is_polling}
                _log.warning(text, folder.path, error.strerror, self._poll_interval, extra=extra)
                self._is_polling = True
                self._check_after(self._poll_interval)
        else:
            self._watched.setdefault(folder.descriptor, []).append(folder)

    def _open(self) -> INotify:
        """Return the inotify instance. Raises OSError if none is available."""
        if self._inotify is None:
            self._inotify = INotify(nonblocking=True)
            asyncio.get_running_loop().add_reader(self._inotify.fileno(), self._readable, self._inotify)
        return self._inotify

    def _unwatch(self, folder: _Folder) -> None:
        descriptor, folder.descriptor, folder.identity = folder.descriptor, None, None
        if descriptor is None or folder not in self._watched.get(descriptor, ()):
            return
        self._watched[descriptor].remove(folder)
        if not self._watched[descriptor]:
            del self._watched[descriptor]
            with contextlib.suppress(OSError):  # the kernel might have removed it with the folder
                self._open().rm_watch(descriptor)

    def _forget(self, folder: _Folder) -> None:
        """Drop a folder without watches, and after the last one close everything."""
        self._unwatch(folder)
        self._folders.pop(folder.path, None)
        if folder.parent is not None:
            folder.parent.close()
        if not self._folders:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._inotify is not None:
                asyncio.get_running_loop().remove_reader(self._inotify.fileno())
                self._inotify.close()
                self._inotify = None

    def _readable(self, inotify: INotify) -> None:
        try:
            events = parse_events(os.read(inotify.fileno(), _CHUNK))
        except BlockingIOError:
            return
        for event in events:
            if event.mask & flags.Q_OVERFLOW:
                _log.warning("inotify events were lost: nodeplug treats every watched folder as changed")
                for folder in tuple(self._folders.values()):
                    self._check(folder)
                    folder.notify()
            elif event.mask & _GONE:
                for folder in self._watched.get(event.wd, [])[:]:
                    self._update_watch(folder)
                    folder.notify()
            else:
                for folder in self._watched.get(event.wd, ()):
                    if event.mask & folder.mask:
                        folder.notify(event.name)

    def _on_parent_event(self, folder: _Folder) -> None:
        """Process an event from the parent of an awaited folder."""
        self._check(folder)
        if folder.identity is None:  # it came and is gone again, with its contents
            folder.notify()

    def _check(self, folder: _Folder) -> None:
        """Check whether the folder at a path is still the one that is watched; notify otherwise."""
        status = _status(folder.path)
        identity = (status.st_dev, status.st_ino) if status else None
        if identity != folder.identity:
            self._update_watch(folder)
            folder.notify()
        elif status is not None and folder.descriptor is None:
            has_changed = status.st_mtime_ns != folder.changed_at
            self._update_watch(folder)  # inotify might have a free watch again
            # changes of contents do not change the folder's own times
            wants_contents = bool(folder.mask & flags.CLOSE_WRITE)
            if has_changed or folder.poll_again or folder.descriptor is not None or wants_contents:
                folder.notify()
            folder.poll_again = has_changed

    def _check_all(self) -> None:
        for folder in tuple(self._folders.values()):
            if folder.watches:  # an earlier callback in this loop can have closed it
                self._check(folder)
        is_polling = any(x.descriptor is None and x.identity is not None for x in self._folders.values())
        if self._is_polling and not is_polling:
            _log.info("all folders can be watched again")
        self._is_polling = is_polling
        self._check_after(self._poll_interval if is_polling else self._check_interval)

    def _check_after(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._check_all)


def _status(path: str) -> os.stat_result | None:
    """Return the status of a folder; None if there is none."""
    try:
        return os.stat(f"{path}/")
    except OSError:
        return None
