"""A node with constant activity: the actions of a round, and an update of the daemon."""

import asyncio
import json
import tempfile
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any, Self

from controlplane.apiserver import write_kubeconfig
from grpcunix import Client, RpcError
from kubelet.rpc import connect
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from tests.controlplane.scheduler.kit import Json, claim, request
from tests.deviceplugin.host import MadeUpHost
from tests.nodeplug.cluster import NodeCluster, using
from tests.nodeplug.machine import Machine
from tests.soak.growth import Measure

_PLUGIN = api.DESCRIPTOR.services_by_name["DevicePlugin"]
_FUSE, _VHOST = "example.com/fuse", "example.com/vhost-net"
_SHARES = 64
_ACTION_TIMEOUT = 60.0  # real time for any action


class LoadedNode:
    """A machine in a cluster that runs the daemon; `counts` counts the actions."""

    def __init__(self, seed: int, allocations: int) -> None:
        self._random = Random(seed)
        self._allocations = allocations  # in a round
        self._stack = AsyncExitStack()
        self._mode = "0600"
        self.counts: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()  # of Allocate, by the daemon's message

    async def __aenter__(self) -> Self:
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="s")))
        (folder / "k").mkdir()
        self._log = folder / "log"
        self._cluster = await self._stack.enter_async_context(NodeCluster(folder / "k"))
        self._host = MadeUpHost(folder / "host", "fuse", "kvm", "vhost-net")
        self._machine = Machine(folder, self._cluster, self._host, folder / "k")
        write_kubeconfig(self._machine.kubeconfig, self._cluster.server.url, self._cluster.server.token)
        self._stack.push_async_callback(self._machine.end)
        await self._machine.classes()
        self._process = await self._start("0")
        await self._offered()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._stack.aclose()

    def measure(self) -> Measure:
        """Measure the current daemon."""
        return Measure.of(self._process.pid, self._machine.state, self._log)

    async def wait_for_descriptors(self, descriptors: float) -> None:
        """Wait until the daemon has at most this number of descriptors: connections close a moment after their use."""
        await self._until(lambda: self.measure().descriptors <= descriptors)

    async def fill(self, claims: int) -> None:
        """Prepare and unprepare this number of claims, to fill the caches of recent claims."""
        for _ in range(claims):
            await self._prepare()

    async def round(self) -> None:
        """Run each kind of action; the kubelet's restart is last."""
        await self._allocate()
        await self._prepare()
        await self._hotplug()
        await self._reload()
        await self._restart_kubelet()

    async def update(self) -> None:
        """Start a second daemon, and end the first."""
        registry = self._cluster.node.plugins_registry
        second = await self._start(f"{self.counts['updates'] + 1}")
        await self._until(lambda: len(list(registry.glob("*.sock"))) == 2)
        self._process.terminate()
        await self._process.wait()
        assert self._process.returncode == 0
        self._process = second
        await self._offered()
        self.counts["updates"] += 1

    def left_behind(self) -> list[str]:
        """Return descriptions of leftovers."""
        node, machine = self._cluster.node, self._machine
        found = [f"temporary {path.name}" for path in node.device_plugins.parent.rglob(".*.tmp")]
        if len(sockets := list(node.plugins_registry.glob("*.sock"))) != 1:
            found.append(f"{len(sockets)} registration sockets")
        if len(sockets := list(node.device_plugins.glob("nodeplug-*.sock"))) != 2:
            found.append(f"{len(sockets)} sockets of two resources")
        found += [f"CDI file {path.name}" for path in machine.cdi.glob("nodeplug-dra~*")]
        found += [f"lease {lease}" for lease in machine.leases() if lease[0] == "dra"]
        return found

    async def _start(self, uid: str) -> Process:
        resources: list[Json] = [
            {"name": _FUSE, "select": "fuse", "shares": _SHARES},
            {"name": "example.com/kvm", "select": "kvm", "api": "dra", "access": {"mode": self._mode}},
            {"name": _VHOST, "select": "vhost-net"},
        ]
        process = await self._machine.start({"POD_UID": uid}, resources, rescanSeconds=1)
        self._path = max(self._log.parent.glob("config*.yaml"), key=lambda path: path.stat().st_mtime_ns)
        self._stack.push_async_callback(_ended, asyncio.create_task(self._keep_log(process)))
        return process

    async def _keep_log(self, process: Process) -> None:
        assert process.stderr is not None
        with self._log.open("ab", buffering=0) as file:
            async for line in process.stderr:
                file.write(line)

    async def _offered(self) -> None:
        node = self._cluster.node

        async def offered() -> bool:
            allocatable, is_there = node.allocatable(), self.counts["hotplugs"] % 2 == 0
            return allocatable.get(_FUSE) == _SHARES and allocatable.get(_VHOST) == int(is_there)

        await self._until_async(offered)

    async def _allocate(self) -> None:
        """Call Allocate as a kubelet does; after its restart, the old socket can exist for a moment."""
        node = self._cluster.node
        await self._until(lambda: not node.endpoints()[_FUSE].is_stopped)
        async with connect(node.endpoints()[_FUSE].socket) as channel:
            client = Client(channel, _PLUGIN)
            for _ in range(self._allocations):
                unit = f"misc-fuse.{self._random.randrange(_SHARES)}"
                asked = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=[unit])])
                try:
                    await client.call("Allocate", asked, timeout=30)
                    self.counts["allocations"] += 1
                except RpcError as error:
                    self.counts["refused"] += 1
                    self.refusals[f"{error.code.name}: {error.details}"] += 1

    async def _prepare(self) -> None:
        name = f"p{self.counts['claims']}"
        await self._cluster.create(
            claim(name, request(deviceClassName="kvm.example.com")), using(name, ["mine"], claims={"mine": name})
        )

        async def runs() -> bool:
            found = await self._cluster.get("Pod", name)
            return bool(found.get("status", {}).get("phase") == "Running")

        await self._until_async(runs)
        for kind in ("Pod", "ResourceClaim"):
            await self._cluster.delete(kind, name)

            async def is_gone(kind: str = kind) -> bool:
                return not await self._cluster.get(kind, name)

            await self._until_async(is_gone)
        self.counts["claims"] += 1

    async def _hotplug(self) -> None:
        """Remove or add a device's node. The kubelet is notified at the next scan, for which this does not wait."""
        if self.counts["hotplugs"] % 2:
            self._host.renumber("vhost-net", 2)
        else:
            self._host.remove_node("vhost-net")
        self.counts["hotplugs"] += 1

    async def _reload(self) -> None:
        """Write another file; the daemon reads it after half a second without changes."""
        content = json.loads(self._path.read_text())
        self._mode = "0660" if self._mode == "0600" else "0600"
        content["resources"][1]["access"]["mode"] = self._mode
        self._path.write_text(json.dumps(content))
        self.counts["reloads"] += 1

    async def _restart_kubelet(self) -> None:
        node = self._cluster.node
        await node.restart(kill=self._random.random() < 0.5)

        async def registered() -> bool:
            return node.allocatable().get(_FUSE) == _SHARES

        await self._until_async(registered)
        self.counts["kubelet restarts"] += 1

    async def _until(self, holds: Callable[[], object]) -> None:
        async def asked() -> bool:
            return bool(holds())

        await self._until_async(asked)

    async def _until_async(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Advance the kubelet's clock until a condition is true."""
        async with asyncio.timeout(_ACTION_TIMEOUT):
            while not await holds():
                await self._cluster.clock.advance(0.5)
                await asyncio.sleep(0.01)  # the daemon is another process


async def _ended(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    await asyncio.wait([task])
