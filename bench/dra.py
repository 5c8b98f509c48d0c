"""Claims through the daemon.

The daemon runs as a process with both APIs: start, memory, and claims through the kubelet's own calls. The API server
of `$KUBECONFIG`, or the stand-in with TLS, and a stand-in kubelet run in other processes. The ledger is on a disk;
the CDI specs are in memory, as on a node. Between single calls there is a pause for deferred work: the status of the
claim. The time from exec until everything is published includes the kubelet's search for plugins, once a second. For
comparison: the Go driver of `examples/go` with upstream's helper, which reads the claim like the daemon but keeps no
lease, writes no status and syncs nothing; and a call that does nothing.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

from bench.baselines import program
from bench.process import resident
from bench.quantile import quantile
from bench.start import command
from bench.table import Goal, LeftOut, Table
from bench.tree import make_host
from checkpoint import Ledger
from grpcunix import Client as GrpcClient
from grpcunix import connect
from kubeletapi.dra.v1 import api_pb2 as dra
from resourceapi.client import from_kubeconfig
from resourceapi.client.blocking import Client
from resourceapi.objects import v1

RESOURCES, DEVICES = 10, 10
ONE_BY_ONE, TOGETHER, ROUNDS = 200, 64, 10
PAUSE = 0.05  # seconds
GO_CALLS, GO_PAUSE = 40, 0.2  # client-go's default limit is five requests a second
DRIVER, NODE = "nodeplug.dev", "worker-1"
GO_DRIVER = "gopher.example.com"
NODEPLUG = (sys.executable, "-m", "nodeplug")
_Figure: TypeAlias = tuple[str, str, float, Goal | None]
_Times: TypeAlias = dict[str, list[float]]  # milliseconds, by method
_MEMORY_AFTER_CLAIMS = "resident memory after the claims"
_UNPREPARE_NOTHING = "NodeUnprepareResources of no claim"
_SERVICE = dra.DESCRIPTOR.services_by_name["DRAPlugin"]


def run() -> Iterator[Table]:
    """Measure."""
    with tempfile.TemporaryDirectory(prefix="b-", dir="/var/tmp") as name, ExitStack() as stack:  # a disk, unlike /tmp
        folder = Path(name)
        cdi = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))  # in memory, like /var/run
        kubeconfig = Path(os.environ.get("KUBECONFIG") or _api_server(stack, folder))
        client = Client(from_kubeconfig(kubeconfig))
        stack.callback(client.close)
        client.raw("v1", "nodes", namespaced=False).create(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
        )
        kubelet = [*NODEPLUG, "kubelet", "run", "--dir", str(folder / "k"), "--no-apiserver"]
        _killed(stack, subprocess.Popen(kubelet, stdout=subprocess.DEVNULL))
        while not (folder / "k/plugins_registry").exists():
            time.sleep(PAUSE)
        go: dict[str, float] = {}
        notes: tuple[str, ...] = ()
        try:
            words = ["-node", NODE, "-kubelet", str(folder / "k"), "-cdi", str(folder / "cdi")]
            driver = [str(program("dra-driver")), *words, "-kubeconfig", str(kubeconfig)]
            process = subprocess.Popen(driver, stderr=subprocess.DEVNULL)
            go = asyncio.run(_go(folder, client, _killed(stack, process)))
        except LeftOut as reason:
            notes = (f"Go driver: left out: {reason}",)
        rows = asyncio.run(_measure(folder, client, lambda: _killed(stack, _daemon(folder, cdi, kubeconfig))))
    judged = (
        (what, unit, value, go.get(what), goal.judge(value, {}) if goal else "") for what, unit, value, goal in rows
    )
    yield Table(("", "unit", "nodeplug", "Go driver", "goal"), tuple(judged), notes)


def _api_server(stack: ExitStack, folder: Path) -> Path:
    kubeconfig = folder / "kubeconfig"
    command = [*NODEPLUG, "apiserver", "--tls", "--kubeconfig", str(kubeconfig)]  # with TLS, like real servers
    server = _killed(stack, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
    assert server.stdout is not None
    server.stdout.readline()  # printed when the server is ready
    return kubeconfig


def _killed(stack: ExitStack, process: "subprocess.Popen[bytes]") -> "subprocess.Popen[bytes]":
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


async def _measure(folder: Path, client: Client, start: Callable[[], "subprocess.Popen[bytes]"]) -> list[_Figure]:
    await _make_ledger(folder / "state")
    began = time.perf_counter()
    daemon = start()
    await asyncio.to_thread(_until_published, client)
    published = (time.perf_counter() - began) * 1e3
    memory = resident(daemon.pid)
    async with connect(folder / "k/plugins" / DRIVER / "dra.sock") as channel:
        times = await _claims(GrpcClient(channel, _SERVICE), client)
    return [
        ("exec to all published", "ms", published, None),
        *times,
        ("resident memory when published, both APIs", "MiB", memory, Goal(37)),
        (_MEMORY_AFTER_CLAIMS, "MiB", resident(daemon.pid), None),
    ]


async def _make_ledger(folder: Path) -> None:
    """Create a complete ledger: without one, the daemon would wait for a kubelet that reports the pods' devices."""
    ledger = Ledger(folder, "boot")
    await ledger.take()
    ledger.complete()
    await ledger.close()


def _daemon(folder: Path, cdi: Path, kubeconfig: Path) -> "subprocess.Popen[bytes]":
    root = folder / "host"
    globs = make_host(root, RESOURCES, DEVICES)
    settings = {
        "kubeletRoot": str(folder / "k"),
        "stateDirectory": str(folder / "state"),
        "cdiDirectory": str(cdi),
        "kubeconfig": str(kubeconfig),
        "nodeName": NODE,
        "logLevel": "warning",
    }
    resources = [{"name": f"example.com/res{n}", "select": {"id": x}, "api": "both"} for n, x in enumerate(globs)]
    config = folder / "config.yaml"
    config.write_text(json.dumps({"settings": settings, "resources": resources}))
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.Popen(command(config, root), env=environment)


async def _go(folder: Path, client: Client, driver: "subprocess.Popen[bytes]") -> dict[str, float]:
    """Return the figures of the Go driver, and stop it."""
    await asyncio.to_thread(_until_published, client, GO_DRIVER, 2)
    claim = await asyncio.to_thread(_allocated, client, "go", GO_DRIVER, "a")
    async with connect(folder / "k/plugins" / GO_DRIVER / "dra.sock") as channel:
        times = await _one_by_one(GrpcClient(channel, _SERVICE), [claim] * GO_CALLS, GO_PAUSE)
    memory = resident(driver.pid)
    driver.kill()
    return {what: value for what, _, value, _ in _single(times)} | {_MEMORY_AFTER_CLAIMS: memory}


async def _claims(plugin: GrpcClient, client: Client) -> list[_Figure]:
    claims = await asyncio.to_thread(
        lambda: [_allocated(client, f"claim-{n}", DRIVER, _name(n)) for n in range(TOGETHER)]
    )
    one = await _one_by_one(plugin, [claims[n % TOGETHER] for n in range(ONE_BY_ONE)], PAUSE)
    together = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        await asyncio.gather(*(_call(plugin, "NodePrepareResources", claim) for claim in claims))
        together.append((time.perf_counter() - began) * 1e3)
        await asyncio.gather(*(_call(plugin, "NodeUnprepareResources", claim) for claim in claims))
    together.sort()
    return [
        *_single(one),
        (f"{TOGETHER} claims in parallel, median", "ms", quantile(together, 0.5), Goal(100)),
        (f"{TOGETHER} claims in parallel, longest", "ms", together[-1], None),
    ]


async def _one_by_one(plugin: GrpcClient, claims: Sequence[dra.Claim], pause: float) -> _Times:
    times: _Times = {"NodePrepareResources": [], "NodeUnprepareResources": [], _UNPREPARE_NOTHING: []}
    for claim in claims:
        for method, taken in times.items():
            began = time.perf_counter()
            if method == _UNPREPARE_NOTHING:
                await plugin.call("NodeUnprepareResources", dra.NodeUnprepareResourcesRequest(), timeout=45)
            else:
                await _call(plugin, method, claim)
            taken.append((time.perf_counter() - began) * 1e3)
            await asyncio.sleep(pause)
    return times


async def _call(plugin: GrpcClient, method: str, claim: dra.Claim) -> None:
    request = getattr(dra, f"{method}Request")(claims=[claim])
    answer = await plugin.call(method, request, timeout=45)
    assert not answer.claims[claim.uid].error, answer.claims[claim.uid].error


def _single(times: _Times) -> list[_Figure]:
    prepare, unprepare, nothing = times.values()
    return [
        ("NodePrepareResources p50, one claim, on disk", "ms", quantile(prepare, 0.5), Goal(3)),
        ("NodePrepareResources p99, one claim, on disk", "ms", quantile(prepare, 0.99), Goal(8)),
        ("NodeUnprepareResources p50", "ms", quantile(unprepare, 0.5), None),
        (f"{_UNPREPARE_NOTHING}, p50", "ms", quantile(nothing, 0.5), None),
    ]


def _name(number: int) -> str:
    return f"misc-res{number // DEVICES}-dev{number % DEVICES}"


def _allocated(client: Client, name: str, driver: str, device: str) -> dra.Claim:
    """Create a claim to which a device is allocated."""
    resource = client.raw("resource.k8s.io/v1", "resourceclaims", namespaced=True)
    stored = resource.create(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"devices": {"requests": [{"name": "device", "exactly": {"deviceClassName": "any"}}]}},
        }
    )
    result = {"request": "device", "driver": driver, "pool": NODE, "device": device}
    resource.update_status({**stored, "status": {"allocation": {"devices": {"results": [result]}}}})
    return dra.Claim(namespace="default", name=name, uid=stored["metadata"]["uid"])


def _until_published(client: Client, driver: str = DRIVER, devices: int = RESOURCES * DEVICES) -> None:
    published: dict[str, int] = {}
    with client.resource(v1.ResourceSlice).watch(field_selector=f"spec.driver={driver}") as events:
        for event in events:
            published.update({each.metadata.name: len(each.spec.devices) for each in event.items})
            if sum(published.values()) == devices:
                return
