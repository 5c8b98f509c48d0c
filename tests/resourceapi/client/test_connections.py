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


async def test_connections_are_reused_up_to_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resourceapi.client.request_queue.QUEUE_SECONDS", 60.0)  # the machine can be busy
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


async def test_idle_connections_are_closed_after_idle_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resourceapi.client.connections.IDLE_SECONDS", 0.2)
    async with serving(answer) as peer:
        with client_of(peer) as client:
            await asyncio.gather(*(get(client) for _ in range(16)))
            async with asyncio.timeout(30):
                await peer.until_closed()
            await get(client)


async def test_connection_closed_by_server_is_replaced() -> None:
    async def script(request: Request) -> None:
        await answer(request)
        request.writer.close()

    async with serving(script) as peer:
        with client_of(peer) as client:
            for _ in range(3):
                await get(client)
                await peer.until_closed()
    assert peer.connections == 3


async def test_write_is_not_sent_on_closed_connection_while_loop_is_busy() -> None:
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


async def test_read_is_repeated_if_connection_closes_but_delete_is_not() -> None:
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


async def test_unsolicited_answer_is_not_used_for_next_request() -> None:
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


async def test_partly_read_answer_closes_its_connection() -> None:
    async with serving(lambda request: request.answer(b"x" * 3_000_000)) as peer:
        with client_of(peer) as client:
            for _ in range(2):
                with pytest.raises(Unreachable, match="the limit is"):
                    await get(client)
    assert peer.connections == 2


@pytest.fixture(scope="session")
def tls_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
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


def server_context(
    tls_pair: tuple[str, str], folder: Path, *, requires_client_certificate: bool = False
) -> ssl.SSLContext:
    (folder / "pair").write_text("".join(tls_pair))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "pair")
    if requires_client_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=tls_pair[0])
    return context


async def test_client_and_server_certificates_are_verified(tls_pair: tuple[str, str], tmp_path: Path) -> None:
    async with serving(answer, tls=server_context(tls_pair, tmp_path, requires_client_certificate=True)) as peer:
        ours = {"ca": tls_pair[0], "certificate": tls_pair[0], "key": tls_pair[1]}
        with client_of(peer, credentials=ours) as client:
            assert [await get(client), await get(client)] == ["one", "one"]
        assert peer.connections == 1
        with client_of(peer, credentials={"ca": tls_pair[0]}) as client, pytest.raises(Unreachable):
            await get(client)


async def test_untrusted_server_certificate_is_refused(tls_pair: tuple[str, str], tmp_path: Path) -> None:
    async with serving(answer, tls=server_context(tls_pair, tmp_path)) as peer:
        with client_of(peer) as client, pytest.raises(Unreachable, match="'s certificate: self-signed certificate"):
            await get(client)
        other = {"ca": tls_pair[0], "server_name": "other.example.com"}
        with client_of(peer, credentials=other) as client, pytest.raises(Unreachable, match="not valid for 'other"):
            await get(client)
        with client_of(peer, credentials={"ca": tls_pair[0], "server_name": "api.example.com"}) as client:
            assert await get(client) == "one"
        with client_of(peer, credentials={"is_insecure": True}) as client:
            assert await get(client) == "one"
        assert len(peer.asked) == 2


async def test_warning_about_an_unverified_certificate_lasts_while_its_server_is_used(
    tls_pair: tuple[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resourceapi.client.http.REREAD_AFTER", 0.0)
    tls = server_context(tls_pair, tmp_path)
    async with serving(answer, tls=tls) as one, serving(answer, tls=tls) as other:
        servers = [one.url, other.url, other.url]
        client = AsyncClient(lambda: Credentials(server=servers.pop(0), is_insecure=True), attempts=1, wait=no_wait)

        def current() -> list[bool]:
            return [x.__dict__["is_current"]() for x in caplog.records if "is not verified" in x.getMessage()]

        await get(client)
        assert current() == [True]
        await get(client)
        await get(client)
        assert current() == [False, True]
        client.close()
        assert current() == [False, False]


async def test_server_without_tls_is_named_in_the_error() -> None:
    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with serving(answer) as peer, await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        tls = {"server": f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"}
        with client_of(peer, credentials=tls) as client, pytest.raises(Unreachable, match="does not speak TLS"):
            await get(client)


async def test_incomplete_client_certificate_keeps_previous_one(tls_pair: tuple[str, str], tmp_path: Path) -> None:
    """The client continues with the certificate that it has."""
    certificates = ["", tls_pair[0][:100]]

    def read() -> Credentials:
        return Credentials(server=peer.url, ca=tls_pair[0], certificate=certificates.pop(0), key=tls_pair[1])

    async def script(request: Request) -> None:
        if certificates:
            await request.answer({"kind": "Status", "code": 401}, 401)
        else:
            await answer(request)

    async with serving(script, tls=server_context(tls_pair, tmp_path)) as peer:
        client = AsyncClient(read, attempts=1, wait=no_wait)
        assert await get(client) == "one"
        client.close()
    assert not certificates


@pytest.mark.parametrize("missing_resource", ["a temporary folder", "descriptors"])
async def test_unloadable_client_certificate_is_a_credentials_error(
    missing_resource: str, tls_pair: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet replaces its certificate from time to time. A full disk must not end the daemon then."""
    if missing_resource == "a temporary folder":
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    ours = Credentials(
        server="https://127.0.0.1",
        ca=tls_pair[0],
        certificate=tls_pair[0],
        key=tls_pair[1],
    )
    limit = no_more_descriptors() if missing_resource == "descriptors" else contextlib.nullcontext()
    with limit, pytest.raises(CredentialsError, match=r"No such file|Too many open files|System error"):
        Connections(ours)


async def test_replaced_certificate_authority_is_read_before_retry(tls_pair: tuple[str, str], tmp_path: Path) -> None:
    authorities = ["", tls_pair[0]]
    async with serving(answer, tls=server_context(tls_pair, tmp_path)) as peer:
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
async def test_unusable_credentials_are_refused(wrong: dict[str, Any]) -> None:
    client = AsyncClient(lambda: Credentials(**wrong))
    with pytest.raises(CredentialsError):
        await get(client)
    client.close()


async def test_http_proxy_gets_absolute_url_and_credentials() -> None:
    async with serving(answer) as proxy:
        proxied: dict[str, Any] = {
            "server": "http://api.example.com:8080/cluster",
            "proxy": proxy.url.replace("//", "//me:pass%3A@"),
        }
        client = AsyncClient(lambda: Credentials(**proxied))
        assert await get(client) == "one"
        client.close()
    (asked,) = proxy.asked
    assert asked.target == f"http://api.example.com:8080/cluster{CLAIM}"
    assert asked.headers["host"] == "api.example.com:8080"
    assert asked.headers["proxy-authorization"] == "Basic bWU6cGFzczo="


async def test_tls_connects_through_proxy_tunnel(tls_pair: tuple[str, str], tmp_path: Path) -> None:
    async with serving(answer, tls=server_context(tls_pair, tmp_path)) as peer:

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
                lambda: Credentials(server="https://api.example.com", ca=tls_pair[0], token="t", proxy=proxy.url)
            )
            assert await get(client) == "one"
            client.close()
            assert "authorization" not in proxy.asked[0].headers
            assert peer.asked[0].headers["authorization"] == "Bearer t"


async def test_proxy_refusal_is_reported() -> None:
    async with serving(lambda request: request.answer({}, 407)) as proxy:
        client = AsyncClient(lambda: Credentials(server="https://api.example.com", proxy=proxy.url), attempts=1)
        with pytest.raises(Unreachable, match=r"does not connect us to api\.example\.com:443: 407"):
            await get(client)
        client.close()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def test_closed_client_refuses_requests_but_finishes_started_one() -> None:
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


async def test_started_request_ends_after_grace_period(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resourceapi.client.http.GRACE", 0.1)
    async with serving(drip) as peer:
        with client_of(peer) as client:
            under_way = asyncio.create_task(get(client))
            await peer.until_asked(1)
            client.close()
            with pytest.raises(Unreachable):
                await under_way


async def test_close_ends_request_with_previous_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_close_ends_wait_before_retry() -> None:
    async with serving(lambda request: request.answer({}, 429, retry_after="30")) as peer:
        with client_of(peer, attempts=3) as client:
            waiting = asyncio.create_task(get(client))
            await peer.until_asked(1)
            client.close()
            with pytest.raises(Unreachable, match="closed"):
                await waiting


async def test_close_ends_requests_of_waiting_threads(monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_process_exits_during_unfinished_request() -> None:
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


async def test_name_lookup_without_free_thread_is_unreachable() -> None:
    client = AsyncClient(lambda: Credentials(server="http://localhost:1"), attempts=1)
    with no_more_threads(), pytest.raises(Unreachable, match="localhost cannot be looked up: can't start new thread"):
        await get(client)
    client.close()


async def test_refused_connection_error_names_the_address() -> None:
    with socket.socket() as unused:  # bound, so that no other process can use the port, and not listening
        unused.bind(("127.0.0.1", 0))
        credentials = Credentials(server=f"http://127.0.0.1:{unused.getsockname()[1]}")
        client = AsyncClient(lambda: credentials, attempts=1)
        with pytest.raises(Unreachable, match=r"connect to 127\.0\.0\.1:[0-9]+: Connection refused$"):
            await get(client)
        client.close()
