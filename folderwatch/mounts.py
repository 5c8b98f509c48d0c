"""Folders of the node that were removed while they were mounted here.

No event reports this, and a mount keeps showing the removed folder; only another container can see its replacement. So
a program that needs the folder ends, and its supervisor starts it again.
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
            f"{folder} was removed while it was mounted here; nodeplug ends, so that its next start uses the folder"
            " that replaced it"
        )


async def check_mounts(in_use: Callable[[], Iterable[Path]], interval: float) -> None:
    """Check every `interval` seconds the folders that are in use then. Raises `FolderGone`."""
    while True:
        for folder in in_use():
            check_mount(folder)
        await asyncio.sleep(interval)
