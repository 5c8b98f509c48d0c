"""A server that stays: it is served as soon as that is possible, and again whenever its socket file is lost.

The kubelet, and who cleans up after it, remove sockets and whole folders. A wake-up from the folder makes the answer
quick; a look now and then makes it certain.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from grpcunix.backoff import Backoff
from grpcunix.folder import FolderWatch
from grpcunix.service import Handler
from grpcunix.socket import GrpcUnixError, UnixServer

RESCAN = 30.0  # seconds between looks when nothing wakes us


class LastingServer:
    """Serves `handlers` from `start` to `stop`.

    `path` says where, before every try; it may make the folder. `failed` is told why a try failed, when the reason is
    another one than before. With `watch` the folder is watched, which takes threads; without, a loss is noticed within
    half a minute. `patience` is the longest time between tries in seconds; `keepalive` is UnixServer's.
    """

    def __init__(
        self,
        path: Callable[[], Path],
        handlers: Sequence[Handler],
        failed: Callable[[str], None],
        *,
        watch: bool = False,
        patience: float = 30.0,
        keepalive: float | None = None,
    ) -> None:
        """Prepare; nothing is served yet."""
        self.error = ""  # why it is not served now
        self.served = asyncio.Event()  # set from the first time on
        self._path = path
        self._handlers = handlers
        self._failed = failed
        self._watched = watch
        self._backoff = Backoff(patience)
        self._keepalive = keepalive
        self._server: UnixServer | None = None
        self._watch: FolderWatch | None = None
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Try to serve, and go on with that in the background."""
        await self._serve()
        self._task = asyncio.create_task(self._keep())

    async def renew(self) -> None:
        """Make the socket anew: to whom watches the folder that is a new one."""
        if self._server is not None:
            await self._server.stop()
        self._changed.set()

    async def stop(self, grace: float | None = None) -> None:
        """Stop serving and remove our socket. Idempotent; `grace` in seconds lets running calls end."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        if self._watch is not None:
            self._watch.stop()
        if self._server is not None:
            await self._server.stop(grace)

    async def _keep(self) -> None:
        while True:
            if self._server is not None and self._server.is_in_place():
                self._backoff.reset()
                await self._lost(self._server)
            await asyncio.sleep(self._backoff.next())
            await self._serve()

    async def _lost(self, server: UnixServer) -> None:
        """Return when the socket file is not ours any more."""
        while server.is_in_place():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RESCAN):
                    await self._changed.wait()
            self._changed.clear()

    async def _serve(self) -> None:
        """Try once. What was served before goes on until then, for those who are connected to it."""
        try:
            path = self._path()
            watch = self._begin_watch(path.parent)
            server = UnixServer(path, self._handlers, keepalive=self._keepalive)
            try:
                await server.start()
            except BaseException:
                if watch is not None:
                    watch.stop()
                raise
        except (OSError, GrpcUnixError) as error:
            if str(error) != self.error:
                self.error = str(error)
                self._failed(self.error)
            return
        (old, self._server), (old_watch, self._watch) = (self._server, server), (self._watch, watch)
        self.error = ""
        self.served.set()
        if old_watch is not None:
            old_watch.stop()
        if old is not None:
            await old.stop()

    def _begin_watch(self, folder: Path) -> FolderWatch | None:
        if not self._watched:
            return None
        watch = FolderWatch(folder, self._changed.set)
        try:
            watch.start()
        except OSError:  # no more inotify watches to be had: looking now and then is enough
            return None
        return watch
