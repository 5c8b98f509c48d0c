"""The page over HTTP: `/` is the document, `/live` its data as server-sent events.

Any client may be able to connect, and a page of another site can make a browser connect. So:

1. A request's Host must be an address or `localhost`: another name of this machine (DNS rebinding) is refused. No
   answer can be read, framed or run by a page of another site.
2. At most `MAX_VIEWERS` clients have the page open. A client that does not read is dropped after `SECONDS_TO_READ`;
   until then it has at most one message, of which `_PIECE` bytes are buffered.
3. A connection carries one request, and a client that sends more is dropped.
"""

import asyncio
import contextlib
import importlib
import ipaddress
import logging
from functools import partial
from typing import Any, Final

from msgspec import Struct

from nodeplug.control.running import RunningDaemon
from nodeplug.page.document import document
from nodeplug.page.feed import Ask, Feed

MAX_VIEWERS: Final = 8
MAX_CONNECTIONS: Final = 32
"""The most connections that are answered at a time, including those of viewers."""
SECONDS_TO_READ: Final = 20.0
"""The time limit for a piece of a message."""
_PIECE = 64 * 1024  # bytes
log = logging.getLogger("nodeplug")
_HEADERS = (
    "Cache-Control: no-store",
    "Connection: close",
    "Cross-Origin-Opener-Policy: same-origin",
    "Cross-Origin-Resource-Policy: same-origin",
    "Referrer-Policy: no-referrer",
    "X-Content-Type-Options: nosniff",
    "X-Frame-Options: DENY",
)


class Request(Struct, frozen=True):
    """A parsed request; `path` is the target without the query."""

    method: str
    path: str
    host: str


def parsed(head: bytes) -> Request | None:
    """Return the request in a head that ends with its empty line; None if it is not HTTP/1.x with one Host."""
    lines = head.decode("latin-1").replace("\r\n", "\n").split("\n")
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1.") or not parts[1].startswith("/"):
        return None
    hosts = [line.partition(":")[2].strip() for line in lines[1:] if line.partition(":")[0].lower() == "host"]
    return Request(parts[0], parts[1].partition("?")[0], hosts[0]) if len(hosts) == 1 else None


def is_address_or_localhost(host: str) -> bool:
    """Return whether a Host header is an address or localhost, and not a name that others can point at this machine."""
    name, _, port = host.rpartition(":") if not host.endswith("]") and ":" in host else (host, "", "")
    if port and not port.isdecimal():
        return False
    if name.lower() == "localhost":
        return True
    try:
        ipaddress.ip_address(name[1:-1] if name.startswith("[") and name.endswith("]") else name)
    except ValueError:
        return False
    return True


class Site:
    """Answers requests for the page. Every path begins with `prefix`, which can be a secret.

    `is_local`: only for clients on this machine.
    """

    def __init__(self, feed: Feed, prefix: str = "", *, is_local: bool = False) -> None:
        """Prepare; the daemon is not asked yet."""
        self._feed = feed
        self._prefix = prefix
        self._is_local = is_local
        self._connections: set[asyncio.Task[None]] = set()
        self._viewers: set[asyncio.Task[None]] = set()

    def take_over(self, transport: asyncio.Transport, head: bytes) -> None:
        """Answer a request, starting with its head, on a connection that another server accepted."""
        if len(self._connections) >= MAX_CONNECTIONS:
            transport.abort()
            return
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_PIECE, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        task = loop.create_task(self._respond_and_log(head, reader, writer), name="page")
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _respond_and_log(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self.respond(head, reader, writer)
        except (OSError, TimeoutError):
            pass  # the client has gone
        except Exception:  # a defect of ours must not be silent
            log.exception("the page could not be shown")

    async def respond(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and close the connection. Raises OSError and TimeoutError if the client does not read."""
        this = asyncio.current_task()
        assert this is not None
        try:
            request = parsed(head)
            has_body = request is None or request.method != "HEAD"
            refuse = partial(_plain, writer, has_body)
            if request is None:
                await refuse("400 Bad Request", "not HTTP/1.1 with one Host")
            elif not is_address_or_localhost(request.host):
                await refuse("421 Misdirected Request", "use the address, or localhost")
            elif self._is_local and not is_loopback(writer.get_extra_info("peername")[0]):
                await refuse("403 Forbidden", "with statusPage: local only clients on the node can see this page")
            elif request.path not in (f"{self._prefix}/", f"{self._prefix}/live"):
                await refuse("404 Not Found", "there is / here")
            elif request.method not in ("GET", "HEAD"):
                await refuse("405 Method Not Allowed", "only GET and HEAD", "Allow: GET, HEAD")
            elif not request.path.endswith("/live"):
                await self._document(writer, has_body)
            elif has_body:
                await self._live(this, reader, writer)
            else:
                await _send(writer, _STREAM)
                await _finish(writer)
        finally:
            writer.transport.abort()

    async def close(self) -> None:
        """End all connections."""
        busy = list(self._viewers | self._connections)
        for each in busy:
            each.cancel()
        if busy:
            await asyncio.wait(busy)

    async def _document(self, writer: asyncio.StreamWriter, has_body: bool) -> None:
        found = document()
        policy = f"Content-Security-Policy: {found.policy}"
        await _send(
            writer, _head("200 OK", "text/html; charset=utf-8", f"Content-Length: {len(found.content)}", policy)
        )
        if has_body:
            await _send(writer, found.content)
        await _finish(writer)

    async def _live(self, this: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._viewers) >= MAX_VIEWERS:
            await _plain(
                writer,
                True,
                "503 Service Unavailable",
                f"{MAX_VIEWERS} clients have the page open already",
                "Retry-After: 10",
            )
            return
        self._viewers.add(this)
        streaming = asyncio.create_task(self._stream(writer))
        leaving = asyncio.create_task(reader.read(1))
        try:
            await asyncio.wait((streaming, leaving), return_when=asyncio.FIRST_COMPLETED)
            if streaming.done():
                await streaming
        finally:
            self._viewers.discard(this)
            for each in (streaming, leaving):
                each.cancel()
            await asyncio.gather(streaming, leaving, return_exceptions=True)

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(_PIECE)
        await _send(writer, _STREAM)
        async with contextlib.aclosing(self._feed.messages()) as messages:
            async for message in messages:
                await _send(writer, message)


def is_loopback(peer: str) -> bool:
    """Return whether an address is a loopback address."""
    address = ipaddress.ip_address(peer.partition("%")[0])
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def ask_in_process(running: RunningDaemon) -> Ask:
    """Return a function that asks the daemon of this process."""

    async def ask(question: Struct, kind: type[Any]) -> Any:
        del kind
        return await importlib.import_module(type(question).__module__).answer(running, question)

    return ask


def _head(status: str, kind: str, *more: str) -> bytes:
    return "\r\n".join((f"HTTP/1.1 {status}", f"Content-Type: {kind}", *_HEADERS, *more, "", "")).encode()


_STREAM: Final = _head("200 OK", "text/event-stream")


async def _plain(writer: asyncio.StreamWriter, has_body: bool, status: str, text: str, *more: str) -> None:
    content = f"{text}\n".encode()
    length = f"Content-Length: {len(content)}"
    await _send(writer, _head(status, "text/plain; charset=utf-8", length, *more) + (content if has_body else b""))
    await _finish(writer)


async def _send(writer: asyncio.StreamWriter, content: bytes) -> None:
    for start in range(0, len(content), _PIECE):
        writer.write(content[start : start + _PIECE])
        async with asyncio.timeout(SECONDS_TO_READ):
            await writer.drain()


async def _finish(writer: asyncio.StreamWriter) -> None:
    writer.close()
    async with asyncio.timeout(SECONDS_TO_READ):
        await writer.wait_closed()
