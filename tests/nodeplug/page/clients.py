"""A daemon's answers for the page, and clients of the page."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from msgspec import Struct

from nodeplug.control import events, picture
from nodeplug.control.picture import NodeSummary, Tile
from nodeplug.control.status import ResourceView
from nodeplug.page.feed import Feed
from nodeplug.page.site import Site
from nodeplug.status_server import StatusServer
from telemetry import EventLog
from tests.nodeplug.test_status_server import serving


class Answers:
    """A daemon's answers; tests change `tiles` and record events."""

    def __init__(self, *tiles: Tile) -> None:
        self.tiles = tiles
        self.resources: tuple[ResourceView, ...] = ()
        self.problem: Exception | None = None
        self.log = EventLog()
        self.asked = 0

    async def __call__(self, question: Struct, kind: type[Any]) -> Any:
        del kind
        self.asked += 1
        if self.problem is not None:
            raise self.problem
        if isinstance(question, picture.Question):
            return picture.Answer(NodeSummary("n", "1", 0.0, "file", (), self.resources, None, ()), self.tiles, ())
        assert isinstance(question, events.Question)
        if question.wait:
            await self.log.wait(question.after)
        return events.Answer(self.log.began, self.log.latest, False, self.log.since(question.after))

    def change(self, *tiles: Tile) -> None:
        """Replace the devices, and record an event about it."""
        self.tiles = tiles
        self.log.record("unhealthy", "hot", device="x")


def served(answers: Answers, **options: Any) -> AbstractAsyncContextManager[StatusServer]:
    """The page, served together with the metrics."""
    return serving(metrics=(), page=lambda: Site(Feed(answers), **options))


class PageClient:
    """A client of the page: a connection to `/live`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.tiles: dict[str, Any] = {}  # the state after all messages
        self.warnings: list[str] = []
        self.trouble = ""

    async def head(self) -> str:
        return (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 30)).decode()

    async def message(self) -> Any:
        """Return the next message; heartbeats are skipped."""
        while not (line := await asyncio.wait_for(self.reader.readuntil(b"\n\n"), 30)).startswith(b"data: "):
            pass
        message = json.loads(line[6:])
        if message["gone"] is None:  # a full state, also sent to a client that was too slow
            self.tiles, self.warnings = {}, []
        else:
            self.tiles = {key: tile for key, tile in self.tiles.items() if key not in message["gone"]["tiles"]}
        self.tiles.update(message["tiles"])
        self.warnings += [x["message"] for x in message["events"] if x["isWarning"]]
        self.trouble = message["trouble"]
        return message

    async def until(self, holds: Callable[[], object]) -> None:
        while not holds():
            await self.message()


@asynccontextmanager
async def connected(port: int, path: str = "/live", host: str = "localhost") -> AsyncIterator[PageClient]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    try:
        yield PageClient(reader, writer)
    finally:
        writer.transport.abort()
