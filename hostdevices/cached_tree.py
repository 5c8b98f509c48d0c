"""A cache of sysfs attributes: each is read once, until it is forgotten.

So after an event only the attributes of the affected devices are read again, however many devices there are. Lists and
nodes are always read from the kernel: that is cheap, and decides which devices exist. An attribute that changes without
an event of its device is found by the next full scan.
"""

from collections.abc import Callable
from sys import intern
from typing import Any, Generic, TypeVar

from hostdevices.host import READ_LIMIT
from hostdevices.tree import Node, Tree

_DEVICES = "/sys/devices/"
T = TypeVar("T", bytes, str)


class _FolderCache(Generic[T]):
    """The answers about names in folders.

    Each folder has a tuple: its names, shared as one tuple, and the answers. Thousands of folders have only a few
    different tuples of names, and a dictionary for each would be three times as large.
    """

    def __init__(self) -> None:
        """Begin without answers."""
        self._folders: dict[str, tuple[Any, ...]] = {}
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}  # each tuple of names once

    def get(self, path: str, read_now: Callable[[], T | None]) -> T | None:
        """Return the stored answer about a file, or read it now."""
        folder, _, name = path.rpartition("/")
        names: tuple[str, ...]
        answers: list[T | None]
        names, *answers = self._folders.get(folder, ((),))
        if name in names:
            return answers[names.index(name)]
        answer = read_now()
        more = (*names, intern(name))
        self._folders[intern(folder)] = (self._names.setdefault(more, more), *answers, answer)
        return answer

    def forget(self, syspath: str | None) -> None:
        """Forget a folder, everything below it and above it; without a folder everything."""
        if syspath is None:
            self._folders.clear()
            self._names.clear()
            return
        below = f"{syspath}/"
        for folder in [x for x in self._folders if x == syspath or x.startswith(below) or below.startswith(f"{x}/")]:
            del self._folders[folder]


class CachedTree:
    """A tree that reads each file and link of a device once from another tree; `forget` what might have changed."""

    def __init__(self, tree: Tree) -> None:
        """Begin to store what `tree` returns."""
        self._tree = tree
        self._contents = _FolderCache[bytes]()
        self._targets = _FolderCache[str]()

    def forget(self, syspath: str | None = None) -> None:
        """Forget the attributes of a device, of everything below it and of its parents; without one, all of them."""
        self._contents.forget(syspath)
        self._targets.forget(syspath)

    def is_live(self) -> bool:
        """Return whether this is the running machine's own tree."""
        return self._tree.is_live()

    def read(self, path: str, limit: int) -> bytes | None:
        """Return at most `limit` bytes of a regular file; attributes as they were first read."""
        if limit != READ_LIMIT + 1 or not path.startswith(_DEVICES):
            return self._tree.read(path, limit)
        return self._contents.get(path, lambda: self._tree.read(path, limit))

    def target(self, path: str) -> str | None:
        """Return a link's unresolved target, as it was first read."""
        if not path.startswith(_DEVICES):
            return self._tree.target(path)
        return self._targets.get(path, lambda: self._tree.target(path))

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, now."""
        return self._tree.names(path)

    def folders(self, path: str) -> list[str] | None:
        """Return the names of the folders in a folder, now."""
        return self._tree.folders(path)

    def resolve(self, path: str) -> str | None:
        """Return the path that `path` resolves to, now."""
        real = self._tree.resolve(path)
        # shares one string object with the folders of `_FolderCache`
        return intern(real) if real is not None and real.startswith(_DEVICES) else real

    def is_public(self, path: str) -> bool:
        """Return whether `path` resolves to a file that every user can read, now."""
        return self._tree.is_public(path)

    def node(self, path: str) -> Node | None:
        """Return the device node that `path` resolves to, now."""
        return self._tree.node(path)

    def write(self, path: str, data: bytes) -> None:
        """Write to an existing file. Raises OSError."""
        self._tree.write(path, data)
