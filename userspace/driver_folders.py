"""A driver's files put together in a folder of ours, one for each version and content. Blocking: call from a thread.

    FOLDER/usr/local/nvidia/lib64/libcuda.so.1 -> libcuda.so.550.54.14     as containers see it, from / on

Rules:
1. A folder is complete while it is there: made beside, renamed, and renamed before it is removed. It never changes in
   between: containers have it mounted. What another daemon makes just now, in an update, is locked.
2. Files are linked where the disk can, so that they take no room and outlive an upgrade of the package; else copied.
3. A folder goes once no lease is left from when containers were given it.
"""

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Collection, Iterator
from hashlib import blake2b
from pathlib import Path

from hostdevices import DriverMount
from userspace.nvidia import InstalledDriver

_PREFIX, _NEW = "nvidia-", ".new-"
_WHOLE = "/usr/local/nvidia"  # one mount contains everything below it
_ROOM = 64 * 1024 * 1024  # bytes that stay free for leases
_CANNOT_LINK = (errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.EROFS)


class NoRoom(OSError):
    """The disk has no room for a driver's files; says how much is needed."""


class DriverFolders:
    """The folders below one of ours."""

    def __init__(self, path: Path) -> None:
        """Prepare; nothing is touched yet."""
        self.path = path
        self._holders: dict[str, frozenset[object]] = {}  # by a folder that nobody new is given

    def make(self, files: InstalledDriver) -> Path:
        """Return the folder with these files, creating it if necessary. Raises OSError."""
        whole = self.path / f"{_PREFIX}{files.version}-{_digest(files)}"
        if whole.is_dir():
            return whole
        sizes = sum(os.stat(source).st_size for source in files.files.values())
        self.path.mkdir(0o755, parents=True, exist_ok=True)
        new = self.path / f"{_NEW}{os.urandom(6).hex()}"
        try:
            new.mkdir(0o755)
            with _locked(new):
                self._fill(new, files, sizes)
                try:
                    os.rename(new, whole)
                except OSError:
                    if not whole.is_dir():  # another daemon was first
                        raise
        finally:
            shutil.rmtree(new, ignore_errors=True)
        return whole

    def of_version(self, version: str) -> Path | None:
        """Return the latest folder of a version; None if there is none."""
        found = [x for x in self._folders() if x.name.rpartition("-")[0] == f"{_PREFIX}{version}"]
        return max(found, key=lambda folder: folder.stat().st_ctime_ns, default=None)

    def fuller_than(self, files: InstalledDriver) -> Path | None:
        """Return the last folder of a version if it has libraries of that version which are not among these files.

        They are being removed then, one package after the other: whoever gets the rest has half a driver.
        """
        if (made := self.of_version(files.version)) is None:
            return None
        libraries = (str(path).removeprefix(str(made)) for path in made.rglob(f"*.so.{files.version}"))
        return made if any(x not in files.files and x not in files.links for x in libraries) else None

    def prune(self, current: Path | None, leases: Collection[object]) -> None:
        """Remove the folders, but `current`, that no lease is left of, and what a crash left. Raises OSError.

        `leases` tell apart all that there are now. All of a daemon's first time may be from when a folder was given.
        """
        now = frozenset(leases)
        for folder in self._folders():
            if folder == current:
                self._holders.pop(folder.name, None)
                continue
            left = self._holders.get(folder.name, now) & now
            self._holders[folder.name] = left
            if not left:
                os.rename(folder, self.path / f"{_NEW}{os.urandom(6).hex()}")
                del self._holders[folder.name]
        for new in self.path.glob(f"{_NEW}*"):
            with contextlib.suppress(BlockingIOError, FileNotFoundError), _locked(new, fcntl.LOCK_NB):
                shutil.rmtree(new, ignore_errors=True)

    def _folders(self) -> list[Path]:
        return sorted(self.path.glob(f"{_PREFIX}*"))

    def _fill(self, new: Path, files: InstalledDriver, sizes: int) -> None:
        is_checked = False
        for inside, source in files.files.items():
            target = f"{new}{inside}"
            os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
            try:
                os.link(source, target, follow_symlinks=False)
            except OSError as error:
                if error.errno not in _CANNOT_LINK:
                    raise
                if not is_checked:
                    self._check_room(sizes)
                    is_checked = True
                _copy(source, target)
        for inside, to in files.links.items():
            os.makedirs(os.path.dirname(f"{new}{inside}"), 0o755, exist_ok=True)
            os.symlink(to, f"{new}{inside}")

    def _check_room(self, sizes: int) -> None:
        disk = os.statvfs(self.path)
        if (free := disk.f_bavail * disk.f_frsize) < sizes + _ROOM:
            mib = 1 << 20
            raise NoRoom(
                errno.ENOSPC, f"the driver's files need {(sizes + _ROOM) // mib} MiB, {free // mib} are free", self.path
            )


@contextlib.contextmanager
def _locked(folder: Path, option: int = 0) -> Iterator[None]:
    """Have a folder for ourselves; with LOCK_NB raises `BlockingIOError` where another daemon has it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | option)
        yield
    finally:
        os.close(descriptor)


def mounts(folder: Path) -> tuple[DriverMount, ...]:
    """Return how a container is given a folder: what is for loaders and firmware each at its place."""
    return tuple(DriverMount(f"{folder}{inside}", inside) for inside in _mounted(folder))


def _mounted(folder: Path) -> Iterator[str]:
    yield _WHOLE
    for place, _, names in os.walk(folder):
        inside = place.removeprefix(str(folder))
        if not f"{inside}/".startswith(f"{_WHOLE}/"):
            yield from (f"{inside}/{name}" for name in sorted(names))


def _copy(source: str, target: str) -> None:
    shutil.copyfile(source, target)
    os.chmod(target, os.stat(source).st_mode & 0o755)
    with open(target, "rb") as file:
        os.fsync(file.fileno())  # a folder that is there is complete, also after a power cut


def _digest(files: InstalledDriver) -> str:
    """Return what tells two packages of one version apart."""
    found = blake2b(digest_size=6)
    for inside, source in sorted(files.files.items()):
        status = os.stat(source)
        found.update(f"{inside}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    for link in sorted(files.links.items()):
        found.update("\0".join(link).encode())
    return found.hexdigest()
