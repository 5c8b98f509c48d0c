"""Whether the kubelet that accepted the driver still runs.

A kubelet registers a driver by calling it, and nothing tells the driver of that kubelet's end: connections also end
when they are idle (before 1.34), and the socket of a kubelet that was killed stays. So the daemon
connects to the kubelet's own socket: whenever it changes, after a hint (a stream that ended), and periodically. If it
has never listened, this shows nothing.
"""

import asyncio
import contextlib
from pathlib import Path
from typing import Final

from folderwatch import FolderWatcher, is_there
from grpcunix import is_live

PERIOD: Final = 30.0  # seconds between checks; more would wake an idle daemon for nothing


async def kubelet_gone(
    kubelet_socket: Path, watcher: FolderWatcher, changed: asyncio.Event | None = None, period: float = PERIOD
) -> None:
    """Wait until no process listens at `kubelet_socket`, after one has. Setting `changed` triggers a check."""
    changed = changed or asyncio.Event()
    watch = watcher.watch(kubelet_socket.parent, changed.set, lambda name: name == kubelet_socket.name)
    has_listened = False
    try:
        while (listens := is_live(kubelet_socket)) or not has_listened:
            with contextlib.suppress(OSError):  # unknown whether the socket exists
                # if no descriptor is free, `is_live` reports any path as live
                has_listened |= listens and is_there(kubelet_socket)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(period):
                    await changed.wait()
            changed.clear()
    finally:
        watch.close()
