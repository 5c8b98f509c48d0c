"""Requests to an API server: connections, credentials that are reread, limits, and retries when the server is busy.

Rules:
1. Every request ends with an answer, Refused or another ClientError, whatever the server sends and however slowly:
   within `timeout` seconds for each attempt, and within attempts x `timeout` for all attempts together.
2. A request that the server might have carried out is not repeated after a broken connection, unless it only reads.
3. Redirects, compression and cookies are not supported.
"""

import asyncio
import contextlib
import json
import logging
import urllib.parse
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from resourceapi.client.backoff import delay
from resourceapi.client.connections import Connections, Response, UnverifiedServer, basic
from resourceapi.client.credentials import Credentials, CredentialsError, Source
from resourceapi.client.errors import ClientError, InvalidAnswer, Refused, Unreachable, seconds
from resourceapi.client.request_queue import RequestQueue
from resourceapi.client.resource import AsyncResource, raw_resource, typed_resource
from resourceapi.client.transport import Answer, Limits, Transport
from resourceapi.client.versions import AsyncAnyVersion
from resourceapi.objects import DecodeError, KubernetesObject, parse_json

K = TypeVar("K", bound=KubernetesObject)
T = TypeVar("T")

REREAD_AFTER = 60.0
"""Seconds after which credentials are reread."""
GRACE = 2.0
"""Seconds that running requests can take after `close`."""
_MAX_ERROR_BODY = 256 * 1024  # bytes of an answer with an error status
_USER_AGENT = "nodeplug"
_BUSY = (429, 500, 502, 503, 504)
log = logging.getLogger(__name__)


class AsyncClient(Transport):
    """A client of one API server, for one event loop.

    `read` reads the credentials. `attempts` is how often a request is sent if the server is busy (or, for a request
    that only reads, cannot be reached). `timeout` is in seconds, see the module. `wait` sleeps between attempts; the
    default sleep ends early on `close`.
    """

    def __init__(
        self,
        read: Source,
        *,
        user_agent: str = _USER_AGENT,
        attempts: int = 5,
        timeout: float = 30.0,
        limits: Limits | None = None,
        wait: Callable[[float], Awaitable[object]] | None = None,
    ) -> None:
        self._read = read
        self._user_agent = user_agent
        self._attempts = attempts
        self._timeout = timeout
        self._wait = wait
        self.limits = limits or Limits()
        self._queue = RequestQueue()
        self._large = asyncio.Lock()  # only one large answer (connections.LARGE) is read at a time
        self._is_closed = False
        self._closing = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None  # the event loop of the connections
        self._credentials: Credentials | None = None
        self._reread_at = 0.0
        self._unread = ""  # why credentials could not be reread
        self._connections: Connections | None = None
        self._former: list[Connections] = []  # connections with former credentials that still have running requests

    def resource(self, kind: type[K], version: str = "") -> AsyncResource[K]:
        """Return the objects of a typed kind; `version` is an API version such as v1beta1, by default the newest."""
        return typed_resource(self, kind, version)

    def any_version(self, kind: type[K]) -> AsyncAnyVersion[K]:
        """Return the objects of a kind of resource.k8s.io, in the newest version that the server has."""
        return AsyncAnyVersion(self, kind)

    def raw(self, api_version: str, plural: str, *, namespaced: bool) -> AsyncResource[dict[str, Any]]:
        """Return the objects of any kind, as plain values."""
        return raw_resource(self, api_version, plural, namespaced=namespaced)

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Any:
        """Send a request and return the answer's JSON value. Raises Refused, Unreachable or another ClientError."""
        return (await self.send(method, path, body, query=query, content_type=content_type)).value

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        max_bytes: int = 0,
    ) -> Answer:
        """Like `request`, and return the answer's size too: at most `max_bytes`, or the limit of an object if 0.

        If the server is busy, waits as long as the server requests before the next attempt.
        """
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        until = asyncio.get_running_loop().time() + self._attempts * self._timeout
        request = f"{method} {path}"
        for attempt in range(1, self._attempts + 1):
            entered = self._queue.enter()
            is_regular = await (entered if self._queue.is_free else self._before_deadline(entered, until, request))
            retry_after: float | None = None
            try:
                return await self._attempt(
                    method, path, data, query, content_type, max_bytes or self.limits.object, until
                )
            except Refused as error:
                retry_after = error.retry_after
                may_repeat = method == "GET" or retry_after is not None
                if error.code not in _BUSY or attempt == self._attempts or not may_repeat:
                    raise
            except Unreachable as error:
                if method != "GET" or attempt == self._attempts or isinstance(error, InvalidAnswer):
                    raise
            finally:
                self._queue.leave(is_regular)
            await self._before_deadline(self.sleep(delay(attempt, retry_after)), until, request)
        raise AssertionError("the last attempt returns or raises")

    @contextlib.asynccontextmanager
    async def lines(self, path: str, query: Mapping[str, str], seconds: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """Stream the lines of an answer, whose head must arrive within `timeout`."""
        try:
            async with asyncio.timeout(self._timeout):
                response = await self._open("GET", path, None, query, "")
            try:
                deadline = asyncio.get_running_loop().time() + seconds
                async with contextlib.aclosing(_lines(response, self.limits.object, deadline)) as lines:
                    yield lines
            finally:
                response.close()
        except Refused:
            raise
        except (ClientError, TimeoutError) as error:
            raise self._with_request("GET", path, error) from error

    async def sleep(self, seconds: float) -> None:
        if self._wait is not None:
            await self._wait(seconds)
        else:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._closing.wait()
        self._check_open()

    def close(self) -> None:
        """Make no more requests; running ones have `GRACE` seconds. Idempotent; any thread can call it."""
        self._is_closed = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the connections with it
                self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._closing.set()
        for connections in (*self._former, self._connections):
            if connections is not None:
                connections.close()
                asyncio.get_running_loop().call_later(GRACE, connections.abort)

    async def _attempt(
        self,
        method: str,
        path: str,
        data: bytes | None,
        query: Mapping[str, str] | None,
        content_type: str,
        max_bytes: int,
        until: float,
    ) -> Answer:
        """Send the request once; `until` is the deadline on the loop's clock."""
        try:
            until = min(until, asyncio.get_running_loop().time() + self._timeout)
            async with asyncio.timeout_at(until), contextlib.AsyncExitStack() as held:
                response = await self._open(method, path, data, query, content_type)
                try:
                    body = await response.read(max_bytes, lambda: held.enter_async_context(self._large))
                finally:
                    response.close()
                try:
                    return Answer(parse_json(body), len(body))
                except DecodeError as error:
                    raise Unreachable(f"the answer is no JSON: {error}") from error
        except Refused:
            raise
        except (ClientError, TimeoutError) as error:
            raise self._with_request(method, path, error) from error

    async def _before_deadline(self, waiting: Coroutine[Any, Any, T], until: float, request: str) -> T:
        """Wait for `waiting` until the deadline of all attempts together. Raises Unreachable after it."""
        try:
            async with asyncio.timeout_at(until):
                return await waiting
        except TimeoutError as error:
            raise Unreachable(f"{request}: no answer within {self._attempts * self._timeout:g} s") from error

    def _with_request(self, method: str, path: str, error: ClientError | TimeoutError) -> ClientError:
        """Return the error with the request in its message."""
        request = f"{method} {self._server}{path}"
        if isinstance(error, TimeoutError):
            return Unreachable(f"{request}: no answer within {self._timeout:g} s")
        if isinstance(error, UnverifiedServer):
            self._forget_credentials()
        return type(error)(f"{request}: {error}")

    async def _open(
        self, method: str, path: str, data: bytes | None, query: Mapping[str, str] | None, content_type: str
    ) -> Response:
        """Return a successful response, which the caller closes. After 401, reread the credentials and send again."""
        for is_last in (False, True):
            self._check_open()
            connections, credentials = self._connected()
            headers = {"Accept": "application/json", "User-Agent": self._user_agent}
            if data is not None:
                headers["Content-Type"] = content_type
            if credentials.token:
                headers["Authorization"] = f"Bearer {credentials.token}"
            elif credentials.username:
                headers["Authorization"] = basic(credentials.username, credentials.password)
            target = path + (f"?{urllib.parse.urlencode(query)}" if query else "")
            response = await connections.send(method, target, headers, data)
            try:
                if "content-encoding" in response.headers:
                    raise InvalidAnswer("the answer has a content encoding, which was not requested")
                if 200 <= response.status < 300:
                    return response
                if response.status != 401 or is_last:
                    raise await _refused(response)
            except BaseException:
                response.close()
                raise
            response.close()
            self._forget_credentials()
        raise AssertionError("the last attempt returns or raises")

    @property
    def _server(self) -> str:
        return self._credentials.server if self._credentials else ""

    def _check_open(self) -> None:
        if self._is_closed:
            raise Unreachable("the client of the API server is closed")

    def _connected(self) -> tuple[Connections, Credentials]:
        """Return connections and credentials, reread if they are old. If that fails, the former ones stay in use."""
        self._loop = asyncio.get_running_loop()
        if self._connections is None or self._credentials is None or self._loop.time() >= self._reread_at:
            try:
                found = self._read()
                if self._connections is None or self._credentials is None or _trust(found) != _trust(self._credentials):
                    made = Connections(found)  # raises CredentialsError for a half-written certificate
                    if found.is_insecure:
                        extra = {"is_current": lambda: self._connections is made and not self._is_closed}
                        text = "the certificate of %s is not verified, as the kubeconfig says"
                        log.warning(text, found.server, extra=extra)
                    if self._connections is not None:
                        self._connections.close()
                        self._former = [x for x in (*self._former, self._connections) if x.is_used]
                    self._connections = made
                self._credentials, self._unread = found, ""
            except CredentialsError as error:
                if self._connections is None or self._credentials is None:
                    raise
                if str(error) != self._unread:  # logged, because it explains later refusals of the old credentials
                    self._unread = problem = str(error)
                    extra = {"is_current": lambda: self._unread == problem and not self._is_closed}
                    text = "credentials of %s are used as they were: %s"
                    log.warning(text, self._credentials.server, error, extra=extra)
            self._reread_at = self._loop.time() + REREAD_AFTER
        return self._connections, self._credentials

    def _forget_credentials(self) -> None:
        self._reread_at = 0.0


def _trust(credentials: Credentials) -> Credentials:
    """Return the part of the credentials that a connection depends on."""
    return replace(credentials, token="", username="", password="", namespace="")


async def _lines(response: Response, max_bytes: int, deadline: float) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a body as they arrive, until the deadline; an incomplete last line is dropped."""
    rest = bytearray()
    while True:
        try:
            async with asyncio.timeout_at(deadline):
                piece = await response.next_piece()
        except TimeoutError:
            raise Unreachable("the watch goes on after the time that was asked for") from None
        if not piece:
            return
        *ends, tail = piece.split(b"\n")
        for is_end, part in (*((True, end) for end in ends), (False, tail)):
            rest += part
            if len(rest) > max_bytes:
                raise InvalidAnswer(f"a line has more than {max_bytes} bytes")
            if rest and is_end:
                yield bytes(rest)
                rest.clear()


async def _refused(response: Response) -> Refused:
    """Return the error for a response without success."""
    try:
        text = (await response.read(_MAX_ERROR_BODY)).decode("utf-8", "replace")
    except InvalidAnswer:
        text = ""
    try:
        status = parse_json(text)
    except DecodeError:
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        status = {"message": text.strip() or f"HTTP {response.status}"}
    return Refused.of_status(status, response.status, seconds(response.headers.get("retry-after")))
