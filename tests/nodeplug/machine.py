"""A made-up machine in a cluster of stand-ins, with `nodeplug run` as a process."""

import asyncio
import json
import os
import sqlite3
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

from controlplane.apiserver import write_kubeconfig
from tests.controlplane.scheduler.kit import Json, device_class
from tests.deviceplugin.host import MadeUpHost
from tests.nodeplug.cluster import NODE, NodeCluster

RESOURCES: list[Json] = [
    {"name": "example.com/fuse", "select": "fuse", "api": "both"},
    {"name": "example.com/kvm", "select": "kvm", "api": "dra", "access": {"uid": 1000, "mode": "0600"}},
]


class Machine:
    """A made-up machine that runs the daemon, in a cluster."""

    def __init__(self, folder: Path, cluster: NodeCluster, host: MadeUpHost, kubelet: Path) -> None:
        self.cluster = cluster
        self.host = host
        self.cdi = folder / "cdi"
        self.state = folder / "state"
        self.kubelet = kubelet
        self.kubeconfig = folder / "kubeconfig"
        self._folder = folder
        self._running: list[Process] = []
        self._configurations = 0

    async def start(
        self, environment: dict[str, str] | None = None, resources: Sequence[Json] = RESOURCES, **settings: Any
    ) -> Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "nodeplug", *self.arguments(resources, **settings)),
            stderr=PIPE,
            env={**os.environ, **(environment or {})},
        )
        self._running.append(process)
        return process

    def arguments(self, resources: Sequence[Json] = RESOURCES, **settings: Any) -> tuple[str, ...]:
        """Return the arguments after `nodeplug` for a daemon with its own configuration file."""
        base = {
            "kubeletRoot": str(self.kubelet),
            "stateDirectory": str(self.state),
            "cdiDirectory": str(self.cdi),
            "kubeconfig": str(self.kubeconfig),
            "nodeName": NODE,
            "lockWaitSeconds": 20,
        }
        path = self._folder / f"config{self._configurations}.yaml"
        self._configurations += 1
        path.write_text(json.dumps({"settings": base | settings, "resources": list(resources)}))
        return ("run", "--config", str(path), "--root", str(self.host.root))

    async def classes(self, driver: str = "nodeplug.dev") -> None:
        """Create the DeviceClasses."""
        for name in ("fuse", "kvm"):
            selector = f'device.attributes["{driver}"].resource == "example.com/{name}"'
            await self.cluster.create(device_class(f"{name}.example.com", selector))

    async def end(self) -> None:
        for process in self._running:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    async def published(self) -> dict[str, Json]:
        """Return the published devices by name."""
        slices = await self.cluster.all("ResourceSlice")
        return {device["name"]: device for each in slices for device in each["spec"].get("devices", [])}

    async def until_published(self) -> None:
        """Advance the kubelet's clock until the daemon is registered and has published."""
        async with asyncio.timeout(30):
            while len(await self.published()) < 2:
                await self.cluster.clock.advance(1.0)
                await asyncio.sleep(0.05)  # the daemon is another process

    async def until(self, predicate: Callable[[], bool]) -> None:
        """Poll until a condition is true: no event reports changes of another process's files."""
        async with asyncio.timeout(30):
            while not predicate():  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.05)

    def leases(self) -> list[tuple[str, str, str]]:
        """Return API, unit and holder of each lease."""
        with closing(sqlite3.connect(self.state / "ledger.sqlite3")) as reader:
            return list(reader.execute("select api, unit, holder from lease order by unit"))

    def specs(self) -> list[Json]:
        """Return the CDI specs of claims, except those of metadata files."""
        found = [json.loads(path.read_text()) for path in sorted(self.cdi.glob("nodeplug-dra~*"))]
        return [spec for spec in found if spec["kind"].endswith("/claim")]


@asynccontextmanager
async def in_cluster(folder: Path, host: MadeUpHost, kubelet: Path) -> AsyncIterator[Machine]:
    """A machine with these devices in its own cluster; its processes end with the block."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(NodeCluster(kubelet))
        made = Machine(folder, cluster, host, kubelet)
        write_kubeconfig(made.kubeconfig, cluster.server.url, cluster.server.token)
        stack.push_async_callback(made.end)
        yield made
