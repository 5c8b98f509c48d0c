"""Watching folders for names that come, go or move: one inotify instance on the event loop, without a thread.

A call is a wake-up, never a fact: whoever is called lists the folder.
"""

from folderwatch.watcher import FolderWatch, FolderWatcher

__all__ = ["FolderWatch", "FolderWatcher"]
