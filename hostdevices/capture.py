"""A capture: this host's device tree in a file, so that it can be read elsewhere.

There is no fixed list of what to record: the readers run, and everything that they read is recorded. In addition, all
attributes of the found devices and of their parents are recorded for future readers, but only those that every user can
read: an attribute that the kernel keeps from users can be secret, slow, or have effects.
"""

import base64
import re
from collections.abc import Iterable, Sequence
from posixpath import dirname, join, normpath

from hostdevices.host import READ_LIMIT, Host
from hostdevices.masking import Mask
from hostdevices.readers import READERS, Reader
from hostdevices.recording import Entry
from hostdevices.scan import scan
from hostdevices.tree import Node, Tree

# Read only if a reader reads it, even if every user can: some drivers act on a read, it can block (sriov_numvfs does
# while functions are being created), or it is not text.
_UNREAD_ATTRIBUTES = re.compile(
    r"config|rom|remove|rescan|reset|.*_reset|resource.*|vpd|sriov_numvfs|new_id|remove_id|trace.*"
)


class _RecordingTree:
    """A tree that records the questions to another one."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.read_limits: dict[str, int] = {}
        self.listed: set[str] = set()
        self.resolved: set[str] = set()

    def is_live(self) -> bool:
        return self._tree.is_live()

    def read(self, path: str, limit: int) -> bytes | None:
        self.read_limits[path] = max(limit, self.read_limits.get(path, 0))
        return self._tree.read(path, limit)

    def names(self, path: str) -> list[str]:
        self.listed.add(path)
        return self._tree.names(path)

    def folders(self, path: str) -> list[str] | None:
        self.listed.add(path)
        return self._tree.folders(path)

    def target(self, path: str) -> str | None:
        self.resolved.add(path)
        return self._tree.target(path)

    def resolve(self, path: str) -> str | None:
        self.resolved.add(path)
        return self._tree.resolve(path)

    def is_public(self, path: str) -> bool:
        return self._tree.is_public(path)

    def node(self, path: str) -> Node | None:
        self.resolved.add(path)
        return self._tree.node(path)

    def write(self, path: str, data: bytes) -> None:
        self._tree.write(path, data)


def capture(
    host: Host, *, masked: bool = False, readers: Sequence[Reader] = READERS, nodes: Iterable[str] = ()
) -> list[Entry]:
    """Return the entries of `host` that a recording needs so that `readers` find the same in it, sorted by path.

    `nodes` are paths of further nodes that are needed although no device has them. With `masked`, serial numbers, MAC
    addresses, UUIDs and similar values are replaced, each by the same value everywhere.
    """
    recorder = _RecordingTree(host.tree)
    inventory = scan(Host(host.root, recorder), readers)
    record = _Record(host)
    for path, limit in recorder.read_limits.items():
        record.file(path, limit)
    for path in recorder.listed:
        record.names(path)
    for path in (*recorder.resolved, *nodes):
        record.add_path(path)
    for syspath in _with_parents(device.syspath for device in inventory.devices.values()):
        record.attributes(syspath)
    entries = record.entries()
    return Mask(entries).apply(entries) if masked else entries


def _with_parents(syspaths: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for syspath in syspaths:
        while syspath.startswith("/sys/devices/") and syspath not in found:
            found.add(syspath)
            syspath = dirname(syspath)
    return found


class _Record:
    """Collects entries, by their paths without links, and every link on the way."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._self = host.resolve("/proc/self") or ""
        self._entries: dict[str, Entry] = {}
        self._followed: set[str] = set()

    def entries(self) -> list[Entry]:
        """Return everything, sorted."""
        return sorted(self._entries.values())

    def add_path(self, path: str) -> str | None:
        """Record that `path` exists, and its type and numbers if it is a device node; return its path without links."""
        self._follow(path)
        real = self._resolve(path)
        if real in (None, "/"):
            return None
        if real not in self._entries:
            node = self._host.devnode(real) if real.startswith("/dev/") else None
            numbers = f"{node.kind} {node.major}:{node.minor}" if node else ""
            self._entries[real] = Entry(real, "node", numbers) if node else Entry(real, "there")
        return real

    def names(self, folder: str) -> None:
        """Record the names in a folder."""
        self.add_path(folder)
        for name in self._host.list(folder):
            self.add_path(join(folder, name))

    def file(self, path: str, limit: int) -> None:
        """Record a file up to `limit` bytes."""
        data = self._host.read_bytes(path, limit)
        real = self.add_path(path)
        if data is None or real is None:
            return
        try:
            self._entries[real] = Entry(real, "text", data.decode())
        except UnicodeDecodeError:
            self._entries[real] = Entry(real, "bytes", base64.b64encode(data).decode())

    def attributes(self, syspath: str) -> None:
        """Record the attributes and links of a device's own folder."""
        for name in self._host.list(syspath):
            path = join(syspath, name)
            if self._host.target(path) is not None:
                self.add_path(path)
            elif not _UNREAD_ATTRIBUTES.fullmatch(name) and self._host.is_public(path) and not self._has_content(path):
                self.file(path, READ_LIMIT)

    def _has_content(self, path: str) -> bool:
        return path in self._entries and self._entries[path].what != "there"

    def _resolve(self, path: str) -> str | None:
        """Resolve all links except /proc/self, which differs for every process."""
        real = self._host.resolve(path)
        if real is not None and self._self and f"{real}/".startswith(f"{self._self}/"):
            return f"/proc/self{real.removeprefix(self._self)}"
        return real

    def _follow(self, path: str) -> None:
        """Record the links on the way along `path`."""
        if path in self._followed or path in ("/", "/proc/self"):
            return
        self._followed.add(path)
        self._follow(dirname(path))
        folder = self._resolve(dirname(path))
        if folder is None:
            return
        here = join(folder, path.rpartition("/")[2])
        target = self._host.target(here)
        if target is not None:
            self._entries[here] = Entry(here, "link", target)
            self._follow(normpath(join(folder, target)))
