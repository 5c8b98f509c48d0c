"""A snapshot of `plugins_registry`: the sockets of plugins, and the folders that were scanned.

A socket whose name begins with a dot is ignored. A folder with such a name is scanned only if it existed when the
kubelet first scanned its parent: at the kubelet's start, or when the parent was created. Source: the kubelet's
`plugin_watcher.go`, which checks the name only in events about new files.
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
        """An empty snapshot, without scanned folders."""
        self.sockets: dict[Path, tuple[int, int]] = {}
        """Path -> inode and creation time: a socket's modification time does not change after its creation."""
        self._folders: dict[Path, int] = {}  # path -> inode

    @classmethod
    def take(cls, folder: Path, before: Self) -> Self:
        """Scan a folder; `before` is the previous snapshot. Entries that vanish meanwhile are skipped.

        Links to sockets count; links to folders are not followed, like in the kubelet. Raises OSError if file
        descriptors or memory are exhausted, because the sockets are then unknown.
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
