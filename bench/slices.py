"""ResourceSlices of one node.

What the daemon writes to an API server (nodeplug's stand-in, in another process), and how soon. A slice has 64
devices, the API's limit for devices with taints. A change is complete when the server has answered the write.
"""

import asyncio
import gc
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator
from http.client import HTTPConnection

from msgspec.structs import replace

from bench.quantile import quantile
from bench.table import Goal, Table
from dra_plugin.publishing.slices import Controller, DriverResources, Limits, Owner, Pool, Slice, Statistics
from resourceapi.client import Credentials
from resourceapi.client.blocking import Client
from resourceapi.objects import ObjectMeta, Quantity, core, v1

DRIVER, NODE = "nodeplug.dev", "worker-1"
DEVICES, FEW = 2_000, 100
PER_SLICE = 64
CHANGES = 300
WIPES = 10
PATH = "/apis/resource.k8s.io/v1/resourceslices"


def run() -> Iterator[Table]:
    """Measure."""
    gc.freeze()  # like the daemon that the controller belongs to
    command = [sys.executable, "-m", "nodeplug", "apiserver", "--no-token"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split()[-1]
        try:
            many, few = asyncio.run(_measure(url, DEVICES)), asyncio.run(_measure(url, FEW))
        finally:
            server.terminate()
    figures = (
        ("published", "ms", "publish", None),
        ("published, writes", "", "writes", None),
        ("one health change stored, p50", "ms", "change_p50", None),
        ("one health change stored, p99", "ms", "change_p99", Goal(50)),
        (f"{CHANGES} health changes, writes", "", "change_writes", Goal(CHANGES)),
        ("published again after deletion, p50", "ms", "wipe_p50", None),
        ("published again after deletion, longest", "ms", "wipe_longest", None),
        ("published again, writes", "", "wipe_writes", None),
    )
    rows = [
        (what, unit, few[name], many[name], goal.judge(many[name], {}) if goal else "")
        for what, unit, name, goal in figures
    ]
    yield Table(("", "unit", f"{FEW} devices", f"{DEVICES:,} devices", f"goal for {DEVICES:,}"), tuple(rows))


async def _measure(url: str, count: int) -> dict[str, float]:
    credentials = Credentials(server=url)
    client = Client(lambda: credentials)
    nodes = client.resource(core.Node)
    await asyncio.to_thread(nodes.create, core.Node(metadata=ObjectMeta(name=NODE)))
    devices = [device(number) for number in range(count)]
    found: dict[str, float] = {}

    begin = time.perf_counter()
    limits = Limits(max_debounce=Limits().debounce)  # so that repeated wipes do not increase the delay
    controller = Controller(client.aio, DRIVER, Owner.node(NODE), resources=_resources(devices), limits=limits)
    publishing = asyncio.create_task(controller.run())
    await controller.wait_synced()
    found["publish"] = 1e3 * (time.perf_counter() - begin)
    found["writes"] = _sum(controller.statistics)

    before, took = _sum(controller.statistics), []
    for number in range(CHANGES):
        place = number * 37 % count
        devices[place] = with_health(devices[place], is_healthy=bool(devices[place].taints))
        wanted = _resources(devices)
        begin = time.perf_counter()
        controller.update(wanted)
        await controller.wait_synced()
        took.append(1e3 * (time.perf_counter() - begin))
    found |= {"change_p50": quantile(took, 0.5), "change_p99": quantile(took, 0.99)}
    found["change_writes"] = _sum(controller.statistics) - before

    before, took = _sum(controller.statistics), []
    slices = -(-count // PER_SLICE)
    for _ in range(WIPES):
        goal = controller.statistics.creates + slices
        took.append(await _wipe(url, controller, goal))
        await controller.wait_synced()
    found |= {"wipe_p50": quantile(took, 0.5), "wipe_longest": max(took)}
    found["wipe_writes"] = (_sum(controller.statistics) - before) / WIPES

    controller.update(DriverResources())
    await controller.wait_synced()
    publishing.cancel()
    await asyncio.wait([publishing])
    await asyncio.to_thread(nodes.delete, NODE)
    client.close()
    return found


async def _wipe(url: str, controller: Controller, goal: int) -> float:
    """Delete all slices; return the milliseconds until every slice is stored again."""
    await asyncio.to_thread(_delete_all, url)
    begin = time.perf_counter()
    while controller.statistics.creates < goal:  # noqa: ASYNC110 - a statistic is no event, and this is precise enough
        await asyncio.sleep(0.0005)
    return 1e3 * (time.perf_counter() - begin)


def _delete_all(url: str) -> None:
    """Delete all slices of the node, like the kubelet at its start."""
    connection = HTTPConnection(urllib.parse.urlsplit(url).netloc)
    connection.request("DELETE", f"{PATH}?fieldSelector=spec.nodeName%3D{NODE}")
    response = connection.getresponse()
    response.read()
    assert response.status == 200, response.status
    connection.close()


def _resources(devices: list[v1.Device]) -> DriverResources:
    groups = (devices[start : start + PER_SLICE] for start in range(0, len(devices), PER_SLICE))
    return DriverResources({NODE: Pool(slices=tuple(Slice(devices=tuple(group)) for group in groups))})


def device(number: int) -> v1.Device:
    texts = {"resource": "example.com/nic", "kind": "net", "model": "a card", "mac": f"02:00:00:00:{number:04x}"}
    attributes = {name: v1.DeviceAttribute(string_value=text) for name, text in texts.items()}
    attributes["resource.kubernetes.io/pciBusID"] = v1.DeviceAttribute(string_value=f"0000:{number % 256:02x}:00.0")
    attributes["numaNode"] = v1.DeviceAttribute(int_value=number % 2)
    capacity = {"bandwidth": v1.DeviceCapacity(value=Quantity.parse("100G"))}
    return v1.Device(name=f"net-{number}", attributes=attributes, capacity=capacity)


def with_health(device: v1.Device, *, is_healthy: bool) -> v1.Device:
    taint = v1.DeviceTaint(key="nodeplug.dev/unhealthy", value="link-down", effect=v1.NO_SCHEDULE)
    return replace(device, taints=() if is_healthy else (taint,))


def _sum(written: Statistics) -> int:
    return written.creates + written.updates + written.deletes
