"""A cluster in a test: API server, scheduler, the stand-in kubelet as its node, and drivers."""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

from kubelet import FakeClock, Node
from kubelet.devicemanager import Device
from kubelet.dramanager import ApiCluster
from kubelet.stubs import DevicePluginStub, DRAPluginStub, claimed
from kubeletapi.dra.v1 import api_pb2 as api
from nodeplug.commands.kubelet_api import ClusterNode
from nodeplug.commands.kubelet_cluster import background
from tests.controlplane.scheduler.kit import DRIVER, EVENT_TIMEOUT, Json, SchedulerCluster, pod, slice_

NODE = "n1"


class NodeCluster(SchedulerCluster):
    """The cluster of this module. The kubelet's clock moves only when a test advances it."""

    def __init__(
        self,
        folder: Path,
        *,
        capacity: Mapping[str, str | int] | None = None,
        labels: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._folder = folder
        self._capacity = capacity or {}
        self._labels = labels or {}
        self.clock = FakeClock()

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self.create(slice_(NODE, "gone", name="stale"))
        self.node = Node(
            self._folder,
            clock=self.clock,
            cluster=ApiCluster(self.client),
            node_name=NODE,
            capacity=self._capacity,
            labels=self._labels,
        )
        self._stack = AsyncExitStack()
        await self._stack.enter_async_context(self.node)
        await self._stack.enter_async_context(background(ClusterNode(self.node, self.client).run()))
        await self.until_gone("ResourceSlice", "stale")  # a kubelet that starts deletes all slices of its node
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._stack.aclose()
        await super().__aexit__(*exception)

    async def driver(self, *devices: str | Json, name: str = DRIVER) -> DRAPluginStub:
        """A driver that has registered and published devices; its CDI ids contain the claim and the device."""
        services = ("v1.DRAPlugin", "v1alpha1.DRAResourceHealth")
        stub = DRAPluginStub(self.node.plugins_registry, name, self._prepared, services=services)
        await self._stack.enter_async_context(stub)
        async with asyncio.timeout(EVENT_TIMEOUT):
            while stub.notified != [(True, "")]:
                await self.clock.advance(1.0)  # the kubelet checks for plugins every second
        if devices:
            await self.create(slice_(NODE, *devices, driver=name, name=f"{name}-slice"))
        return stub

    async def plugin(self, resource: str, *devices: str) -> DevicePluginStub:
        """A device plugin whose devices are in the Node's status."""
        stub = DevicePluginStub(self.node.device_plugins / "p.sock", resource, [Device(each) for each in devices])
        await self._stack.enter_async_context(stub)
        await stub.register(self.node.kubelet_socket)

        async def is_reported() -> bool:
            found = await self.get("Node", NODE)
            return bool(found.get("status", {}).get("capacity", {}).get(resource) == str(len(devices)))

        await self.until(is_reported)
        return stub

    async def until_phase(self, name: str, phase: str) -> Json:
        """Wait until a pod is in a phase, and return it."""

        found: Json = {}

        async def reached() -> Json:
            nonlocal found
            found = await self.get("Pod", name)
            return found if found.get("status", {}).get("phase") == phase else {}

        try:
            return await self.until(reached)
        except TimeoutError as error:
            events = [(x["reason"], x["message"]) for x in await self.all("Event")]
            error.add_note(f"pod {name} is not {phase}: {found.get('status')}; events: {events}")
            raise

    async def advance_clock(self, seconds: float, kind: str, name: str, phase: str) -> Json:
        """Advance the kubelet's clock until an object is in a phase."""

        async def reached() -> Json:
            found = await self.get(kind, name)
            return found if found.get("status", {}).get("phase") == phase else {}

        async with asyncio.timeout(EVENT_TIMEOUT):
            while not (found := await reached()):
                await self.clock.advance(seconds)
        return found

    def _prepared(self, asked: api.Claim) -> Iterable[api.Device]:
        """Read a claim from the server, and prepare its devices."""
        claim = self.server.store.get("resourceclaims.resource.k8s.io", (asked.namespace, asked.name))
        assert claim is not None, "the kubelet has just read it"
        for result in claim["status"]["allocation"]["devices"]["results"]:
            cdi = f"vendor.test/gpu={asked.name}-{result['device']}"
            yield claimed([result["request"].partition("/")[0]], result["pool"], result["device"], cdi)


def using(name: str, *containers: Iterable[str], **more: Any) -> Json:
    """A pod; each of its containers uses claims of the pod, as `name` or `name/request`."""
    made = pod(name, limits=[{}] * max(1, len(containers)), **more)
    for container, uses in zip(made["spec"]["containers"], containers, strict=False):
        found = [each.partition("/") for each in uses]
        container["resources"]["claims"] = [
            {"name": claim} | ({"request": request} if request else {}) for claim, _, request in found
        ]
    return made
