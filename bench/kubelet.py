"""The stand-in kubelet.

Allocation among many devices, many pods, and memory over many admissions. An allocation is complete when the plugin
has answered and the checkpoint is synced to disk; the kubelet waits for both.
"""

import asyncio
import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

from bench.process import resident
from bench.table import Goal, Table
from kubelet import Node, container, pod
from kubelet.devicemanager import Device
from kubelet.stubs import DevicePluginStub

RESOURCE = "example.com/device"
DEVICES = 10_000
CONTAINERS = 500
PODS = 1_000
ADMISSIONS = 10_000


def run() -> Iterator[Table]:
    """Measure."""
    one = asyncio.run(_on_a_node(DEVICES, _one_container))
    many = asyncio.run(_on_a_node(PODS, _many_pods))
    memory = asyncio.run(_on_a_node(8, _admissions))
    rows = [
        (f"one container among {DEVICES} devices, first", "ms", one["first"], Goal(5)),
        (f"one container among {DEVICES} devices, p50", "ms", one["p50"], Goal(5)),
        (f"one container among {DEVICES} devices, p99", "ms", one["p99"], Goal(5)),
        (f"{PODS} pods admitted", "s", many["seconds"], Goal(10)),
        (f"resident memory after {ADMISSIONS // 10} admissions", "MiB", memory["early"], None),
        (f"resident memory after {ADMISSIONS} admissions", "MiB", memory["late"], None),
    ]
    judged = ((what, unit, value, goal.judge(value, {}) if goal else "") for what, unit, value, goal in rows)
    yield Table(("", "unit", "figure", "goal"), tuple(judged))


async def _on_a_node(
    devices: int, measure: Callable[[Node, DevicePluginStub], Coroutine[Any, Any, dict[str, float]]]
) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        async with Node(Path(folder)) as node:
            listed = [Device(f"device-{number:06}") for number in range(devices)]
            async with DevicePluginStub(node.device_plugins / "p.sock", RESOURCE, listed) as plugin:
                await plugin.register(node.kubelet_socket)
                await node.until(lambda: node.capacity().get(RESOURCE) == devices)
                return await measure(node, plugin)


async def _one_container(node: Node, _: DevicePluginStub) -> dict[str, float]:
    """Measure the admission of one pod after the other; the earlier pods keep their device."""
    took = []
    await asyncio.sleep(3)  # until the kubelet has prepared the checksums of the list
    for number in range(CONTAINERS):
        wanted = pod(f"p{number}", container("c", {RESOURCE: 1}))
        started = time.perf_counter()
        status = await node.admit(wanted)
        took.append((time.perf_counter() - started) * 1000)
        assert status.phase == "Running"
    return {
        "first": took[0],
        "p50": statistics.median(took),
        "p99": statistics.quantiles(took, n=100)[98],
        "max": max(took),
    }


async def _many_pods(node: Node, _: DevicePluginStub) -> dict[str, float]:
    started = time.perf_counter()
    for number in range(PODS):
        status = await node.admit(pod(f"p{number}", container("c", {RESOURCE: 1})))
        assert status.phase == "Running"
    return {"seconds": time.perf_counter() - started}


async def _admissions(node: Node, plugin: DevicePluginStub) -> dict[str, float]:
    """Admit and remove one pod after the other; return the memory early and late."""
    early = 0.0
    for number in range(ADMISSIONS):
        if number == ADMISSIONS // 10:
            early = _resident()
        name = f"p{number}"
        assert (await node.admit(pod(name, container("c", {RESOURCE: 4})))).phase == "Running"
        await node.remove(name)
        plugin.calls.clear()  # the stub's own log
    return {"early": early, "late": _resident()}


def _resident() -> float:
    gc.collect()
    return resident()
