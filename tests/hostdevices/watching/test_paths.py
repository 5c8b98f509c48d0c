"""Wake-ups from folders that configured globs match."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from folderwatch import FolderWatcher
from hostdevices import Host
from hostdevices.reads import Reads
from hostdevices.tree import Folder
from hostdevices.watching import paths
from hostdevices.watching.paths import PathEvents
from tests.descriptors import no_more_descriptors
from tests.leaks import LeakCheck
from tests.running import until


@asynccontextmanager
async def watching(root: Path, *patterns: str) -> AsyncIterator[asyncio.Queue[str | None]]:
    queue: asyncio.Queue[str | None] = asyncio.Queue()
    folders = FolderWatcher()
    events = PathEvents(patterns, "paths", Host(root, Folder(str(root.resolve()))), folders)
    events.start(lambda subsystem, _: queue.put_nowait(subsystem))
    try:
        yield queue
    finally:
        events.close()


async def wait_for_event(queue: asyncio.Queue[str | None]) -> None:
    """Wait for an event, and drop the other events of until now."""
    assert await asyncio.wait_for(queue.get(), 30) == "paths"
    while not queue.empty():
        queue.get_nowait()


async def test_matching_names_wake_when_created_renamed_and_removed(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    async with watching(tmp_path, "/dev/ttyUSB*") as queue:
        (tmp_path / "dev/ttyUSB0").touch()
        await wait_for_event(queue)
        (tmp_path / "dev/ttyUSB0").rename(tmp_path / "dev/ttyUSB1")
        await wait_for_event(queue)
        (tmp_path / "dev/ttyUSB1").unlink()
        await wait_for_event(queue)


async def test_event_contains_path_of_changed_file(tmp_path: Path) -> None:
    (tmp_path / "dev/snd").mkdir(parents=True)
    seen: asyncio.Queue[tuple[str | None, str]] = asyncio.Queue()
    events = PathEvents(["/dev/tty*", "/dev/snd/*"], "path", Host(tmp_path, Folder(str(tmp_path))), FolderWatcher())
    events.start(lambda *what: seen.put_nowait(what))
    with contextlib.closing(events):
        for path in ("dev/ttyS0", "dev/snd/timer"):
            (tmp_path / path).touch()
            assert await asyncio.wait_for(seen.get(), 30) == ("path", f"/{path}")
        (tmp_path / "dev/ttyS0").rename(tmp_path / "dev/ttyS1")
        (tmp_path / "dev/snd/timer").unlink()
        renamed = {await asyncio.wait_for(seen.get(), 30) for _ in range(3)}
        assert renamed == {("path", "/dev/ttyS0"), ("path", "/dev/ttyS1"), ("path", "/dev/snd/timer")}
        (tmp_path / "dev/snd").rmdir()
        assert await asyncio.wait_for(seen.get(), 30) == ("path", "")  # for any of its files


async def test_other_names_and_writes_cause_no_event(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/ttyUSB0").touch()
    async with watching(tmp_path, "/dev/ttyUSB*") as queue:
        (tmp_path / "dev/ttyUSB0").read_bytes()
        (tmp_path / "dev/ttyUSB0").write_bytes(b"x")
        (tmp_path / "dev/null").touch()
        (tmp_path / "dev/ttyUSB1").touch()  # events are in order: an earlier file would have been reported before
        await wait_for_event(queue)
        assert queue.empty()


@pytest.mark.parametrize("pattern", ["/dev/a/b/card*", "/dev/a/*/card*", "/dev/**/card*"])
async def test_folder_is_watched_once_created(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "dev").mkdir()
    async with watching(tmp_path, pattern) as queue:
        (tmp_path / "dev/a/b").mkdir(parents=True)
        await wait_for_event(queue)
        for _ in range(3):  # the last wake-up can be for only one of the two folders
            (tmp_path / "dev/a/b/card0").touch()
            await wait_for_event(queue)
            (tmp_path / "dev/a/b/card0").unlink()
            await wait_for_event(queue)


async def test_folder_is_watched_again_when_recreated(tmp_path: Path) -> None:
    (tmp_path / "dev/snd").mkdir(parents=True)
    async with watching(tmp_path, "/dev/snd/*") as queue:
        for number in range(3):
            (tmp_path / "dev/snd" / str(number)).touch()
            await wait_for_event(queue)
            (tmp_path / "dev/snd" / str(number)).unlink()
            (tmp_path / "dev/snd").rmdir()
            await wait_for_event(queue)
            (tmp_path / "dev/snd").mkdir()
            await wait_for_event(queue)


async def test_linked_folder_is_watched(tmp_path: Path) -> None:
    (tmp_path / "dev/real").mkdir(parents=True)
    (tmp_path / "dev/named").symlink_to("real")
    async with watching(tmp_path, "/dev/named/card*") as queue:
        (tmp_path / "dev/real/card0").touch()
        await wait_for_event(queue)


async def test_wildcard_does_not_watch_dev_shm(tmp_path: Path) -> None:
    (tmp_path / "dev/shm").mkdir(parents=True)
    async with watching(tmp_path, "/dev/**/card*", "/dev/*/card*") as queue:
        await wait_for_event(queue)  # the folders are watched now
        while not queue.empty():
            queue.get_nowait()
        (tmp_path / "dev/shm/a").mkdir()
        (tmp_path / "dev/shm/card0").touch()
        (tmp_path / "dev/last").touch()  # events are in order: an earlier file would have been reported before
        assert await asyncio.wait_for(queue.get(), 30) == "paths"
        assert queue.empty()


async def test_number_of_watched_folders_is_limited(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "dev").mkdir()
    for number in range(paths.MAX_FOLDERS + 50):
        (tmp_path / "dev" / str(number)).mkdir()
    since = LeakCheck()
    async with watching(tmp_path, "/dev/**/card*") as queue:
        await wait_for_event(queue)
        (tmp_path / "dev/new").mkdir()
        await wait_for_event(queue)
        assert len(since.threads()) <= 1  # only the search
    assert caplog.text.count("only 512 folders are watched; changes in others wait for a rescan") == 1


async def test_search_that_ends_after_close_watches_nothing(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    since = LeakCheck()
    async with watching(tmp_path, "/dev/**/card*"):
        for thread in since.threads():
            thread.join(5)  # its result is on the way to the loop
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert errors == []
    assert since.descriptors() == []


class FolderRecorder(Folder):
    """A tree that records which folders were listed."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.found: list[list[str] | None] = []

    def folders(self, path: str) -> list[str] | None:
        self.found.append(super().folders(path))
        return self.found[-1]


async def test_search_is_repeated_after_descriptors_ran_out(tmp_path: Path) -> None:
    """The watches stay, and changes of the meantime are found."""
    (tmp_path / "dev/one").mkdir(parents=True)
    tree, queue = FolderRecorder(tmp_path), asyncio.Queue[str | None]()
    events = PathEvents(["/dev/*/card*"], "paths", Host(tmp_path, tree), FolderWatcher())
    events.start(lambda subsystem, _: queue.put_nowait(subsystem))
    with contextlib.closing(events):
        await until(lambda: len(tree.found) == 2)  # twice, because the first search found a folder
        with no_more_descriptors():
            (tmp_path / "dev/two").mkdir()
            await until(lambda: None in tree.found)
        await until(lambda: tree.found.count(["one", "two"]) + tree.found.count(["two", "one"]) == 2)
        await wait_for_event(queue)
        for folder in ("one", "two"):
            (tmp_path / f"dev/{folder}/card0").touch()
            await wait_for_event(queue)


class BlockingFolder(Folder):
    """A tree that blocks the listing of one folder until `released` is set."""

    def __init__(self, root: Path, folder: str) -> None:
        super().__init__(str(root))
        self._folder = folder
        self.reached, self.released = threading.Event(), threading.Event()

    def folders(self, path: str) -> list[str] | None:
        if path == self._folder:
            self.reached.set()
            self.released.wait(30)
        return super().folders(path)


async def test_search_is_repeated_after_a_stuck_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "dev/one").mkdir(parents=True)
    tree, queue = BlockingFolder(tmp_path, "/dev"), asyncio.Queue[str | None]()
    host = Host(tmp_path, tree, Reads(limit=0.01))
    scan = host.reads.attempt(lambda: host.folders("/dev"))
    await asyncio.to_thread(tree.reached.wait, 30)
    await until(scan.is_stuck)
    scan.abandon_as_stuck()
    since = LeakCheck()
    events = PathEvents(["/dev/*/card*"], "paths", host, FolderWatcher())
    with contextlib.closing(events):
        events.start(lambda subsystem, _: queue.put_nowait(subsystem))
        for search in since.threads():
            search.join(30)
        await asyncio.sleep(0)
        tree.released.set()
        await wait_for_event(queue)
        (tmp_path / "dev/one/card0").touch()
        await wait_for_event(queue)
    assert "Traceback" not in caplog.text


async def test_no_events_without_patterns(tmp_path: Path) -> None:
    async with watching(tmp_path) as queue:
        assert queue.empty()
