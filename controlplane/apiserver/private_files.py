"""Files that only their owner can read, replaced atomically."""

import contextlib
import os
import tempfile
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Write a file with mode 0600; after a crash it has its old or its new content. Raises OSError."""
    temporary = ""
    try:
        # mkstemp creates a new file of mode 0600: other users of the folder cannot prepare a file or link of its name
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)  # it contains secrets
        raise OSError(error.errno, error.strerror, str(path)) from error  # the caller's path, not the temporary one
