"""Whether the kubelet that accepted the driver still runs.

A kubelet registers a driver by calling it, and no call reports that kubelet's end. Connections also end when they are
idle (before 1.34), and the socket of a killed kubelet stays. So this module dials the kubelet's own socket: when it
changes, when there is another hint (a health stream ended), and periodically. A kubelet that was never seen to listen
is never reported as gone.
"""

import asyncio
import contextlib
from pathlib import Path
from typing import Final

from folderwatch import FolderWatcher, path_exists
from grpcunix import is_live

CHECK_INTERVAL: Final = 30.0  # seconds between checks; more would wake an idle daemon for nothing


async def kubelet_gone(
    kubelet_socket: Path, watcher: FolderWatcher, changed: asyncio.Event | None = None, period: float = CHECK_INTERVAL
) -> None:
    """Wait until no process listens at `kubelet_socket`, after one has. Setting `changed` triggers a check."""
    changed = changed or asyncio.Event()
    watch = watcher.watch(kubelet_socket.parent, changed.set, lambda name: name == kubelet_socket.name)
    has_listened = False
    try:
        while (listens := is_live(kubelet_socket)) or not has_listened:
            with contextlib.suppress(OSError):  # unknown whether the socket exists
                # if no descriptor is free, `is_live` reports any path as live
                has_listened |= listens and path_exists(kubelet_socket)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(period):
                    await changed.wait()
            changed.clear()
    finally:
        watch.close()
