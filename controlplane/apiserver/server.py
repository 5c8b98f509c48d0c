"""The server as a whole: store, kinds, controllers and HTTP, started and stopped together."""

import asyncio
import contextlib
import secrets
import socket
import ssl
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import uvicorn

from controlplane.apiserver.access.authentication import Authenticator
from controlplane.apiserver.access.authorization import AlwaysAllow, AuthorizationMode, Rbac, first_roles
from controlplane.apiserver.access.certificates import PLURAL
from controlplane.apiserver.access.peers import recording_certificates
from controlplane.apiserver.access.signers import GROUP
from controlplane.apiserver.access.signing import Signer
from controlplane.apiserver.access.stored_credentials import (
    StoredCredentials,
    StoredCredentialsError,
    read_credentials,
    write_credentials,
)
from controlplane.apiserver.access.tls import Certificate, TlsError, make_authority, make_certificate
from controlplane.apiserver.access.tokens import Tokens
from controlplane.apiserver.admission import Admission
from controlplane.apiserver.app import Application
from controlplane.apiserver.builtin import install
from controlplane.apiserver.controllers import Controllers
from controlplane.apiserver.definitions.custom_kinds import Definitions, kind_of
from controlplane.apiserver.journal import FileJournal
from controlplane.apiserver.kinds import Plain, Registry
from controlplane.apiserver.observing import Observer
from controlplane.apiserver.options import WriteOptions
from controlplane.apiserver.preconditions import NAMESPACES
from controlplane.apiserver.quota_usage import Usage
from controlplane.apiserver.quotas import Quotas
from controlplane.apiserver.rest import MANAGER, Rest
from controlplane.apiserver.status import ApiError
from controlplane.apiserver.store import Store
from controlplane.apiserver.target import Target
from resourceapi.objects import v1
from resourceapi.objects.release import LATEST, Release

FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


class ServerError(Exception):
    """The server cannot start."""


class Server:
    """An API server on loopback.

    `data` is the file for the objects; without it, they are lost when the server stops. `definitions` are kinds that
    are served besides the built-in ones, as CustomResourceDefinitions that no client can see. With an empty `token`, no
    authentication is needed; None generates a random token. `collect_after` is the delay of the controllers in seconds;
    None runs none. With `tls`, the server has its own certificate authority, which issues its certificate and signs
    certificate requests; `ca` is the authority's certificate once the server runs. A random token and the authority are
    stored beside `data`. It answers like the API server of the `release`. With `authorization` RBAC, the stored roles
    decide what a user can do; otherwise every authenticated user can do everything. `observe` is called with each
    request once its answer is known.

    async with Server(port=0) as server: server.url, server.token, server.ca
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        data: Path | None = None,
        definitions: Iterable[Plain] = (),
        collect_after: float | None = 0.5,
        tls: bool = False,
        release: Release = LATEST,
        authorization: AuthorizationMode = "AlwaysAllow",
        observe: Observer | None = None,
    ) -> None:
        self._host, self._port, self._is_tls = host, port, tls
        self.ca = ""
        self._data, self._journal = data, FileJournal(data) if data else None
        self._kept = self._kept_credentials()  # after the journal, whose lock excludes other servers
        self._authority = self._kept.authority if tls else None
        self._makes_token = token is None
        self.token = (self._kept.token or secrets.token_urlsafe(24)) if token is None else token
        self.store = Store(self._journal)
        self.registry = Registry()
        authorizer = self._authorizer = Rbac(self.store) if authorization == "RBAC" else AlwaysAllow()
        install(self.registry, _now, self._has_admin_access, release, authorizer)
        for definition in definitions:
            self.registry.add(kind_of(definition))
        stored = Definitions(self.store, self.registry, _now)
        admission = Admission(self.store, self.registry, authorizer)
        usage = Usage(self.store, _now, has_extended=release.has_all_fields)
        quotas = Quotas(self.store, self.registry, usage)
        self.rest = Rest(self.store, self.registry, _now, stored, release, admission, quotas)
        self.tokens = Tokens(self.store, _now)
        authenticator = Authenticator(self.token, self.tokens, has_anonymous=authorization == "RBAC")
        self.application = Application(self.rest, authenticator, authorizer, observe)
        if self._journal is not None:
            self.store.load(self._journal.version(), self._journal.objects())
        stored.load()
        for name in FIRST_NAMESPACES:
            self._make_namespace(name)
        for role in first_roles() if authorization == "RBAC" else ():
            self.write(role)
        self._controllers = Controllers(self.rest, collect_after) if collect_after is not None else None
        self._tasks: list[asyncio.Task[None]] = []
        self._http: uvicorn.Server | None = None

    @property
    def url(self) -> str:
        """The URL of the server."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._is_tls else 'http'}://{host}:{self._port}"

    async def __aenter__(self) -> "Server":
        """Start. Returns when requests are answered. Raises ServerError."""
        await self.store.commit()
        self.store.discard_history()
        with tempfile.TemporaryDirectory(prefix="apiserver-") as folder:
            try:
                certificate = await self._certified(Path(folder))
                listener = self._listen()
            except (OSError, ServerError, TlsError) as error:
                if self._journal is not None:
                    self._journal.close()
                raise ServerError(str(error)) from error
            config = self._configuration(certificate)
            config.load()  # reads the certificate
        if certificate is not None:
            config.http_protocol_class = recording_certificates(config.http_protocol_class)
        self._http = _Http(config)
        self._tasks = [asyncio.create_task(self._http.serve([listener]))]
        if self._authority is not None:
            kind = self.registry.find(GROUP, "v1", PLURAL)
            assert kind is not None, "it is built in"
            signer = Signer(self.rest, kind, self._authorizer, self._authority)
            self._tasks.append(asyncio.create_task(signer.run()))
        if self._controllers is not None:
            self._tasks.append(asyncio.create_task(self._controllers.run()))
        try:
            while not self._http.started:
                if self._tasks[0].done():
                    raise ServerError("the HTTP server did not start")
                await asyncio.sleep(0.001)  # uvicorn has only this flag
        except BaseException:
            await self.__aexit__()
            raise
        return self

    def _kept_credentials(self) -> StoredCredentials:
        if self._data is None or self._journal is None:
            return StoredCredentials()
        try:
            return read_credentials(self._data)
        except StoredCredentialsError as error:
            self._journal.close()
            raise ServerError(str(error)) from error

    async def _certified(self, folder: Path) -> Certificate | None:
        """Return the server's certificate, None without TLS. Stores the token and the authority for the next start.

        Raises TlsError and OSError.
        """
        if self._is_tls and self._authority is None:
            self._authority = await asyncio.to_thread(make_authority, folder)
        token = self.token if self._makes_token else self._kept.token
        kept = StoredCredentials(token, self._authority or self._kept.authority)
        if self._data is not None and kept != self._kept:
            write_credentials(self._data, kept)
        if self._authority is None:
            return None
        self.ca = self._authority.certificate
        return await asyncio.to_thread(make_certificate, folder, self._host, self._authority)

    def _configuration(self, certificate: Certificate | None) -> uvicorn.Config:
        return uvicorn.Config(
            self.application,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",  # a request for a WebSocket is answered in plain HTTP
            timeout_keep_alive=90,  # as the reference server
            timeout_graceful_shutdown=2,
            server_header=False,
            h11_max_incomplete_event_size=256 * 1024,
            ssl_certfile=certificate.path if certificate else None,
            ssl_keyfile=certificate.key if certificate else None,
            ssl_ca_certs=str(certificate.authority) if certificate else None,
            ssl_cert_reqs=ssl.CERT_OPTIONAL if certificate else ssl.CERT_NONE,
        )

    async def __aexit__(self, *_: object) -> None:
        """Stop: watches end, and everything written is on disk."""
        assert self._http is not None, "it was started"
        self.store.close()
        self._http.should_exit = True
        for task in self._tasks[1:]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._journal is not None:
            await self.store.commit()
            self._journal.close()

    def write(self, value: Plain) -> str:
        """Create an object, or replace it if it exists; return `kind/name`. Raises ApiError."""
        api_version, kind_name = str(value.get("apiVersion")), str(value.get("kind"))
        kind = self.registry.by_kind(api_version, kind_name)
        if kind is None:
            raise ApiError(404, f'no matches for kind "{kind_name}" in version "{api_version}"', "NotFound")
        metadata = value.get("metadata") or {}
        namespace = (metadata.get("namespace") or "default") if kind.namespaced else ""
        target = Target(kind, api_version.rpartition("/")[2], namespace, metadata.get("name") or "")
        if target.name and self.store.get(kind.table, target.key) is not None:
            outcome = self.rest.update(target, dict(value), WriteOptions(), MANAGER)
        else:
            outcome = self.rest.create(target, dict(value), WriteOptions(), MANAGER)
        if kind.status and value.get("status"):
            written = outcome.object["metadata"]
            named = target._replace(name=written["name"], subresource="status")
            identity = {"name": written["name"], "resourceVersion": written["resourceVersion"]}
            changed = {**value, "metadata": metadata | identity}
            self.rest.update(named, changed, WriteOptions(), MANAGER)
        return f"{kind.singular_name}/{outcome.object['metadata']['name']}"

    def _make_namespace(self, name: str) -> None:
        if self.store.get(NAMESPACES, ("", name)) is None:
            self.write({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def _has_admin_access(self, namespace: str) -> bool:
        found = self.store.get(NAMESPACES, ("", namespace))
        labels = found["metadata"].get("labels") or {} if found else {}
        return labels.get(v1.ADMIN_ACCESS_LABEL) == "true"

    def _listen(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        # asyncio turns off Nagle's algorithm only if the protocol is named: an answer takes 2 instead of 50 ms
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self._host, self._port))
            listener.listen(2048)
        except OSError as error:
            listener.close()
            raise ServerError(f"cannot listen on {self._host}:{self._port}: {error.strerror}") from error
        self._port = listener.getsockname()[1]
        return listener


class _Http(uvicorn.Server):
    """A uvicorn server that leaves signals to the program that starts it."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]  # uvicorn's own signature
        yield


def _now() -> datetime:
    return datetime.now(UTC)
