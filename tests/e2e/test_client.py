"""The daemon's client with a real API server.

Conflicts, interrupted watches, expired history, new tokens, and an overloaded server.
"""

import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from resourceapi.client import AsyncClient, Event, Refused, from_kubeconfig
from resourceapi.client.blocking import Client
from resourceapi.client.transport import Answer
from resourceapi.objects.meta import ObjectMeta
from resourceapi.objects.v1 import DeviceClass
from tests.e2e.realnode import HOME, RealNode
from tests.e2e.realserver import RealServer, skip_reason

pytestmark = pytest.mark.e2e
ADMIN = HOME / "run/conf/admin.kubeconfig"


class Proxy:
    """Forwards bytes to the API server; `cut` closes all connections and refuses new ones until `repair`."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()
        self._whole = True
        self.connected = threading.Semaphore(0)
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._whole = False
        for end in list(self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def repair(self) -> None:
        self._whole = True

    def close(self) -> None:
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if not self._whole:
                    near.close()
                    continue
                far = socket.create_connection(self._target)
                for source, sink in ((near, far), (far, near)):
                    self._open.add(source)
                    threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()
                self.connected.release()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
        self._open.discard(source)
        source.close()


@pytest.fixture
def admin(node: RealNode) -> Iterator[Client]:
    client = Client(from_kubeconfig(ADMIN))
    yield client
    client.close()


def kubeconfig(path: Path, **changes: Any) -> Path:
    """Write the administrator's kubeconfig with another server or another user."""
    document = yaml.safe_load(ADMIN.read_text())
    document["clusters"][0]["cluster"].update(changes.get("cluster", {}))
    document["users"][0]["user"] = changes.get("user", document["users"][0]["user"])
    path.write_text(yaml.safe_dump(document))
    return path


def device_class(name: str, **labels: str) -> DeviceClass:
    return DeviceClass(metadata=ObjectMeta(name=name, labels=labels))


def test_stale_update_is_a_conflict(admin: Client) -> None:
    classes = admin.resource(DeviceClass)
    classes.create(device_class("e2e-conflict"))
    try:
        stale = admin.raw("resource.k8s.io/v1", "deviceclasses", namespaced=False).get("e2e-conflict")
        admin.raw("resource.k8s.io/v1", "deviceclasses", namespaced=False).patch(
            "e2e-conflict", {"metadata": {"labels": {"a": "b"}}}
        )
        with pytest.raises(Refused) as error:
            admin.raw("resource.k8s.io/v1", "deviceclasses", namespaced=False).update(stale)
        assert error.value.is_conflict
    finally:
        classes.delete("e2e-conflict")


def names(event: Event[DeviceClass]) -> tuple[str, list[str]]:
    return event.type, [each.metadata.name for each in event.items if each.metadata.name.startswith("e2e-watch")]


def test_interrupted_watch_continues_without_loss(admin: Client, tmp_path: Path) -> None:
    server = yaml.safe_load(ADMIN.read_text())["clusters"][0]["cluster"]["server"]
    proxy = Proxy("127.0.0.1", int(server.rpartition(":")[2]))
    path = kubeconfig(tmp_path / "kubeconfig", cluster={"server": f"https://127.0.0.1:{proxy.port}"})
    through = Client(from_kubeconfig(path), wait=lambda _: None)
    classes = admin.resource(DeviceClass)
    try:
        with through.resource(DeviceClass).watch() as watch:
            events = iter(watch)
            assert names(next(events)) == ("LISTED", [])
            classes.create(device_class("e2e-watch-1"))
            assert names(next(events)) == ("ADDED", ["e2e-watch-1"])
            proxy.cut()
            classes.create(device_class("e2e-watch-2"))
            proxy.repair()
            assert names(next(events)) == ("ADDED", ["e2e-watch-2"])
            proxy.cut()
            classes.delete("e2e-watch-1")
            proxy.repair()
            assert names(next(events)) == ("DELETED", ["e2e-watch-1"])
    finally:
        through.close()
        proxy.close()
        for number in (1, 2):
            with contextlib.suppress(Refused):
                classes.delete(f"e2e-watch-{number}")


def test_new_token_in_the_file_is_used_after_a_401(node: RealNode, tmp_path: Path) -> None:
    node.kubectl("create", "serviceaccount", "e2e-client")
    node.kubectl(
        "create", "clusterrolebinding", "e2e-client", "--clusterrole=view", "--serviceaccount=default:e2e-client"
    )
    try:
        (tmp_path / "token").write_text("expired")
        path = kubeconfig(tmp_path / "kubeconfig", user={"tokenFile": "token"})
        client = Client(from_kubeconfig(path))
        with pytest.raises(Refused) as error:
            client.request("GET", "/api/v1/namespaces/default/pods")
        assert error.value.code == 401
        (tmp_path / "token").write_text(node.kubectl("create", "token", "e2e-client"))
        assert client.request("GET", "/api/v1/namespaces/default/pods")["kind"] == "PodList"
        client.close()
    finally:
        node.kubectl("delete", "clusterrolebinding/e2e-client")
        node.kubectl("delete", "serviceaccount/e2e-client")


@pytest.fixture
def uncached_server(tmp_path: Path) -> Iterator[RealServer]:
    """A server that reads all history from etcd, where tests can compact it."""
    if reason := skip_reason():
        pytest.skip(reason)
    with RealServer(tmp_path, "--watch-cache=false") as server:
        yield server


@pytest.fixture
def busy_server(tmp_path: Path) -> Iterator[RealServer]:
    """A server that handles one request at a time, and refuses others meanwhile."""
    if reason := skip_reason():
        pytest.skip(reason)
    flags = ("--max-requests-inflight=1", "--max-mutating-requests-inflight=1", "--enable-priority-and-fairness=false")
    with RealServer(tmp_path, *flags) as server:
        yield server


def test_expired_watch_lists_again(uncached_server: RealServer) -> None:
    """410 as an event of the stream: the new list contains the missed changes."""
    proxy = Proxy("127.0.0.1", int(uncached_server.url.rpartition(":")[2]))
    through = uncached_server.client(server=f"https://127.0.0.1:{proxy.port}", wait=lambda _: None)
    classes = uncached_server.client().resource(DeviceClass)
    with through.resource(DeviceClass).watch() as watch:
        events = iter(watch)
        assert names(next(events)) == ("LISTED", [])
        classes.create(device_class("e2e-watch-1"))
        assert names(next(events)) == ("ADDED", ["e2e-watch-1"])
        proxy.cut()
        classes.delete("e2e-watch-1")
        uncached_server.compact(classes.create(device_class("e2e-watch-2")).metadata.resource_version)
        proxy.repair()
        assert names(next(events)) == ("LISTED", ["e2e-watch-2"])
        classes.create(device_class("e2e-watch-3"))
        assert names(next(events)) == ("ADDED", ["e2e-watch-3"])
    proxy.close()


def test_expired_list_starts_again(uncached_server: RealServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """410 between two pages."""
    monkeypatch.setattr("resourceapi.client.resource.PAGE_SIZE", 2)
    admin = uncached_server.client()
    classes = admin.resource(DeviceClass)
    for number in range(5):
        last = classes.create(device_class(f"e2e-list-{number}"))
    ask, pages = AsyncClient.send, list[int]()

    async def send(*arguments: Any, **options: Any) -> Answer:
        answer = await ask(*arguments, **options)
        if "items" in answer.value:
            pages.append(len(answer.value["items"]))
            if len(pages) == 1:
                later = uncached_server.client().resource(DeviceClass).create(device_class("e2e-list-5"))
                uncached_server.compact(later.metadata.resource_version)
        return answer

    monkeypatch.setattr(AsyncClient, "send", send)
    found = classes.list()
    assert [each.metadata.name for each in found.items] == [f"e2e-list-{number}" for number in range(6)]
    assert pages == [2, 6]
    assert int(found.version) > int(last.metadata.resource_version)


def test_client_waits_as_long_as_a_busy_server_requests(busy_server: RealServer) -> None:
    """Many requests of eight concurrent clients get 429; all succeed in the end."""
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        threading.Event().wait(seconds / 20)  # a twentieth of the requested time, to shorten the test

    def work(worker: int) -> int:
        client = busy_server.client("user", attempts=100, wait=wait)
        classes = client.resource(DeviceClass)
        for number in range(10):
            classes.create(device_class(f"e2e-busy-{worker}-{number}"))
        with classes.watch() as watch:
            listed = next(iter(watch))
        client.close()
        return sum(each.metadata.name.startswith(f"e2e-busy-{worker}-") for each in listed.items)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [10] * 8
    assert waits
    assert all(1.0 <= each <= 1.25 for each in waits)
