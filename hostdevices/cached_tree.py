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


class _Answers(Generic[T]):
    """What was answered about names in folders.

    Of each folder a tuple: its names in one, and the answers. In thousands of folders there are few names, in few
    orders, and a dictionary of each would be three times as large.
    """

    def __init__(self) -> None:
        """Know nothing."""
        self._folders: dict[str, tuple[Any, ...]] = {}
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}  # each once

    def get(self, path: str, ask: Callable[[], T | None]) -> T | None:
        """Return what was answered about a file, or now is."""
        folder, _, name = path.rpartition("/")
        names: tuple[str, ...]
        answers: list[T | None]
        names, *answers = self._folders.get(folder, ((),))
        if name in names:
            return answers[names.index(name)]
        answer = ask()
        more = (*names, intern(name))
        self._folders[intern(folder)] = (self._names.setdefault(more, more), *answers, answer)
        return answer

    def forget(self, syspath: str | None) -> None:
        """Forget a folder, all below it and above it; without one everything."""
        if syspath is None:
            self._folders.clear()
            self._names.clear()
            return
        below = f"{syspath}/"
        for folder in [x for x in self._folders if x == syspath or x.startswith(below) or below.startswith(f"{x}/")]:
            del self._folders[folder]


class CachedTree:
    """A tree that asks another one once for each file and link of a device; `forget` what may have changed."""

    def __init__(self, tree: Tree) -> None:
        """Begin to remember what `tree` says."""
        self._tree = tree
        self._contents = _Answers[bytes]()
        self._targets = _Answers[str]()

    def forget(self, syspath: str | None = None) -> None:
        """Forget the attributes of a device, of all below it and of its parents; without a device all of them."""
        self._contents.forget(syspath)
        self._targets.forget(syspath)

    def is_live(self) -> bool:
        """Tell whether this is the running machine's own tree."""
        return self._tree.is_live()

    def read(self, path: str, limit: int) -> bytes | None:
        """Return at most `limit` bytes of a regular file; attributes as they were read first."""
        if limit != READ_LIMIT + 1 or not path.startswith(_DEVICES):
            return self._tree.read(path, limit)
        return self._contents.get(path, lambda: self._tree.read(path, limit))

    def target(self, path: str) -> str | None:
        """Return a link's target as it is written, or was when it was first asked for."""
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
        """Return the path of what `path` leads to, now."""
        real = self._tree.resolve(path)
        return intern(real) if real is not None and real.startswith(_DEVICES) else real  # one text with what is read

    def is_public(self, path: str) -> bool:
        """Tell whether `path` leads to a file that every user may read, now."""
        return self._tree.is_public(path)

    def node(self, path: str) -> Node | None:
        """Return the device node that `path` leads to, now."""
        return self._tree.node(path)

    def write(self, path: str, data: bytes) -> None:
        """Write to a file that is there. Raises OSError."""
        self._tree.write(path, data)
