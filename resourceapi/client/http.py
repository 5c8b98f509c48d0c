"""Requests: connections, credentials that are read again, and patience with a busy server.

Blocking, and safe to use from several threads.
"""

import json
import logging
import socket
import ssl
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import urllib3
from urllib3.connection import HTTPConnection

from resourceapi.client.credentials import Credentials, CredentialsError, Source
from resourceapi.client.errors import Refused, Unreachable
from resourceapi.client.patience import pause
from resourceapi.client.resource import Resource, raw_resource, typed_resource
from resourceapi.client.versions import AnyVersion
from resourceapi.objects import KubernetesObject

K = TypeVar("K", bound=KubernetesObject)

REREAD_AFTER = 60.0
"""Seconds after which credentials are read again."""
log = logging.getLogger(__name__)
_BUSY = (429, 500, 502, 503, 504)
_USER_AGENT = "nodeplug"
_KEEP_ALIVE = (  # a watch is silent for minutes: a connection that something in between has lost is found in a minute
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)


class Client:
    """A client of one API server.

    `read` reads the credentials. `attempts` is how often a request is sent while the server is busy (or, if it reads
    only, cannot be reached); `timeout` is in seconds. `wait` sleeps; by default until `close` at the longest.
    """

    def __init__(
        self,
        read: Source,
        *,
        user_agent: str = _USER_AGENT,
        attempts: int = 5,
        timeout: float = 30.0,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self._read = read
        self._user_agent = user_agent
        self._attempts = attempts
        self._timeout = timeout
        self._closed = threading.Event()
        self.wait = wait or self._closed.wait
        self._lock = threading.Lock()
        self._credentials: Credentials | None = None
        self._read_at = 0.0
        self._pool: urllib3.PoolManager | None = None

    def resource(self, kind: type[K], version: str = "") -> Resource[K]:
        """The objects of a typed kind; `version` is one of the API's, such as v1beta1, the newest if none is given."""
        return typed_resource(self, kind, version)

    def any_version(self, kind: type[K]) -> AnyVersion[K]:
        """The objects of a kind of resource.k8s.io, in whichever version the server has."""
        return AnyVersion(self, kind)

    def raw(self, api_version: str, plural: str, *, namespaced: bool) -> Resource[dict[str, Any]]:
        """The objects of any kind, as plain values."""
        return raw_resource(self, api_version, plural, namespaced=namespaced)

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Any:
        """The JSON value that the server answers. Raises Refused, Unreachable or CredentialsError.

        A busy server is given time, as it asks for; what may have been done is not repeated after a broken
        connection, unless it only reads.
        """
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        for attempt in range(1, self._attempts + 1):
            asked: float | None = None
            try:
                response = self.open(method, path, data, query=query, content_type=content_type)
                try:
                    return json.loads(response.data)
                except ValueError as error:
                    raise Unreachable(f"{method} {path}: the answer is no JSON: {error}") from error
            except Refused as error:
                asked = error.retry_after
                may_repeat = method == "GET" or asked is not None
                if error.code not in _BUSY or attempt == self._attempts or not may_repeat:
                    raise
            except Unreachable:
                if method != "GET" or attempt == self._attempts:
                    raise
            self.wait(pause(attempt, asked))
        raise AssertionError("the last attempt returns or raises")

    def open(
        self,
        method: str,
        path: str,
        data: bytes | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        stream: bool = False,
        read_timeout: float | None = None,
    ) -> urllib3.BaseHTTPResponse:
        """The answer to one request, which is a success; with `stream` its body is still to be read.

        After 401 the credentials are read again, and the request is sent once more.
        """
        response = self._send(method, path, data, query, content_type, stream, read_timeout)
        if response.status == 401:
            response.drain_conn()
            self._forget_credentials()
            response = self._send(method, path, data, query, content_type, stream, read_timeout)
        if response.status >= 400:
            raise _refused(response)
        return response

    def close(self) -> None:
        """Close the connections that are idle, and wait for no server any more."""
        self._closed.set()
        with self._lock:
            if self._pool is not None:
                self._pool.clear()

    def _send(
        self,
        method: str,
        path: str,
        data: bytes | None,
        query: Mapping[str, str] | None,
        content_type: str,
        stream: bool,
        read_timeout: float | None,
    ) -> urllib3.BaseHTTPResponse:
        pool, credentials = self._connected()
        headers = {"Accept": "application/json", "User-Agent": self._user_agent}
        if data is not None:
            headers["Content-Type"] = content_type
        if credentials.token:
            headers["Authorization"] = f"Bearer {credentials.token}"
        elif credentials.username:
            headers |= urllib3.make_headers(basic_auth=f"{credentials.username}:{credentials.password}")
        url = credentials.server + path + (f"?{urllib.parse.urlencode(query)}" if query else "")
        timeout = urllib3.Timeout(connect=self._timeout, read=read_timeout or self._timeout)
        try:
            return pool.request(
                method,
                url,
                body=data,
                headers=headers,
                retries=False,
                redirect=False,
                timeout=timeout,
                preload_content=not stream,
            )
        except urllib3.exceptions.HTTPError as error:
            if isinstance(error, urllib3.exceptions.SSLError):
                self._forget_credentials()  # perhaps the server has a certificate of a new authority
            raise Unreachable(f"{method} {credentials.server}{path}: {error}") from error

    def _connected(self) -> tuple[urllib3.PoolManager, Credentials]:
        """Connections and credentials, read again if they are old. What cannot be read is used as it was."""
        with self._lock:
            now = time.monotonic()
            if self._credentials is None or now - self._read_at > REREAD_AFTER:
                try:
                    found = self._read()
                except CredentialsError:
                    if self._credentials is None:
                        raise
                    found = self._credentials
                if self._pool is None or self._credentials is None or _trust(found) != _trust(self._credentials):
                    self._pool = _pool(found)
                self._credentials, self._read_at = found, now
            assert self._pool is not None, "it came with the credentials"
            return self._pool, self._credentials

    def _forget_credentials(self) -> None:
        with self._lock:
            self._read_at = -REREAD_AFTER - 1.0


def _trust(credentials: Credentials) -> tuple[object, ...]:
    """What a connection is bound to."""
    return (
        credentials.ca,
        credentials.certificate,
        credentials.key,
        credentials.server_name,
        credentials.is_insecure,
        credentials.proxy,
    )


def _pool(credentials: Credentials) -> urllib3.PoolManager:
    probed = [*HTTPConnection.default_socket_options, *_KEEP_ALIVE]
    options: dict[str, Any] = {"maxsize": 16, "socket_options": probed}
    if credentials.is_insecure:  # said once here; urllib3 says it for each request
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        log.warning("the certificate of %s is not verified, as the kubeconfig says", credentials.server)
    if credentials.server.startswith("https:"):
        options["ssl_context"] = _context(credentials)
        if credentials.server_name:
            options |= {"server_hostname": credentials.server_name, "assert_hostname": credentials.server_name}
    if credentials.proxy:
        return urllib3.ProxyManager(credentials.proxy, **options)
    return urllib3.PoolManager(**options)  # looks at no proxy variables


def _context(credentials: Credentials) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=credentials.ca or None)
        if credentials.is_insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if credentials.certificate:
            with tempfile.TemporaryDirectory() as folder:  # the ssl module reads them from files only
                pair = Path(folder) / "pair.pem"
                pair.touch(0o600)
                pair.write_text(f"{credentials.certificate}\n{credentials.key}")
                context.load_cert_chain(pair)
    except (ssl.SSLError, ValueError) as error:
        raise CredentialsError(f"certificates for {credentials.server}: {error}") from error
    return context


def _refused(response: urllib3.BaseHTTPResponse) -> Refused:
    text = response.data.decode("utf-8", "replace")
    try:
        status = json.loads(text)
    except ValueError:
        status = {}
    if not isinstance(status, dict) or status.get("kind") != "Status":
        status = {"message": text.strip() or str(response.reason)}
    after = response.headers.get("Retry-After", "")
    return Refused(
        response.status,
        str(status.get("reason") or ""),
        str(status.get("message") or ""),
        status.get("details") or {},
        float(after) if after.isdigit() else None,
    )
