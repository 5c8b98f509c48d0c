"""What a host said before: sysfs attributes are read once, until they are forgotten.

So an event has only the attributes of the devices that it concerns read again, however many devices there are. What
lists and nodes there are is always asked anew: it is cheap, and decides which devices exist. An attribute that changes
without an event of its device is found by the next full scan, as ever.
"""

from sys import intern

from hostdevices.host import READ_LIMIT
from hostdevices.tree import Node, Tree

_DEVICES = "/sys/devices/"


class CachedTree:
    """A tree that asks another one once for each file and link of a device; `forget` what may have changed."""

    def __init__(self, tree: Tree) -> None:
        """Begin to remember what `tree` says."""
        self._tree = tree
        self._contents: dict[str, dict[str, bytes | None]] = {}  # by folder and name
        self._targets: dict[str, dict[str, str | None]] = {}

    def forget(self, syspath: str | None = None) -> None:
        """Forget the attributes of a device, of all below it and of its parents; without a device all of them."""
        for remembered in (self._contents, self._targets):
            if syspath is None:
                remembered.clear()
                continue
            below = f"{syspath}/"
            for folder in [x for x in remembered if x == syspath or x.startswith(below) or below.startswith(f"{x}/")]:
                del remembered[folder]

    def is_live(self) -> bool:
        """Tell whether this is the running machine's own tree."""
        return self._tree.is_live()

    def read(self, path: str, limit: int) -> bytes | None:
        """Return at most `limit` bytes of a regular file; attributes as they were read first."""
        if limit != READ_LIMIT + 1 or not path.startswith(_DEVICES):
            return self._tree.read(path, limit)
        folder, _, name = path.rpartition("/")
        known = self._contents.setdefault(folder, {})
        if name not in known:
            known[intern(name)] = self._tree.read(path, limit)  # few names, in thousands of folders
        return known[name]

    def target(self, path: str) -> str | None:
        """Return a link's target as it is written, or was when it was first asked for."""
        if not path.startswith(_DEVICES):
            return self._tree.target(path)
        folder, _, name = path.rpartition("/")
        known = self._targets.setdefault(folder, {})
        if name not in known:
            known[intern(name)] = self._tree.target(path)
        return known[name]

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, now."""
        return self._tree.names(path)

    def folders(self, path: str) -> list[str] | None:
        """Return the names of the folders in a folder, now."""
        return self._tree.folders(path)

    def resolve(self, path: str) -> str | None:
        """Return the path of what `path` leads to, now."""
        return self._tree.resolve(path)

    def is_public(self, path: str) -> bool:
        """Tell whether `path` leads to a file that every user may read, now."""
        return self._tree.is_public(path)

    def node(self, path: str) -> Node | None:
        """Return the device node that `path` leads to, now."""
        return self._tree.node(path)

    def write(self, path: str, data: bytes) -> None:
        """Write to a file that is there. Raises OSError."""
        self._tree.write(path, data)
