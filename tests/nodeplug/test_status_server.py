"""The status server: its answers, and how it handles clients that misbehave."""

import asyncio
import contextlib
import logging
import socket
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from http.client import HTTPConnection
from pathlib import Path

import pytest

from nodeplug import probe
from nodeplug.page.site import Site
from nodeplug.status_server import MAX_CONNECTIONS, StatusServer
from telemetry.exposition import Metric
from tests.descriptors import no_more_descriptors
from tests.leaks import LeakCheck
from tests.running import running, until
from tests.threads import no_more_threads

ONE = Metric("things", "gauge", "Things.", (({}, 1.0),))


@contextlib.asynccontextmanager
async def serving(
    metrics: Iterable[Metric] = (ONE,),
    not_ready: Sequence[str] = (),
    address: str = "127.0.0.1:0",
    page: Callable[[], Site] | None = None,
) -> AsyncIterator[StatusServer]:
    """A running server."""
    server = StatusServer(address, lambda: metrics, lambda: not_ready, page)
    task = asyncio.create_task(server.run())
    try:
        await asyncio.wait_for(server.listening.wait(), 30)
        yield server
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()


async def ask(server: StatusServer, request: bytes) -> bytes:
    """Send bytes, and return everything that is received until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    answer = b""
    with contextlib.suppress(ConnectionError):
        writer.write(request)
        while piece := await asyncio.wait_for(reader.read(65536), 30):
            answer += piece
    writer.transport.abort()
    return answer


async def get(server: StatusServer, path: str, method: str = "GET") -> tuple[int, dict[str, str], str]:
    """Send a request as an ordinary client does."""

    def get() -> tuple[int, dict[str, str], str]:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=20)
        connection.request(method, path)
        answer = connection.getresponse()
        try:
            return answer.status, dict(answer.headers), answer.read().decode()
        finally:
            connection.close()

    return await asyncio.to_thread(get)


async def test_metrics_livez_and_readyz_are_served() -> None:
    async with serving() as server:
        code, headers, body = await get(server, "/metrics?name[]=x")
        assert (code, body) == (200, "# HELP things Things.\n# TYPE things gauge\nthings 1.0\n")
        assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert (await get(server, "/livez"))[::2] == (200, "ok\n")
        assert (await get(server, "/readyz"))[::2] == (200, "ok\n")


async def test_readyz_lists_the_reasons() -> None:
    async with serving(not_ready=["resource a/b is not registered", "the disk is full"]) as server:
        found = await get(server, "/readyz")
        assert found[::2] == (503, "not ready: resource a/b is not registered\nnot ready: the disk is full\n")
        assert (await get(server, "/livez"))[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [("GET", "/", 404), ("GET", "/metrics/x", 404), ("POST", "/metrics", 405), ("HEAD", "/x", 404)],
)
async def test_other_paths_and_methods_are_refused(method: str, path: str, code: int) -> None:
    async with serving() as server:
        found, headers, _ = await get(server, path, method)
        assert found == code
        assert headers.get("Allow") == ("GET, HEAD" if code == 405 else None)


@pytest.mark.parametrize("path", ["/metrics", "/livez", "/readyz", "/x"])
async def test_head_is_get_without_a_body(path: str) -> None:
    async with serving(not_ready=["resource a/b is not registered"]) as server:
        got = await ask(server, f"GET {path} HTTP/1.1\r\n\r\n".encode())
        head, end, body = got.partition(b"\r\n\r\n")
        assert body
        assert await ask(server, f"HEAD {path} HTTP/1.1\r\n\r\n".encode()) == head + end


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /metrics HTTP/1.0\n\n", b"200"),
        (b"GET /metrics\r\n\r\n", b"400"),
        (b"\r\n\r\n", b"400"),
        (b"GET http://x/metrics HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /../../etc/passwd HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /\0\x1b[2J HTTP/1.1\r\n\r\n", b"404"),
        (bytes(range(256)) * 12 + b"\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n", b"431"),
        (b"GET /metrics?" + b"name[]=a&" * 6000 + b" HTTP/1.1\r\n\r\n", b"431"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 999999999\r\n\r\nx", b"405"),
        (b"GET /metrics HTTP/1.1\r\n\r\n" * 2, b"200"),
    ],
)
async def test_malformed_requests_are_answered(request_: bytes, status: bytes) -> None:
    async with serving() as server:
        answer = await ask(server, request_)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 " + status)  # or a reset
        assert answer.count(b"HTTP/1.1 ") <= 1
        if len(request_) < 8192:
            assert answer
        assert (await get(server, "/livez"))[0] == 200


@pytest.fixture
def short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit connections to a short time."""
    monkeypatch.setattr("nodeplug.status_server.REQUEST_TIMEOUT", 0.3)


async def test_client_waits_while_no_descriptor_is_free(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as server:
        with socket.socket() as client:
            client.setblocking(False)
            with no_more_descriptors():
                with contextlib.suppress(BlockingIOError):
                    client.connect(("127.0.0.1", server.port))
                await until(lambda: "out of system resource" in caplog.text)
            assert caplog.text.count("out of system resource") == 1
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(client, b"HEAD /livez HTTP/1.1\r\n\r\n")
            answer = await asyncio.wait_for(loop.sock_recv(client, 4096), 30)
        assert answer.startswith(b"HTTP/1.1 200 OK")


async def test_incomplete_requests_are_closed(short_timeout: None) -> None:
    async with serving() as server:
        answers = (
            ask(server, data) for data in (b"", b"GET /metrics HTTP/1.1\r\n", b"GET /metrics HTTP/1.1\r\nA: b\r\n")
        )
        assert await asyncio.wait_for(asyncio.gather(*answers), 30) == [b"", b"", b""]


async def test_client_that_does_not_read_is_disconnected(short_timeout: None) -> None:
    large = Metric("things", "gauge", "Things.", tuple(({"a": str(i)}, 1.0) for i in range(200_000)))
    async with serving((large,)) as server:
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(slow, ("127.0.0.1", server.port))
            await loop.sock_sendall(slow, b"GET /metrics HTTP/1.1\r\n\r\n")
            await asyncio.wait_for(_until_all_are_closed(server), 30)


async def _until_all_are_closed(server: StatusServer) -> None:
    while server.port in _local_ports():  # noqa: ASYNC110 - the kernel sends no event
        await asyncio.sleep(0.05)


def _local_ports() -> list[int]:
    """The ports of our own accepted, established connections."""
    with open("/proc/net/tcp") as table:  # noqa: ASYNC230, RUF100 - it is in memory
        rows = [line.split() for line in table.readlines()[1:]]
    return [int(row[1].partition(":")[2], 16) for row in rows if row[3] == "01"]


async def test_idle_connections_use_few_resources() -> None:
    """A regression test: a thousand of them used a thousand threads, and all descriptors."""
    async with serving() as server:
        since = LeakCheck()
        idle: list[socket.socket] = []
        tracemalloc.start()
        try:
            for _ in range(400):
                one = socket.socket()
                one.setblocking(False)
                idle.append(one)
                with contextlib.suppress(BlockingIOError):
                    one.connect(("127.0.0.1", server.port))
                await asyncio.sleep(0)
            for one in idle:
                with contextlib.suppress(OSError):
                    one.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n")
                await asyncio.sleep(0)
            assert len(since.descriptors()) <= len(idle) + MAX_CONNECTIONS
            assert since.threads() == set()
            assert tracemalloc.get_traced_memory()[1] < 4 * 1024 * 1024
        finally:
            tracemalloc.stop()
            for one in idle:
                one.close()
        assert (await asyncio.wait_for(_first_answer(server), 30)).startswith(b"HTTP/1.1 200")


async def _first_answer(server: StatusServer) -> bytes:
    """Retry until there is room again."""
    while not (answer := await ask(server, b"GET /livez HTTP/1.1\r\n\r\n")):
        pass
    return answer


async def test_failing_metrics_do_not_affect_the_probes(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Iterable[Metric]:
        raise ZeroDivisionError

    server = StatusServer("127.0.0.1:0", broken, list)
    task = asyncio.create_task(server.run())
    await server.listening.wait()
    assert (await get(server, "/metrics"))[0] == 500
    assert (await get(server, "/livez"))[0] == 200
    assert "ZeroDivisionError" in caplog.text
    task.cancel()
    await asyncio.wait([task])


async def test_address_in_use_is_retried(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """For example, by the previous instance during an update."""
    monkeypatch.setattr("nodeplug.status_server._RETRY", 0.01)
    with caplog.at_level(logging.ERROR):
        async with serving() as first:
            second = StatusServer(f"127.0.0.1:{first.port}", lambda: (ONE,), list)
            task = asyncio.create_task(second.run())
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(second.listening.wait(), 0.1)
        await asyncio.wait_for(second.listening.wait(), 30)
        assert (await get(second, "/livez"))[0] == 200
        task.cancel()
        await asyncio.wait([task])
    (record,) = caplog.records
    says = f"cannot serve metrics at 127.0.0.1:{first.port}: Address already in use; nodeplug tries again"
    assert record.getMessage() == says


@pytest.mark.parametrize("address", ["no..name:0", f"{'a' * 64}:0"])
async def test_invalid_host_name_is_logged(address: str, caplog: pytest.LogCaptureFixture) -> None:
    async with running(StatusServer(address, lambda: (), lambda: ()).run()):
        await until(lambda: f"cannot serve metrics at {address}: " in caplog.text)


async def test_name_resolution_without_threads_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with running(StatusServer("localhost:0", lambda: (), lambda: ()).run()):
        with no_more_threads():
            await until(lambda: "cannot serve metrics at localhost:0: can't start new thread" in caplog.text)


@pytest.mark.parametrize("address", [":0", "0.0.0.0:0", "localhost:0"])
async def test_server_listens_on_wildcard_and_named_addresses(address: str) -> None:
    async with serving(address=address) as server:
        if address == "0.0.0.0:0":  # with the others, IPv4 can get another port
            assert (await get(server, "/livez"))[0] == 200
        assert server.port


async def test_probe_command_queries_the_socket(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = str(tmp_path / "status.sock")
    assert await asyncio.to_thread(probe.main, at) == 1
    assert capsys.readouterr().out == f"{at}: No such file or directory\n"
    async with serving(not_ready=["it is early"], address=at):
        assert await asyncio.to_thread(probe.main, at) == 1
        assert capsys.readouterr().out == "not ready: it is early\n"
        assert await asyncio.to_thread(probe.main, at, "/livez") == 0
    async with serving(address=at):  # at the address of the previous server
        assert await asyncio.to_thread(probe.main, at) == 0
        _, metrics = await asyncio.to_thread(probe.ask, at, "/metrics")
        assert "things 1.0\n" in metrics


async def test_socket_is_removed_only_by_its_owner(tmp_path: Path) -> None:
    at = tmp_path / "status.sock"
    async with serving(address=str(at)):
        async with serving(not_ready=["it is early"], address=str(at)):  # an update; the older stays
            pass
        assert not at.exists()
        async with contextlib.AsyncExitStack() as newer:
            async with serving(address=str(at)):
                await newer.enter_async_context(serving(not_ready=["it is early"], address=str(at)))
            assert (await asyncio.to_thread(probe.ask, str(at), "/readyz"))[1] == "not ready: it is early\n"
    assert not at.exists()
