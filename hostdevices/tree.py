"""The source of a host's files: the running machine, a folder with sys/, proc/ and dev/, or a recording.

Rule: the contents of a stored tree are not trusted. So nothing in it can lead out of it, block, or wake a device: links
are followed only inside the tree, and only regular files and folders are opened.
"""

import errno
import os
import stat
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol, TypeAlias, TypeVar

T = TypeVar("T")
NodeKind: TypeAlias = Literal["c", "b"]
GONE_OR_REFUSED = (OSError, ValueError)
"""The kernel's errors for "not now" (ENOENT, ENODEV, EIO, EINVAL, EPERM, ...), and those of impossible names."""

_EXHAUSTED = frozenset((errno.EMFILE, errno.ENFILE))  # in the process, on the node; no driver returns these
_PAGES = 1 << 16  # bytes of one read
_MAX_LINKS = 40  # the kernel's own limit
_LINKS = ("/sys/dev/", "/sys/class/")  # /sys/dev/char/10:229 and /sys/class/misc/fuse are links to a device


class _Exhaustion(threading.local):
    """The error in this thread when no descriptor was left: what was not found then might exist."""

    error: OSError | None = None


_exhaustion = _Exhaustion()


def exhausted(lookup: Callable[[], T]) -> tuple[T, OSError | None]:
    """Return what `lookup` returns, and the error if no descriptor was left meanwhile.

    For a lookup within another one, both get the error.
    """
    before, _exhaustion.error = _exhaustion.error, None
    try:
        answer = lookup()
        return answer, _exhaustion.error
    finally:
        _exhaustion.error = _exhaustion.error or before


class Node(NamedTuple):
    """A device node's type and numbers."""

    kind: NodeKind
    major: int
    minor: int


class Tree(Protocol):
    """The files of one host. Paths are absolute and the host's own; what cannot be read is None or empty."""

    def is_live(self) -> bool:
        """Return whether this is the running machine's own tree."""
        ...

    def read(self, path: str, limit: int) -> bytes | None:
        """Return at most `limit` bytes of a regular file."""
        ...

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, in any order."""
        ...

    def folders(self, path: str) -> list[str] | None:
        """Return the names of the folders in a folder, in any order, without links; None if it cannot be read."""
        ...

    def target(self, path: str) -> str | None:
        """Return a link's unresolved target."""
        ...

    def resolve(self, path: str) -> str | None:
        """Return the path that `path` resolves to, free of links."""
        ...

    def is_public(self, path: str) -> bool:
        """Return whether `path` resolves to a file that every user can read."""
        ...

    def node(self, path: str) -> Node | None:
        """Return the device node that `path` resolves to."""
        ...

    def write(self, path: str, data: bytes) -> None:
        """Write to an existing file, at a path without links. Raises OSError."""
        ...


class Machine:
    """The running machine's own tree."""

    def is_live(self) -> bool:
        """Return True."""
        return True

    def read(self, path: str, limit: int) -> bytes | None:
        """Return at most `limit` bytes of a file below /sys or /proc. A device node is never opened: it can react."""
        return _read(path, limit) if path.startswith(("/sys/", "/proc/")) else None

    def names(self, path: str) -> list[str]:
        """Return the names in a folder."""
        return _names(path)

    def folders(self, path: str) -> list[str] | None:
        """Return the names of the folders in a folder."""
        return _folders(path)

    def target(self, path: str) -> str | None:
        """Return a link's unresolved target."""
        return _target(path)

    def resolve(self, path: str) -> str | None:
        """Return the path that `path` resolves to."""
        # called in each Allocate, and for thousands of devices in a scan; the kernel's links there lead straight to
        # devices
        if path.startswith(_LINKS) and path.count("/") == 4:
            target = _target(path)
            if target is not None and target.startswith("../../devices/"):
                return f"/sys/{target[6:]}"
        return _resolve(path)

    def is_public(self, path: str) -> bool:
        """Return whether `path` resolves to a file that every user can read."""
        return _is_public(path)

    def node(self, path: str) -> Node | None:
        """Return the device node that `path` resolves to."""
        try:
            return _node(os.stat(path))
        except GONE_OR_REFUSED as error:
            return _refused(error, None)

    def write(self, path: str, data: bytes) -> None:
        """Write to an existing file. Raises OSError."""
        _write(path, data)


class StoredTree(ABC):
    """A tree that is not the running machine's: links are followed inside of it only."""

    def is_live(self) -> bool:
        """Return False."""
        return False

    def read(self, path: str, limit: int) -> bytes | None:
        """Return at most `limit` bytes of a regular file."""
        real = self.resolve(path)
        return None if real is None else self._read(real, limit)

    def names(self, path: str) -> list[str]:
        """Return the names in a folder."""
        real = self.resolve(path)
        return [] if real is None else self._names(real)

    def folders(self, path: str) -> list[str] | None:
        """Return the names of the folders in a folder."""
        real = self.resolve(path)
        return None if real is None else self._folders(real)

    def target(self, path: str) -> str | None:
        """Return a link's unresolved target."""
        folder, _, name = path.rstrip("/").rpartition("/")
        real = self.resolve(folder)
        return None if real is None else self._target(f"{real}/{name}")

    def resolve(self, path: str) -> str | None:
        """Return the path that `path` resolves to; absolute links begin at the tree's root, `..` ends there."""
        ahead = path.split("/")[::-1]
        here = ""
        links = 0
        while ahead:
            name = ahead.pop()
            if name in ("", "."):
                continue
            if name == "..":
                here = here.rpartition("/")[0]
                continue
            target = self._target(f"{here}/{name}")
            if target is None:
                here = f"{here}/{name}"
                continue
            links += 1
            if links > _MAX_LINKS:
                return None
            ahead += target.split("/")[::-1]
            if target.startswith("/"):
                here = ""
        return here if self._exists(here) else None

    def is_public(self, path: str) -> bool:
        """Return whether `path` resolves to a file that every user can read."""
        real = self.resolve(path)
        return real is not None and self._is_public(real)

    def node(self, path: str) -> Node | None:
        """Return the device node that `path` resolves to."""
        real = self.resolve(path)
        return None if real is None else self._node(real)

    def write(self, path: str, data: bytes) -> None:  # noqa: ARG002 - for trees that can be written to
        """Refuse to write."""
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    @abstractmethod
    def _read(self, real: str, limit: int) -> bytes | None: ...

    @abstractmethod
    def _names(self, real: str) -> list[str]: ...

    @abstractmethod
    def _folders(self, real: str) -> list[str] | None: ...

    @abstractmethod
    def _target(self, real: str) -> str | None: ...

    @abstractmethod
    def _exists(self, real: str) -> bool: ...

    @abstractmethod
    def _is_public(self, real: str) -> bool: ...

    @abstractmethod
    def _node(self, real: str) -> Node | None: ...


class Folder(StoredTree):
    """A tree below a folder. A device node can also be a regular file that contains `c 10:229`."""

    def __init__(self, prefix: str) -> None:
        """Take the folder's path, without links in it."""
        self._prefix = prefix

    def resolve(self, path: str) -> str | None:
        """Return the path that `path` resolves to; absolute links begin at the tree's root, `..` ends there."""
        real = self._inside(path)
        if real is not None:
            return real
        folder, _, name = path.rpartition("/")
        above = self._inside(folder)
        if above is not None and name not in ("", ".", "..") and self._target(f"{above}/{name}") is None:
            return None  # a name that does not exist, and is no link
        return super().resolve(path)

    def write(self, path: str, data: bytes) -> None:
        """Write to an existing file. Raises OSError."""
        _write(self._prefix + path, data)

    def _inside(self, path: str) -> str | None:
        """Ask the kernel, which is faster; None unless its answer is inside this tree."""
        real = _resolve(self._prefix + path)
        return real[len(self._prefix) :] if real and f"{real}/".startswith(f"{self._prefix}/") else None

    def _read(self, real: str, limit: int) -> bytes | None:
        path = self._prefix + real
        try:
            return _read(path, limit) if stat.S_ISREG(os.lstat(path).st_mode) else None
        except GONE_OR_REFUSED as error:
            return _refused(error, None)

    def _names(self, real: str) -> list[str]:
        return _names(self._prefix + real)

    def _folders(self, real: str) -> list[str] | None:
        return _folders(self._prefix + real)

    def _target(self, real: str) -> str | None:
        return _target(self._prefix + real)

    def _exists(self, real: str) -> bool:
        return os.path.lexists(self._prefix + real)

    def _is_public(self, real: str) -> bool:
        return _is_public(self._prefix + real)

    def _node(self, real: str) -> Node | None:
        try:
            node = _node(os.lstat(self._prefix + real))
        except GONE_OR_REFUSED as error:
            return _refused(error, None)
        return node or parse_node(self._read(real, 64) or b"")


_MAX_NUMBERS = 21  # characters: 32 bits, a colon, 32 bits


def parse_node(text: bytes) -> Node | None:
    """Read a node as captures write it, `c 10:229`; None for other texts."""
    kind, _, numbers = text.decode(errors="replace").strip().partition(" ")
    major, _, minor = numbers.partition(":")
    is_number = major.isdecimal() and minor.isdecimal() and len(numbers) <= _MAX_NUMBERS
    if kind not in ("c", "b") or not is_number:
        return None
    return Node("c" if kind == "c" else "b", int(major), int(minor))


def _node(status: os.stat_result) -> Node | None:
    if stat.S_ISCHR(status.st_mode):
        return Node("c", os.major(status.st_rdev), os.minor(status.st_rdev))
    if stat.S_ISBLK(status.st_mode):
        return Node("b", os.major(status.st_rdev), os.minor(status.st_rdev))
    return None


def _refused(error: Exception, nothing: T) -> T:
    """Return `nothing`, for a missing file; record the error if that is not certain."""
    if isinstance(error, OSError) and error.errno in _EXHAUSTED:
        _exhaustion.error = error
    return nothing


def _read(path: str, limit: int) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except GONE_OR_REFUSED as error:
        return _refused(error, None)
    try:
        data = os.read(descriptor, limit)
        if path.startswith("/sys/"):
            return data  # complete in one read, and there are thousands of them
        if data and len(data) < limit:
            data += _rest(descriptor, limit - len(data))
    except GONE_OR_REFUSED as error:
        return _refused(error, None)
    finally:
        os.close(descriptor)
    return data


def _rest(descriptor: int, limit: int) -> bytes:
    """Read on: files of /proc are read page by page, and can be long."""
    pages: list[bytes] = []
    while limit > 0 and (page := os.read(descriptor, min(limit, _PAGES))):
        pages.append(page)
        limit -= len(page)
    return b"".join(pages)


def _write(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def _resolve(path: str) -> str | None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)  # opens nothing, and needs no permission
    except GONE_OR_REFUSED as error:
        return _refused(error, None)
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")  # six times as fast as os.path.realpath()
    except GONE_OR_REFUSED as error:
        return _refused(error, None)
    finally:
        os.close(descriptor)


def _is_public(path: str) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except GONE_OR_REFUSED as error:
        return _refused(error, False)
    return stat.S_ISREG(mode) and bool(mode & stat.S_IROTH)


def _names(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except GONE_OR_REFUSED as error:
        return _refused(error, [])


def _folders(path: str) -> list[str] | None:
    try:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except GONE_OR_REFUSED as error:
        return _refused(error, None)


def _target(path: str) -> str | None:
    try:
        return os.readlink(path)
    except GONE_OR_REFUSED as error:
        return _refused(error, None)
