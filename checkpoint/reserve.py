"""Room on the disk for the ends of leases: a file that is removed when an end finds none.

To end a lease is to write, to a log that may have to grow, for a database that may have to. A disk can be filled at any
moment, by us or by others: a grant that was written to the log's last blocks, a log that was given back with a refusal.
So nothing is granted unless the reserve is there, and nothing but an end may use it.
"""

import contextlib
import os
from pathlib import Path
from typing import Final

FILE_NAME: Final = "reserve"
SIZE: Final = 1 << 20
"""Bytes: twice what the write-ahead log keeps, for the log itself and for what it brings to the database."""

_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe there must not wait


class Reserve:
    """The file in a state directory."""

    def __init__(self, directory: Path) -> None:
        """Prepare; nothing is touched yet."""
        self._path = directory / FILE_NAME
        self._has_blocks = False  # a file that was there may have holes, as from a backup

    def make(self) -> None:
        """Have the reserve, if it is not there already. Raises OSError where the disk has no room for it."""
        with contextlib.suppress(FileNotFoundError):
            if self._path.lstat().st_size >= SIZE and self._has_blocks:
                return
        descriptor = os.open(self._path, _FLAGS, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, SIZE)
            self._has_blocks = True
        except OSError:
            self.give_up()  # the part of it that there was room for
            raise
        finally:
            os.close(descriptor)

    def give_up(self) -> bool:
        """Remove the reserve; tell whether that has made room."""
        with contextlib.suppress(OSError):
            self._path.unlink()
            return True
        return False
