"""Space on the disk for the ends of leases: files that are removed if an end finds no space.

To end a lease, the database writes to a log that may have to grow. The disk can be full at any moment: through other
programs, through a grant that used the log's last blocks, or through a log that was released after a refusal. So
everything except an end is written only if the reserve exists, and only an end uses it. The database sets the size,
which grows with it. A second, empty file reserves a name: an opened database has a log and an index.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

FILE_NAME: Final = "reserve"
_NAME_FILE_NAME: Final = "reserve-name"
SIZE: Final = 1 << 20
"""The step, in bytes, by which it grows: enough for a ledger of some hundred leases."""

# opening must not block on a pipe at that path
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_UNSUPPORTED: Final = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
_ZEROS: Final = bytes(64 * 1024)
_STEP: Final = 16 * 1024


class Reserve:
    """The reserve files in a state directory."""

    def __init__(self, directory: Path) -> None:
        """Prepare; no file is touched yet."""
        self._path = directory / FILE_NAME
        self._path_text = os.fspath(self._path)
        self._name_path = directory / _NAME_FILE_NAME
        self._has_blocks = False  # an existing file can have holes, as from a backup

    def make(self, size: int) -> None:
        """Reserve at least `size` bytes. Raises OSError if the disk has no space, and restores the previous size."""
        if self._has(size):
            return
        with self._opened() as (descriptor, before):
            try:
                allocate(descriptor, before if self._has_blocks else 0, size)
                os.fsync(descriptor)  # some servers report a lack of space only now
                self._has_blocks = True
            except OSError:
                if before:
                    os.ftruncate(descriptor, before)
                else:
                    self.release()
                raise

    def save(self, size: int) -> None:
        """Reserve `size` bytes, or as many as possible. Raises OSError if the file cannot be created."""
        if not self._has(size):
            with self._opened() as (descriptor, before):
                allocate_available(descriptor, before, size)

    def release(self) -> bool:
        """Remove the reserve; return whether that has freed anything."""
        has_freed = False
        for path in (self._path, self._name_path):
            with contextlib.suppress(OSError):
                path.unlink()
                has_freed = True
        return has_freed

    def _has(self, size: int) -> bool:
        try:
            return self._has_blocks and os.lstat(self._path_text).st_size >= size
        except FileNotFoundError:
            return False

    @contextlib.contextmanager
    def _opened(self) -> Iterator[tuple[int, int]]:
        """Open the file and yield it with its size; also create the second file."""
        os.close(os.open(self._name_path, _FLAGS, 0o600))
        descriptor = os.open(self._path, _FLAGS, 0o600)
        try:
            yield descriptor, os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)


def allocate(descriptor: int, start: int, end: int) -> None:
    """Allocate a file's blocks from one offset to another. Raises OSError if there is no space.

    Zeros are written if a file system or a libc cannot allocate, as NFS with musl; glibc writes them itself.
    """
    if start >= end:
        return
    try:
        os.posix_fallocate(descriptor, start, end - start)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        while start < end:
            start += os.pwrite(descriptor, _ZEROS[: end - start], start)


def allocate_available(descriptor: int, start: int, end: int) -> None:
    """Allocate a file's blocks from one offset to another, or as far as there is space."""
    with contextlib.suppress(OSError):
        for offset in range(start, end, _STEP):
            allocate(descriptor, offset, min(offset + _STEP, end))
