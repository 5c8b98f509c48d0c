"""Watches folders for names that appear, disappear or move: one inotify instance on the event loop, no thread.

A notification only means that something might have changed; its receiver lists the folder.
"""

from folderwatch.existence import is_folder, is_missing, path_exists
from folderwatch.mounts import FolderGone, check_mount, check_mounts
from folderwatch.watcher import FolderWatch, FolderWatcher

__all__ = [
    "FolderGone",
    "FolderWatch",
    "FolderWatcher",
    "check_mount",
    "check_mounts",
    "is_folder",
    "is_missing",
    "path_exists",
]
