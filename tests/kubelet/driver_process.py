"""A DRA driver as a process: `driver_process.py FOLDER KUBECONFIG BEHAVIOUR`.

It publishes devices only with `sharing`: one device that several claims can share, each with a part of its capacity.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from dra_plugin.publishing.slices import Controller, DriverResources, Owner, Pool, Slice
from kubelet import ApiCluster, ClusterError
from kubelet.stubs import DRAPluginStub, PluginFault, StubReply, claimed
from kubeletapi.dra.v1 import api_pb2 as api
from resourceapi.client import from_kubeconfig
from resourceapi.client.blocking import Client
from resourceapi.objects import ObjectMeta, Quantity, v1

NAME, NODE = "driver.example.com", "node"


class Driver:
    """The driver's answers, valid or faulty."""

    def __init__(self, cluster: ApiCluster, behaviour: str) -> None:
        self._cluster = cluster
        self._behaviour = behaviour
        self._calls = 0

    async def prepare(self, request: api.NodePrepareResourcesRequest) -> StubReply:
        """Prepare one device for each claim that agrees with the API server's."""
        response = api.NodePrepareResourcesResponse()
        if self._behaviour == "mortal":
            os._exit(3)
        for asked in request.claims:
            error = await self._problem(asked)
            if error and self._behaviour == "strict":
                raise PluginFault(error)
            if error and self._behaviour == "forgetful":
                continue
            if error:
                response.claims[asked.uid].error = error
            else:
                response.claims[asked.uid].devices.append(self._device())
        return response

    async def unprepare(self, request: api.NodeUnprepareResourcesRequest) -> StubReply:
        """Succeed without an action."""
        response = api.NodeUnprepareResourcesResponse()
        for asked in request.claims:
            error = await self._problem(asked) if self._behaviour == "stubborn" else ""
            response.claims[asked.uid].error = error
        return response

    async def _problem(self, asked: Any) -> str:
        try:
            claim = await self._cluster.get_claim(asked.namespace, asked.name)
        except ClusterError as error:
            return str(error)
        if claim.metadata.uid != asked.uid:
            return "another claim has the name"
        if self._behaviour == "sharing" and claim.status.allocation is not None:
            (result,) = claim.status.allocation.devices.results
            amounts = {name: str(amount) for name, amount in result.consumed_capacity.items()}
            if not result.share_id or amounts != {"memory": "1Gi", "bandwidth": "10G"}:
                return f"share {result.share_id} of {amounts}"
        return ""

    def _device(self) -> api.Device:
        self._calls += 1
        if self._behaviour == "careless":
            return claimed(["somebody"], "pool", "other", "no-cdi-name")
        device = f"g{self._calls}" if self._behaviour == "fickle" else "g0"
        return claimed(["verify"], "pool", device, f"example.com/gpu={device}")


def _shared() -> DriverResources:
    policy = v1.CapacityRequestPolicy(default=Quantity.parse("1Gi"))
    capacity = {
        "memory": v1.DeviceCapacity(value=Quantity.parse("16Gi"), request_policy=policy),
        "bandwidth": v1.DeviceCapacity(value=Quantity.parse("10G")),
    }
    device = v1.Device(name="g0", capacity=capacity, allow_multiple_allocations=True)
    return DriverResources({"pool": Pool(slices=(Slice(devices=(device,)),))})


async def main(registry: Path, kubeconfig: Path, behaviour: str) -> None:
    """Serve until a signal arrives."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    client = Client(from_kubeconfig(kubeconfig))
    driver = Driver(ApiCluster(client), behaviour)
    folder = registry.parent if behaviour == "silent" else registry
    running: list[asyncio.Task[None]] = []
    async with DRAPluginStub(folder, NAME) as plugin, asyncio.TaskGroup() as tasks:
        plugin.behaviours = {"NodePrepareResources": driver.prepare, "NodeUnprepareResources": driver.unprepare}
        if behaviour == "sharing":
            running.append(tasks.create_task(Controller(client.aio, NAME, Owner.node(NODE), resources=_shared()).run()))
        if behaviour in ("lost", "partial"):
            pool = v1.ResourcePool(name="pool", generation=1, resource_slice_count=1 if behaviour == "lost" else 2)
            node, devices = ("other", (v1.Device(name="g0"),)) if behaviour == "lost" else (NODE, ())
            spec = v1.ResourceSliceSpec(driver=NAME, pool=pool, node_name=node, devices=devices)
            made = v1.ResourceSlice(metadata=ObjectMeta(name="s"), spec=spec)
            await asyncio.to_thread(client.resource(v1.ResourceSlice).create, made)
        if behaviour == "misnamed":
            plugin.info.name = "Driver Example"
        if behaviour == "ancient":
            plugin.info.supported_versions[:] = ["v0.DRAPlugin"]
            await plugin.until(lambda: len(plugin.called("NotifyRegistrationStatus")) > 1, 600)
            sys.exit("twice refused")
        await stopped.wait()
        for task in running:
            task.cancel()
    client.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
