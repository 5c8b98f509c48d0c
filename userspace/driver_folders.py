"""A driver's files, collected in a folder of ours, one for each version and content. Blocking: call from a thread.

    FOLDER/usr/local/nvidia/lib64/libcuda.so.1 -> libcuda.so.550.54.14     as containers see it, from / on

Rules:
1. A folder is always complete: it is made under another name and renamed, and renamed again before it is removed. It
   never changes, because containers mount it. A folder that another daemon is making, during an update, is locked.
2. Files are hard links if the disk supports them, so that they take no space and survive an upgrade of the package;
   otherwise copies.
3. A folder is removed with the last lease whose container uses it.
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

_PREFIX, _UNFINISHED = "nvidia-", ".new-"
_CONTAINER_FOLDER = "/usr/local/nvidia"  # one mount contains everything below it
_RESERVED_SPACE = 64 * 1024 * 1024  # bytes that stay free for leases
_LINK_ERRORS = (errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.EROFS)


class NoSpace(OSError):
    """The disk has no space for a driver's files; the text states how much is needed."""


class DriverFolders:
    """The driver folders in one of nodeplug's folders."""

    def __init__(self, path: Path) -> None:
        """Prepare; no file is touched yet."""
        self.path = path
        # leases that might use a folder that is not current, by its name
        self._holders: dict[str, frozenset[object]] = {}

    def make(self, files: InstalledDriver) -> Path:
        """Return the folder with these files, creating it if necessary. Raises OSError."""
        complete = self.path / f"{_PREFIX}{files.version}-{_digest(files)}"
        if complete.is_dir():
            return complete
        sizes = sum(os.stat(source).st_size for source in files.files.values())
        self.path.mkdir(0o755, parents=True, exist_ok=True)
        new = self.path / f"{_UNFINISHED}{os.urandom(6).hex()}"
        try:
            new.mkdir(0o755)
            with _locked(new):
                self._fill(new, files, sizes)
                try:
                    os.rename(new, complete)
                except OSError:
                    if not complete.is_dir():  # another daemon was faster
                        raise
        finally:
            shutil.rmtree(new, ignore_errors=True)
        return complete

    def of_version(self, version: str) -> Path | None:
        """Return the latest folder of a version; None if there is none."""
        found = [x for x in self._folders() if x.name.rpartition("-")[0] == f"{_PREFIX}{version}"]
        return max(found, key=lambda folder: folder.stat().st_ctime_ns, default=None)

    def more_complete_than(self, files: InstalledDriver) -> Path | None:
        """Return the latest folder of a version if it has libraries of that version which are missing in these files.

        That means that they are being removed, one package after another: the rest would be an incomplete driver.
        """
        if (existing := self.of_version(files.version)) is None:
            return None
        libraries = (str(path).removeprefix(str(existing)) for path in existing.rglob(f"*.so.{files.version}"))
        return existing if any(x not in files.files and x not in files.links for x in libraries) else None

    def prune(self, current: Path | None, leases: Collection[object]) -> None:
        """Remove folders, except `current`, that no lease uses any more, and half-made ones. Raises OSError.

        `leases` are all current leases. At a daemon's first call any of them might use any folder.
        """
        now = frozenset(leases)
        for folder in self._folders():
            if folder == current:
                self._holders.pop(folder.name, None)
                continue
            remaining = self._holders.get(folder.name, now) & now
            self._holders[folder.name] = remaining
            if not remaining:
                os.rename(folder, self.path / f"{_UNFINISHED}{os.urandom(6).hex()}")
                del self._holders[folder.name]
        for new in self.path.glob(f"{_UNFINISHED}*"):
            with contextlib.suppress(BlockingIOError, FileNotFoundError), _locked(new, fcntl.LOCK_NB):
                shutil.rmtree(new, ignore_errors=True)

    def _folders(self) -> list[Path]:
        return sorted(self.path.glob(f"{_PREFIX}*"))

    def _fill(self, new: Path, files: InstalledDriver, sizes: int) -> None:
        is_checked = False
        for container_path, source in files.files.items():
            target = f"{new}{container_path}"
            os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
            try:
                os.link(source, target, follow_symlinks=False)
            except OSError as error:
                if error.errno not in _LINK_ERRORS:
                    raise
                if not is_checked:
                    self._check_space(sizes)
                    is_checked = True
                _copy(source, target)
        for container_path, link_target in files.links.items():
            os.makedirs(os.path.dirname(f"{new}{container_path}"), 0o755, exist_ok=True)
            os.symlink(link_target, f"{new}{container_path}")

    def _check_space(self, sizes: int) -> None:
        disk = os.statvfs(self.path)
        if (free := disk.f_bavail * disk.f_frsize) < sizes + _RESERVED_SPACE:
            mib = 1 << 20
            raise NoSpace(
                errno.ENOSPC,
                f"the driver's files need {(sizes + _RESERVED_SPACE) // mib} MiB, {free // mib} are free",
                self.path,
            )


@contextlib.contextmanager
def _locked(folder: Path, option: int = 0) -> Iterator[None]:
    """Lock a folder; with LOCK_NB raises `BlockingIOError` if another daemon has locked it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | option)
        yield
    finally:
        os.close(descriptor)


def mounts(folder: Path) -> tuple[DriverMount, ...]:
    """Return the mounts of a folder for a container: files of loaders and firmware each at their own path."""
    return tuple(DriverMount(f"{folder}{container_path}", container_path) for container_path in _mounted(folder))


def _mounted(folder: Path) -> Iterator[str]:
    yield _CONTAINER_FOLDER
    for folder_path, _, names in os.walk(folder):
        container_path = folder_path.removeprefix(str(folder))
        if not f"{container_path}/".startswith(f"{_CONTAINER_FOLDER}/"):
            yield from (f"{container_path}/{name}" for name in sorted(names))


def _copy(source: str, target: str) -> None:
    shutil.copyfile(source, target)
    os.chmod(target, os.stat(source).st_mode & 0o755)
    with open(target, "rb") as file:
        os.fsync(file.fileno())  # an existing folder must be complete, even after a power cut


def _digest(files: InstalledDriver) -> str:
    """Return what distinguishes two packages of one version."""
    found = blake2b(digest_size=6)
    for container_path, source in sorted(files.files.items()):
        status = os.stat(source)
        found.update(f"{container_path}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    for link in sorted(files.links.items()):
        found.update("\0".join(link).encode())
    return found.hexdigest()
