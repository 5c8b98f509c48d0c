"""The folders below /dev that a glob matches, which a scan lists and inotify watches.

A folder that a glob names is always listed. A wildcard matches only folders of /dev's own file system: no links, which
lead to the same nodes again or form a loop, and not /dev/shm or other mounted file systems, where every user can create
thousands of folders.
"""

from collections import deque
from collections.abc import Iterator

from msgspec import Struct

from hostdevices.globs import is_glob, path_pattern
from hostdevices.host import Host

_DEPTH = 8  # the most folders that ** descends
_EXCLUDED = frozenset({"/dev/hugepages", "/dev/mqueue", "/dev/pts", "/dev/shm"})  # noqa: S108 - never read, only excluded
_MOUNTS_LIMIT = 4 << 20  # bytes


class Listed(Struct, frozen=True):
    """A folder, and the names in it that a glob uses: its matches, or folders on the way to them."""

    folder: str
    names: str  # a pattern of one component; ** for all
    is_last: bool = False  # whether the names are matches of the whole glob


class DeviceFolders:
    """The folders of a host's /dev; valid for one scan."""

    def __init__(self, host: Host) -> None:
        """Prepare; nothing is read yet."""
        self._host = host
        self._closed: frozenset[str] | None = None

    def listed(self, glob: str) -> Iterator[Listed]:
        """Yield each folder whose names `glob` uses, the shallow ones first; nothing for a glob outside /dev."""
        if not glob.startswith("/dev/") or "/../" in glob or "/./" in glob:
            return
        waiting = deque([("/dev", tuple(glob.split("/")[2:]))])
        seen = set(waiting)
        while waiting:
            folder, (part, *rest) = waiting.popleft()
            if part == "**" and rest:
                yield Listed(folder, part)
                ahead = [(folder, tuple(rest))]
                if folder.count("/") < _DEPTH:
                    ahead += [(below, (part, *rest)) for below in self._below(folder)]
            elif not rest:
                yield Listed(folder, part, is_last=True)
                continue
            elif is_glob(part):
                yield Listed(folder, part)
                wanted = path_pattern(part)
                ahead = [(x, tuple(rest)) for x in self._below(folder) if wanted.fullmatch(x.rpartition("/")[2])]
            else:
                ahead = [(f"{folder}/{part}", tuple(rest))]
            waiting += [x for x in ahead if x not in seen]
            seen.update(ahead)

    def _below(self, folder: str) -> list[str]:
        if self._closed is None:
            self._closed = _EXCLUDED | _other_file_systems(self._host)
        paths = (f"{folder}/{name}" for name in self._host.folders(folder) or ())
        return [path for path in paths if path not in self._closed]


def _other_file_systems(host: Host) -> frozenset[str]:
    """Return the mount points below /dev that are not devtmpfs. A stored tree has no mounts."""
    if not host.is_live():
        return frozenset()
    table = (host.read_bytes("/proc/self/mounts", _MOUNTS_LIMIT) or b"").decode(errors="replace")
    mounts = (line.split(" ") for line in table.split("\n") if " /dev/" in line)
    return frozenset(mount[1] for mount in mounts if len(mount) > 2 and mount[2] != "devtmpfs")
