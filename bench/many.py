"""Ten thousand devices on one node.

CPU time and memory of the daemon: from its start until the kubelet has the list, for Allocate of one unit and of all
at once, when one device disappears and comes back, and idle. The devices are of the misc class, which the daemon
reads below /sys, or paths, which it reads below /dev and watches with inotify. With `cdi` the daemon writes a spec
for them first.
"""

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.process import processor_time, resident
from bench.start import command
from bench.table import Table
from bench.tree import make_host
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from tests.deviceplugin.kubelet_end import KubeletEnd

DEVICES = 10_000
CALLS = 200
HOTPLUGS = 10
_SELECT: dict[str, dict[str, Any]] = {
    "misc": {"select": {"id": "misc-res0-dev*"}},
    "misc, cdi": {"select": {"id": "misc-res0-dev*"}, "cdi": True},
    "path": {"select": {"kind": "path", "path": "/dev/res0-dev*"}},
}


def run() -> Iterator[Table]:
    """Measure the processor time of all threads, user and kernel, in milliseconds."""
    found = {name: asyncio.run(_measure(resource)) for name, resource in _SELECT.items()}
    steps = dict.fromkeys(step for figures in found.values() for step in figures)
    rows = [(step, *(figures.get(step) for figures in found.values())) for step in steps]
    yield Table((f"{DEVICES:,} devices", *found), tuple(rows))


async def _measure(resource: dict[str, Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="np-") as name:
        folder, root = Path(name), Path(name) / "host"
        make_host(root, 1, DEVICES)
        (folder / "device-plugins").mkdir()
        settings = {"kubeletRoot": name, "stateDirectory": f"{name}/state", "cdiDirectory": f"{name}/cdi"}
        resources = [{"name": "example.com/many", **resource}]
        (folder / "config.yaml").write_text(json.dumps({"settings": settings, "resources": resources}))
        kubelet = KubeletEnd(folder / "device-plugins")
        await kubelet.start()
        with (folder / "log").open("wb") as log:
            daemon = await asyncio.create_subprocess_exec(*command(folder / "config.yaml", root), stderr=log)
        try:
            units = await _listed(kubelet, DEVICES)
            found["start until listed, ms"] = processor_time(daemon.pid)
            await _quiet(daemon.pid)
            found["start until idle, ms"] = processor_time(daemon.pid)
            found["lines in the log"] = len((folder / "log").read_bytes().splitlines())
            found["resident, MiB"] = resident(daemon.pid)
            before = processor_time(daemon.pid)
            for unit in units[:CALLS]:
                await _allocate(kubelet, [unit])
            found["Allocate of one, ms"] = (processor_time(daemon.pid) - before) / CALLS
            before = processor_time(daemon.pid)
            await _allocate(kubelet, units)
            found["Allocate of all, ms"] = processor_time(daemon.pid) - before
            if "kind" in resource["select"]:
                before = processor_time(daemon.pid)
                for _ in range(HOTPLUGS):
                    await _replug(kubelet, root / "dev/res0-dev7")
                found["one removed or added, ms"] = (processor_time(daemon.pid) - before) / (2 * HOTPLUGS)
            found["resident with all leased, MiB"] = resident(daemon.pid)
            return found
        finally:
            daemon.terminate()
            await daemon.wait()
            await kubelet.stop()


async def _listed(kubelet: KubeletEnd, healthy: int) -> list[str]:
    while True:
        units = [device.ID for device in await kubelet.lists.get() if device.health == "Healthy"]
        if len(units) == healthy:
            return units


async def _allocate(kubelet: KubeletEnd, units: list[str]) -> None:
    request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=units)])
    await kubelet.call("Allocate", request)


async def _replug(kubelet: KubeletEnd, node: Path) -> None:
    status = node.stat()
    node.unlink()
    await _listed(kubelet, DEVICES - 1)
    os.mknod(node, status.st_mode, status.st_rdev)
    await _listed(kubelet, DEVICES)


async def _quiet(pid: int) -> None:
    """Wait until a process has used no processor time for a second."""
    before = -1.0
    while (now := processor_time(pid)) != before:
        before = now
        await asyncio.sleep(1)
