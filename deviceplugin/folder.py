"""The kubelet's folder for device plugins: its socket, nodeplug's sockets, and other instances of nodeplug.

The name of a socket is `nodeplug-<resource>-<digest>-<instance><random>.sock`, at most 48 bytes, for which the
configuration leaves room below `kubeletRoot`. Instances are ordered by their start, not by their last registration:
after a restart of the kubelet any instance can be the last to register.
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
SUPERSEDED = "another instance started later and offers the resource; this one waits"
"""The log text of an instance that has a successor."""
_PREFIX = "nodeplug-"
_LABEL_LENGTH = 9  # characters of a resource's own name in a socket's name, which has 48
_CHARACTERS = string.digits + string.ascii_lowercase  # in sort order
_RANDOM_LENGTH = 4  # random characters: the kubelet refuses a path that was used once until it restarts
_START_LENGTH = 8  # characters for an instance's start in milliseconds, enough for 89 years
_INSTANCE_LENGTH = _START_LENGTH + 3
Identity: TypeAlias = tuple[int, int, int]
log = logging.getLogger("nodeplug.deviceplugin")


class PluginFolder:
    """The kubelet's folder `path`; listeners are called in the loop after its sockets change, and periodically."""

    def __init__(
        self, path: Path, instance: str, watcher: FolderWatcher, recheck: float, events: EventLog | None = None
    ) -> None:
        """Prepare, for the sockets of `instance` (`new_instance`).

        Nothing is watched before `run`. `recheck` is in seconds.
        """
        self.path = path
        self.instance = instance
        self.kubelet_socket = path / KUBELET_SOCKET
        self._watcher = watcher
        self._recheck = recheck
        self._event_log = events or EventLog()
        self._kubelet: Identity | None = None  # last seen
        self._listeners: list[Callable[[], None]] = []
        self._names: list[str] = []  # in the folder, after the last change
        self._problem = ""
        self._unanswered_socket: Identity | None = None  # the kubelet's socket at which no process listened

    async def run(self) -> None:
        """Watch the folder. Raises `FolderGone` if it was replaced: a mount still shows the old folder."""
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
        """Raise `FolderGone` if the folder was removed although it still exists in this mount."""
        check_mount(self.path)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after every change; return a function that ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def missing(self) -> str:
        """Return what is missing while the kubelet has no socket; empty if it has one."""
        if self._problem or self.kubelet() is not None:
            return self._problem
        return f"waiting for the kubelet: there is no {self.kubelet_socket}"

    def report_unanswered(self, reason: str) -> str:
        """Return a text for an unanswered socket of the kubelet; it is logged once, not for each resource."""
        self._note_restart()  # the change of the folder might not have been reported yet
        kubelet, message = self.kubelet(), f"waiting for the kubelet: {reason}"
        if kubelet is not None and kubelet != self._unanswered_socket:
            self._unanswered_socket = kubelet
            extra = {"is_current": lambda: self._unanswered_socket == kubelet == self.kubelet()}
            log.warning("%s", message, extra=extra)
        return message

    def report_answered(self) -> None:
        """Record that a process listens at the kubelet's socket."""
        self._unanswered_socket = None

    def kubelet(self) -> Identity | None:
        """Identify the kubelet's socket file, which each kubelet creates again. None without a socket."""
        try:
            status = self.kubelet_socket.lstat()
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_mtime_ns  # a chmod or a label changes only the ctime

    def has_successor(self, resource_name: str) -> bool:
        """Return whether an instance that started later serves the resource."""
        return has_successor(self.path, self._names, resource_name, self.instance)

    def _changed(self) -> None:
        try:
            self._names, problem = os.listdir(self.path), ""
        except FileNotFoundError:
            self._names, problem = [], f"waiting for the kubelet: there is no {self.path}"
        except OSError as error:  # the names read last stay valid
            problem = f"waiting for the kubelet: {self.path}: {error.strerror}"
        if not problem and self._kubelet is None and KUBELET_SOCKET not in self._names:
            problem = f"waiting for the kubelet: there is no {self.kubelet_socket} yet"
        if problem and problem != self._problem:
            text = "%s; if the kubelet has another folder, set settings.kubeletRoot"
            log.warning(text, problem, extra={"is_current": lambda: self._problem == problem})
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
    """Return whether a name is the kubelet's socket or one of nodeplug; its checkpoint changes with each Allocate."""
    return name == KUBELET_SOCKET or is_own_socket(name)


def is_own_socket(name: str) -> bool:
    """Return whether a name is that of a socket of nodeplug."""
    return name.startswith(_PREFIX)


def has_successor(folder: Path, names: Iterable[str], resource_name: str, instance: str) -> bool:
    """Return whether one of `names` in a folder is the live socket of an instance that started later."""
    prefix = _prefix(resource_name)
    ours = prefix + instance
    return any(name.startswith(prefix) and name[: len(ours)] > ours and is_live(folder / name) for name in names)


def new_instance() -> str:
    """Return the part of an instance's socket names that sorts after those of earlier instances."""
    # time since the node's boot, which no change of the clock affects
    started, text = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000, ""
    for _ in range(_START_LENGTH):
        started, digit = divmod(started, len(_CHARACTERS))
        text = _CHARACTERS[digit] + text
    return text + _random(_INSTANCE_LENGTH - _START_LENGTH)


def _random(length: int) -> str:
    return "".join(_CHARACTERS[byte % len(_CHARACTERS)] for byte in os.urandom(length))


def _prefix(resource_name: str) -> str:
    """Return the beginning of the names of a resource's sockets."""
    # names can differ in characters that a file name cannot contain
    digest = f"{zlib.crc32(resource_name.encode()):08x}"
    own = re.sub(r"[^A-Za-z0-9.]", "_", resource_name.rpartition("/")[2])
    return f"{_PREFIX}{own[:_LABEL_LENGTH]}-{digest}-"


def new_socket(folder: Path, resource_name: str, instance: str) -> Path:
    """Return an unused path for a resource's socket."""
    return folder / f"{_prefix(resource_name)}{instance}{_random(_RANDOM_LENGTH)}.sock"


def remove_stale_sockets(folder: Path) -> None:
    """Remove sockets of nodeplug at which no process listens, as a killed daemon leaves them."""
    remove_dead_sockets(folder, lambda name: is_own_socket(name) and name.endswith(".sock"))
