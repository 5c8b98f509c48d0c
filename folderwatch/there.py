"""Whether a file exists at a path, or whether this cannot be determined.

`Path.exists` and similar methods treat every error as absence (since Python 3.14 all of them): a failing disk, or a
folder without search permission, would look like one without the file.
"""

import errno
import os
import stat
from pathlib import Path
from typing import Final

_NOTHING: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def is_there(path: Path) -> bool:
    """Tell whether something lies at `path`, links followed. Raises OSError where nobody can tell."""
    return _mode(path) is not None


def is_folder(path: Path) -> bool:
    """Tell whether a folder lies at `path`, links followed. Raises OSError where nobody can tell."""
    mode = _mode(path)
    return mode is not None and stat.S_ISDIR(mode)


def is_missing(path: Path) -> bool:
    """Tell whether certainly nothing lies at `path`, links followed: where nobody can tell it is not missing."""
    try:
        return not is_there(path)
    except OSError:
        return False


def _mode(path: Path) -> int | None:
    try:
        return os.stat(path).st_mode
    except OSError as error:
        if error.errno in _NOTHING:
            return None
        raise
