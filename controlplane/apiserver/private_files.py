"""Files that only their owner can read, replaced as a whole."""

import contextlib
import os
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Write a file with mode 0600. Raises OSError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        os.replace(draft, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()  # its text is secret
        raise OSError(error.errno, error.strerror, str(path)) from error  # the caller's path
