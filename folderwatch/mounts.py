"""Folders of the node's that were removed while they were mounted here.

Nothing tells of that, and what a mount shows stays as long as the mount does: the folder that took its place can be
seen from another container only. So whoever needs one ends, for its supervisor starts it again.
"""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path


class FolderGone(Exception):
    """The mounted folder was removed; only a restart can see a folder that has replaced it."""


def check_mount(folder: Path) -> None:
    """Raise `FolderGone` if a folder was removed but still exists in this mount; a missing folder is ignored."""
    try:
        links = folder.stat().st_nlink
    except OSError:
        return
    if links == 0:
        raise FolderGone(
            f"{folder} was removed while it was mounted here; nodeplug ends, so that its next start sees the folder"
            " that took its place"
        )


async def check_mounts(in_use: Callable[[], Iterable[Path]], interval: float) -> None:
    """Check every `interval` seconds the folders that are in use then. Raises `FolderGone`."""
    while True:
        for folder in in_use():
            check_mount(folder)
        await asyncio.sleep(interval)
