"""Wake-ups from folders that hold what configured globs mean."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hostdevices.paths import PathEvents


@asynccontextmanager
async def watching(root: Path, *patterns: str) -> AsyncIterator[asyncio.Queue[str | None]]:
    queue: asyncio.Queue[str | None] = asyncio.Queue()
    events = PathEvents(patterns, "paths", root)
    events.start(lambda subsystem, _: queue.put_nowait(subsystem))
    try:
        yield queue
    finally:
        events.close()


async def told(queue: asyncio.Queue[str | None]) -> None:
    """Wait until something was told, and forget what else was told up to now."""
    assert await asyncio.wait_for(queue.get(), 5) == "paths"
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


async def test_other_names_and_mere_opening_are_not_told(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/ttyUSB0").touch()
    async with watching(tmp_path, "/dev/ttyUSB*") as queue:
        (tmp_path / "dev/ttyUSB0").read_bytes()
        (tmp_path / "dev/ttyUSB0").write_bytes(b"x")
        (tmp_path / "dev/null").touch()
        (tmp_path / "dev/ttyUSB1").touch()  # the events are told in order: nothing came before this one
        await told(queue)
        assert queue.empty()


@pytest.mark.parametrize("pattern", ["/dev/a/b/card*", "/dev/a/*/card*", "/dev/**/card*"])
async def test_folders_that_do_not_exist_yet_are_waited_for(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "dev").mkdir()
    async with watching(tmp_path, pattern) as queue:
        (tmp_path / "dev/a").mkdir()
        await told(queue)
        (tmp_path / "dev/a/b").mkdir()
        await told(queue)
        (tmp_path / "dev/a/b/card0").touch()
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
    (tmp_path / "run/x").mkdir(parents=True)
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("../run")
    async with watching(tmp_path, "/var/run/x/*.sock") as queue:
        (tmp_path / "run/x/a.sock").touch()
        await told(queue)


async def test_without_patterns_nothing_is_started(tmp_path: Path) -> None:
    async with watching(tmp_path) as queue:
        assert queue.empty()
