"""HTTP/1.1 connections to one server, on asyncio: kept open between requests, limited in number and in memory.

http1.py implements the protocol; this module handles sockets, TLS, proxies and the reuse of connections. It does not
use a library for these reasons. Measured: a GET of a claim over TLS without the rest of the client (Python 3.11, RSS in
addition to asyncio and ssl, which are loaded anyway; two figures are two rounds):

| client | RSS import / after 50 requests | p50 | CPU a request | 8 at once |
|---|---|---|---|---|
| urllib3 in threads | 4.7 / 6.3 MiB | 0.90 ms | 0.85 ms | 6 to 10 ms |
| http.client in threads | 1.3 / 3.4 MiB | 0.62 to 1.0 ms | 0.52 to 0.83 ms | 4.6 to 5.4 ms |
| h11 on asyncio | 0.5 / 3.1 MiB | 0.45 to 0.63 ms | 0.31 to 0.47 ms | 2.3 to 3.6 ms |
| a parser of our own on asyncio | 0 / 2.6 MiB | 0.22 to 0.70 ms | 0.14 to 0.36 ms | 2.0 ms |
| httpx | 4.7 / 8.7 MiB | 1.9 to 2.2 ms | 2.0 ms | 21 to 24 ms |
| aiohttp | 13.1 / 14.0 MiB | 0.43 to 0.60 ms | 0.30 to 0.44 ms | 2.7 to 3.0 ms |

With cold processor caches, the 165 Python calls of h11 are a tenth of the cost of a claim. httptools takes 0.3 MiB, has
no size limits, and has no way to signal the connection's end, which completes some bodies and truncates others. So
http1.py has its own few, strict framing rules; tests compare its results with those of h11.
Callers must call everything here within an `asyncio.timeout`, because nothing here limits the time.
"""

import asyncio
import base64
import os
import socket
import ssl
import tempfile
import urllib.parse
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar

from resourceapi.client.credentials import Credentials, CredentialsError
from resourceapi.client.errors import ClientError, InvalidAnswer, Unreachable
from resourceapi.client.http1 import Answers, Head, ProtocolError, request
from resourceapi.client.wire import Wire, dial

T = TypeVar("T")

MAX_IDLE_CONNECTIONS = 8  # connections that are kept for the next request
IDLE_SECONDS = 30.0  # how long they are kept; they cost memory here and a slot on the server
LARGE = 64 * 1024  # bytes above which a body is large


class Response:
    """The head of an answer, and its body as it arrives. The caller must `close` it."""

    def __init__(self, head: Head, connection: "_Connection", close: Callable[["_Connection"], None]) -> None:
        self.status = head.status
        self.headers = head.headers
        self._connection = connection
        self._close = close

    async def next_piece(self) -> bytes:
        """Return the next piece of the body, empty at its end. Raises Unreachable if the body is truncated."""
        return await self._connection.next_piece()

    async def read(self, max_bytes: int, large: Callable[[], Awaitable[object]] | None = None) -> bytearray:
        """Return the body; awaits `large` once when the body exceeds `LARGE` bytes.

        Raises InvalidAnswer for more than `max_bytes` bytes, and Unreachable.
        """
        length = self.headers.get("content-length", "")
        if length and int(length) > max_bytes:
            raise InvalidAnswer(f"the answer has {length} bytes, the limit is {max_bytes}")
        body = bytearray()
        try:
            while piece := await self.next_piece():
                body += piece
                if len(body) > max_bytes:
                    raise InvalidAnswer(f"the answer has more than {max_bytes} bytes")
                if large is not None and len(body) > LARGE:
                    await large()
                    large = None
        except BaseException:
            body.clear()  # the error's traceback keeps this frame, and with it the body, in memory
            raise
        return body

    def close(self) -> None:
        """Return the connection for reuse if the body was read to its end; otherwise close it."""
        self._close(self._connection)


class Connections:
    """The connections to the server that credentials name. They belong to the event loop that uses them first."""

    def __init__(self, credentials: Credentials) -> None:
        """Prepare; raises CredentialsError for addresses and certificates that cannot be used."""
        self._server = _Origin.of(credentials.server)
        self._proxy = _Origin.of(credentials.proxy) if credentials.proxy else None
        self._tls = _context(credentials) if self._server.is_tls else None
        self._server_name = credentials.server_name or self._server.host
        self._idle: deque[_Connection] = deque()  # the most recently used connection is last
        self._used: set[_Connection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def send(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        """Send a request and return its answer, which the caller must close.

        If the server has just closed a reused connection, a request that only reads is sent on another one. Raises
        Unreachable, and ClientError for a request that cannot be sent.
        """
        data = self._request(method, target, headers, body)
        while True:
            connection = self._take() or await self._connect()
            self._used.add(connection)
            try:
                head = await connection.exchange(method, data)
                return Response(head, connection, self._put_back)
            except BaseException as error:
                self._used.discard(connection)
                connection.close()
                if not (isinstance(error, Unreachable) and connection.carried and method == "GET"):
                    raise

    @property
    def is_used(self) -> bool:
        """Whether requests are running."""
        return bool(self._used)

    def close(self) -> None:
        """Close idle connections now, and the others when their requests end. Idempotent."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()
        if self._timer is not None:
            self._timer.cancel()

    def abort(self) -> None:
        """Close all connections; running requests fail."""
        self.close()
        for connection in self._used:
            connection.close()

    def _request(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        all_headers = {"Host": self._server.shown, **headers}
        target = self._server.path + target
        if self._proxy is not None and not self._server.is_tls:
            target = f"http://{self._server.shown}{target}"
            all_headers |= self._proxy.authorization
        try:
            return request(method, target, all_headers, body)
        except ProtocolError as error:
            raise ClientError(f"the request cannot be sent: {error}") from error

    def _take(self) -> "_Connection | None":
        while self._idle:
            connection = self._idle.pop()
            if connection.is_quiet:
                return connection
            connection.close()
        return None

    def _put_back(self, connection: "_Connection") -> None:
        self._used.discard(connection)
        if self._is_closed or not connection.rest():
            connection.close()
            return
        self._idle.append(connection)
        if len(self._idle) > MAX_IDLE_CONNECTIONS:
            self._idle.popleft().close()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._close_idle)

    def _close_idle(self) -> None:
        """Close connections that were idle for `IDLE_SECONDS`; the one that has been idle longest is first."""
        loop = asyncio.get_running_loop()
        while self._idle and self._idle[0].rests_since <= loop.time() - IDLE_SECONDS:
            self._idle.popleft().close()
        self._timer = None
        if self._idle:
            self._timer = loop.call_at(self._idle[0].rests_since + IDLE_SECONDS, self._close_idle)

    async def _connect(self) -> "_Connection":
        """Open a connection, through the proxy if there is one. Raises Unreachable."""
        near = self._proxy or self._server
        try:
            wire = await dial(near.host, near.port)
            try:
                if self._proxy is not None and self._proxy.is_tls:
                    await wire.start_tls(_public_context(), self._proxy.host)
                if self._proxy is not None and self._tls is not None:
                    await self._tunnel(wire, self._proxy)
                if self._tls is not None:
                    await wire.start_tls(self._tls, self._server_name)
            except BaseException:
                wire.close()
                raise
        except (OSError, UnicodeError, ProtocolError) as error:
            unverified = isinstance(error, ssl.SSLError)
            raise (UnverifiedServer if unverified else Unreachable)(
                f"connect to {near.shown}: {_in_words(error)}"
            ) from error
        return _Connection(wire)

    async def _tunnel(self, wire: "Wire", proxy: "_Origin") -> None:
        """Open a tunnel to the server through the proxy. Raises OSError."""
        there = f"{self._server.host_port}"
        connection = _Connection(wire)
        head = await connection.exchange(
            "CONNECT", request("CONNECT", there, {"Host": there} | proxy.authorization, None)
        )
        if not 200 <= head.status < 300:
            raise OSError(f"the proxy does not connect us to {there}: {head.status}")
        if not connection.is_quiet:
            raise OSError(f"the proxy says more than that it connects us to {there}")


class UnverifiedServer(Unreachable):
    """TLS failed, perhaps because the server has a certificate of a new authority."""


class _Origin:
    """Host, port and path of a URL, and its credentials for a proxy."""

    def __init__(self, url: urllib.parse.SplitResult) -> None:
        self.is_tls = url.scheme == "https"
        self.host = url.hostname or ""
        self.port = url.port or (443 if self.is_tls else 80)
        self.path = url.path.rstrip("/")
        literal = f"[{self.host}]" if ":" in self.host else self.host
        self.shown = literal if url.port is None else f"{literal}:{url.port}"
        self.host_port = f"{literal}:{self.port}"
        user, password = (urllib.parse.unquote(x or "") for x in (url.username, url.password))
        self.authorization = {"Proxy-Authorization": basic(user, password)} if user else {}

    @classmethod
    def of(cls, url: str) -> "_Origin":
        try:
            origin = cls(urllib.parse.urlsplit(url))
        except ValueError as error:
            raise CredentialsError(f"{url}: {error}") from error
        if not origin.host or not url.startswith(("http://", "https://")):
            raise CredentialsError(f"{url}: must be an address with http:// or https://")
        return origin


class _Connection:
    """One connection, which handles one exchange after the other."""

    def __init__(self, wire: "Wire") -> None:
        self._wire = wire
        self._answers = Answers()
        self.carried = 0  # completed exchanges
        self.rests_since = 0.0

    @property
    def is_quiet(self) -> bool:
        """Whether nothing arrived since the last answer: no end of the connection and no unrequested bytes."""
        return self._wire.is_quiet and not self._answers.has_unparsed_data

    async def exchange(self, method: str, data: bytes) -> Head:
        """Send a request and return the head of its answer. Raises Unreachable."""
        self._answers.expect(method)
        self._wire.write(data)
        return await self._next(self._answers.head)

    async def next_piece(self) -> bytes:
        """Return the next piece of the answer's body, empty at its end. Raises Unreachable."""
        return await self._next(self._answers.piece)

    async def _next(self, take: Callable[[], T | None]) -> T:
        """Read until `take` returns a result, and return it; does not read ahead."""
        try:
            while (found := take()) is None:
                self._answers.feed(await self._wire.read())
        except (OSError, ProtocolError) as error:
            raise Unreachable(str(error) or type(error).__name__) from error
        return found

    def rest(self) -> bool:
        """End the exchange; return whether the connection can be reused, if nothing arrives until then."""
        if not self._answers.is_complete:
            return False
        self.carried += 1
        self.rests_since = asyncio.get_running_loop().time()
        return not self._answers.has_unparsed_data

    def close(self) -> None:
        self._wire.close()


def basic(username: str, password: str) -> str:
    """Return the value of an Authorization header for basic authentication."""
    return f"Basic {base64.b64encode(f'{username}:{password}'.encode()).decode()}"


def _context(credentials: Credentials) -> ssl.SSLContext:
    try:
        context = _public_context(credentials.ca)
        if credentials.is_insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if credentials.certificate:
            with tempfile.TemporaryDirectory() as folder:  # the ssl module loads certificates only from files
                pair = Path(folder) / "pair.pem"
                pair.touch(0o600)
                pair.write_text(f"{credentials.certificate}\n{credentials.key}")
                context.load_cert_chain(pair)
    except (OSError, ValueError) as error:  # includes SSLError; OSError also means a full disk or no descriptor left
        raise CredentialsError(f"certificates for {credentials.server}: {error}") from error
    return context


def _public_context(ca: str = "") -> ssl.SSLContext:
    """Return a TLS context that trusts these authorities, or those of the system if `ca` is empty."""
    context = ssl.create_default_context(cadata=ca or None)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _in_words(error: Exception) -> str:
    """Return why a connection failed, without the numbers and addresses of asyncio and OpenSSL."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate: {error.verify_message.rstrip('.')}"
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return "the server does not speak TLS: check the port, and whether the URL must begin with http://"
    if isinstance(error, ConnectionError | TimeoutError) and error.errno:
        return os.strerror(error.errno)
    if isinstance(error, socket.gaierror):
        return f"no address is known for the name: {error.strerror}"
    return str(error)
