"""Claims through the daemon.

The daemon as a process with both APIs on: start, memory, and claims through the kubelet's own calls. The API server of
`$KUBECONFIG`, or our stand-in, and a stand-in kubelet run in other processes; the ledger is on a disk, the CDI specs
are in memory as on a node. Between single calls there is a pause, in which what they leave for later is done: the
status of the claim. The time from exec until all is published has the kubelet's look for plugins in it, once a second.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

from bench.start import command
from bench.table import Goal, Table
from bench.tree import make_host
from checkpoint import Ledger
from grpcunix import Client as GrpcClient
from grpcunix import connect
from kubeletapi.dra.v1 import api_pb2 as dra
from resourceapi.client import Client, from_kubeconfig
from resourceapi.objects import v1

RESOURCES, DEVICES = 10, 10
ONE_BY_ONE, TOGETHER, ROUNDS = 200, 64, 10
PAUSE = 0.05  # seconds
DRIVER, NODE = "nodeplug.dev", "worker-1"
NODEPLUG = (sys.executable, "-m", "nodeplug")
_Figure: TypeAlias = tuple[str, str, float, Goal | None]
_SERVICE = dra.DESCRIPTOR.services_by_name["DRAPlugin"]


def run() -> Iterator[Table]:
    """Measure."""
    with tempfile.TemporaryDirectory(prefix="b-", dir="/var/tmp") as name, ExitStack() as stack:  # /tmp may be memory
        folder = Path(name)
        cdi = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))  # as /var/run is
        kubeconfig = Path(os.environ.get("KUBECONFIG") or _api_server(stack, folder))
        client = Client(from_kubeconfig(kubeconfig))
        stack.callback(client.close)
        client.raw("v1", "nodes", namespaced=False).create(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
        )
        kubelet = [*NODEPLUG, "kubelet", "run", "--dir", str(folder / "k"), "--no-apiserver"]
        _killed(stack, subprocess.Popen(kubelet, stdout=subprocess.DEVNULL))
        rows = asyncio.run(_measure(folder, client, lambda: _killed(stack, _daemon(folder, cdi, kubeconfig))))
    judged = ((what, unit, value, goal.judge(value, {}) if goal else "") for what, unit, value, goal in rows)
    yield Table(("", "unit", "figure", "goal"), tuple(judged))


def _api_server(stack: ExitStack, folder: Path) -> Path:
    kubeconfig = folder / "kubeconfig"
    command = [*NODEPLUG, "apiserver", "--kubeconfig", str(kubeconfig)]
    server = _killed(stack, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
    assert server.stdout is not None
    server.stdout.readline()  # it is ready
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
    resident = _resident(daemon.pid)
    async with connect(folder / "k/plugins" / DRIVER / "dra.sock") as channel:
        times = await _claims(GrpcClient(channel, _SERVICE), client)
    return [
        ("exec to all published", "ms", published, None),
        *times,
        ("resident memory when published, both APIs", "MiB", resident, Goal(37)),
        ("resident memory after the claims", "MiB", _resident(daemon.pid), None),
    ]


async def _make_ledger(folder: Path) -> None:
    """Leave the ledger of a daemon that ran here before: one without waits until a kubelet can say what pods hold."""
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


async def _claims(plugin: GrpcClient, client: Client) -> list[_Figure]:
    claims = await asyncio.to_thread(_allocated, client)

    async def call(method: str, claim: dra.Claim) -> None:
        request = getattr(dra, f"{method}Request")(claims=[claim])
        answer = await plugin.call(method, request, timeout=45)
        assert not answer.claims[claim.uid].error, answer.claims[claim.uid].error

    one: dict[str, list[float]] = {"NodePrepareResources": [], "NodeUnprepareResources": []}
    for n in range(ONE_BY_ONE):
        for method, times in one.items():
            began = time.perf_counter()
            await call(method, claims[n % TOGETHER])
            times.append((time.perf_counter() - began) * 1e3)
            await asyncio.sleep(PAUSE)
    together = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        await asyncio.gather(*(call("NodePrepareResources", claim) for claim in claims))
        together.append((time.perf_counter() - began) * 1e3)
        await asyncio.gather(*(call("NodeUnprepareResources", claim) for claim in claims))
    prepare, unprepare = (sorted(times) for times in one.values())
    together.sort()
    return [
        ("NodePrepareResources p50, one claim, on disk", "ms", prepare[len(prepare) // 2], Goal(3)),
        ("NodePrepareResources p99, one claim, on disk", "ms", prepare[len(prepare) * 99 // 100], Goal(8)),
        ("NodeUnprepareResources p50", "ms", unprepare[len(unprepare) // 2], None),
        (f"{TOGETHER} claims in parallel, median", "ms", together[len(together) // 2], Goal(100)),
        (f"{TOGETHER} claims in parallel, longest", "ms", together[-1], None),
    ]


def _allocated(client: Client) -> list[dra.Claim]:
    """Make claims that are allocated, each on a device of its own."""
    resource = client.resource(v1.ResourceClaim)
    made = []
    for n in range(TOGETHER):
        device = f"misc-res{n // DEVICES}-dev{n % DEVICES}"
        request = {"name": "device", "exactly": {"deviceClassName": "any"}}
        claim = client.raw("resource.k8s.io/v1", "resourceclaims", namespaced=True)
        stored = claim.create(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": f"claim-{n}", "namespace": "default"},
                "spec": {"devices": {"requests": [request]}},
            }
        )
        result = {"request": "device", "driver": DRIVER, "pool": NODE, "device": device}
        claim.update_status({**stored, "status": {"allocation": {"devices": {"results": [result]}}}})
        found = resource.get(f"claim-{n}", "default").metadata
        made.append(dra.Claim(namespace="default", name=found.name, uid=found.uid))
    return made


def _until_published(client: Client) -> None:
    published: dict[str, int] = {}
    with client.resource(v1.ResourceSlice).watch(field_selector=f"spec.driver={DRIVER}") as events:
        for event in events:
            published.update({each.metadata.name: len(each.spec.devices) for each in event.items})
            if sum(published.values()) == RESOURCES * DEVICES:
                return


def _resident(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024
