"""A file for somebody else to look at: newly made and for its owner alone, never written over one that is there."""

import contextlib
import os
import sys
from pathlib import Path

from nodeplug.commands.failure import Failure

STANDARD_OUTPUT = Path("-")


def write_new(path: Path, content: bytes) -> None:
    """Make a file of mode 0600 with this content; `-` is the standard output.

    Raises `Failure`: what is there stays as it is, and of a file that the disk does not take whole nothing is left.
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
