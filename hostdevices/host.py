"""`Host(root)`: the only door to /sys, /proc and /dev.

Rules of what comes through it:
1. A file that is missing, vanishes while being read, or may not be read is `None` or empty: that is normal.
2. A file that is larger than anything the kernel writes there, or is not text, raises `UnreadableFile`: an error of
   the one device that it belongs to, never of the scan.
3. Links are followed inside the root only.
"""

import os
import stat
from pathlib import Path
from typing import Literal

from hostdevices.device import Devnode

READ_LIMIT = 4096  # a sysfs attribute is one page at the most
_GONE_OR_REFUSED = (OSError,)  # ENOENT, ENODEV, EIO, EINVAL, EPERM, ...: the kernel's ways to say "not now"


class HostDevicesError(Exception):
    """The host cannot be read as expected."""


class UnreadableFile(HostDevicesError):
    """A file's content is not what the kernel writes; the text names the file."""


class Host:
    """A host's device tree below `root`: `/`, or a folder with sys/, proc/ and dev/. Paths are the host's own."""

    def __init__(self, root: Path | str = "/") -> None:
        """Open the tree below `root`. Raises `HostDevicesError` where there is no sys/ folder."""
        self.root = Path(os.path.realpath(root))
        self._prefix = "" if str(self.root) == "/" else str(self.root)
        if not os.path.isdir(f"{self._prefix}/sys"):
            raise HostDevicesError(
                f"{root}: no folder sys/ here; give a folder with sys/, proc/ and dev/, or a capture file"
            )

    def is_live(self) -> bool:
        """Tell whether this is the running machine's own tree."""
        return not self._prefix

    def read(self, path: str, limit: int = READ_LIMIT) -> str | None:
        """Return the text of a file without surrounding white space; None where it cannot be read.

        Raises `UnreadableFile` for more than `limit` bytes, NUL bytes or invalid UTF-8.
        """
        data = self.read_bytes(path, limit + 1)
        if data is None:
            return None
        if len(data) > limit:
            raise UnreadableFile(f"{path}: more than {limit} bytes")
        if b"\0" in data:
            raise UnreadableFile(f"{path}: binary content")
        try:
            return data.decode().strip()
        except UnicodeDecodeError:
            raise UnreadableFile(f"{path}: not UTF-8") from None

    def read_bytes(self, path: str, limit: int = READ_LIMIT) -> bytes | None:
        """Return at most `limit` bytes of a file; None where it cannot be read."""
        try:
            descriptor = os.open(self._prefix + path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except _GONE_OR_REFUSED:
            return None
        try:
            return os.read(descriptor, limit)
        except _GONE_OR_REFUSED:
            return None
        finally:
            os.close(descriptor)

    def list(self, path: str) -> list[str]:
        """Return the sorted names in a folder; empty where there is none."""
        try:
            return sorted(os.listdir(self._prefix + path))
        except _GONE_OR_REFUSED:
            return []

    def exists(self, path: str) -> bool:
        """Tell whether something lies at `path`, links followed."""
        return os.path.exists(self._prefix + path)

    def resolve(self, path: str) -> str | None:
        """Return the host path that `path` leads to once all links are followed; None where it leads nowhere or out."""
        real = os.path.realpath(self._prefix + path)
        if self._prefix and not real.startswith(self._prefix + "/"):
            return None
        return real[len(self._prefix) :] if os.path.lexists(real) else None

    def link(self, path: str) -> str | None:
        """Return the last component of a link's target (`driver` -> `nvme`); None where there is no link."""
        try:
            return os.path.basename(os.readlink(self._prefix + path))
        except _GONE_OR_REFUSED:
            return None

    def devnode(self, path: str) -> Devnode | None:
        """Return the device node at `path`, which may be a link to it; None where there is none.

        Below a recorded root a node may be a text file as a capture writes it: `c 10:229`.
        """
        try:
            status = os.stat(self._prefix + path)
        except _GONE_OR_REFUSED:
            return None
        kind: Literal["c", "b"]
        if stat.S_ISCHR(status.st_mode):
            kind = "c"
        elif stat.S_ISBLK(status.st_mode):
            kind = "b"
        else:
            return self._recorded_devnode(path)
        return Devnode(path, kind, os.major(status.st_rdev), os.minor(status.st_rdev))

    def _recorded_devnode(self, path: str) -> Devnode | None:
        if self.is_live():
            return None
        words = (self.read(path) or "").split()
        if len(words) < 2 or words[0] not in ("c", "b"):
            return None
        major, _, minor = words[1].partition(":")
        if not (major.isdecimal() and minor.isdecimal()):
            return None
        return Devnode(path, "c" if words[0] == "c" else "b", int(major), int(minor))
