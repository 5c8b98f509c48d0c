"""The admission of pods: allocated devices, refusals, and what the node reports."""

import pytest

from checkpoint.kubelet_devices import WITHOUT_TOPOLOGY
from grpcunix import RpcError, Status
from kubelet.devicemanager import Device
from kubelet.pods import container, pod
from kubelet.stubs import answering, failing
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from tests.kubelet.both.scenario import NO_HEALTHY, both, healthy, unhealthy
from tests.kubelet.both.world import ScenarioFixture


def requests(plugin_calls: list[api.AllocateRequest]) -> list[list[str]]:
    return [list(call.container_requests[0].devices_ids) for call in plugin_calls]


def preferring(*ids: str) -> api.PreferredAllocationResponse:
    return api.PreferredAllocationResponse(
        container_responses=[api.ContainerPreferredAllocationResponse(deviceIDs=ids)]
    )


@both
async def one_device(fixture: ScenarioFixture) -> None:
    plugin = await fixture.offering(healthy("a", "b"))
    view = await fixture.run(pod(fixture.name, container("c", {fixture.resource: 1})))
    ((chosen,),) = requests(plugin.called("Allocate"))
    assert await fixture.held(fixture.name) == {"c": [chosen]}
    (entry,) = fixture.entries()
    assert (entry.pod_uid, entry.container, entry.by_node) == (view.uid, "c", {WITHOUT_TOPOLOGY: [chosen]})
    assert api.ContainerAllocateResponse.FromString(entry.response or b"").envs == {"DEVICES": chosen}
    assert sorted((fixture.checkpoint().registered or {})[fixture.resource] or ()) == ["a", "b"]
    await fixture.until_offered(2, 2)


@both
async def too_many_devices_requested(fixture: ScenarioFixture) -> None:
    await fixture.offering(healthy("a", "b"))
    text = await fixture.rejection(pod(fixture.name, container("c", {fixture.resource: 9})))
    assert text == f"requested number of devices unavailable for {fixture.resource}. Requested: 9, Available: 2"
    assert await fixture.held(fixture.name) is None


@both
async def no_healthy_devices(fixture: ScenarioFixture) -> None:
    await fixture.offering(unhealthy("a"))
    for amount in (1, 0):
        text = await fixture.rejection(pod(f"{fixture.name}{amount}", container("c", {fixture.resource: amount})))
        assert text == NO_HEALTHY.format(fixture.resource)


@both
async def plugin_stopped(fixture: ScenarioFixture) -> None:
    plugin = await fixture.offering(healthy("a"))
    await plugin.stop()
    await fixture.until_offered(1, 0)
    text = await fixture.rejection(pod(fixture.name, container("c", {fixture.resource: 1})))
    assert text == NO_HEALTHY.format(fixture.resource)


@both
async def unknown_resource(fixture: ScenarioFixture) -> None:
    await fixture.run(pod(fixture.name, container("c", {fixture.resource: 1})))
    assert await fixture.held(fixture.name) == {"c": []}


@both
async def allocate_fails(fixture: ScenarioFixture) -> None:
    plugin = await fixture.offering(healthy("a"))
    plugin.behaviours["Allocate"] = failing("cannot give a")
    text = await fixture.rejection(pod(fixture.name, container("c", {fixture.resource: 1})))
    assert text == "rpc error: code = Internal desc = cannot give a"
    assert fixture.entries() == []
    del plugin.behaviours["Allocate"]
    await fixture.run(pod(f"{fixture.name}2", container("c", {fixture.resource: 1})))


@both
async def allocate_without_responses(fixture: ScenarioFixture) -> None:
    plugin = await fixture.offering(healthy("a"))
    plugin.behaviours["Allocate"] = answering(api.AllocateResponse())
    text = await fixture.rejection(pod(fixture.name, container("c", {fixture.resource: 1})))
    assert text == "no containers return in allocation response "


@both
async def allocate_with_two_responses(fixture: ScenarioFixture) -> None:
    plugin = await fixture.offering(healthy("a"))
    answers = [api.ContainerAllocateResponse(envs={"N": number}) for number in "12"]
    plugin.behaviours["Allocate"] = answering(api.AllocateResponse(container_responses=answers))
    await fixture.run(pod(fixture.name, container("c", {fixture.resource: 1})))
    (entry,) = fixture.entries()
    assert api.ContainerAllocateResponse.FromString(entry.response or b"").envs == {"N": "1"}


@both
async def preferred_allocation(fixture: ScenarioFixture) -> None:
    plugin = await fixture.offering(healthy("a", "b", "c", "d"), preferred_allocation=True)
    plugin.behaviours["GetPreferredAllocation"] = answering(preferring("d", "b"))
    await fixture.run(pod(fixture.name, container("c", {fixture.resource: 2})))
    (call,) = plugin.called("GetPreferredAllocation")
    (asked,) = call.container_requests
    assert sorted(asked.available_deviceIDs) == ["a", "b", "c", "d"]
    assert (list(asked.must_include_deviceIDs), asked.allocation_size) == ([], 2)
    assert await fixture.held(fixture.name) == {"c": ["b", "d"]}


@both
async def preferred_allocation_of_unknown_ids(fixture: ScenarioFixture) -> None:
    plugin = await fixture.offering(healthy("a", "b", "c"), preferred_allocation=True)
    plugin.behaviours["GetPreferredAllocation"] = answering(preferring("bogus", "c"))
    await fixture.run(pod(fixture.name, container("c", {fixture.resource: 2})))
    held = (await fixture.held(fixture.name) or {})["c"]
    assert len(held) == 2
    assert "c" in held


@both
async def preferred_allocation_fails(fixture: ScenarioFixture) -> None:
    plugin = await fixture.offering(healthy("a"), preferred_allocation=True)
    plugin.behaviours["GetPreferredAllocation"] = failing("no idea")
    text = await fixture.rejection(pod(fixture.name, container("c", {fixture.resource: 1})))
    assert text == (
        "device plugin GetPreferredAllocation rpc failed with err: rpc error: code = Internal desc = no idea"
    )


@both
async def init_containers_reuse_devices(fixture: ScenarioFixture) -> None:
    plugin = await fixture.offering(healthy(*"abcdefgh"))
    r = fixture.resource
    await fixture.run(
        pod(
            fixture.name,
            container("a1", {r: 1}),
            container("a2", {r: 1}),
            init=(container("i1", {r: 2}), container("i2", {r: 3}), container("side", {r: 1}, sidecar=True)),
        )
    )
    asked = [set(ids) for ids in requests(plugin.called("Allocate"))]
    assert [len(ids) for ids in asked] == [2, 3, 1, 1, 1]
    assert asked[0] < asked[1]
    assert asked[2] | asked[3] | asked[4] == asked[1]
    held = await fixture.held(fixture.name)
    assert held is not None
    assert list(held) == ["side", "a1", "a2"]
    assert [set(ids) for ids in held.values()] == asked[2:]
    assert {entry.container for entry in fixture.entries()} == {"i1", "i2", "side", "a1", "a2"}


@both
async def devices_with_topology(fixture: ScenarioFixture) -> None:
    devices = [
        Device("both", topology=(0, 1)),
        Device("empty", topology=()),
        Device("none"),
        Device("zero", topology=(0,)),
    ]
    await fixture.offering(devices)
    assert await fixture.placed() == [("both", 0), ("both", 1), ("none", None), ("zero", 0)]
    await fixture.run(pod(fixture.name, container("c", {fixture.resource: 4})))
    assert await fixture.placed(fixture.name) == [
        ("both", 0),
        ("both", 1),
        ("empty", None),
        ("none", None),
        ("zero", 0),
    ]
    (entry,) = fixture.entries()
    by_node = {node: sorted(ids or ()) for node, ids in (entry.by_node or {}).items()}
    assert by_node == {-1: ["empty", "none"], 0: ["both", "zero"], 1: ["both"]}


@both
async def pod_resources_of_missing_pod(fixture: ScenarioFixture) -> None:
    with pytest.raises(RpcError) as error:
        await fixture.placed("nobody")
    assert error.value.code is Status.UNKNOWN
    assert error.value.details == "pod nobody in namespace default not found"
