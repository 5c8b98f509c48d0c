"""A persistent server: it is served as soon as possible, and again whenever its socket file is lost.

The kubelet and administrators remove sockets and whole folders. Events of the folder make the reaction fast; a periodic
check makes it reliable.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from folderwatch import FolderWatcher
from grpcunix.backoff import Backoff
from grpcunix.channel import Transport
from grpcunix.service import Handler
from grpcunix.socket import GrpcUnixError, UnixServer

RESCAN = 30.0  # seconds between checks without any event


class PersistentServer:
    """Serves `handlers` while `run` runs.

    `path` returns the socket's path, before every attempt; it can create the folder. `failed` is called with the reason
    of a failure if it differs from the previous one. `max_backoff` is the longest delay between attempts in seconds;
    `keepalive` is UnixServer's; running calls can end within `grace` seconds when `run` is cancelled.
    """

    def __init__(
        self,
        path: Callable[[], Path],
        handlers: Sequence[Handler],
        failed: Callable[[str], None],
        watcher: FolderWatcher,
        *,
        max_backoff: float = 30.0,
        keepalive: float | None = None,
        grace: float | None = None,
        transport: Transport = "builtin",
    ) -> None:
        """Prepare; nothing is served yet."""
        self.error = ""  # why it is not served now
        self.served = asyncio.Event()  # set once it was served, and never cleared
        self._path = path
        self._handlers = handlers
        self._failed = failed
        self._watcher = watcher
        self._backoff = Backoff(max_backoff)
        self._keepalive = keepalive
        self._grace = grace
        self._transport: Transport = transport
        self._server: UnixServer | None = None
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Serve until cancelled, whenever that is possible."""
        try:
            while True:
                await asyncio.sleep(self._backoff.next())
                await self._serve()
                if self._server is not None and self._server.is_in_place():
                    self._backoff.reset()
                    await self._wait_until_lost(self._server)
        finally:
            if self._server is not None:
                await self._server.stop(self._grace)

    async def renew(self) -> None:
        """Create the socket again, which looks like a new one to watchers of the folder."""
        if self._server is not None:
            await self._server.stop()
        self._changed.set()

    async def _wait_until_lost(self, server: UnixServer) -> None:
        """Wait until the file at the path is not this server's socket any more."""
        watch = self._watcher.watch(server.path.parent, self._changed.set)
        try:
            while server.is_in_place():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RESCAN):
                        await self._changed.wait()
                self._changed.clear()
        finally:
            watch.close()

    async def _serve(self) -> None:
        """Try to serve once. The previous server stays until that succeeds, for its connected clients."""
        try:
            server = UnixServer(self._path(), self._handlers, keepalive=self._keepalive, transport=self._transport)
            await server.start()
        except (OSError, GrpcUnixError) as error:
            reason = _message(error)
            if reason != self.error:
                self.error = reason
                self._failed(self.error)
            return
        old, self._server = self._server, server
        self.error = ""
        self.served.set()
        if old is not None:
            await old.stop()


def _message(error: OSError | GrpcUnixError) -> str:
    if not isinstance(error, OSError):
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
