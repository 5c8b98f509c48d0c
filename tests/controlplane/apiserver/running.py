"""A server in a thread, a plain HTTP client for it, and kubectl as a process."""

import asyncio
import http.client
import json
import os
import re
import ssl
import subprocess
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from controlplane.apiserver import Server, protobuf, write_kubeconfig
from controlplane.apiserver.definitions.custom_kinds import KIND_ID as DEFINITIONS
from controlplane.apiserver.options import DeleteOptions
from controlplane.apiserver.protobuf import wire
from controlplane.apiserver.server import FIRST_NAMESPACES
from controlplane.apiserver.target import Target
from controlplane.k8srm.definitions import definitions

Plain = dict[str, Any]
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


_REFERENCE_SERVER_ERRORS = re.compile(
    r"(resourceVersion: Invalid value: .*: )?strconv.ParseUint: parsing .*"
    r"|resourceVersion should not be set on objects to be created"
    r"|failed to create typed patch object .*"
    r"|failed to convert new object .*"
    r"|duplicate nodePort: .*"
    r"|(Internal error occurred: )?failed to allocate requested HealthCheck NodePort .*"
    r"|(Timeout: )?Too large resource version: .*"
    r"|map: map.* does not contain declared merge key: .*"
    r"|list element types are not identical: .*"
    r"|This pod has more than one PodDisruptionBudget, .*",
    re.DOTALL,
)


def is_reference_server_error(text: str) -> bool:
    """Return whether kube-apiserver also gives this 5xx answer; docs/apiserver.md lists them."""
    return _REFERENCE_SERVER_ERRORS.fullmatch(json.loads(text)["message"]) is not None


class Running:
    """A server, as a context manager, with the kinds of `nodeplug apiserver`. The arguments are those of Server."""

    def __init__(self, **options: Any) -> None:
        self._options: dict[str, Any] = {"token": "secret", "definitions": definitions()} | options
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failure: BaseException | None = None

    def __enter__(self) -> "Running":
        self._thread.start()
        assert self._started.wait(30)
        if self._failure:
            raise self._failure
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        assert not self._thread.is_alive()

    @property
    def url(self) -> str:
        """The server's address."""
        return self.server.url

    def clear(self) -> None:
        """Remove all objects and create the initial namespaces again."""
        asyncio.run_coroutine_threadsafe(self._clear(), self._loop).result(30)

    def load(self, *manifests: Plain) -> None:
        """Create objects in the way in which the server loads them at its start."""

        async def load() -> None:
            for manifest in manifests:
                self.server.write(manifest)

        asyncio.run_coroutine_threadsafe(load(), self._loop).result(30)

    def http(self, token: str | None = None, sender: Mapping[str, str] | None = None) -> "Http":
        """A client; `sender` contains further headers that identify the user."""
        return Http(self.url, self.server.token if token is None else token, self.server.ca, sender)

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig for the server, and return its path."""
        write_kubeconfig(path, self.url, self.server.token, self.server.ca)
        return path

    async def _clear(self) -> None:
        server = self.server
        for kind in [each for each in server.registry if not each.from_definition]:
            for obj in list(server.store.objects(kind.id)):
                metadata = obj["metadata"]
                target = Target(kind, kind.storage, metadata.get("namespace", ""), metadata["name"])
                if kind.id == DEFINITIONS:
                    server.rest.delete(target, DeleteOptions())
                else:
                    server.store.remove(kind.id, target.key)
        for name in FIRST_NAMESPACES:
            server.write({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        await server.store.commit()

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # the waiting thread raises it
            self._failure = error
            self._started.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with Server(**self._options) as self.server:
            self._started.set()
            await self._stop.wait()


class Answer(NamedTuple):
    """The answer to a request."""

    status: int
    headers: list[tuple[str, str]]
    data: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.data.decode()

    @property
    def body(self) -> Any:
        """The body as a JSON value."""
        return json.loads(self.text)

    @property
    def message(self) -> str:
        """The message of a Status."""
        found: str = self.body["message"]
        return found

    @property
    def warnings(self) -> list[str]:
        """The warning headers."""
        return [value for name, value in self.headers if name == "warning"]


class Http:
    """An HTTP client with one connection."""

    def __init__(self, url: str, token: str, ca: str = "", sender: Mapping[str, str] | None = None) -> None:
        self._address = urllib.parse.urlsplit(url).netloc
        self._context = ssl.create_default_context(cadata=ca) if ca else None
        self._connection = self._connect()
        self._token, self._sender = token, dict(sender or {})

    def __enter__(self) -> "Http":
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._connection.close()

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content: str = "application/json",
        accept: str = "application/json",
        **query: str,
    ) -> Answer:
        """Send one request. A `body` of bytes is sent unchanged, any other body as JSON."""
        if query:
            path += "?" + urllib.parse.urlencode(query)
        headers = {"Accept": accept, "Content-Type": content, **self._sender}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = body if isinstance(body, bytes) or body is None else json.dumps(body, separators=(",", ":")).encode()
        try:
            self._connection.request(method, path, body=data, headers=headers)
        except ConnectionError:  # servers close idle connections
            self._connection.close()
            self._connection.request(method, path, body=data, headers=headers)
        response = self._connection.getresponse()
        headers_back = [(name.lower(), value) for name, value in response.getheaders()]
        return Answer(response.status, headers_back, response.read())

    def ok(self, method: str, path: str, body: Any = None, **options: str) -> Any:
        """Send a request that must succeed, and return the body of its answer."""
        answer = self.send(method, path, body, **options)
        assert answer.status < 300, answer
        return answer.body

    def open_stream(self, path: str, accept: str, **query: str) -> http.client.HTTPResponse:
        """The start of an answer that goes on, such as a watch, on its own connection."""
        connection = self._connect()
        headers = {"Accept": accept, "Authorization": f"Bearer {self._token}", **self._sender}
        headers["Connection"] = "close"  # the end of the answer then ends the connection
        connection.request("GET", f"{path}?{urllib.parse.urlencode(query)}", headers=headers)
        return connection.getresponse()

    def _connect(self) -> http.client.HTTPConnection:
        if self._context is None:
            return http.client.HTTPConnection(self._address, timeout=30)
        return http.client.HTTPSConnection(self._address, timeout=30, context=self._context)

    @contextmanager
    def watch(self, path: str, **query: str) -> Iterator[Iterator[Plain]]:
        """The events of a watch as they arrive."""
        headers = {"Authorization": f"Bearer {self._token}"}
        url = f"{path}?{urllib.parse.urlencode({'watch': 'true', **query})}"
        self._connection.request("GET", url, headers=headers)
        response = self._connection.getresponse()
        assert response.status == 200, response.read()
        try:
            yield (json.loads(line) for line in response)
        finally:
            self._connection.close()

    @contextmanager
    def watch_protobuf(self, path: str, accept: str, **query: str) -> Iterator[Iterator[tuple[str, Plain]]]:
        """The events of a watch in protobuf as they arrive: type and object."""
        headers = {"Authorization": f"Bearer {self._token}", "Accept": accept}
        self._connection.request("GET", f"{path}?{urllib.parse.urlencode({'watch': 'true', **query})}", headers=headers)
        response = self._connection.getresponse()
        assert response.status == 200, response.read()
        assert response.headers["Content-Type"] == f"{protobuf.MEDIA_TYPE};stream=watch"
        try:
            yield iter(lambda: _event(response.read(int.from_bytes(response.read(4), "big"))), None)
        finally:
            self._connection.close()


def _event(frame: bytes) -> tuple[str, Plain]:
    event = {number: value for number, _, value in wire.fields(frame)}
    kind, raw = event[1], event[2]
    assert isinstance(kind, bytes)
    assert isinstance(raw, bytes)
    _, _, data = next(wire.fields(raw))
    assert isinstance(data, bytes)
    return kind.decode(), protobuf.decode(data, "", "")


def device_class(name: str = "gpu", **metadata: Any) -> Plain:
    """A device class."""
    selector = {"cel": {"expression": 'device.driver == "gpu.example.com"'}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name, **metadata},
        "spec": {"selectors": [selector]},
    }


def wait_until_deleted(api: Http, name: str) -> None:
    """Wait until a device class no longer exists."""
    selector = f"metadata.name={name}"
    found = api.ok("GET", f"{CLASSES}?fieldSelector={selector}")
    if not found["items"]:
        return
    # a server that was started again has no history from before, so the object's own version can be too old
    version = found["metadata"]["resourceVersion"]
    with api.watch(CLASSES, resourceVersion=version, fieldSelector=selector, timeoutSeconds="10") as events:
        assert any(event["type"] == "DELETED" for event in events)


def claim(name: str = "one", **metadata: Any) -> Plain:
    """A claim for one device."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, **metadata},
        "spec": {"devices": {"requests": [request]}},
    }


class Kubectl:
    """A real kubectl in a folder with its own kubeconfig and cache."""

    def __init__(self, program: str, kubeconfig: Path, folder: Path) -> None:
        self._program, self._folder = program, folder
        self._environment = {
            "PATH": os.environ["PATH"],
            "GOGC": "off",  # conftest.py does the same for other processes
            "HOME": str(folder),
            "KUBECONFIG": str(kubeconfig),
            "KUBECACHEDIR": str(folder / ".cache"),
        }

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run it and wait for its exit."""
        return subprocess.run(
            [self._program, *arguments],
            cwd=self._folder,
            env=self._environment | environment,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def ok(self, *arguments: str, **environment: str) -> str:
        """Run it, check that it succeeds, and return its output."""
        done = self.run(*arguments, **environment)
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return done.stdout

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start it in the background."""
        return subprocess.Popen(
            [self._program, *arguments],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
