"""Watching folders for names that come, go or move: one inotify instance on the event loop, without a thread.

A call is a wake-up, never a fact: whoever is called lists the folder.
"""

from folderwatch.mounts import FolderGone, check_mount, check_mounts
from folderwatch.there import is_folder, is_missing, is_there
from folderwatch.watcher import FolderWatch, FolderWatcher

__all__ = [
    "FolderGone",
    "FolderWatch",
    "FolderWatcher",
    "check_mount",
    "check_mounts",
    "is_folder",
    "is_missing",
    "is_there",
]
