"""Connections: reuse, replacement, TLS, proxies, and closing."""

import asyncio
import contextlib
import json
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from resourceapi.client import AsyncClient, Credentials, CredentialsError, Unreachable
from resourceapi.client.blocking import Client
from resourceapi.client.connections import Connections
from resourceapi.objects import v1
from tests.descriptors import no_more_descriptors
from tests.resourceapi.client.peer import CLAIM, Request, claim, client_of, drip, serving
from tests.threads import no_more_threads


async def answer(request: Request) -> None:
    await request.answer(claim())


async def get(client: AsyncClient) -> str:
    return (await client.resource(v1.ResourceClaim).get("one", "default")).metadata.name


async def test_one_connection_carries_one_request_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resourceapi.client.line.PATIENCE", 60.0)  # the machine can be busy
    async with serving(answer) as peer:
        with client_of(peer) as client:
            for _ in range(3):
                await get(client)
            assert peer.connections == 1
            for _ in range(3):
                await asyncio.gather(*(get(client) for _ in range(64)))
                assert peer.connections <= 8  # the limit of connections, all of which are reused
        async with asyncio.timeout(30):
            await peer.until_closed()


async def test_only_some_connections_are_kept_and_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resourceapi.client.connections.IDLE_SECONDS", 0.2)
    async with serving(answer) as peer:
        with client_of(peer) as client:
            await asyncio.gather(*(get(client) for _ in range(16)))
            async with asyncio.timeout(30):
                await peer.until_closed()
            await get(client)


async def test_a_connection_that_the_server_closed_meanwhile_is_replaced() -> None:
    async def script(request: Request) -> None:
        await answer(request)
        request.writer.close()

    async with serving(script) as peer:
        with client_of(peer) as client:
            for _ in range(3):
                await get(client)
                await peer.until_closed()
    assert peer.connections == 3


async def test_a_busy_program_does_not_write_to_a_connection_that_has_ended() -> None:
    """The event loop has not seen the end yet, and a write cannot be repeated."""
    closed = threading.Event()

    def serve(listener: socket.socket) -> None:
        body = json.dumps(claim()).encode()
        for _ in range(2):
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
                if not closed.is_set():
                    asked.wait(30)
            closed.set()

    asked = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        credentials = Credentials(server=f"http://127.0.0.1:{listener.getsockname()[1]}")
        client = AsyncClient(lambda: credentials)
        await get(client)
        asked.set()
        assert closed.wait(30)  # blocks the event loop meanwhile
        await client.resource(v1.ResourceClaim).delete("one", "default")
        client.close()
        thread.join(30)


async def test_a_connection_that_ends_under_a_request_is_replaced_if_that_only_reads() -> None:
    """The server sent no answer, because it closed the connection at the same moment."""
    second = False

    async def script(request: Request) -> None:
        nonlocal second
        if second:
            second = False
            request.writer.close()
            return
        second = True
        await answer(request)

    async with serving(script) as peer:
        with client_of(peer) as client:
            await get(client)
            await get(client)
            assert (peer.connections, len(peer.asked)) == (2, 3)
            with pytest.raises(Unreachable, match="DELETE"):
                await client.resource(v1.ResourceClaim).delete("one", "default")
            assert len(peer.asked) == 4


async def test_what_comes_without_a_request_is_nobodys_answer() -> None:
    poisoned = claim(resourceVersion="poisoned")

    async def script(request: Request) -> None:
        await answer(request)
        await Request(f"GET {CLAIM} HTTP/1.1", {}, b"", request.writer).answer(poisoned)

    async with serving(script) as peer:
        with client_of(peer) as client:
            for _ in range(3):
                found = await client.resource(v1.ResourceClaim).get("one", "default")
                assert found.metadata.resource_version == "5"
                await asyncio.sleep(0)


async def test_an_answer_that_was_not_read_to_its_end_ends_its_connection() -> None:
    async with serving(lambda request: request.answer(b"x" * 3_000_000)) as peer:
        with client_of(peer) as client:
            for _ in range(2):
                with pytest.raises(Unreachable, match="the limit is"):
                    await get(client)
    assert peer.connections == 2


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate for 127.0.0.1 and api.example.com, and its key, as PEM texts."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    folder = tmp_path_factory.mktemp("tls")
    names = "subjectAltName=IP:127.0.0.1,DNS:api.example.com"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += [
        "-keyout",
        str(folder / "key"),
        "-out",
        str(folder / "crt"),
        "-days",
        "2",
        "-subj",
        "/CN=x",
        "-addext",
        names,
    ]
    subprocess.run(command, check=True, capture_output=True)
    return (folder / "crt").read_text(), (folder / "key").read_text()


def server_context(pair: tuple[str, str], folder: Path, *, asks: bool = False) -> ssl.SSLContext:
    (folder / "pair").write_text("".join(pair))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "pair")
    if asks:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=pair[0])
    return context


async def test_tls_with_certificates_of_both(pair: tuple[str, str], tmp_path: Path) -> None:
    async with serving(answer, tls=server_context(pair, tmp_path, asks=True)) as peer:
        ours = {"ca": pair[0], "certificate": pair[0], "key": pair[1]}
        with client_of(peer, credentials=ours) as client:
            assert [await get(client), await get(client)] == ["one", "one"]
        assert peer.connections == 1
        with client_of(peer, credentials={"ca": pair[0]}) as client, pytest.raises(Unreachable):
            await get(client)


async def test_a_server_that_nobody_vouches_for(pair: tuple[str, str], tmp_path: Path) -> None:
    async with serving(answer, tls=server_context(pair, tmp_path)) as peer:
        with client_of(peer) as client, pytest.raises(Unreachable, match="'s certificate: self-signed certificate"):
            await get(client)
        other = {"ca": pair[0], "server_name": "other.example.com"}
        with client_of(peer, credentials=other) as client, pytest.raises(Unreachable, match="not valid for 'other"):
            await get(client)
        with client_of(peer, credentials={"ca": pair[0], "server_name": "api.example.com"}) as client:
            assert await get(client) == "one"
        with client_of(peer, credentials={"is_insecure": True}) as client:
            assert await get(client) == "one"
        assert len(peer.asked) == 2


async def test_a_server_without_tls_is_told_from_one_that_is_away() -> None:
    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with serving(answer) as peer, await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        tls = {"server": f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"}
        with client_of(peer, credentials=tls) as client, pytest.raises(Unreachable, match="does not speak TLS"):
            await get(client)


async def test_a_certificate_that_is_half_written_changes_nothing(pair: tuple[str, str], tmp_path: Path) -> None:
    """The client continues with the certificate that it has."""
    certificates = ["", pair[0][:100]]

    def read() -> Credentials:
        return Credentials(server=peer.url, ca=pair[0], certificate=certificates.pop(0), key=pair[1])

    async def script(request: Request) -> None:
        if certificates:
            await request.answer({"kind": "Status", "code": 401}, 401)
        else:
            await answer(request)

    async with serving(script, tls=server_context(pair, tmp_path)) as peer:
        client = AsyncClient(read, attempts=1, wait=no_wait)
        assert await get(client) == "one"
        client.close()
    assert not certificates


@pytest.mark.parametrize("lacks", ["a temporary folder", "descriptors"])
async def test_a_new_certificate_that_cannot_be_read_in_now_changes_nothing(
    lacks: str, pair: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet replaces its certificate from time to time. A full disk must not end the daemon then."""
    if lacks == "a temporary folder":
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    ours = Credentials(server="https://127.0.0.1", ca=pair[0], certificate=pair[0], key=pair[1])
    limit = no_more_descriptors() if lacks == "descriptors" else contextlib.nullcontext()
    with limit, pytest.raises(CredentialsError, match=r"No such file|Too many open files|System error"):
        Connections(ours)


async def test_a_new_authority_is_read_at_once(pair: tuple[str, str], tmp_path: Path) -> None:
    authorities = ["", pair[0]]
    async with serving(answer, tls=server_context(pair, tmp_path)) as peer:
        client = AsyncClient(lambda: Credentials(server=peer.url, ca=authorities.pop(0)), attempts=2, wait=no_wait)
        assert await get(client) == "one"
        client.close()
    assert authorities == []


async def no_wait(seconds: float) -> None:
    """Return at once."""


@pytest.mark.parametrize(
    "wrong",
    [
        {"server": "https://127.0.0.1", "ca": "no certificate"},
        {"server": "https://127.0.0.1", "certificate": "no certificate"},
        {"server": "http://127.0.0.1:99999"},
        {"server": "ftp://127.0.0.1"},
        {"server": "http://"},
        {"server": "http://127.0.0.1", "proxy": "socks5://127.0.0.1"},
    ],
)
async def test_credentials_that_cannot_be_used(wrong: dict[str, Any]) -> None:
    client = AsyncClient(lambda: Credentials(**wrong))
    with pytest.raises(CredentialsError):
        await get(client)
    client.close()


async def test_a_proxy_is_asked_for_the_whole_address() -> None:
    async with serving(answer) as proxy:
        here: dict[str, Any] = {
            "server": "http://api.example.com:8080/cluster",
            "proxy": proxy.url.replace("//", "//me:pass%3A@"),
        }
        client = AsyncClient(lambda: Credentials(**here))
        assert await get(client) == "one"
        client.close()
    (asked,) = proxy.asked
    assert asked.target == f"http://api.example.com:8080/cluster{CLAIM}"
    assert asked.headers["host"] == "api.example.com:8080"
    assert asked.headers["proxy-authorization"] == "Basic bWU6cGFzczo="


async def test_tls_goes_through_a_proxy(pair: tuple[str, str], tmp_path: Path) -> None:
    async with serving(answer, tls=server_context(pair, tmp_path)) as peer:

        async def connect(request: Request) -> None:
            assert (request.method, request.target) == ("CONNECT", "api.example.com:443")
            reader, writer = await asyncio.open_connection("127.0.0.1", int(peer.url.rpartition(":")[2]))
            await request.send(b"HTTP/1.1 200 Connected\r\n\r\n")
            back = asyncio.create_task(copy(reader, request.writer))
            try:
                await copy(request.reader, writer)
            finally:
                back.cancel()
                writer.transport.abort()

        async with serving(connect) as proxy:
            client = AsyncClient(
                lambda: Credentials(server="https://api.example.com", ca=pair[0], token="t", proxy=proxy.url)
            )
            assert await get(client) == "one"
            client.close()
            assert "authorization" not in proxy.asked[0].headers
            assert peer.asked[0].headers["authorization"] == "Bearer t"


async def test_a_proxy_that_refuses() -> None:
    async with serving(lambda request: request.answer({}, 407)) as proxy:
        client = AsyncClient(lambda: Credentials(server="https://api.example.com", proxy=proxy.url), attempts=1)
        with pytest.raises(Unreachable, match=r"does not connect us to api\.example\.com:443: 407"):
            await get(client)
        client.close()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def test_after_the_end_nothing_is_asked_and_what_is_under_way_has_a_moment() -> None:
    slow = asyncio.Event()

    async def script(request: Request) -> None:
        await slow.wait()
        await answer(request)

    async with serving(script) as peer:
        with client_of(peer) as client:
            under_way = asyncio.create_task(get(client))
            await peer.until_asked(1)
            client.close()
            with pytest.raises(Unreachable, match="closed"):
                await get(client)
            slow.set()
            assert await under_way == "one"
            await peer.until_closed()


async def test_what_is_under_way_has_no_more_than_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resourceapi.client.http.GRACE", 0.1)
    async with serving(drip) as peer:
        with client_of(peer) as client:
            under_way = asyncio.create_task(get(client))
            await peer.until_asked(1)
            client.close()
            with pytest.raises(Unreachable):
                await under_way


async def test_what_is_under_way_with_former_credentials_ends_with_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resourceapi.client.http.GRACE", 0.1)
    monkeypatch.setattr("resourceapi.client.http.REREAD_AFTER", 0.0)
    names = ["first", "second"]

    async def script(request: Request) -> None:
        await (drip(request) if names else answer(request))

    async with serving(script) as peer:
        client = AsyncClient(
            lambda: Credentials(server=peer.url, server_name=names.pop(0)), attempts=1, timeout=float("inf")
        )
        under_way = asyncio.create_task(get(client))
        await peer.until_asked(1)
        assert await get(client) == "one"
        client.close()
        async with asyncio.timeout(30):
            with pytest.raises(Unreachable):
                await under_way
        await peer.until_closed()


async def test_a_wait_between_two_attempts_ends_with_the_client() -> None:
    async with serving(lambda request: request.answer({}, 429, retry_after="30")) as peer:
        with client_of(peer, attempts=3) as client:
            waiting = asyncio.create_task(get(client))
            await peer.until_asked(1)
            client.close()
            with pytest.raises(Unreachable, match="closed"):
                await waiting


async def test_threads_that_wait_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resourceapi.client.blocking.GRACE", 0.1)
    async with serving(drip) as peer:
        client = Client(lambda: Credentials(server=peer.url), timeout=3600.0)
        claims = client.resource(v1.ResourceClaim)
        waiting = [asyncio.create_task(asyncio.to_thread(claims.get, "one", "default")) for _ in range(2)]
        await peer.until_asked(2)
        client.close()
        client.close()
        for task in waiting:
            with pytest.raises(Unreachable):
                await task
    with pytest.raises(Unreachable, match="closed"):
        claims.list()
    with pytest.raises(Unreachable, match="closed"):
        next(iter(claims.watch()))


async def test_a_server_that_drips_does_not_keep_a_process_from_ending() -> None:
    """Neither an open client nor a thread that waits for it prevents the exit."""
    program = textwrap.dedent(
        """
        import sys, threading
        from resourceapi.client import Credentials
        from resourceapi.client.blocking import Client
        from resourceapi.objects import v1
        client = Client(lambda: Credentials(server=sys.argv[1]), timeout=3600.0)
        ask = lambda: client.resource(v1.ResourceClaim).get("one", "default")
        threading.Thread(target=ask, daemon=True).start()
        print("asking", flush=True)
        sys.stdin.readline()
        """
    )
    async with serving(drip) as peer:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, peer.url, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        await peer.until_asked(1)
        await process.communicate(b"end\n")
        assert process.returncode == 0


async def test_a_name_cannot_be_looked_up_where_no_thread_is_left() -> None:
    client = AsyncClient(lambda: Credentials(server="http://localhost:1"), attempts=1)
    with no_more_threads(), pytest.raises(Unreachable, match="localhost cannot be looked up: can't start new thread"):
        await get(client)
    client.close()


async def test_a_server_that_is_away_in_words() -> None:
    with socket.socket() as unused:  # bound, so that no other process can use the port, and not listening
        unused.bind(("127.0.0.1", 0))
        credentials = Credentials(server=f"http://127.0.0.1:{unused.getsockname()[1]}")
        client = AsyncClient(lambda: credentials, attempts=1)
        with pytest.raises(Unreachable, match=r"connect to 127\.0\.0\.1:[0-9]+: Connection refused$"):
            await get(client)
        client.close()
