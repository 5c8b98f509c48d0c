"""The API server's and the kubelet's part in a claim's life."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from controlplane.apiserver import Server
from dra_plugin.driver import PreparedDevice
from grpcunix import UnixServer, handler
from kubeletapi.podresources.v1 import api_pb2 as podresources
from resourceapi.client import Client
from resourceapi.objects import ObjectMeta, to_dict, v1
from tests.dra_plugin.preparing.world import DRIVER

PATIENCE = 30.0  # seconds that a test waits for what must happen


class Cluster:
    """Claims on a server, made and allocated as users and the scheduler do."""

    def __init__(self, client: Client, version: str = "") -> None:
        self.claims = client.resource(v1.ResourceClaim, version)

    async def allocate(self, name: str, *results: v1.DeviceRequestAllocationResult) -> v1.ResourceClaim:
        """Make a claim that got these devices."""
        requests = tuple(
            v1.DeviceRequest(name=request, exactly=v1.ExactDeviceRequest(device_class_name="any"))
            for request in dict.fromkeys(result.request for result in results)
        )
        claim = v1.ResourceClaim(
            metadata=ObjectMeta(name=name, namespace="default"),
            spec=v1.ResourceClaimSpec(devices=v1.DeviceClaim(requests=requests)),
        )
        made = await asyncio.to_thread(self.claims.create, claim)
        devices = v1.DeviceAllocationResult(results=results)
        status = v1.ResourceClaimStatus(allocation=v1.AllocationResult(devices=devices))
        return await asyncio.to_thread(self.claims.update_status, replace(made, status=status))

    async def get(self, name: str) -> v1.ResourceClaim:
        """A claim as it is."""
        return await asyncio.to_thread(self.claims.get, name, "default")

    async def until(self, name: str, agrees: Callable[[v1.ResourceClaim], bool]) -> v1.ResourceClaim:
        """Ask for a claim until it is as a test wants it."""
        async with asyncio.timeout(PATIENCE):
            while not agrees(found := await self.get(name)):
                pass
        return found

    async def deallocate(self, name: str) -> None:
        """Take the devices away from a claim."""
        gone = {"status": {"allocation": None, "devices": None}}  # a patch: the node may be writing there, too
        await asyncio.to_thread(self.claims.patch, name, gone, "default", subresource="status")

    async def allocate_again(self, claim: v1.ResourceClaim) -> None:
        """Give a claim that has lost its devices what it had."""
        await asyncio.to_thread(
            self.claims.patch, claim.metadata.name, {"status": to_dict(claim.status)}, "default", subresource="status"
        )

    async def delete(self, name: str) -> None:
        """Delete a claim."""
        await asyncio.to_thread(self.claims.delete, name, "default")


def serve_claims(server: Server, *versions: str) -> None:
    """Have the server know claims in these versions only."""
    kind = next(kind for kind in server.registry if kind.plural == "resourceclaims")
    server.registry.add(replace(kind, versions=tuple(each for each in kind.versions if each.name in versions)))


class PodResources:
    """A kubelet's pod-resources: which pods have which devices of claims. It answers while its gate is open."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_asked = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self._pods: dict[str, podresources.PodResources] = {}

    def run(self, pod: str, claim: str, devices: Sequence[PreparedDevice]) -> None:
        """Let a pod have the devices of a claim."""
        resources = [
            podresources.ClaimResource(
                driver_name=DRIVER, pool_name=device.pool, device_name=device.device, share_id=device.share_id
            )
            for device in devices
        ]
        dynamic = podresources.DynamicResource(claim_name=claim, claim_namespace="default", claim_resources=resources)
        container = podresources.ContainerResources(name="c", dynamic_resources=[dynamic])
        self._pods[pod] = podresources.PodResources(name=pod, namespace="default", containers=[container])

    def end(self, pod: str) -> None:
        """Let a pod be over."""
        del self._pods[pod]

    async def list(self, request: Any, context: Any) -> podresources.ListPodResourcesResponse:
        """Answer the one question."""
        self.asked += 1
        self.is_asked.set()
        await self.gate.wait()
        return podresources.ListPodResourcesResponse(pod_resources=self._pods.values())


@asynccontextmanager
async def serving(pods: PodResources, socket: Path) -> AsyncIterator[None]:
    """Serve pod-resources."""
    server = UnixServer(socket, [handler(podresources.DESCRIPTOR.services_by_name["PodResourcesLister"], pods)])
    await server.start()
    yield
    await server.stop()
