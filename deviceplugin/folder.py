"""The kubelet's folder for device plugins: its socket, our sockets, and those of other instances of nodeplug.

The name of a socket: `nodeplug-<resource>-<digest>-<instance><random>.sock`, at most 48 bytes, for which the
configuration leaves room below `kubeletRoot`. Instances are ordered by their starts, and not by which one
registered last: after a restart of the kubelet that can be any of them.
"""

import asyncio
import logging
import os
import re
import string
import time
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

from folderwatch import FolderWatcher, check_mount
from grpcunix import is_live, remove_dead_sockets
from telemetry import EventLog

KUBELET_SOCKET = "kubelet.sock"
SUCCEEDED = "another instance started later and offers the resource; this one waits"
"""What an instance logs when it has a successor."""
_PREFIX = "nodeplug-"
_READABLE = 9  # characters of a resource's own name in a socket's, which has 48
_CHARACTERS = string.digits + string.ascii_lowercase  # in the order in which they sort
_UNIQUE = 4  # random characters: a path that was used once is refused until the kubelet restarts
_STARTED = 8  # characters of an instance's start in milliseconds, which are enough for 89 years
_INSTANCE = _STARTED + 3
Identity: TypeAlias = tuple[int, int, int]
log = logging.getLogger("nodeplug.deviceplugin")


class PluginFolder:
    """`path` is the kubelet's folder; listeners are called in the loop after its sockets change, and now and then."""

    def __init__(
        self, path: Path, instance: str, watcher: FolderWatcher, recheck: float, events: EventLog | None = None
    ) -> None:
        """Prepare, for the sockets of `instance` (`new_instance`).

        Nothing is watched before `run`. `recheck` in seconds.
        """
        self.path = path
        self.instance = instance
        self.kubelet_socket = path / KUBELET_SOCKET
        self._watcher = watcher
        self._recheck = recheck
        self._event_log = events or EventLog()
        self._kubelet: Identity | None = None  # the one that we saw last
        self._listeners: list[Callable[[], None]] = []
        self._names: list[str] = []  # in the folder, after the last change
        self._problem = ""
        self._unanswered: Identity | None = None  # the kubelet's socket at which nobody listened

    async def run(self) -> None:
        """Watch. Raises `FolderGone`: a mount shows the folder that was mounted, not the one that took its place."""
        watch = self._watcher.watch(self.path, self._changed, _is_socket)
        try:
            self._changed()
            while True:
                await asyncio.sleep(self._recheck)
                self.check()
                self._changed()
        finally:
            watch.close()

    def check(self) -> None:
        """Raise `FolderGone` where the folder was removed although it is there for us."""
        check_mount(self.path)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after every change; returns what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def missing(self) -> str:
        """Say what of the kubelet is waited for while it has no socket; empty where there is one."""
        if self._problem or self.kubelet() is not None:
            return self._problem
        return f"waiting for the kubelet: there is no {self.kubelet_socket}"

    def unanswered(self, reason: str) -> str:
        """Say that nobody answered at the kubelet's socket; it is logged once, however many resources find that."""
        kubelet, words = self.kubelet(), f"waiting for the kubelet: {reason}"
        if kubelet is not None and kubelet != self._unanswered:
            self._unanswered = kubelet
            log.warning("%s", words)
        return words

    def kubelet(self) -> Identity | None:
        """Identify the kubelet's socket file; a kubelet that restarts makes a new one. None where there is none."""
        try:
            status = self.kubelet_socket.lstat()
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_ctime_ns

    def has_successor(self, resource_name: str) -> bool:
        """Tell whether an instance of ours that was started later serves the resource."""
        return has_successor(self.path, self._names, resource_name, self.instance)

    def _changed(self) -> None:
        try:
            self._names, problem = os.listdir(self.path), ""
        except FileNotFoundError:
            self._names, problem = [], f"waiting for the kubelet: there is no {self.path}"
        except OSError as error:  # who was there may be there
            problem = f"waiting for the kubelet: {self.path}: {error.strerror}"
        if not problem and self._kubelet is None and KUBELET_SOCKET not in self._names:
            problem = f"waiting for the kubelet: there is no {self.kubelet_socket} yet"
        if problem and problem != self._problem:
            log.warning("%s; set settings.kubeletRoot to the kubelet's folder", problem)
        self._problem = problem
        self._note_restart()
        for listener in tuple(self._listeners):
            listener()

    def _note_restart(self) -> None:
        kubelet = self.kubelet()
        if kubelet is not None:
            if self._kubelet not in (None, kubelet):
                self._event_log.record(
                    "kubelet-restarted", "the kubelet has a new socket; all resources register again"
                )
            self._kubelet = kubelet


def _is_socket(name: str) -> bool:
    """Tell whether a name is the kubelet's socket or one of ours: its checkpoint is written with each Allocate."""
    return name == KUBELET_SOCKET or is_ours(name)


def is_ours(name: str) -> bool:
    """Tell whether a name is that of a socket of ours."""
    return name.startswith(_PREFIX)


def has_successor(folder: Path, names: Iterable[str], resource_name: str, instance: str) -> bool:
    """Tell whether one of `names` in a folder is the socket of an instance that was started later and serves."""
    prefix = _prefix(resource_name)
    ours = prefix + instance
    return any(name.startswith(prefix) and name[: len(ours)] > ours and is_live(folder / name) for name in names)


def new_instance() -> str:
    """Return what the sockets of an instance have in their names: it sorts after those of instances before it."""
    started, text = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000, ""  # of the node, whoever sets its clock
    for _ in range(_STARTED):
        started, digit = divmod(started, len(_CHARACTERS))
        text = _CHARACTERS[digit] + text
    return text + _random(_INSTANCE - _STARTED)


def _random(length: int) -> str:
    return "".join(_CHARACTERS[byte % len(_CHARACTERS)] for byte in os.urandom(length))


def _prefix(resource_name: str) -> str:
    """Return how the names of a resource's sockets begin."""
    digest = f"{zlib.crc32(resource_name.encode()):08x}"  # names may differ in what a file name cannot hold
    own = re.sub(r"[^A-Za-z0-9.]", "_", resource_name.rpartition("/")[2])
    return f"{_PREFIX}{own[:_READABLE]}-{digest}-"


def new_socket(folder: Path, resource_name: str, instance: str) -> Path:
    """Return a path for a resource's socket that nobody has used before."""
    return folder / f"{_prefix(resource_name)}{instance}{_random(_UNIQUE)}.sock"


def remove_stale_sockets(folder: Path) -> None:
    """Remove sockets of ours at which nobody listens, as a killed daemon leaves them."""
    remove_dead_sockets(folder, lambda name: is_ours(name) and name.endswith(".sock"))
