"""The stand-in API server.

Many watchers, many objects; latencies and memory. The server is a process of its own; watchers are raw connections
that only read.
"""

import http.client
import json
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.process import resident
from bench.table import Table

WATCHERS = 1_000
OBJECTS = 10_000
WRITES = 200
PATH = "/apis/resource.k8s.io/v1/resourceslices"


def run() -> Iterator[Table]:
    """Measure."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        memory = _measure([])
        durable = _measure(["--data", str(Path(folder) / "objects")], objects=1_000, watchers=0)
    rows = [
        (f"{OBJECTS} slices created", "per second", memory["creates_per_second"]),
        ("one create, p50", "ms", memory["create_p50"]),
        ("one create, p99", "ms", memory["create_p99"]),
        ("one create with --data, p50", "ms", durable["create_p50"]),
        ("one create with --data, p99", "ms", durable["create_p99"]),
        (f"list of {OBJECTS}", "s", memory["list"]),
        ("list, a page of 500", "ms", memory["page"]),
        (f"a change received by all of {WATCHERS} watchers, p50", "ms", memory["seen_p50"]),
        ("resident memory, empty", "MiB", memory["resident_empty"]),
        (f"resident memory with {OBJECTS} slices", "MiB", memory["resident_objects"]),
        (f"resident memory with these and {WATCHERS} watchers", "MiB", memory["resident_watchers"]),
    ]
    yield Table(("", "unit", "figure"), tuple(rows))


def _measure(options: list[str], objects: int = OBJECTS, watchers: int = WATCHERS) -> dict[str, float]:
    command = [sys.executable, "-m", "nodeplug", "apiserver", "--no-token", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = urllib.parse.urlsplit(process.stdout.readline().split()[-1])
        try:
            return _measure_server(url.hostname or "", url.port or 0, process.pid, objects, watchers)
        finally:
            process.terminate()


def _measure_server(host: str, port: int, pid: int, objects: int, watchers: int) -> dict[str, float]:
    connection = http.client.HTTPConnection(host, port)
    found = {"resident_empty": resident(pid)}
    took = [_timed(connection, "POST", PATH, _slice(index)) for index in range(objects)]
    found |= {"creates_per_second": objects / sum(took), "create_p50": 1e3 * statistics.median(took)}
    found["create_p99"] = 1e3 * statistics.quantiles(took, n=100)[98]
    found["resident_objects"] = resident(pid)
    found["list"] = _timed(connection, "GET", PATH)
    found["page"] = 1e3 * _timed(connection, "GET", f"{PATH}?limit=500")
    if watchers:
        found |= _measure_watches(connection, host, port, watchers)
        found["resident_watchers"] = resident(pid)
    connection.close()
    return found


def _measure_watches(connection: http.client.HTTPConnection, host: str, port: int, watchers: int) -> dict[str, float]:
    """Measure the time from a write until the last watcher has received its event."""
    connection.request("GET", f"{PATH}?limit=1")
    version = json.loads(connection.getresponse().read())["metadata"]["resourceVersion"]
    ready = selectors.DefaultSelector()
    request = f"GET {PATH}?watch=1&resourceVersion={version} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    for _ in range(watchers):
        watcher = socket.create_connection((host, port))
        watcher.sendall(request)
        ready.register(watcher, selectors.EVENT_READ)
    waiting = {key.fileobj for key in ready.get_map().values()}
    while waiting:  # until all have received the response's headers
        for key, _ in ready.select():
            key.fileobj.recv(65536)  # type: ignore[union-attr]  # only sockets are registered
            waiting.discard(key.fileobj)
    seen = []
    for index in range(WRITES // 10):
        name = f"seen-{index}".encode()
        begin = time.perf_counter()
        _timed(connection, "POST", PATH, _slice(index, f"seen-{index}"))
        waiting = {key.fileobj for key in ready.get_map().values()}
        while waiting:
            for key, _ in ready.select():
                if name in key.fileobj.recv(65536):  # type: ignore[union-attr]  # as above
                    waiting.discard(key.fileobj)
        seen.append(time.perf_counter() - begin)
    for key in list(ready.get_map().values()):
        key.fileobj.close()  # type: ignore[union-attr]  # as above
    ready.close()
    return {"seen_p50": 1e3 * statistics.median(seen)}


def _timed(connection: http.client.HTTPConnection, method: str, path: str, body: Any = None) -> float:
    begin = time.perf_counter()
    headers = {"Content-Type": "application/json"} if body is not None else {}
    connection.request(method, path, json.dumps(body) if body is not None else None, headers)
    response = connection.getresponse()
    response.read()
    assert response.status < 300, response.status
    return time.perf_counter() - begin


def _slice(index: int, name: str = "") -> dict[str, Any]:
    devices = [
        {"name": f"d{number}", "attributes": {"model": {"string": "a"}}, "capacity": {"memory": {"value": "80Gi"}}}
        for number in range(2)
    ]
    pool = {"name": f"node{index}", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "nodeName": f"node{index}", "pool": pool, "devices": devices}
    metadata = {"name": name or f"slice-{index}"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": spec}
