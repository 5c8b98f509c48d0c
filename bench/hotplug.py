"""From the kernel's event to the message at the kubelet.

Real loop devices and real network links. Each event is the first after a quiet period. The benchmark needs root. It
receives the kernel's events itself and acts as the kubelet; a latency is the time between the event and the message.
"""

import asyncio
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.quantile import quantile
from bench.table import Goal, LeftOut, Table
from hostdevices.watching.uevent_socket import UeventSocket
from tests.deviceplugin.kubelet_end import KubeletEnd

LOOP_CTL_ADD, LOOP_CTL_REMOVE = 0x4C80, 0x4C81
EVENTS = 100
P99 = Goal(8)  # milliseconds
QUIET = 0.3  # seconds between events: each one is the first of a quiet period
RESOURCES = [
    {"name": "bench.example/loop", "select": {"kind": "block", "path": "/dev/loop1*"}, "dangerous": True},
    {"name": "bench.example/veth", "select": {"kind": "nic", "id": "nic-npbench*"}},
]


def run() -> Iterator[Table]:
    """Measure single adds; p50, p99 and the maximum in milliseconds."""
    if os.geteuid() != 0:
        raise LeftOut("making devices needs root")
    found = asyncio.run(_measure())
    rows = []
    for what, latencies in found.items():
        ordered = sorted(latencies)
        p50, p99 = (quantile(ordered, share) for share in (0.5, 0.99))
        rows.append((what, len(ordered), p50, p99, ordered[-1], P99.judge(p99, {})))
    yield Table(("event", "count", "p50 ms", "p99 ms", "longest ms", "goal for p99"), tuple(rows))


async def _measure() -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory(prefix="np-") as name:
        folder = Path(name)
        (folder / "device-plugins").mkdir()
        config = folder / "config.yaml"
        settings = {"kubeletRoot": name, "stateDirectory": f"{name}/state", "cdiDirectory": f"{name}/cdi"}
        config.write_text(json.dumps({"settings": settings | {"logLevel": "warning"}, "resources": RESOURCES}))
        kubelet = KubeletEnd(folder / "device-plugins")
        await kubelet.start()
        command = [sys.executable, "-m", "nodeplug", "run", "--config", str(config)]
        daemon = await asyncio.create_subprocess_exec(*command)
        try:
            for _ in RESOURCES:
                await kubelet.lists.get()
            return await _events(kubelet)
        finally:
            daemon.terminate()
            await daemon.wait()
            await kubelet.stop()


async def _events(kubelet: KubeletEnd) -> dict[str, list[float]]:
    kernel = UeventSocket("kernel", 1 << 20)
    heard: asyncio.Queue[tuple[str, float]] = asyncio.Queue()

    def hear() -> None:
        now = time.perf_counter()
        event = kernel.receive()
        if event is not None and event.subsystem in (b"block", b"net"):
            heard.put_nowait((event.path.decode().rpartition("/")[2], now))

    loop = asyncio.get_running_loop()
    loop.add_reader(kernel.fileno(), hear)
    found: dict[str, list[float]] = {}

    async def one(what: str, names: str, cause: Any) -> None:
        await asyncio.sleep(QUIET)
        while not heard.empty():
            heard.get_nowait()
        assert kubelet.lists.empty(), "a list that no event of ours caused"
        cause()
        arrival = asyncio.ensure_future(_arrival(kubelet))
        while not (event := await heard.get())[0].startswith(names):
            continue
        found.setdefault(what, []).append((await arrival - event[1]) * 1000)

    with open("/dev/loop-control") as control:  # noqa: ASYNC230 - opened once, before anything is measured
        for _ in range(EVENTS):
            await one("loop device added", "loop1", lambda: fcntl.ioctl(control, LOOP_CTL_ADD, 101))
            fcntl.ioctl(control, LOOP_CTL_REMOVE, 101)
            await kubelet.lists.get()
    for _ in range(EVENTS):
        await one(
            "network link added", "npbench", lambda: _ip("add", "npbench0", "type", "veth", "peer", "name", "np1")
        )
        _ip("del", "npbench0")
        await kubelet.lists.get()
    loop.remove_reader(kernel.fileno())
    kernel.close()
    return found


async def _arrival(kubelet: KubeletEnd) -> float:
    await kubelet.lists.get()
    return time.perf_counter()


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", "link", *arguments], check=True)
