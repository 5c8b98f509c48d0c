"""What lies in `plugins_registry` at one moment: the sockets of plugins, and the folders that were looked into.

What has a name that begins with a dot is no plugin's socket. A folder with such a name is looked into all the same if
it was there when the kubelet first looked where it lies: at its start, or when the folder around it came. One that
comes later is not. Source: the kubelet's `plugin_watcher.go`, which asks for the name when told of something new only.
"""

import errno
import os
import stat
from pathlib import Path
from typing import Self

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class Snapshot:
    """The sockets below a folder."""

    def __init__(self) -> None:
        """Nothing is there, and nothing was looked into."""
        self.sockets: dict[Path, tuple[int, int]] = {}
        """Path -> inode, and when it was made: nothing else moves a socket's time of modification."""
        self._folders: dict[Path, int] = {}  # path -> inode

    @classmethod
    def take(cls, folder: Path, before: Self) -> Self:
        """Look into a folder; `before` is what was there the last time. What vanishes meanwhile is left out.

        Links to sockets count, links to folders do not: the kubelet walks without them. Raises OSError where the
        machine has nothing left to look with, which says nothing about sockets.
        """
        taken = cls()
        taken._walk(folder, before)
        return taken

    def _walk(self, folder: Path, before: Self) -> None:
        try:
            inode = self._folders[folder] = folder.stat().st_ino
            entries = sorted(os.listdir(folder))
        except OSError as error:
            if error.errno in _EXHAUSTED:
                raise
            return
        is_new = before._folders.get(folder) != inode
        for entry in entries:
            path, is_hidden = folder / entry, entry.startswith(".")
            try:
                found = path.stat()
                is_folder = stat.S_ISDIR(found.st_mode) and not path.is_symlink()
            except OSError:
                continue
            if is_folder and (is_new or not is_hidden or before._folders.get(path) == found.st_ino):
                self._walk(path, before)
            elif stat.S_ISSOCK(found.st_mode) and not is_hidden:
                self.sockets[path] = (found.st_ino, found.st_mtime_ns)
