"""A gRPC server that owns its socket file.

gRPC itself replaces any file at the path, even a live socket of another process. Rules here:
1. Bind under a hidden temporary name and link that to the final one, which fails if the name is taken.
2. If it is taken, move the existing file aside, and only then check whether it is live: between a check and a removal a
   name can get another file, but a file that was moved aside cannot change. A live socket is put back, a dead one is
   removed.
3. Unlink only this server's socket: a successor might have put a new one at the same path.

There is no lock. Any process that can read the folder could hold a lock on it and so prevent serving, and a kubelet
that starts removes lock files. Of two instances that start at once, one finds the name free. One gap remains: if both
find a dead socket there, a live socket can be away from its name for some microseconds while it is checked. If a third
one takes the name just then, it is displaced by the one that is put back, and notices that as any other loss
(`is_in_place`).
"""

import contextlib
import errno
import os
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from folderwatch import is_folder
from grpcunix.builtin_server import BuiltinServer
from grpcunix.channel import Transport, is_live
from grpcunix.service import Handler

MAX_PATH: Final = 107  # bytes; sun_path without its final NUL
_HIDDEN: Final = re.compile(r"\.[0-9a-f]{8}\.tmp")  # see `_temporary_path`
_TRIES: Final = 10  # attempts to take a name if dead sockets appear there repeatedly


class GrpcUnixError(Exception):
    """A socket cannot be served."""


class SocketInUse(GrpcUnixError):
    """Another process listens at the path."""


class SocketPathTooLong(GrpcUnixError):
    """The path does not fit into a socket address."""


class UnixServer:
    """A gRPC server on a unix socket at `path`."""

    def __init__(
        self,
        path: Path,
        handlers: Sequence[Handler],
        mode: int = 0o600,
        keepalive: float | None = None,
        transport: Transport = "builtin",
    ) -> None:
        """Prepare a server; `mode` are the permissions of its socket file.

        With `keepalive` each client is pinged after so many silent seconds; if it does not answer within the same time
        again, its calls end. Otherwise a client that hangs with its socket open is never detected.
        """
        self.path = path
        self._handlers = handlers
        self._mode = mode
        self._keepalive = keepalive
        self._transport = transport
        self._stop: Callable[[float | None], Awaitable[None]] | None = None
        self._identity: tuple[int, int] | None = None  # device and inode of this server's socket file

    async def start(self) -> None:
        """Serve. Raises `GrpcUnixError` (or its subclass `SocketInUse`), and OSError if the folder is not writable."""
        temporary = _temporary_path(self.path)
        longest = max(len(os.fsencode(self.path)), len(os.fsencode(temporary)))
        if longest > MAX_PATH:
            raise SocketPathTooLong(
                f"socket path {self.path} needs {longest} bytes, the limit is {MAX_PATH}; choose a shorter folder"
            )
        # the error of bind does not name the folder, and gRPC's has no cause at all
        os.stat(self.path.parent)
        if not os.access(self.path.parent, os.W_OK | os.X_OK):
            raise PermissionError(f"{self.path.parent}: no permission to create a socket")
        stop = await (self._listen if self._transport == "builtin" else self._listen_with_grpcio)(temporary)
        try:
            stat = os.lstat(temporary)
            self._identity = (stat.st_dev, stat.st_ino)
            _claim_name(temporary, self.path)
            temporary.unlink(missing_ok=True)
        except BaseException:
            with contextlib.suppress(OSError):
                await self.stop()  # it might have its name already, and would look like a running server's
            await stop(None)
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        self._stop = stop

    async def _listen(self, temporary: Path) -> Callable[[float | None], Awaitable[None]]:
        bound = socket.socket(socket.AF_UNIX)
        try:
            bound.bind(os.fspath(temporary))
            os.chmod(temporary, self._mode)
            server = BuiltinServer(self._handlers, self._keepalive)
            await server.start(bound)
        except BaseException:
            bound.close()
            temporary.unlink(missing_ok=True)
            raise
        return server.stop

    async def _listen_with_grpcio(self, temporary: Path) -> Callable[[float | None], Awaitable[None]]:
        from grpcunix.grpcio import GrpcioServer  # on first use: it costs memory

        server = GrpcioServer(self._handlers, self._keepalive)
        try:
            await server.start(temporary)
            os.chmod(temporary, self._mode)
        except BaseException as error:
            await server.stop(None)
            temporary.unlink(missing_ok=True)
            if isinstance(error, RuntimeError):
                raise GrpcUnixError(f"{self.path}: gRPC cannot make a socket here: {error}") from error
            raise
        return server.stop

    def is_in_place(self) -> bool:
        """Return whether the file at the path is still this server's socket."""
        try:
            stat = os.lstat(self.path)
        except OSError:
            return False
        return self._identity == (stat.st_dev, stat.st_ino)

    async def stop(self, grace: float | None = None) -> None:
        """Stop serving and remove the socket file. Idempotent; running calls can end within `grace` seconds."""
        stop, self._stop = self._stop, None
        if self.is_in_place():
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()
        self._identity = None
        if stop is not None:
            await stop(grace)


def remove_dead_sockets(folder: Path, is_ours: Callable[[str], bool]) -> None:
    """Remove sockets with nodeplug's names at which no process listens, as a killed process leaves them.

    Temporary sockets are removed, too. If one belongs to a process that is just binding, that process fails to take its
    name and retries, as if its folder had gone. A missing folder has no sockets. Raises OSError if they cannot be
    removed.
    """
    if not is_folder(folder):
        return
    for path in folder.iterdir():
        ours = is_ours(path.name) or _HIDDEN.fullmatch(path.name)
        if ours and path.is_socket() and not is_live(path):
            _remove_if_dead(path)


def _claim_name(temporary: Path, path: Path) -> None:
    """Give a listening socket its name. Raises `SocketInUse` if another process listens there, OSError for a folder."""
    for _ in range(_TRIES):
        try:
            os.link(temporary, path, follow_symlinks=False)
        except FileExistsError:
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, "a folder is in the way of a socket", str(path)) from None
            if is_live(path) or not _remove_if_dead(path):
                break
        else:
            return
    raise SocketInUse(f"{path}: another process listens here; stop it or use another folder")


def _remove_if_dead(path: Path) -> bool:
    """Remove the file at `path` unless a process listens there; return whether it is gone."""
    moved = _temporary_path(path)
    try:
        os.rename(path, moved)
    except FileNotFoundError:
        return True
    if is_live(moved):  # it was created between the check of the name and the move
        os.rename(moved, path)
        return False
    moved.unlink(missing_ok=True)
    return True


def _temporary_path(path: Path) -> Path:
    return path.with_name(f".{os.urandom(4).hex()}.tmp")  # the module secrets would load OpenSSL
