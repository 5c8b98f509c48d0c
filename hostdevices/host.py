"""`Host(root)`: the only access to /sys, /proc and /dev.

Rules:
1. A file that is missing, vanishes while being read, or may not be read is `None` or empty: that is normal.
2. A file that is larger than anything the kernel writes there, or is not text, raises `UnreadableFile`: an error of
   the one device that it belongs to, never of the scan.
3. A read that has not returned for seconds raises `ReadStuck` from then on, until it returns (reads.py).
4. Links are followed inside the root only, and nothing but regular files is ever opened (tree.py).
5. A name or link target that is not UTF-8 does not exist: no message to a kubelet could carry it.
"""

import errno
import os
import stat
from functools import partial
from pathlib import Path

from hostdevices.device import Devnode
from hostdevices.errors import HostDevicesError, UnreadableFile
from hostdevices.reads import Reads
from hostdevices.tree import Folder, Machine, Tree, exhausted

READ_LIMIT = 4096  # a sysfs attribute has at most one page


class Host:
    """A host's device tree at `root`: `/`, a folder with sys/, proc/ and dev/, or a capture. Paths are the host's."""

    def __init__(self, root: Path | str = "/", tree: Tree | None = None, reads: Reads | None = None) -> None:
        """Open the tree at `root`, or use `tree` instead. Raises `HostDevicesError` if there is no tree.

        Hosts that read the same files share their `reads`.
        """
        self.root = Path(os.path.realpath(root))
        self.tree = tree or _tree_at(self.root)
        self.reads = reads or Reads()

    def is_live(self) -> bool:
        """Return whether this is the running machine's own tree."""
        return self.tree.is_live()

    def read(self, path: str, limit: int = READ_LIMIT) -> str | None:
        """Return the text of a file without surrounding white space; None if it cannot be read.

        Raises `UnreadableFile` for more than `limit` bytes, NUL bytes or invalid UTF-8, and `ReadStuck`.
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
        """Return at most `limit` bytes of a file below /sys or /proc; None if it cannot be read."""
        self.reads.raise_if_stuck(path)
        return self.reads.call(self.tree.read, path, limit)

    def write(self, path: str, text: str) -> None:
        """Write to an attribute below /sys. Blocks for as long as the device takes. Raises OSError."""
        real, error = exhausted(partial(self.resolve, path))
        if real is None and error is not None:
            raise error
        if real is None or not real.startswith("/sys/"):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self.tree.write(real, text.encode())

    def folders(self, path: str) -> list[str] | None:
        """Return the sorted names of the folders in a folder, without links; None if it cannot be read."""
        names = self.reads.call(self.tree.folders, path)
        return None if names is None else sorted(filter(_is_text, names))

    def list(self, path: str) -> list[str]:
        """Return the sorted names in a folder; empty if there is none."""
        return sorted(filter(_is_text, self.reads.call(self.tree.names, path)))

    def exists(self, path: str) -> bool:
        """Return whether `path` exists, after links are followed."""
        return self.reads.call(self.tree.resolve, path) is not None

    def resolve(self, path: str) -> str | None:
        """Return the host path that `path` resolves to after all links are followed; None if it does not exist."""
        real = self.reads.call(self.tree.resolve, path)
        return (real or "/") if real is not None and _is_text(real) else None

    def target(self, path: str) -> str | None:
        """Return a link's unresolved target; None if there is no link."""
        target = self.reads.call(self.tree.target, path)
        return target if target is not None and _is_text(target) else None

    def link(self, path: str) -> str | None:
        """Return the last component of a link's target (`driver` -> `nvme`); None if there is no link."""
        target = self.target(path)
        return None if target is None else os.path.basename(target)

    def is_public(self, path: str) -> bool:
        """Return whether every user can read the file; the kernel protects costly, risky and secret ones from users."""
        return self.reads.call(self.tree.is_public, path)

    def devnode(self, path: str) -> Devnode | None:
        """Return the device node at `path`, which can be a link to it; None if there is none."""
        node = self.reads.call(self.tree.node, path)
        return Devnode(path, node.kind, node.major, node.minor) if node else None


def _tree_at(root: Path) -> Tree:
    if root == Path("/"):
        return Machine()
    try:
        if _is_folder(root / "sys"):
            return Folder(str(root))
        if root.is_file():
            from hostdevices.recording import Recording  # imported here: it brings gzip, which is for captures only

            return Recording.load(root)
    except ValueError as error:
        raise HostDevicesError(str(error)) from None
    except PermissionError as error:
        raise HostDevicesError(f"{root}: {error.strerror}; make it readable for user {os.geteuid()}") from None
    except OSError as error:
        raise HostDevicesError(f"{root}: {error.strerror}") from None
    why = "no folder sys/ here" if root.exists() else "there is no such file or folder"
    raise HostDevicesError(f"{root}: {why}; give a folder with sys/, proc/ and dev/, or a capture")


def _is_folder(path: Path) -> bool:
    """Return whether a folder exists. Unlike `Path.is_dir`, raises if that cannot be determined."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _is_text(name: str) -> bool:
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)
