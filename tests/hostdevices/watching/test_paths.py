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
from tests.held import HeldSince
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


async def told(queue: asyncio.Queue[str | None]) -> None:
    """Wait for an event, and drop the other events of until now."""
    assert await asyncio.wait_for(queue.get(), 30) == "paths"
    while not queue.empty():
        queue.get_nowait()


async def test_names_that_match_come_and_go(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    async with watching(tmp_path, "/dev/ttyUSB*") as queue:
        (tmp_path / "dev/ttyUSB0").touch()
        await told(queue)
        (tmp_path / "dev/ttyUSB0").rename(tmp_path / "dev/ttyUSB1")
        await told(queue)
        (tmp_path / "dev/ttyUSB1").unlink()
        await told(queue)


async def test_names_that_come_and_go_are_told_by_their_paths(tmp_path: Path) -> None:
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


async def test_other_names_and_mere_opening_are_not_told(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/ttyUSB0").touch()
    async with watching(tmp_path, "/dev/ttyUSB*") as queue:
        (tmp_path / "dev/ttyUSB0").read_bytes()
        (tmp_path / "dev/ttyUSB0").write_bytes(b"x")
        (tmp_path / "dev/null").touch()
        (tmp_path / "dev/ttyUSB1").touch()  # events are in order: an earlier file would have been reported before
        await told(queue)
        assert queue.empty()


@pytest.mark.parametrize("pattern", ["/dev/a/b/card*", "/dev/a/*/card*", "/dev/**/card*"])
async def test_folders_that_do_not_exist_yet_are_waited_for(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "dev").mkdir()
    async with watching(tmp_path, pattern) as queue:
        (tmp_path / "dev/a/b").mkdir(parents=True)
        await told(queue)
        for _ in range(3):  # the last wake-up can be for only one of the two folders
            (tmp_path / "dev/a/b/card0").touch()
            await told(queue)
            (tmp_path / "dev/a/b/card0").unlink()
            await told(queue)


async def test_a_folder_that_goes_and_comes_back_is_followed(tmp_path: Path) -> None:
    (tmp_path / "dev/snd").mkdir(parents=True)
    async with watching(tmp_path, "/dev/snd/*") as queue:
        for number in range(3):
            (tmp_path / "dev/snd" / str(number)).touch()
            await told(queue)
            (tmp_path / "dev/snd" / str(number)).unlink()
            (tmp_path / "dev/snd").rmdir()
            await told(queue)
            (tmp_path / "dev/snd").mkdir()
            await told(queue)


async def test_a_link_on_the_way_is_followed(tmp_path: Path) -> None:
    (tmp_path / "dev/real").mkdir(parents=True)
    (tmp_path / "dev/named").symlink_to("real")
    async with watching(tmp_path, "/dev/named/card*") as queue:
        (tmp_path / "dev/real/card0").touch()
        await told(queue)


async def test_a_wildcard_does_not_lead_to_where_users_make_folders(tmp_path: Path) -> None:
    (tmp_path / "dev/shm").mkdir(parents=True)
    async with watching(tmp_path, "/dev/**/card*", "/dev/*/card*") as queue:
        await told(queue)  # the folders are watched now
        while not queue.empty():
            queue.get_nowait()
        (tmp_path / "dev/shm/a").mkdir()
        (tmp_path / "dev/shm/card0").touch()
        (tmp_path / "dev/last").touch()  # events are in order: an earlier file would have been reported before
        assert await asyncio.wait_for(queue.get(), 30) == "paths"
        assert queue.empty()


async def test_of_very_many_folders_some_wait_for_the_rescan(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "dev").mkdir()
    for number in range(paths.MOST_FOLDERS + 50):
        (tmp_path / "dev" / str(number)).mkdir()
    since = HeldSince()
    async with watching(tmp_path, "/dev/**/card*") as queue:
        await told(queue)
        (tmp_path / "dev/new").mkdir()
        await told(queue)
        assert len(since.threads()) <= 1  # only the search
    assert caplog.text.count("only 512 folders are watched; changes in others wait for a rescan") == 1


async def test_a_search_that_ends_after_the_end_watches_nothing(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    since = HeldSince()
    async with watching(tmp_path, "/dev/**/card*"):
        for thread in since.threads():
            thread.join(5)  # its result is on the way to the loop
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert errors == []
    assert since.descriptors() == []


class Remembering(Folder):
    """A tree that records which folders were listed."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.found: list[list[str] | None] = []

    def folders(self, path: str) -> list[str] | None:
        self.found.append(super().folders(path))
        return self.found[-1]


async def test_a_search_for_which_no_descriptor_was_left_is_made_again(tmp_path: Path) -> None:
    """The watches stay, and changes of the meantime are found."""
    (tmp_path / "dev/one").mkdir(parents=True)
    tree, queue = Remembering(tmp_path), asyncio.Queue[str | None]()
    events = PathEvents(["/dev/*/card*"], "paths", Host(tmp_path, tree), FolderWatcher())
    events.start(lambda subsystem, _: queue.put_nowait(subsystem))
    with contextlib.closing(events):
        await until(lambda: len(tree.found) == 2)  # twice, because the first search found a folder
        with no_more_descriptors():
            (tmp_path / "dev/two").mkdir()
            await until(lambda: None in tree.found)
        await until(lambda: tree.found.count(["one", "two"]) + tree.found.count(["two", "one"]) == 2)
        await told(queue)
        for folder in ("one", "two"):
            (tmp_path / f"dev/{folder}/card0").touch()
            await told(queue)


class Waiting(Folder):
    """A tree that blocks the listing of one folder until `let_go` is set."""

    def __init__(self, root: Path, folder: str) -> None:
        super().__init__(str(root))
        self._folder = folder
        self.reached, self.let_go = threading.Event(), threading.Event()

    def folders(self, path: str) -> list[str] | None:
        if path == self._folder:
            self.reached.set()
            self.let_go.wait(30)
        return super().folders(path)


async def test_a_search_that_meets_a_folder_of_which_a_read_is_stuck_is_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "dev/one").mkdir(parents=True)
    tree, queue = Waiting(tmp_path, "/dev"), asyncio.Queue[str | None]()
    host = Host(tmp_path, tree, Reads(limit=0.01))
    scan = host.reads.attempt(lambda: host.folders("/dev"))
    await asyncio.to_thread(tree.reached.wait, 30)
    await until(scan.is_stuck)
    scan.give_up()
    since = HeldSince()
    events = PathEvents(["/dev/*/card*"], "paths", host, FolderWatcher())
    with contextlib.closing(events):
        events.start(lambda subsystem, _: queue.put_nowait(subsystem))
        for search in since.threads():
            search.join(30)
        await asyncio.sleep(0)
        tree.let_go.set()
        await told(queue)
        (tmp_path / "dev/one/card0").touch()
        await told(queue)
    assert "Traceback" not in caplog.text


async def test_without_patterns_nothing_is_started(tmp_path: Path) -> None:
    async with watching(tmp_path) as queue:
        assert queue.empty()
