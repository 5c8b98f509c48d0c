"""A gRPC server that owns its socket file.

gRPC itself binds over whatever lies at the path, a live socket of somebody else included. Rules here:
1. Bind under a hidden temporary name, look whether the final name is live, rename. The look and the rename happen under
   a lock on the folder, so that two starters cannot both pass.
2. Unlink only our own socket: a successor may have put a new one at the same path.
"""

import asyncio
import contextlib
import fcntl
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import grpc.aio

from grpcunix.channel import is_live
from grpcunix.service import Handler

MAX_PATH = 107  # bytes; sun_path without its final NUL


class GrpcUnixError(Exception):
    """A socket cannot be served."""


class SocketInUse(GrpcUnixError):
    """Another process listens at the path."""


class SocketPathTooLong(GrpcUnixError):
    """The path does not fit into a socket address."""


class UnixServer:
    """A `grpc.aio` server on a unix socket at `path`."""

    def __init__(
        self, path: Path, handlers: Sequence[Handler], mode: int = 0o600, keepalive: float | None = None
    ) -> None:
        """Prepare a server; `mode` are the permissions of its socket file.

        With `keepalive` each client is pinged after so many quiet seconds; the calls of one that does not answer within
        as many again end. Without, a client that hangs with its socket open is never noticed.
        """
        self.path = path
        self._handlers = handlers
        self._mode = mode
        self._keepalive = keepalive
        self._server: grpc.aio.Server | None = None
        self._identity: tuple[int, int] | None = None  # device and inode of our socket file

    async def start(self) -> None:
        """Serve. Raises `SocketInUse` or `SocketPathTooLong`, and OSError where the folder cannot be written."""
        temporary = self.path.with_name(f".{secrets.token_hex(4)}.tmp")
        longest = max(len(os.fsencode(self.path)), len(os.fsencode(temporary)))
        if longest > MAX_PATH:
            raise SocketPathTooLong(
                f"socket path {self.path} needs {longest} bytes, the limit is {MAX_PATH}; choose a shorter folder"
            )
        # gRPC reports a folder that is missing or read-only as a bind error without a cause
        os.stat(self.path.parent)
        if not os.access(self.path.parent, os.W_OK | os.X_OK):
            raise PermissionError(f"{self.path.parent}: no permission to create a socket")
        server = grpc.aio.server(options=self._options())
        server.add_generic_rpc_handlers(tuple(self._handlers))
        server.add_insecure_port(f"unix:{temporary}")
        await server.start()
        try:
            os.chmod(temporary, self._mode)
            with _folder_lock(self.path.parent):
                if is_live(self.path):
                    raise SocketInUse(f"{self.path}: another process listens here; stop it or use another folder")
                os.rename(temporary, self.path)
            stat = os.lstat(self.path)
        except BaseException:
            await server.stop(None)
            temporary.unlink(missing_ok=True)
            raise
        self._server, self._identity = server, (stat.st_dev, stat.st_ino)

    def _options(self) -> list[tuple[str, int]]:
        options = [("grpc.so_reuseport", 0)]
        if self._keepalive is not None:
            milliseconds = int(self._keepalive * 1000)
            options += [
                ("grpc.keepalive_time_ms", milliseconds),
                ("grpc.keepalive_timeout_ms", milliseconds),
                ("grpc.http2.ping_timeout_ms", milliseconds),
                ("grpc.http2.max_pings_without_data", 0),
            ]
        return options

    def is_in_place(self) -> bool:
        """Tell whether the file at our path is still our socket."""
        try:
            stat = os.lstat(self.path)
        except OSError:
            return False
        return self._identity == (stat.st_dev, stat.st_ino)

    async def stop(self, grace: float | None = None) -> None:
        """Stop serving and remove our socket file. Idempotent; `grace` in seconds lets running calls end."""
        server, self._server = self._server, None
        if self.is_in_place():
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()
        self._identity = None
        if server is not None:
            await asyncio.shield(server.stop(grace))


def remove_dead_sockets(folder: Path, is_ours: Callable[[str], bool]) -> None:
    """Remove sockets whose names are ours and at which nobody listens, as a killed process leaves them.

    A missing folder has none. Raises OSError where they cannot be removed.
    """
    if not folder.is_dir():
        return
    with _folder_lock(folder):  # whoever starts meanwhile either has renamed already or does so afterwards
        for path in folder.iterdir():
            if is_ours(path.name) and path.is_socket() and not is_live(path):
                path.unlink(missing_ok=True)


@contextlib.contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
