"""Wake-ups from a folder."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from grpcunix import FolderWatch


async def test_names_that_come_move_and_go_wake_the_loop(tmp_path: Path) -> None:
    woken = asyncio.Event()
    watch = FolderWatch(tmp_path, woken.set)
    watch.start()
    for change in (
        lambda: (tmp_path / "a").touch(),
        lambda: (tmp_path / "a").rename(tmp_path / "b"),
        lambda: (tmp_path / "b").unlink(),
    ):
        change()
        await woken.wait()
        woken.clear()
    watch.stop()


async def test_a_folder_behind_a_link_is_watched(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    woken = asyncio.Event()
    watch = FolderWatch(tmp_path / "link", woken.set)
    watch.start()
    (tmp_path / "real/a").touch()
    await woken.wait()
    watch.stop()


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        FolderWatch(tmp_path / "missing", lambda: None).start()


async def test_stopping_gives_everything_back(tmp_path: Path) -> None:
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        watch = FolderWatch(tmp_path, lambda: None)
        watch.start()
        watch.stop()
    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == (threads, descriptors)


async def test_a_watch_takes_nothing_before_it_is_started(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    watch = FolderWatch(tmp_path, lambda: None)
    assert os.listdir("/proc/self/fd") == before
    watch.stop()
