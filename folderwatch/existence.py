"""Whether a file exists at a path, or whether this cannot be determined.

`Path.exists` and similar methods treat every error as absence (since Python 3.14 all of them): a failing disk, or a
folder without search permission, would look like one without the file.
"""

import errno
import os
import stat
from pathlib import Path
from typing import Final

_ABSENT_ERRORS: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def path_exists(path: Path) -> bool:
    """Return whether `path` exists, following links. Raises OSError if that cannot be determined."""
    return _mode(path) is not None


def is_folder(path: Path) -> bool:
    """Return whether `path` is a folder, following links. Raises OSError if that cannot be determined."""
    mode = _mode(path)
    return mode is not None and stat.S_ISDIR(mode)


def is_missing(path: Path) -> bool:
    """Return whether `path` certainly does not exist, following links; False if that cannot be determined."""
    try:
        return not path_exists(path)
    except OSError:
        return False


def _mode(path: Path) -> int | None:
    try:
        return os.stat(path).st_mode
    except OSError as error:
        if error.errno in _ABSENT_ERRORS:
            return None
        raise
