"""The control socket's file: bound and found through its folder, however long the folder's path is.

The path of a socket has at most 107 bytes; through /proc/self/fd the folder needs only a few of them.
"""

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SOCKET_NAME: Final = "control.sock"
MAX_CONNECTIONS: Final = 8
"""The most connections that are answered at a time; a further one is closed at once."""


@contextlib.contextmanager
def open_directory(directory: Path) -> Iterator[int]:
    """Keep a folder open during the context. Raises OSError."""
    folder = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield folder
    finally:
        os.close(folder)


def bind_socket(folder: int) -> socket.socket:
    """Return a socket that is bound in an open folder, replacing an earlier one; it does not listen yet.

    Only processes of the same user can connect to it. Temporary files of killed processes are removed. Raises OSError.
    """
    for name in os.listdir(f"/proc/self/fd/{folder}"):
        if name.startswith(f".{SOCKET_NAME}.") and name.endswith(".tmp"):
            os.unlink(name, dir_fd=folder)
    made = socket.socket(socket.AF_UNIX)
    temporary = f".{SOCKET_NAME}.{os.urandom(4).hex()}.tmp"
    try:
        made.bind(_address(folder, temporary))
        os.chmod(temporary, 0o600, dir_fd=folder)
        os.rename(temporary, SOCKET_NAME, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        made.close()
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    return made


def connect(directory: Path, seconds: float) -> socket.socket:
    """Return a connection to the daemon whose state is in `directory`. Raises OSError.

    If the queue of waiting connections is full, a non-blocking connect fails at once: this one waits.
    """
    with open_directory(directory) as folder:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(seconds))
            try:
                connection.connect(_address(folder, SOCKET_NAME))
            except BlockingIOError as error:
                raise TimeoutError(f"too many wait to be answered, for {seconds:g} s") from error
            connection.settimeout(seconds)
        except BaseException:
            connection.close()
            raise
    return connection


def _timeval(seconds: float) -> bytes:
    return struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000))


def _address(folder: int, name: str) -> str:
    return f"/proc/self/fd/{folder}/{name}"
