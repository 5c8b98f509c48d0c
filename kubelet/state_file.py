"""A state file on disk: written to a temporary file, synced and renamed, in a thread.

Only one write runs at a time. Requests that arrive during a write share the next one, which writes the newest content.
"""

import asyncio
import contextlib
import logging
import os
import tempfile
from pathlib import Path

from kubelet.errors import KubeletError

log = logging.getLogger(__name__)


class StateFile:
    """A file whose whole content is replaced by every write. Its mode is 0600, like the kubelet's files."""

    def __init__(self, path: Path, failure: type[KubeletError], message: str = "") -> None:
        """Name the file; nothing is read or written yet.

        A failed write raises `failure`; its message begins with `message`, by default the kubelet's.
        """
        self.path = path
        self._failure = failure
        self._message = message or f'failed to write checkpoint file "{path.name}"'
        self._newest = b""
        self._next: asyncio.Future[None] | None = None  # done when `_newest` is on disk
        self._writing: asyncio.Task[None] | None = None

    def write(self, content: bytes) -> asyncio.Future[None]:
        """Queue `content`; the future is done when it is on disk, or has an error with the kubelet's message."""
        self._newest = content
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            self._next.add_done_callback(lambda it: it.cancelled() or it.exception())  # there might be no waiter
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_all())
        return asyncio.shield(self._next)

    def write_later(self, content: bytes) -> None:
        """Queue `content` without waiting; an error is logged."""
        self.write(content).add_done_callback(_log_failure)

    async def close(self, *, discard: bool = False) -> None:
        """Wait for queued writes; with `discard`, only for the one that is running."""
        if discard and self._next is not None:
            self._next.cancel()
            self._next = None
        if self._writing is not None:
            await self._writing

    async def _write_all(self) -> None:
        while self._next is not None:
            written, self._next = self._next, None
            try:
                await asyncio.to_thread(self._write, self._newest)
            except OSError as error:
                written.set_exception(self._failure(f"{self._message}: {error}"))
            else:
                written.set_result(None)

    def _write(self, content: bytes) -> None:
        temporary = ""
        try:
            # mkstemp creates the file with mode 0600
            descriptor, temporary = tempfile.mkstemp(prefix=".", dir=self.path.parent)
            with open(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, self.path)
        except OSError:
            if temporary:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary)
            raise


def _log_failure(written: "asyncio.Future[None]") -> None:
    if not written.cancelled() and (error := written.exception()) is not None:
        log.error("%s", error)
