"""A server that writes raw bytes: a test decides about each answer, valid or not."""

import asyncio
import contextlib
import json
import ssl
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from resourceapi.client import AsyncClient, Credentials, Limits

Json = dict[str, Any]
API = "/apis/resource.k8s.io/v1"
CLAIM = f"{API}/namespaces/default/resourceclaims/one"


class Request:
    """A client's request, with methods to answer it."""

    def __init__(self, line: str, headers: Mapping[str, str], body: bytes, writer: asyncio.StreamWriter) -> None:
        self.method, self.target, _ = line.split(" ")
        self.path = urlsplit(self.target).path
        self.query = {name: values[0] for name, values in parse_qs(urlsplit(self.target).query).items()}
        self.headers, self.body = headers, body
        self.reader: asyncio.StreamReader
        self.writer = writer

    @property
    def is_watch(self) -> bool:
        """Return whether the request is a watch, not a list."""
        return self.query.get("watch") == "true"

    async def answer(self, value: object = None, code: int = 200, **headers: str) -> None:
        """Answer with JSON, or with bytes unchanged."""
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        lines = [f"HTTP/1.1 {code} X", f"content-length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {text}" for name, text in headers.items()]
        await self.send("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)

    async def stream(self, *pieces: bytes) -> None:
        """Start an endless answer with these pieces."""
        await self.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for piece in pieces:
            await self.piece(piece)

    async def piece(self, data: bytes) -> None:
        """Send another piece of a stream."""
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def end(self) -> None:
        """End a stream."""
        await self.send(b"0\r\n\r\n")

    async def send(self, data: bytes) -> None:
        """Send raw bytes."""
        self.writer.write(data)
        await self.writer.drain()


Script = Callable[[Request], Awaitable[None]]


class Peer:
    """A running server: its address, the requests, and the number of connections."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.url = ""
        self.asked: list[Request] = []
        self.connections = 0
        self.open: set[asyncio.StreamWriter] = set()
        self._changed = asyncio.Condition()

    async def until_asked(self, count: int) -> None:
        """Wait until so many requests have arrived."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.asked) >= count)

    async def until_closed(self) -> None:
        """Wait until no connection is open."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self.open)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = {name.lower(): text.strip() for name, _, text in (line.partition(":") for line in head[1:])}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.asked.append(Request(head[0], headers, body, writer))
                self.asked[-1].reader = reader
                async with self._changed:
                    self._changed.notify_all()
                await self._script(self.asked[-1])
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.open.discard(writer)
            writer.transport.abort()
            async with self._changed:
                self._changed.notify_all()


@contextlib.asynccontextmanager
async def serving(script: Script, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Peer]:
    """Run a server."""
    peer = Peer(script)
    server = await asyncio.start_server(peer._serve, "127.0.0.1", 0, ssl=tls)
    peer.url = f"http{'s' if tls else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield peer
    finally:
        server.close()
        for writer in peer.open:
            writer.transport.abort()


class Waits(list[float]):
    """Records the waits of a client, without waiting."""

    async def __call__(self, seconds: float) -> None:
        """Record the length of a wait."""
        self.append(seconds)
        await asyncio.sleep(0)


@contextlib.contextmanager
def client_of(peer: Peer, *, credentials: Json | None = None, **options: Any) -> Iterator[AsyncClient]:
    """A client with a single attempt and a short timeout. The arguments are those of AsyncClient."""
    found = Credentials(**{"server": peer.url, **(credentials or {})})
    defaults: Json = {"attempts": 1, "timeout": 30.0, "limits": Limits(object=1 << 20, collection=4 << 20)}
    client = AsyncClient(lambda: found, **{**defaults, **options})
    try:
        yield client
    finally:
        client.close()


def claim(**metadata: str) -> Json:
    """A claim as a server stores it."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "one", "namespace": "default", "uid": "u", "resourceVersion": "5"} | metadata,
    }


def event(change: str, value: object) -> bytes:
    """One line of a watch."""
    return json.dumps({"type": change, "object": value}).encode() + b"\n"


def claim_list(*items: Json, **metadata: str) -> Json:
    """A list of claims."""
    found = {"resourceVersion": "5", **metadata}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimList", "metadata": found, "items": list(items)}


def status(code: int, **members: object) -> Json:
    """A Status as in a server's refusals."""
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "no", **members}


async def drip(request: Request) -> None:
    """Send an endless answer, one byte at a time."""
    await request.stream()
    while True:
        await request.piece(b" ")
        await asyncio.sleep(0.01)


@contextlib.contextmanager
def memory(most: int) -> Iterator[None]:
    """Fail if the peak memory use exceeds this number of bytes."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()
