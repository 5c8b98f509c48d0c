"""Wake-ups from folders: names that match configured globs appear or vanish, the folders themselves included.

inotify does not work in sysfs, so this is for /dev. It watches the folders that a scan lists (device_folders.py), at
most `MAX_FOLDERS`. Changes in other folders are found by the next rescan.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import chain

from folderwatch import FolderWatch, FolderWatcher
from hostdevices.conclusive_calls import call_conclusively
from hostdevices.device_folders import DeviceFolders
from hostdevices.errors import HostDevicesError
from hostdevices.globs import is_glob, path_pattern
from hostdevices.host import Host
from hostdevices.watching.uevents import Wake

MAX_FOLDERS = 512
PAUSE = 0.25  # seconds between two searches for folders, however often they come and go

_log = logging.getLogger(__name__)


class PathEvents:
    """Names that match `patterns`, reported as events of `subsystem`.

    Folders behind wildcards are searched in a thread, at the start and after each change: there can be many. Changes
    before they are watched are reported by a wake-up afterwards.
    """

    def __init__(self, patterns: Iterable[str], subsystem: str, host: Host, watcher: FolderWatcher) -> None:
        """Take globs below the host's /dev (`/dev/ttyUSB*`); `host` is a folder's or the running machine's."""
        self._patterns = tuple(patterns)
        self._has_wildcard_folders = any(is_glob(pattern.rpartition("/")[0]) for pattern in self._patterns)
        self._subsystem = subsystem
        self._host = host
        self._watcher = watcher
        self._wake: Wake = lambda *_: None
        self._watches: dict[str, tuple[frozenset[str], FolderWatch]] = {}  # by folder: the names that matter in it
        self._search: asyncio.Future[Mapping[str, frozenset[str]]] | None = None
        self._search_again = False
        self._pause: asyncio.TimerHandle | None = None
        self._has_warned = False

    def start(self, wake: Wake) -> None:
        """Watch the folders."""
        self._wake = wake
        self._follow()

    def close(self) -> None:
        """Stop watching. Idempotent."""
        self._wake = lambda *_: None
        if self._search is not None:
            self._search.cancel()
            self._search = None
        if self._pause is not None:
            self._pause.cancel()
        for _, watch in self._watches.values():
            watch.close()
        self._watches.clear()

    def _changed(self, folder: str = "") -> None:
        """Report the names in `folder` that came or went; unknown names as a change of any."""
        names = self._watches[folder][1].names if folder in self._watches else None
        for path in [""] if names is None else [f"{folder}/{name}" for name in names]:
            self._wake(self._subsystem, path)
        if self._has_wildcard_folders:
            self._follow()

    def _follow(self) -> None:
        """Watch the folders that exist now."""
        if not self._has_wildcard_folders:
            self._watch(self._find())
        elif self._search is not None or self._pause is not None:
            self._search_again = True
        else:
            self._search_again = False
            self._search = asyncio.wrap_future(self._host.reads.attempt(self._find).future)
            self._search.add_done_callback(self._found)

    def _find(self) -> Mapping[str, frozenset[str]]:
        """Return the folders to watch, and the names that matter in each. Raises `HostExhausted`, `ReadStuck`."""
        return call_conclusively(self._folders)

    def _folders(self) -> Mapping[str, frozenset[str]]:
        folders = DeviceFolders(self._host)
        found: dict[str, set[str]] = {}
        for listed in chain.from_iterable(map(folders.listed, self._patterns)):
            if listed.folder not in found and len(found) == MAX_FOLDERS:
                self._warn()
                break
            found.setdefault(listed.folder, set()).add(listed.names)
        return {folder: frozenset(names) for folder, names in found.items()}

    def _found(self, search: "asyncio.Future[Mapping[str, frozenset[str]]]") -> None:
        if search is not self._search:
            return  # closed meanwhile
        self._search = None
        self._pause = asyncio.get_running_loop().call_later(PAUSE, self._pause_is_over)
        try:
            found = search.result()
        except HostDevicesError:  # no descriptor is left, or a read of a folder has not returned
            self._search_again = True  # the present watches stay
            return
        if self._watch(found):
            self._changed()  # repeated until no new folder appears while the watches are being created

    def _pause_is_over(self) -> None:
        self._pause = None
        if self._search_again:
            self._follow()

    def _watch(self, wanted: Mapping[str, frozenset[str]]) -> bool:
        """Watch these folders and no others; return whether one was not watched before."""
        for folder in [x for x, (names, _) in self._watches.items() if wanted.get(x) != names]:
            self._watches.pop(folder)[1].close()
        new = wanted.keys() - self._watches.keys()
        for folder in new:
            path = f"{self._host.root}{self._host.resolve(folder) or folder}".replace("//", "/")
            watch = self._watcher.watch(path, partial(self._changed, folder), _any_of(wanted[folder]))
            self._watches[folder] = (wanted[folder], watch)
        return bool(new)

    def _warn(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            globs = ", ".join(self._patterns)
            _log.warning("%s: only %d folders are watched; changes in others wait for a rescan", globs, MAX_FOLDERS)


def _any_of(globs: Iterable[str]) -> Callable[[str], bool]:
    patterns = [path_pattern(glob) for glob in globs]
    return lambda name: any(pattern.fullmatch(name) for pattern in patterns)
