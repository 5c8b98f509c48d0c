"""The page over HTTP: permitted hosts, messages to clients, and the cost of clients that misbehave."""

import asyncio
import base64
import hashlib
import re
import socket
import tracemalloc
from contextlib import AsyncExitStack
from functools import partial

import pytest

from nodeplug.control.client import NotRunning
from nodeplug.control.picture import Tile
from nodeplug.page.site import MAX_VIEWERS, is_address_or_localhost, is_loopback, parsed
from tests.nodeplug.page.clients import Answers, PageClient, connected, served
from tests.nodeplug.test_status_server import ask
from tests.running import until

A, B = Tile("a", "misc"), Tile("b", "misc", state="unhealthy", reason="hot")


async def fetched(port: int, path: str, host: str = "localhost") -> tuple[str, str]:
    """Return an answer's head and body."""
    async with connected(port, path, host) as client:
        head, _, body = (await asyncio.wait_for(client.reader.read(), 30)).decode().partition("\r\n\r\n")
        return head, body


async def test_document_is_self_contained_and_its_policy_forbids_the_rest() -> None:
    answers = Answers()
    async with served(answers) as server:
        head, body = await fetched(server.port, "/?x=1")
        assert head.startswith("HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n")
        policy = dict(x.strip().split(" ", 1) for x in re.findall("Policy: (default.*)", head)[0].split(";"))
        for tag, directive in (("style", "style-src"), ("script", "script-src")):
            (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", body, re.DOTALL)
            digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
            assert policy[directive] == f"'sha256-{digest}'"
        assert (policy["default-src"], policy["frame-ancestors"], policy["connect-src"]) == (
            "'none'",
            "'none'",
            "'self'",
        )
        assert "Access-Control" not in head
        for each in ("X-Content-Type-Options: nosniff", "Cross-Origin-Resource-Policy: same-origin"):
            assert each in head
        assert not re.search(
            r"https?://|//[a-z]+\.|@import|url\(|innerHTML|insertAdjacent|eval\(| style=| on\w+=", body
        )
        assert len(body) < 32_000
    assert answers.asked == 0


@pytest.mark.parametrize(
    ("path", "host", "status"),
    [
        ("/", "rebound.example:9400", "421 Misdirected Request"),
        ("/live", "rebound.example", "421 Misdirected Request"),
        ("/", "", "421 Misdirected Request"),
        ("/nope", "localhost", "404 Not Found"),
        ("/live", "[::1]:9400", "200 OK"),
        ("/metrics", "prometheus.example", "200 OK"),
    ],
)
async def test_host_header_is_checked(path: str, host: str, status: str) -> None:
    async with served(Answers(A)) as server, connected(server.port, path, host) as client:
        assert (await client.head()).startswith(f"HTTP/1.1 {status}\r\n")


@pytest.mark.parametrize("path", ["/", "/live", "/nope"])
async def test_head_is_get_without_a_body(path: str) -> None:
    answers = Answers()
    async with served(answers) as server:
        async with connected(server.port, path) as client:
            got = await client.head()
        answer = await ask(server, f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert answer.decode() == got


def test_only_addresses_and_localhost_are_permitted_hosts() -> None:
    allowed = ("localhost", "LocalHost:1", "127.0.0.1:9400", "10.1.2.3", "[fe80::1]:80", "[::1]")
    assert all(map(is_address_or_localhost, allowed))
    others = ("", "a.example", "localhost.example", "127.0.0.1.example:80", "localhost:x", "[::1", "[a]", "1.2.3.4.5")
    assert not any(map(is_address_or_localhost, others))


def test_malformed_requests_are_not_parsed() -> None:
    for head in (
        b"",
        b"GET /\n\n",
        b"GET / HTTP/1.1\n\n",
        b"GET / HTTP/1.1\nHost: a\nhost: b\n\n",
        b"GET x HTTP/1.1\n\n",
    ):
        assert parsed(head) is None


async def test_only_loopback_addresses_are_local() -> None:
    async with served(Answers(A), is_local=True) as server:
        assert "200 OK" in (await fetched(server.port, "/"))[0]
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1")))
    assert not any(map(is_loopback, ("10.0.0.1", "fe80::1%eth0", "::ffff:10.0.0.1", "2001:db8::1")))


def has_changes(client: PageClient) -> bool:
    return set(client.tiles) == {"a", "c"} and client.warnings == ["hot"]


async def test_clients_get_the_full_state_then_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodeplug.page.feed.MIN_INTERVAL", 0.0)
    answers = Answers(A, B)
    async with served(answers) as server:
        async with connected(server.port) as first, connected(server.port) as second:
            for client in (first, second):
                assert "text/event-stream" in await client.head()
                message = await client.message()
                assert (message["about"]["node"], set(message["tiles"]), message["gone"]) == ("n", {"a", "b"}, None)
                assert message["tiles"]["b"]["reason"] == "hot"
            answers.change(A, Tile("c", "misc"))
            for client in (first, second):
                await client.until(partial(has_changes, client))
            answers.problem = NotRunning("it has ended")
            answers.change()
            await first.until(lambda: first.trouble == "it has ended")
            assert first.tiles.keys() == {"a", "c"}  # the earlier state
        await until(lambda: answers.log.waiting == 0)
        before = answers.asked
        answers.change()
        await asyncio.sleep(0)
        assert answers.asked == before


async def test_viewers_are_limited_and_a_leaving_viewer_frees_its_place() -> None:
    async with served(Answers(A)) as server, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(server.port)) for _ in range(MAX_VIEWERS)]
        for client in clients:
            assert "200 OK" in await client.head()
        head, body = await fetched(server.port, "/live")
        assert ("503 Service Unavailable" in head, body) == (
            True,
            f"{MAX_VIEWERS} clients have the page open already\n",
        )
        assert "200 OK" in (await fetched(server.port, "/"))[0]
        clients[0].writer.transport.abort()

        async def is_accepted() -> bool:
            async with connected(server.port) as again:
                return "200 OK" in await again.head()

        async with asyncio.timeout(30):
            while not await is_accepted():
                pass


async def test_client_that_does_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodeplug.page.site.SECONDS_TO_READ", 0.2)
    many = [Tile(f"misc-{number:05}", "misc", reason="x" * 500) for number in range(10_000)]
    answers = Answers(*many)

    def busy() -> int:
        return sum(task.get_name() == "page" for task in asyncio.all_tasks())

    async with served(answers) as server, connected(server.port) as reads:
        await reads.head()
        await reads.message()
        idle = [socket.socket() for _ in range(3)]
        tracemalloc.start()
        try:
            for each in idle:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                each.connect(("127.0.0.1", server.port))
                each.send(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await until(lambda: busy() == 5)
            await until(lambda: busy() == 2)  # the reading client, and its renderer
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            for each in idle:
                each.close()
        assert most < 30_000_000  # a message of 6 MB for each client, until it is dropped
        answers.change(A)
        await reads.until(lambda: reads.tiles.keys() == {"a"})


async def test_connections_are_closed_when_the_server_stops() -> None:
    async with AsyncExitStack() as stack:
        async with served(Answers(A)) as server:
            client = await stack.enter_async_context(connected(server.port))
            await client.head()
            await client.message()
        assert await asyncio.wait_for(client.reader.read(), 30) is not None
