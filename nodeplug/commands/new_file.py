"""A file for other people: newly created, readable by its owner alone, and never over an existing one."""

import contextlib
import os
import sys
from pathlib import Path

from nodeplug.commands.failure import Failure

STANDARD_OUTPUT = Path("-")


def write_new(path: Path, content: bytes) -> None:
    """Create a file of mode 0600 with this content; `-` is the standard output.

    Raises `Failure`: an existing file stays as it is, and an incompletely written one is removed.
    """
    if path == STANDARD_OUTPUT:
        sys.stdout.buffer.write(content)
        return
    try:
        file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
    except FileExistsError:
        raise Failure(f"{path} exists already and is not changed; name a new file") from None
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from None
    try:
        with file:
            file.write(content)
    except OSError as error:
        with contextlib.suppress(OSError):
            path.unlink()
        raise Failure(f"{path}: {error.strerror}") from None
