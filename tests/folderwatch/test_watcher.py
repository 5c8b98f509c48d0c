"""Watched folders: names are added and removed, folders too, and inotify's limits are reached."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from folderwatch import FolderWatch, FolderWatcher
from tests.descriptors import no_more_descriptors
from tests.leaks import LeakCheck

ROOT = Path(__file__).resolve().parents[2]


class Calls:
    """Counts the callbacks of one watch."""

    def __init__(self) -> None:
        self.count = 0
        self._called = asyncio.Event()

    def __call__(self) -> None:
        self.count += 1
        self._called.set()

    async def next(self) -> None:
        """Wait for the next callback, and let the rest of the same burst arrive."""
        await asyncio.wait_for(self._called.wait(), 30)
        await process_events()
        self._called.clear()


async def process_events() -> None:
    """Let the event loop read the kernel's events so far."""
    for _ in range(4):
        await asyncio.sleep(0)


@pytest.fixture
async def watcher() -> AsyncIterator[FolderWatcher]:
    """A watcher that checks often."""
    watcher = FolderWatcher(poll_interval=0.02, check_interval=0.02)
    yield watcher
    watcher.close()


@pytest.fixture
async def by_events() -> AsyncIterator[FolderWatcher]:
    """A watcher that relies on inotify alone."""
    watcher = FolderWatcher(poll_interval=3600, check_interval=3600)
    yield watcher
    watcher.close()


async def test_created_renamed_and_deleted_names_are_reported(by_events: FolderWatcher, tmp_path: Path) -> None:
    calls = Calls()
    by_events.watch(tmp_path, calls)
    (tmp_path / "a").touch()
    await calls.next()
    (tmp_path / "a").rename(tmp_path / "b")
    await calls.next()
    (tmp_path / "b").unlink()
    await calls.next()


async def test_burst_is_one_call_and_file_contents_are_no_change(by_events: FolderWatcher, tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    calls = Calls()
    by_events.watch(tmp_path, calls)
    (tmp_path / "there").read_bytes()
    (tmp_path / "there").write_bytes(b"x")
    await process_events()
    assert calls.count == 0
    for number in range(100):
        (tmp_path / str(number)).touch()
    await calls.next()
    assert calls.count == 1


async def test_watch_has_changed_names_or_none_if_unknown(by_events: FolderWatcher, tmp_path: Path) -> None:
    calls, folder = Calls(), tmp_path / "folder"
    folder.mkdir()
    watch = by_events.watch(folder, calls, lambda name: name != "other")
    for name in ("a", "b", "other"):
        (folder / name).touch()
    await calls.next()
    assert watch.names == frozenset("ab")
    (folder / "b").unlink()
    await calls.next()
    assert watch.names == frozenset("b")
    for number in range(1100):
        (folder / str(number)).touch()
    await calls.next()
    seen = watch.names
    folder.rename(tmp_path / "moved")
    await calls.next()
    assert watch.names is None
    assert seen is None or len(seen) <= 1000


async def test_names_outside_the_filter_are_not_reported(by_events: FolderWatcher, tmp_path: Path) -> None:
    sockets, everything = Calls(), Calls()
    by_events.watch(tmp_path, sockets, lambda name: name.endswith(".sock"))
    by_events.watch(tmp_path, everything)
    (tmp_path / "a.txt").touch()
    await everything.next()
    assert sockets.count == 0
    (tmp_path / "a.sock").touch()
    await sockets.next()


async def test_closed_watch_is_not_called_but_others_are(by_events: FolderWatcher, tmp_path: Path) -> None:
    closed, other = Calls(), Calls()
    watch = by_events.watch(tmp_path, closed)
    by_events.watch(tmp_path, other)
    (tmp_path / "a").touch()
    watch.close()
    watch.close()
    await other.next()
    assert closed.count == 0


async def test_callback_can_close_watches_with_pending_calls(by_events: FolderWatcher, tmp_path: Path) -> None:
    watches: list[FolderWatch] = []
    calls = Calls()

    def changed() -> None:
        calls()
        for watch in watches:
            watch.close()

    watches += [by_events.watch(tmp_path, changed), by_events.watch(tmp_path, changed)]
    (tmp_path / "a").touch()
    await calls.next()
    (tmp_path / "b").touch()
    await process_events()
    assert calls.count == 1


async def test_missing_folder_is_watched_when_it_is_created_with_parents(
    by_events: FolderWatcher, tmp_path: Path
) -> None:
    calls = Calls()
    by_events.watch(tmp_path / "a/b/c", calls)
    (tmp_path / "a/b/c").mkdir(parents=True)
    await calls.next()
    (tmp_path / "a/b/c/name").touch()
    await calls.next()


async def test_recreated_folder_is_watched_again(by_events: FolderWatcher, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    calls = Calls()
    by_events.watch(folder, calls)
    for _ in range(3):
        folder.rmdir()
        await calls.next()
        folder.mkdir()
        await calls.next()
        (folder / "name").touch()
        await calls.next()
        (folder / "name").unlink()
        await calls.next()


async def test_folder_created_and_deleted_at_once_is_reported(by_events: FolderWatcher, tmp_path: Path) -> None:
    calls = Calls()
    by_events.watch(tmp_path / "above" / "folder", calls)
    for made in ("above", "above/folder"):
        (tmp_path / made).mkdir()
    (tmp_path / "above/folder").rmdir()
    (tmp_path / "above").rmdir()
    await calls.next()
    (tmp_path / "above").mkdir()
    (tmp_path / "above/folder").mkdir()
    await calls.next()


async def test_folder_renamed_over_path_is_watched_instead_of_old_one(by_events: FolderWatcher, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "new").mkdir()
    calls = Calls()
    by_events.watch(folder, calls)
    folder.rename(tmp_path / "old")
    (tmp_path / "new").rename(folder)
    await calls.next()
    count = calls.count
    (tmp_path / "old/name").touch()
    await process_events()
    assert calls.count == count
    (folder / "name").touch()
    await calls.next()


async def test_check_finds_folder_recreated_after_parent_was_moved(watcher: FolderWatcher, tmp_path: Path) -> None:
    folder = tmp_path / "kubelet/device-plugins"
    folder.mkdir(parents=True)
    calls = Calls()
    watcher.watch(folder, calls)
    (tmp_path / "kubelet").rename(tmp_path / "kubelet.old")
    await calls.next()
    folder.mkdir(parents=True)
    await calls.next()
    (folder / "kubelet.sock").touch()
    await calls.next()


async def test_lost_events_call_all_watches(
    by_events: FolderWatcher, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    busy, quiet = tmp_path / "busy", tmp_path / "quiet"
    busy.mkdir()
    quiet.mkdir()
    calls = Calls()
    by_events.watch(busy, lambda: None)
    by_events.watch(quiet, calls)
    for _ in range(int(Path("/proc/sys/fs/inotify/max_queued_events").read_text()) // 2 + 1):
        (busy / "name").touch()
        (busy / "name").unlink()
    (quiet / "name").touch()  # the lost event
    await calls.next()
    assert "events were lost" in caplog.text


async def test_folders_are_polled_without_inotify_instance(
    watcher: FolderWatcher, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    here, missing = Calls(), Calls()
    (tmp_path / "made").mkdir()
    with no_more_descriptors():
        watcher.watch(tmp_path, here)
        watcher.watch(tmp_path / "made/later", missing)
        os.mkdir(tmp_path / "a")
        await here.next()
        os.mkdir(tmp_path / "made/later")
        await missing.next()
        os.mkdir(tmp_path / "made/later/a")
        await missing.next()
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1
    assert "cannot be watched (Too many open files): nodeplug checks such folders every 0.02 s" in caplog.text


async def test_contents_watch_is_called_at_every_poll_without_inotify(watcher: FolderWatcher, tmp_path: Path) -> None:
    names, contents = Calls(), Calls()
    (tmp_path / "other").mkdir()
    with no_more_descriptors():
        watcher.watch(tmp_path / "other", names)
        watch = watcher.watch(tmp_path, contents, lambda _: False, contents=True)
        await contents.next()
        await contents.next()
        assert watch.names is None
        assert names.count == 0


async def test_folder_is_watched_when_descriptors_are_free_again(
    watcher: FolderWatcher, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    calls = Calls()
    with no_more_descriptors():
        watcher.watch(tmp_path, calls)
    await calls.next()  # changes before the watch are unknown
    assert "all folders can be watched again" in caplog.text


WITHOUT_WATCHES = """
import asyncio, pathlib, sys
from folderwatch import FolderWatcher

async def main() -> None:
    called = asyncio.Event()
    watcher = FolderWatcher(poll_interval=0.02)
    watches = [watcher.watch(path, called.set) for path in sys.argv[1:]]
    for path in sys.argv[1:]:
        pathlib.Path(path, "name").touch()
        await asyncio.wait_for(called.wait(), 30)
        called.clear()
    watcher.close()

asyncio.run(main())
"""


def test_folders_are_polled_after_watch_limit(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    # a user namespace has its own limit
    command = 'echo 1 > /proc/sys/user/max_inotify_watches && exec "$@"'
    done = subprocess.run(
        ["unshare", "-Ur", "sh", "-c", command, "sh", sys.executable, "-c", WITHOUT_WATCHES, *map(str, folders)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare" in done.stderr or "max_inotify_watches" in done.stderr:
        pytest.skip(f"no user namespace with limits here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("No space left on device") == 1


async def test_many_folders_use_one_descriptor_until_close(tmp_path: Path) -> None:
    since = LeakCheck()
    watcher = FolderWatcher()
    for number in range(200):
        (tmp_path / str(number)).mkdir()
        watcher.watch(tmp_path / str(number), lambda: None)
    assert (since.descriptors(), since.threads()) == (["anon_inode:inotify"], set())
    watcher.close()
    watcher.close()
    assert since.descriptors() == []


async def test_closed_watch_of_missing_folder_leaves_no_descriptor(tmp_path: Path) -> None:
    since = LeakCheck()
    calls = Calls()
    watch = FolderWatcher().watch(tmp_path / "a/b", calls)
    (tmp_path / "a/b").mkdir(parents=True)
    await calls.next()
    watch.close()
    assert (since.descriptors(), since.threads()) == ([], set())


async def test_two_paths_to_one_folder_keep_separate_filters(by_events: FolderWatcher, tmp_path: Path) -> None:
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)
    (folder / "file").touch()
    contents, names = Calls(), Calls()
    by_events.watch(folder, contents, contents=True)
    by_events.watch(link, names)
    (folder / "file").write_bytes(b"x")
    await contents.next()
    (folder / "file").chmod(0o600)
    await contents.next()
    assert names.count == 0


async def test_paused_watch_is_called_once_after_the_pause(by_events: FolderWatcher, tmp_path: Path) -> None:
    calls = Calls()
    watch = by_events.watch(tmp_path, calls)
    watch.pause(0.2)
    began = asyncio.get_running_loop().time()
    for name in "ab":
        (tmp_path / name).touch()
        await process_events()
    assert calls.count == 0
    await calls.next()
    assert asyncio.get_running_loop().time() - began >= 0.2
    assert (calls.count, watch.names) == (1, frozenset("ab"))
    (tmp_path / "c").touch()
    await calls.next()
    assert watch.names == frozenset("c")


async def test_callback_can_pause_its_watch(by_events: FolderWatcher, tmp_path: Path) -> None:
    calls = Calls()

    def changed() -> None:
        watch.notify()  # another change happens meanwhile
        watch.pause(0.1)
        calls()

    watch = by_events.watch(tmp_path, changed)
    (tmp_path / "a").touch()
    await calls.next()
    assert calls.count == 1
    await calls.next()
    watch.close()
    assert calls.count == 2


async def test_watch_closed_in_pause_is_not_called(by_events: FolderWatcher, tmp_path: Path) -> None:
    calls, other = Calls(), Calls()
    watch = by_events.watch(tmp_path, calls)
    watch.pause(0.01)
    (tmp_path / "a").touch()
    await process_events()
    watch.close()
    other_watch = by_events.watch(tmp_path, other)
    other_watch.pause(0.05)
    other_watch.notify()
    await other.next()
    assert calls.count == 0
