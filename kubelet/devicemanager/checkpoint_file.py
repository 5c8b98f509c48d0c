"""The checkpoint on disk: written beside its place, synced, renamed; one write at a time, in order, off the loop."""

import asyncio
import contextlib
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from checkpoint.kubelet_devices import FILE_NAME, DeviceCheckpoint, load
from kubelet.errors import AllocationError


class CheckpointFile:
    """`kubelet_internal_checkpoint` in the device plugins' folder."""

    def __init__(self, folder: Path) -> None:
        """Name the file; nothing is read or written yet."""
        self.path = folder / FILE_NAME
        self._writer: ThreadPoolExecutor | None = None

    def read(self) -> DeviceCheckpoint | None:
        """The content, None if there is no file. Raises `KubeletFileError` and OSError."""
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return None
        return load(raw)

    def write(self, content: bytes) -> "asyncio.Future[None]":
        """Queue `content`; the future ends when it is on disk, or with `AllocationError` in the kubelet's words."""
        if self._writer is None:
            self._writer = ThreadPoolExecutor(1, "kubelet-checkpoint")
        return asyncio.get_running_loop().run_in_executor(self._writer, self._write, content)

    def close(self) -> None:
        """Wait for what is queued."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.shutdown()

    def _write(self, content: bytes) -> None:
        temporary = ""
        try:
            # mkstemp gives 0600, which the kubelet's file has, too
            descriptor, temporary = tempfile.mkstemp(prefix=".", dir=self.path.parent)
            with open(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, self.path)
        except OSError as error:
            if temporary:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary)
            raise AllocationError(f'failed to write checkpoint file "{FILE_NAME}": {error}') from error
