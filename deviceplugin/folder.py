"""The kubelet's folder for device plugins: its socket, our socket names, and a wake-up after every change there."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from grpcunix import FolderWatch, is_live, remove_dead_sockets

KUBELET_SOCKET = "kubelet.sock"
_PREFIX = "nodeplug-"
_LONGEST_NAME = 48  # leaves 59 bytes for the folder; the kubelet's own has 32
Identity: TypeAlias = tuple[int, int, int]


class PluginFolder:
    """`path` is the kubelet's device-plugins folder; listeners are called in the loop after changes in it."""

    def __init__(self, path: Path) -> None:
        """Prepare; nothing is watched yet."""
        self.path = path
        self.kubelet_socket = path / KUBELET_SOCKET
        self._listeners: list[Callable[[], None]] = []
        self._watch = FolderWatch(path, self._changed)

    def start(self) -> None:
        """Watch the folder. Raises OSError where it is missing."""
        self._watch.start()

    def stop(self) -> None:
        """Stop watching."""
        self._watch.stop()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change."""
        self._listeners.append(listener)

    def kubelet(self) -> Identity | None:
        """Identify the kubelet's socket file; a kubelet that restarts makes a new one. None where there is none."""
        try:
            status = self.kubelet_socket.lstat()
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_ctime_ns

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()


def own_socket(folder: Path, resource_name: str) -> Path:
    """Return a path in `folder` for a resource's socket, at which nobody listens.

    There are two names, so that a new instance can serve beside the old one during an upgrade.
    """
    slug = re.sub(r"[^A-Za-z0-9.]", "_", resource_name)
    if len(slug) > _LONGEST_NAME - len(_PREFIX) - len("-a.sock"):
        slug = hashlib.sha256(resource_name.encode()).hexdigest()[:16]
    first, second = (folder / f"{_PREFIX}{slug}-{which}.sock" for which in "ab")
    return second if is_live(first) else first


def remove_stale_sockets(folder: Path) -> None:
    """Remove sockets of ours at which nobody listens, as a killed daemon leaves them."""
    remove_dead_sockets(folder, lambda name: name.startswith(_PREFIX) and name.endswith(".sock"))
