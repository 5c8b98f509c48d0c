"""The state of the daemon over HTTP: for Prometheus, and for the kubelet's probes. On the loop, without a thread.

| GET | answers |
|---|---|
| /metrics | 200 and the metrics (see metrics.py) |
| /livez | 200: the loop turns |
| /readyz | 200, or 503 and a line for each reason why the daemon is not ready |
| / | the status page, if it is enabled (package page); its connections have their own limits |

HEAD is answered like GET, without the body, which some load balancers need.

Clients are not trusted. So everything has a limit: connections, the bytes of a request, and the duration of a
connection, also for clients that do not read. A connection carries one request, of which only the first line is used.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from grpcunix.accepting import ASYNCIO_BACKLOG, set_kernel_backlog
from telemetry.exposition import CONTENT_TYPE, Metric, render

if TYPE_CHECKING:
    from nodeplug.page.site import Site

MAX_CONNECTIONS = 64
MAX_BYTES = 8 * 1024
"""The most bytes of a request, up to the empty line."""
REQUEST_TIMEOUT = 5.0
"""The longest time that a connection lasts."""
_MAX_DISCARDED = 64 * 1024  # the most bytes after the request
_RETRY = 5.0  # seconds until the next attempt to listen
_END_OF_HEAD = b"\r\n\r\n"
_PLAIN = "text/plain; charset=utf-8"
log = logging.getLogger("nodeplug")


class StatusServer:
    """Answers while `run` runs. `metrics` and `not_ready` are called on the loop; no reason means ready.

    `listening` is set while clients can connect, at `port`: a port that the system chooses if the address has port 0.
    """

    def __init__(
        self,
        address: str,
        metrics: Callable[[], Iterable[Metric]],
        not_ready: Callable[[], Sequence[str]],
        page: "Callable[[], Site] | None" = None,
    ) -> None:
        """Prepare to listen at `address`: `HOST:PORT`, an IPv6 address in brackets; without a host, on all addresses.

        An address that begins with a slash is the path of a socket. `page` makes the page at the first request for it.
        """
        host, _, port = ("", "", "0") if address.startswith("/") else address.rpartition(":")
        self._address, self._host, self.port = address, host.strip("[]") or None, int(port)
        self._metrics, self._not_ready = metrics, not_ready
        self._make_page = page
        self._page: Site | None = None
        self._open: set[_Connection] = set()
        self.listening = asyncio.Event()

    async def run(self) -> None:
        """Answer until cancelled. If listening fails, it is tried again: other parts need not end for that.

        At the end the socket's file is removed, unless it belongs to another instance that has replaced it.
        """
        server = await self._listen()
        socket_file = _identity(self._address)
        try:
            if not self._address.startswith("/"):
                self.port = server.sockets[0].getsockname()[1]
            self.listening.set()
            await asyncio.get_running_loop().create_future()
        finally:
            self.listening.clear()
            server.close()
            if socket_file is not None and _identity(self._address) == socket_file:  # Python 3.13 does this itself
                with contextlib.suppress(OSError):
                    os.unlink(self._address)
            for connection in list(self._open):
                connection.abort()
            if self._page is not None:
                await self._page.close()

    async def _listen(self) -> asyncio.Server:
        level, is_served = logging.ERROR, False
        extra = {"is_current": lambda: not is_served}
        while not is_served:
            try:
                server = await self._server()
                is_served = True
            except (OSError, UnicodeError, RuntimeError) as error:  # an invalid name; no thread for its resolution
                text = "cannot serve metrics at %s: %s; nodeplug tries again"
                log.log(level, text, self._address, _in_words(error), extra=extra)
                level = logging.DEBUG
                await asyncio.sleep(_RETRY)
        return server

    async def _server(self) -> asyncio.Server:
        loop = asyncio.get_running_loop()

        def connection() -> _Connection:
            return _Connection(self._open, self._answer, self._shows if self._make_page is not None else None)

        if self._address.startswith("/"):
            # replaces one that was left
            server = await loop.create_unix_server(connection, self._address, backlog=ASYNCIO_BACKLOG)
        else:
            server = await loop.create_server(connection, self._host, self.port, backlog=ASYNCIO_BACKLOG)
        try:
            set_kernel_backlog(server)
        except OSError:
            server.close()
            raise
        return server

    def _shows(self, line: bytes, head: bytes, transport: asyncio.Transport) -> bool:
        """Pass a request for the page to the page; return whether it is one."""
        assert self._make_page is not None
        if line.partition(b" ")[2].partition(b" ")[0].partition(b"?")[0] not in (b"/", b"/live"):
            return False
        if self._page is None:
            self._page = self._make_page()
        self._page.take_over(transport, head)
        return True

    def _answer(self, line: bytes) -> bytes:
        """Return the answer to a request line; for HEAD, the answer to GET without the body."""
        method, _, rest = line.partition(b" ")
        answer = self._response(method, rest)
        return answer[: answer.index(_END_OF_HEAD) + len(_END_OF_HEAD)] if method == b"HEAD" else answer

    def _response(self, method: bytes, rest: bytes) -> bytes:
        target, _, version = rest.rpartition(b" ")
        if not version.startswith(b"HTTP/1.") or not target.startswith(b"/"):
            return _response("400 Bad Request", "not HTTP/1.1\n")
        path = target.partition(b"?")[0]
        if path not in (b"/metrics", b"/livez", b"/readyz"):
            page = ", and the page at /" if self._make_page is not None else ""
            return _response("404 Not Found", f"there are /metrics, /livez and /readyz{page}\n")
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", "only GET and HEAD\n", allow="GET, HEAD")
        if path == b"/metrics":
            return _response("200 OK", render(self._metrics()), kind=CONTENT_TYPE)
        if path == b"/readyz" and (reasons := self._not_ready()):
            return _response("503 Service Unavailable", "".join(f"not ready: {reason}\n" for reason in reasons))
        return _response("200 OK", "ok\n")


def _identity(address: str) -> tuple[int, int] | None:
    """Return device and inode of the socket file at an address; None without a file, or if it is not a path."""
    if not address.startswith("/"):
        return None
    try:
        found = os.lstat(address)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class _Connection(asyncio.Protocol):
    """One request and its answer. Data after the request is discarded."""

    def __init__(
        self,
        others: set["_Connection"],
        answer: Callable[[bytes], bytes],
        shows: Callable[[bytes, bytes, asyncio.Transport], bool] | None,
    ) -> None:
        self._open, self._answer, self._shows = others, answer, shows
        self._transport: asyncio.Transport
        self._received = bytearray()
        self._is_answered = False
        self._thrown_away = 0
        self._timer: asyncio.TimerHandle | None = None

    def abort(self) -> None:
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if len(self._open) >= MAX_CONNECTIONS:
            transport.abort()
            return
        self._open.add(self)
        self._timer = asyncio.get_running_loop().call_later(REQUEST_TIMEOUT, transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._is_answered:
            self._thrown_away += len(data)
            if self._thrown_away > _MAX_DISCARDED:
                self._transport.abort()
            return
        self._received += data
        head = bytes(self._received[:MAX_BYTES])
        if _END_OF_HEAD in head or b"\n\n" in head:
            line = head.partition(b"\n")[0].rstrip(b"\r")
            if self._shows is not None and self._shows(line, head, self._transport):
                self.connection_lost(None)  # the page owns the connection now
            else:
                self._send(self._answered(line))
        elif len(self._received) > MAX_BYTES:
            self._send(_response("431 Request Header Fields Too Large", f"more than {MAX_BYTES} bytes\n"))

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._open.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def _answered(self, line: bytes) -> bytes:
        try:
            return self._answer(line)
        except Exception:  # a defect in the metrics must not make the probes fail
            log.exception("the status could not be read")
            return _response("500 Internal Server Error", "see the log\n")

    def _send(self, answer: bytes) -> None:
        """Send the answer. The client closes the connection when it has read all; otherwise the timer does."""
        self._is_answered = True
        self._received.clear()
        self._transport.write(answer)
        self._transport.write_eof()


def _response(status: str, body: str, *, kind: str = _PLAIN, allow: str = "") -> bytes:
    content = body.encode()
    head = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(content)}", "Connection: close"]
    head += [f"Allow: {allow}"] if allow else []
    return "\r\n".join((*head, "", "")).encode() + content


def _in_words(error: Exception) -> str:
    """Return why listening fails, without asyncio's text for the address, which the message contains already."""
    if isinstance(error, OSError) and error.errno and error.errno > 0:  # an unresolvable name has a text of its own
        return os.strerror(error.errno)
    return getattr(error, "strerror", None) or str(error)
