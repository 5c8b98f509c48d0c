"""The admission of pods: allocated devices, refusals, and what the node reports."""

import pytest

from checkpoint.kubelet_devices import WITHOUT_TOPOLOGY
from grpcunix import RpcError, Status
from kubelet.devicemanager import Device
from kubelet.pods import container, pod
from kubelet.stubs import answering, failing
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from tests.kubelet.both.scenario import NO_HEALTHY, both, healthy, unhealthy
from tests.kubelet.both.world import Stage


def requests(plugin_calls: list[api.AllocateRequest]) -> list[list[str]]:
    return [list(call.container_requests[0].devices_ids) for call in plugin_calls]


def preferring(*ids: str) -> api.PreferredAllocationResponse:
    return api.PreferredAllocationResponse(
        container_responses=[api.ContainerPreferredAllocationResponse(deviceIDs=ids)]
    )


@both
async def one_device(stage: Stage) -> None:
    plugin = await stage.offering(healthy("a", "b"))
    view = await stage.run(pod(stage.name, container("c", {stage.resource: 1})))
    ((chosen,),) = requests(plugin.called("Allocate"))
    assert await stage.held(stage.name) == {"c": [chosen]}
    (entry,) = stage.entries()
    assert (entry.pod_uid, entry.container, entry.by_node) == (view.uid, "c", {WITHOUT_TOPOLOGY: [chosen]})
    assert api.ContainerAllocateResponse.FromString(entry.response or b"").envs == {"DEVICES": chosen}
    assert sorted((stage.checkpoint().registered or {})[stage.resource] or ()) == ["a", "b"]
    await stage.until_offered(2, 2)


@both
async def too_many_devices_requested(stage: Stage) -> None:
    await stage.offering(healthy("a", "b"))
    text = await stage.rejection(pod(stage.name, container("c", {stage.resource: 9})))
    assert text == f"requested number of devices unavailable for {stage.resource}. Requested: 9, Available: 2"
    assert await stage.held(stage.name) is None


@both
async def no_healthy_devices(stage: Stage) -> None:
    await stage.offering(unhealthy("a"))
    for amount in (1, 0):
        text = await stage.rejection(pod(f"{stage.name}{amount}", container("c", {stage.resource: amount})))
        assert text == NO_HEALTHY.format(stage.resource)


@both
async def plugin_stopped(stage: Stage) -> None:
    plugin = await stage.offering(healthy("a"))
    await plugin.stop()
    await stage.until_offered(1, 0)
    text = await stage.rejection(pod(stage.name, container("c", {stage.resource: 1})))
    assert text == NO_HEALTHY.format(stage.resource)


@both
async def unknown_resource(stage: Stage) -> None:
    await stage.run(pod(stage.name, container("c", {stage.resource: 1})))
    assert await stage.held(stage.name) == {"c": []}


@both
async def allocate_fails(stage: Stage) -> None:
    plugin = await stage.offering(healthy("a"))
    plugin.behaviours["Allocate"] = failing("cannot give a")
    text = await stage.rejection(pod(stage.name, container("c", {stage.resource: 1})))
    assert text == "rpc error: code = Internal desc = cannot give a"
    assert stage.entries() == []
    del plugin.behaviours["Allocate"]
    await stage.run(pod(f"{stage.name}2", container("c", {stage.resource: 1})))


@both
async def allocate_without_responses(stage: Stage) -> None:
    plugin = await stage.offering(healthy("a"))
    plugin.behaviours["Allocate"] = answering(api.AllocateResponse())
    text = await stage.rejection(pod(stage.name, container("c", {stage.resource: 1})))
    assert text == "no containers return in allocation response "


@both
async def allocate_with_two_responses(stage: Stage) -> None:
    plugin = await stage.offering(healthy("a"))
    answers = [api.ContainerAllocateResponse(envs={"N": number}) for number in "12"]
    plugin.behaviours["Allocate"] = answering(api.AllocateResponse(container_responses=answers))
    await stage.run(pod(stage.name, container("c", {stage.resource: 1})))
    (entry,) = stage.entries()
    assert api.ContainerAllocateResponse.FromString(entry.response or b"").envs == {"N": "1"}


@both
async def preferred_allocation(stage: Stage) -> None:
    plugin = await stage.offering(healthy("a", "b", "c", "d"), preferred_allocation=True)
    plugin.behaviours["GetPreferredAllocation"] = answering(preferring("d", "b"))
    await stage.run(pod(stage.name, container("c", {stage.resource: 2})))
    (call,) = plugin.called("GetPreferredAllocation")
    (asked,) = call.container_requests
    assert sorted(asked.available_deviceIDs) == ["a", "b", "c", "d"]
    assert (list(asked.must_include_deviceIDs), asked.allocation_size) == ([], 2)
    assert await stage.held(stage.name) == {"c": ["b", "d"]}


@both
async def preferred_allocation_of_unknown_ids(stage: Stage) -> None:
    plugin = await stage.offering(healthy("a", "b", "c"), preferred_allocation=True)
    plugin.behaviours["GetPreferredAllocation"] = answering(preferring("bogus", "c"))
    await stage.run(pod(stage.name, container("c", {stage.resource: 2})))
    held = (await stage.held(stage.name) or {})["c"]
    assert len(held) == 2
    assert "c" in held


@both
async def preferred_allocation_fails(stage: Stage) -> None:
    plugin = await stage.offering(healthy("a"), preferred_allocation=True)
    plugin.behaviours["GetPreferredAllocation"] = failing("no idea")
    text = await stage.rejection(pod(stage.name, container("c", {stage.resource: 1})))
    assert text == (
        "device plugin GetPreferredAllocation rpc failed with err: rpc error: code = Internal desc = no idea"
    )


@both
async def init_containers_reuse_devices(stage: Stage) -> None:
    plugin = await stage.offering(healthy(*"abcdefgh"))
    r = stage.resource
    await stage.run(
        pod(
            stage.name,
            container("a1", {r: 1}),
            container("a2", {r: 1}),
            init=(container("i1", {r: 2}), container("i2", {r: 3}), container("side", {r: 1}, sidecar=True)),
        )
    )
    asked = [set(ids) for ids in requests(plugin.called("Allocate"))]
    assert [len(ids) for ids in asked] == [2, 3, 1, 1, 1]
    assert asked[0] < asked[1]
    assert asked[2] | asked[3] | asked[4] == asked[1]
    held = await stage.held(stage.name)
    assert held is not None
    assert list(held) == ["side", "a1", "a2"]
    assert [set(ids) for ids in held.values()] == asked[2:]
    assert {entry.container for entry in stage.entries()} == {"i1", "i2", "side", "a1", "a2"}


@both
async def devices_with_topology(stage: Stage) -> None:
    devices = [
        Device("both", topology=(0, 1)),
        Device("empty", topology=()),
        Device("none"),
        Device("zero", topology=(0,)),
    ]
    await stage.offering(devices)
    assert await stage.placed() == [("both", 0), ("both", 1), ("none", None), ("zero", 0)]
    await stage.run(pod(stage.name, container("c", {stage.resource: 4})))
    assert await stage.placed(stage.name) == [("both", 0), ("both", 1), ("empty", None), ("none", None), ("zero", 0)]
    (entry,) = stage.entries()
    by_node = {node: sorted(ids or ()) for node, ids in (entry.by_node or {}).items()}
    assert by_node == {-1: ["empty", "none"], 0: ["both", "zero"], 1: ["both"]}


@both
async def pod_resources_of_missing_pod(stage: Stage) -> None:
    with pytest.raises(RpcError) as error:
        await stage.placed("nobody")
    assert error.value.code is Status.UNKNOWN
    assert error.value.details == "pod nobody in namespace default not found"
