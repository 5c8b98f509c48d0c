"""Random requests of several clients: the server never fails, and its store stays consistent.

NODEPLUG_REQUESTS is the number of requests (default 1200); a long run:
NODEPLUG_REQUESTS=100000 make test ARGS="tests/controlplane/apiserver/test_random.py -o timeout=3600"
"""

import json
import os
import queue
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from controlplane.apiserver.journal import FileJournal
from tests.controlplane.apiserver.random_requests import ALWAYS_SERVED, Collection, Requests
from tests.controlplane.apiserver.running import (
    CLAIMS,
    CLASSES,
    Answer,
    Http,
    Plain,
    Running,
    is_reference_server_error,
)

REQUESTS = int(os.environ.get("NODEPLUG_REQUESTS", "1200"))
CLIENTS = 4
REQUESTS_PER_ROUND = 150
"""Requests of each client before the store is checked and the server is restarted."""
TIMEOUT = 30.0

Key = tuple[str, str]


@pytest.mark.parametrize("seed", range(5))
def test_random_requests_get_valid_answers(api: Http, seed: int) -> None:
    """Any method, path, type and body: the answer is valid, and lists agree with single objects."""
    requests = Requests(seed)
    for _ in range(REQUESTS // 50):
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            for path in (CLASSES, f"{CLASSES}/gpu", f"{CLAIMS}/one", f"{CLAIMS}/one/status"):
                _check(api.send(method, path, requests.value(), fieldManager="m"))
    for collection in (CLASSES, CLAIMS):
        for item in api.ok("GET", collection)["items"]:
            single = api.ok("GET", f"{collection}/{item['metadata']['name']}")
            assert {**single, **item} == single


def test_store_stays_consistent_under_concurrent_random_requests(tmp_path: Path) -> None:
    """Lists agree with watches; every object can be read in every version; the journal equals the store.

    Versions only increase, uids are never reused, and objects without remaining owners are deleted. All of this also
    holds after each restart.
    """
    data = tmp_path / "objects"
    clients = [Requests(seed) for seed in range(CLIENTS)]
    uids: dict[str, tuple[Collection, Key]] = {}
    version, sent = 0, 0
    while sent < REQUESTS:
        with ExitStack() as stack, Running(data=data, collect_after=0.0) as running:
            apis = [stack.enter_context(running.http()) for _ in clients]
            pool = stack.enter_context(ThreadPoolExecutor(CLIENTS))
            watchers = {each: stack.enter_context(_watcher(running, each)) for each in ALWAYS_SERVED}
            for latest in pool.map(_send, apis, clients):
                assert latest is None or latest > version
            sent += CLIENTS * REQUESTS_PER_ROUND
            version = _check_invariants(running, apis[0], watchers, version, uids)
            written = {kind.id: list(running.server.store.objects(kind.id)) for kind in running.server.registry}
        journal = FileJournal(data)
        kept: dict[str, list[Plain]] = {}
        for kind_id, _, obj in sorted(journal.objects(), key=lambda each: each[:2]):
            kept.setdefault(kind_id, []).append(obj)
        assert kept == {kind_id: objects for kind_id, objects in written.items() if objects}
        assert journal.version() >= version
        journal.close()


def _send(api: Http, requests: Requests) -> int | None:
    """Send requests, and return the version of the last written object."""
    latest = None
    for _ in range(REQUESTS_PER_ROUND):
        request = requests.next()
        answer = api.send(request.method, request.path, request.body, content=request.content, **request.query)
        body = _check(answer)
        if answer.status < 300 and isinstance(body, dict) and "items" not in body:
            requests.record(body)
            if answer.status == 201 and "dryRun" not in request.query and request.method == "POST":
                found = int(body["metadata"]["resourceVersion"])
                assert latest is None or found > latest, "versions grow"
                latest = found
    return latest


def _check(answer: Answer) -> Any:
    """The body of an answer that is not a server error."""
    if answer.text == "404 page not found\n":
        return None
    assert answer.status < 500 or is_reference_server_error(answer.text), answer
    return json.loads(answer.text)


def _check_invariants(
    running: Running,
    api: Http,
    watchers: dict[Collection, "_Watcher"],
    version: int,
    uids: dict[str, tuple[Collection, Key]],
) -> int:
    """Check all invariants, and return the current version."""
    _wait_for_the_collector(running, api)
    for collection, watcher in watchers.items():
        listed = api.ok("GET", collection.path_in_all_namespaces)
        now = int(listed["metadata"]["resourceVersion"])
        assert now >= version
        version = now
        found = {_key(item): item["metadata"]["resourceVersion"] for item in listed["items"]}
        assert len(found) == len(listed["items"])
        watcher.apply_until(found, now)
        for item in listed["items"]:
            metadata = item["metadata"]
            assert int(metadata["resourceVersion"]) <= now
            assert uids.setdefault(metadata["uid"], (collection, _key(item))) == (collection, _key(item))
        for other in collection.versions[1:]:
            _check_version(api, collection, other, found)
    return version


def _check_version(api: Http, collection: Collection, version: str, found: dict[Key, str]) -> None:
    """Objects can be read in a version. Writing them back unchanged changes nothing."""
    listed = api.ok("GET", collection.path(version))["items"]
    assert {_key(item): item["metadata"]["resourceVersion"] for item in listed} == found
    for item in listed:
        namespace, name = _key(item)
        path = f"{collection.path(version, namespace)}/{name}"
        whole = api.ok("GET", path)
        assert {**whole, **item} == whole
        assert api.ok("PUT", path, whole, fieldManager="check") == whole


def _wait_for_the_collector(running: Running, api: Http) -> None:
    """Wait until every object has a remaining or unknowable owner, no owner references, or a deletion mark."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        objects = [item for each in ALWAYS_SERVED for item in api.ok("GET", each.path_in_all_namespaces)["items"]]
        live = {item["metadata"]["uid"] for item in objects}
        live |= {obj["metadata"]["uid"] for kind in running.server.registry for obj in _stored(running, kind.id)}
        left = [
            item["metadata"]
            for item in objects
            if "ownerReferences" in item["metadata"]
            and not any(each["uid"] in live for each in item["metadata"]["ownerReferences"])
            and "deletionTimestamp" not in item["metadata"]
            and all(_is_knowable(running, each, item["metadata"]) for each in item["metadata"]["ownerReferences"])
        ]
        if not left:
            return
        assert time.monotonic() < deadline, f"not collected: {left}"


def _is_knowable(running: Running, reference: Plain, metadata: Plain) -> bool:
    """Return whether the owner's kind is served, and is not in a namespace that the object does not have."""
    kind = running.server.registry.by_kind(reference["apiVersion"], reference["kind"])
    return kind is not None and (not kind.namespaced or "namespace" in metadata)


def _stored(running: Running, kind_id: str) -> list[Plain]:
    return list(running.server.store.objects(kind_id))


def _key(item: Plain) -> Key:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


class _Watcher:
    """The objects of a kind, tracked through a watch."""

    def __init__(self, objects: dict[Key, str], version: int) -> None:
        self._objects, self._version = objects, version
        self._events: queue.Queue[Plain] = queue.Queue()

    def read(self, events: Iterator[Plain]) -> None:
        """Queue events until the stream ends."""
        for event in events:
            self._events.put(event)

    def apply_until(self, objects: dict[Key, str], version: int) -> None:
        """Apply events until they result in these objects. No event is later than this version, that of the list."""
        while self._objects != objects:
            event = self._events.get(timeout=TIMEOUT)
            assert event["type"] in ("ADDED", "MODIFIED", "DELETED"), event
            key, text = _key(event["object"]), event["object"]["metadata"]["resourceVersion"]
            assert self._version < int(text) <= version, "events come in their order, and none is missing"
            self._version = int(text)
            assert (key in self._objects) == (event["type"] != "ADDED")
            if event["type"] == "DELETED":
                del self._objects[key]
            else:
                self._objects[key] = text


@contextmanager
def _watcher(running: Running, collection: Collection) -> Iterator[_Watcher]:
    """A watch in its own thread."""
    with running.http() as api:
        listed = api.ok("GET", collection.path_in_all_namespaces)
        version = listed["metadata"]["resourceVersion"]
        watcher = _Watcher({_key(each): each["metadata"]["resourceVersion"] for each in listed["items"]}, int(version))
        with api.watch(collection.path_in_all_namespaces, resourceVersion=version) as events:
            thread = threading.Thread(target=watcher.read, args=(events,), daemon=True)
            thread.start()
            yield watcher
            thread.join(TIMEOUT)  # the server has ended, which ends the stream
