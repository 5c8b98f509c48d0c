"""A DRA driver as a process: `driver_process.py FOLDER KUBECONFIG BEHAVIOUR`.

It publishes devices with `shared-device`, and with `deletes-slices` until its first stop: one device that several
claims can share, each with a part of its capacity.
"""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

from kubelet import ApiCluster, ClusterError
from kubelet.stubs import DRAPluginStub, PluginFault, StubReply, claimed
from kubeletapi.dra.v1 import api_pb2 as api
from resourceapi.client import AsyncClient, Refused, from_kubeconfig
from resourceapi.client.blocking import Client
from resourceapi.objects import ObjectMeta, Quantity, v1

NAME, NODE = "driver.example.com", "node"


class Driver:
    """The driver's answers, valid or faulty."""

    def __init__(self, client: Client, behaviour: str) -> None:
        self._client, self._cluster = client, ApiCluster(client)
        self._behaviour = behaviour
        self._calls = 0

    async def prepare(self, request: api.NodePrepareResourcesRequest) -> StubReply:
        """Prepare one device for each claim that agrees with the API server's."""
        response = api.NodePrepareResourcesResponse()
        if self._behaviour == "dies-in-prepare":
            os._exit(3)
        for asked in request.claims:
            error = await self._problem(asked)
            if error and self._behaviour == "fails-whole-call":
                raise PluginFault(error)
            if error and self._behaviour == "omits-claims":
                continue
            if error:
                response.claims[asked.uid].error = error
            else:
                response.claims[asked.uid].devices.append(self._device())
        if self._behaviour == "reports-other-device" and len(request.claims) == 1:
            await self._report(request.claims[0])
        return response

    async def delete_slices(self) -> None:
        """Delete what was published, which a driver need not do."""
        await self._cluster.delete_slices(NODE, NAME)

    async def _report(self, asked: Any) -> None:
        """Report a device that the claim does not have, which the API server refuses."""
        reported = {"driver": NAME, "pool": "pool", "device": "g9"}
        path = f"/apis/resource.k8s.io/v1/namespaces/{asked.namespace}/resourceclaims/{asked.name}/status"
        with contextlib.suppress(Refused):
            patch, kind = {"status": {"devices": [reported]}}, "application/merge-patch+json"
            await self._client.aio.request("PATCH", path, patch, content_type=kind)

    async def unprepare(self, request: api.NodeUnprepareResourcesRequest) -> StubReply:
        """Succeed without an action."""
        response = api.NodeUnprepareResourcesResponse()
        for asked in request.claims:
            error = await self._problem(asked) if self._behaviour == "unprepare-needs-claim" else ""
            response.claims[asked.uid].error = error
        return response

    async def _problem(self, asked: Any) -> str:
        try:
            claim = await self._cluster.get_claim(asked.namespace, asked.name)
        except ClusterError as error:
            return str(error)
        if claim.metadata.uid != asked.uid:
            return "another claim has the name"
        if self._behaviour == "shared-device" and claim.status.allocation is not None:
            (result,) = claim.status.allocation.devices.results
            amounts = {name: str(amount) for name, amount in result.consumed_capacity.items()}
            if not result.share_id or amounts != {"memory": "1Gi", "bandwidth": "10G"}:
                return f"share {result.share_id} of {amounts}"
        return ""

    def _device(self) -> api.Device:
        self._calls += 1
        if self._behaviour == "unallocated-device":
            return claimed(["other-request"], "pool", "other", "no-cdi-name")
        device = f"g{self._calls}" if self._behaviour == "device-per-call" else "g0"
        id_ = f"gpu-{os.getpid()}" if self._behaviour == "cdi-id-per-process" else device
        return claimed(["verify"], "pool", device, f"example.com/gpu={id_}")


async def _publish_shared(client: AsyncClient) -> None:
    # imported here: all of dra_plugin, a quarter of the start of every other driver
    from dra_plugin.publishing.slices import Controller, DriverResources, Owner, Pool, Slice

    policy = v1.CapacityRequestPolicy(default=Quantity.parse("1Gi"))
    capacity = {
        "memory": v1.DeviceCapacity(value=Quantity.parse("16Gi"), request_policy=policy),
        "bandwidth": v1.DeviceCapacity(value=Quantity.parse("10G")),
    }
    device = v1.Device(name="g0", capacity=capacity, allow_multiple_allocations=True)
    resources = DriverResources({"pool": Pool(slices=(Slice(devices=(device,)),))})
    await Controller(client, NAME, Owner.node(NODE), resources=resources).run()


async def main(registry: Path, kubeconfig: Path, behaviour: str) -> None:
    """Serve until a signal arrives."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    client = Client(from_kubeconfig(kubeconfig))
    driver = Driver(client, behaviour)
    folder = registry.parent if behaviour == "unregistered" else registry
    if behaviour == "exits-after-refusal":  # before the kubelet finds a socket
        with contextlib.suppress(Refused):
            await client.aio.request("GET", "/api/v1/nodes/elsewhere")
        sys.exit(4)
    running: list[asyncio.Task[None]] = []
    async with DRAPluginStub(folder, NAME) as plugin, asyncio.TaskGroup() as tasks:
        plugin.behaviours = {"NodePrepareResources": driver.prepare, "NodeUnprepareResources": driver.unprepare}
        marker = registry.parent / "stopped"
        if behaviour == "shared-device" or (behaviour == "deletes-slices" and not marker.exists()):
            running.append(tasks.create_task(_publish_shared(client.aio)))
        if behaviour in ("other-node", "incomplete-pool", "invalid-slice"):
            pool = v1.ResourcePool(
                name="pool", generation=1, resource_slice_count=2 if behaviour == "incomplete-pool" else 1
            )
            node, devices = {
                "other-node": ("other", ("g0",)),
                "incomplete-pool": (NODE, ()),
                "invalid-slice": (NODE, ("G_0",)),
            }[behaviour]
            made = tuple(v1.Device(name=each) for each in devices)
            spec = v1.ResourceSliceSpec(driver=NAME, pool=pool, node_name=node, devices=made)
            slice_ = v1.ResourceSlice(metadata=ObjectMeta(name="s"), spec=spec)
            for _ in range(2 if behaviour == "invalid-slice" else 1):
                with contextlib.suppress(Refused):
                    await client.aio.resource(v1.ResourceSlice).create(slice_)
        if behaviour == "invalid-name":
            plugin.info.name = "Driver Example"
        if behaviour == "unsupported-version":
            plugin.info.supported_versions[:] = ["v0.DRAPlugin"]
            await plugin.until(lambda: len(plugin.called("NotifyRegistrationStatus")) > 1, 600)
            sys.exit("twice refused")
        await stopped.wait()
        for task in running:
            task.cancel()
    if behaviour == "deletes-slices":
        marker.touch()
        await driver.delete_slices()
    client.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
