"""The control socket in the state directory, to which only root can connect. On the loop, without a thread.

Rules:
1. The instance that has the state directory serves it: during an update the older one, then the newer one. The socket
   has mode 0600 in a folder of mode 0700, and the kernel reports the user: root, or the user that the daemon runs as.
2. Everything has a limit: connections, the bytes of a request, the time for it, for its answer, and for reading that.
3. If the socket cannot be served, it is tried again, and other parts continue. A socket that another program removes is
   created again; clients stay connected.
4. When the daemon ends or restarts, answers in progress have a short time to be sent.
5. Without requests only this file is loaded: the rest is loaded with the first connection.
"""

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import TypeAlias

from folderwatch import FolderWatch, FolderWatcher
from grpcunix.accepting import ASYNCIO_BACKLOG, set_kernel_backlog
from nodeplug.control.running import RunningDaemon
from nodeplug.control.sockets import MAX_CONNECTIONS, SOCKET_NAME, bind_socket, open_directory

_MAX_BYTES = 1 << 20  # the most bytes of a question that are buffered: see protocol.py
_SECONDS_TO_LEAVE = 3.0  # for answers in progress at the end
_SECONDS_TO_ACCEPT = 0.1  # for clients that connected just before the socket went: asyncio loses half-accepted ones
_RETRY = 5.0  # seconds until the next attempt to listen
_Identity: TypeAlias = tuple[int, int]  # device and inode
log = logging.getLogger("nodeplug")


class ControlServer:
    """Answers questions while `run` runs."""

    def __init__(self, directory: Path, running: RunningDaemon, watcher: FolderWatcher) -> None:
        """Prepare to listen in `directory`, which must be this instance's alone while `run` runs."""
        self._path = directory / SOCKET_NAME
        self._running = running
        self._watcher = watcher
        self._open: set[asyncio.Task[None]] = set()
        self._answering: set[asyncio.Task[None]] = set()  # the connections whose question has arrived

    async def run(self) -> None:
        """Answer until cancelled."""
        changed = asyncio.Event()
        watch = self._watcher.watch(self._path.parent, changed.set, SOCKET_NAME.__eq__)
        try:
            while True:
                await self._serve_until_removed(watch, changed)
        finally:
            watch.close()
            for idle in self._open - self._answering:
                idle.cancel()
            self._running.telemetry.events.release()  # ends the waiting of `events` questions
            if self._answering:
                await asyncio.wait(self._answering, timeout=_SECONDS_TO_LEAVE)
            for late in self._answering:
                late.cancel()
            if self._open:
                await asyncio.wait(self._open)

    async def _serve_until_removed(self, watch: FolderWatch, changed: asyncio.Event) -> None:
        """Answer at this instance's socket until it is removed."""
        server, identity = await self._listen()
        try:
            while _is_same_socket(self._path, identity):
                await changed.wait()
                changed.clear()
            log.warning("%s was removed or replaced: the daemon creates it again", self._path)
            watch.pause()
            await asyncio.sleep(_SECONDS_TO_ACCEPT)
        finally:
            server.close()
            if _is_same_socket(self._path, identity):
                with contextlib.suppress(OSError):
                    self._path.unlink()

    async def _listen(self) -> tuple[asyncio.Server, _Identity]:
        level, is_served = logging.ERROR, False
        extra = {"is_current": lambda: not is_served}
        while True:
            try:
                with open_directory(self._path.parent) as folder:  # asyncio checks the bound path again
                    listening = bind_socket(folder)
                    # not start_server, which loads TLS to check that the socket has none
                    server = await asyncio.start_unix_server(
                        self._serve, sock=listening, limit=_MAX_BYTES, backlog=ASYNCIO_BACKLOG
                    )
                    try:
                        set_kernel_backlog(server)
                        identity, is_served = _identity(self._path), True
                        return server, identity
                    except OSError:  # it was removed just now
                        server.close()
                        raise
            except OSError as error:
                log.log(
                    level,
                    "cannot serve the control socket %s: %s; nodeplug tries again",
                    self._path,
                    error.strerror or error,
                    extra=extra,
                )
                level = logging.DEBUG
            await asyncio.sleep(_RETRY)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        this = asyncio.current_task()
        assert this is not None
        if len(self._open) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._open.add(this)
        try:
            from nodeplug.control.connection import serve_connection

            await serve_connection(self._running, reader, writer, lambda: self._answering.add(this))
        except (OSError, TimeoutError):
            pass  # the client has gone, or no descriptor is left to load the answering module
        except ImportError as error:
            log.error("a request could not be answered: %s; the program was changed since it started", error)
        except asyncio.CancelledError:
            pass  # by `run`, which ends; asyncio's streams would report it as a failure
        finally:
            self._open.discard(this)
            self._answering.discard(this)
            # a connection that closed after its answer was sent cannot be aborted: asyncio fails with a traceback
            if writer.transport.get_write_buffer_size() or not writer.transport.is_closing():
                writer.transport.abort()


def _identity(path: Path) -> _Identity:
    stat = path.lstat()
    return stat.st_dev, stat.st_ino


def _is_same_socket(path: Path, identity: _Identity) -> bool:
    try:
        return _identity(path) == identity
    except OSError:
        return False
