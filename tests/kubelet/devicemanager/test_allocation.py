"""Allocation of devices to containers: the choice, refusals with their messages, and the options for the runtime."""

import asyncio
from pathlib import Path

import pytest

from kubelet import RELEASES, Version
from kubelet.devicemanager import Device, NodeInfo, PodAdmitAttributes
from kubelet.errors import AllocationError, PluginCallError
from kubelet.pods import container
from kubelet.stubs import Behaviour, Gate, answering, failing
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from resourceapi.objects.core import (
    ContainerExtendedResourceRequest,
    ContainerStatus,
    Pod,
    PodExtendedResourceClaimStatus,
    PodStatus,
)
from tests.kubelet.kit import R1, R2, R3, FixedAffinity, ManagerKit, healthy, unhealthy
from tests.kubelet.scenarios import scenario

FULL = "requested number of devices unavailable for {}. Requested: {}, Available: {}"


def spec(path: str) -> api.DeviceSpec:
    return api.DeviceSpec(container_path=path, host_path=path, permissions="mrw")


def mount(number: int) -> api.Mount:
    name = f"container_dir1/file{number}"
    return api.Mount(container_path=f"/{name}", host_path=f"host_{name}", read_only=True)


ANSWERS = {
    "dev1": api.ContainerAllocateResponse(devices=[spec("/dev/aaa"), spec("/dev/bbb")], mounts=[mount(1)]),
    "dev2": api.ContainerAllocateResponse(devices=[spec("/dev/ccc")], mounts=[mount(2)], envs={"key1": "val1"}),
    "dev3": api.ContainerAllocateResponse(envs={"key2": "val2"}),
    "dev4": api.ContainerAllocateResponse(envs={"key2": "val3"}),
}


async def answer(request: api.AllocateRequest) -> api.AllocateResponse:
    """The merged answers for the requested devices."""
    merged = api.ContainerAllocateResponse()
    for id_ in request.container_requests[0].devices_ids:
        merged.MergeFrom(ANSWERS[id_])
    return api.AllocateResponse(container_responses=[merged])


async def register_two_resources(kit: ManagerKit) -> None:
    """Two plugins: dev1 and dev2 of R1, dev3 and dev4 of R2."""
    for resource, devices in ((R1, healthy("dev1", "dev2", node=0)), (R2, healthy("dev3", "dev4"))):
        plugin = await kit.plugin(resource, devices)
        plugin.behaviours["Allocate"] = answer


async def option_counts(kit: ManagerKit, owner: Pod, name: str = "c") -> tuple[int, int, int]:
    options = await kit.manager.get_device_run_container_options(owner, owner.container(name))
    return (len(options.devices), len(options.mounts), len(options.envs))


@scenario(11, 14)
async def test_pods_get_devices_until_none_is_left(kit: ManagerKit) -> None:
    await register_two_resources(kit)
    a = await kit.admit("a", container("c", {R1: 2, "cpu": 2, R2: 1}))
    assert await option_counts(kit, a) == (3, 2, 2)
    assert (kit.in_use(R1), kit.in_use(R2)) == (2, 1)
    b = kit.pod("b", container("c", {R1: 1}))
    with pytest.raises(AllocationError) as error:
        await kit.manager.allocate_container(b, b.container("c"))
    assert str(error.value) == FULL.format(R1, 1, 0)
    kit.active.remove(b)
    assert await option_counts(kit, b) == (0, 0, 0)
    assert (kit.in_use(R1), kit.in_use(R2)) == (2, 1)
    c = await kit.admit("c", container("c", {R2: 1}))
    assert await option_counts(kit, c) == (0, 0, 1)
    kit.active.remove(a)
    kit.manager.update_allocated_devices()
    assert await option_counts(kit, a) == (0, 0, 0)
    assert (kit.in_use(R1), kit.in_use(R2)) == (0, 1)


async def test_allocate_serves_all_containers_of_a_pod(kit: ManagerKit) -> None:
    await register_two_resources(kit)
    made = kit.pod("p", container("c", {R1: 1}), init=[container("i", {R1: 2})])
    node = NodeInfo({})
    await kit.manager.allocate(node, PodAdmitAttributes(made))
    assert kit.held(made, "i") == {"dev1", "dev2"}
    assert len(kit.held(made, "c")) == 1
    assert node.allocatable == {R1: 2}


@scenario(12)
async def test_allocation_without_healthy_devices_has_upstream_error(kit: ManagerKit) -> None:
    r1 = await kit.plugin(R1, healthy("dev1", "dev2"))
    r3 = await kit.plugin(R3, healthy("dev5", "dev7"))
    pod1 = await kit.admit("pod1", container("c", {R1: 2}))
    pod3 = await kit.admit("pod3", container("c", {R3: 1}))
    r1.update(unhealthy("dev1", "dev2"))
    r3.update(healthy("dev7", "dev8"))
    await kit.until(lambda: "dev8" in kit.manager.state.all[R3] and not kit.manager.state.healthy[R1])
    for owner, text in (
        (pod1, f"no healthy devices present; cannot allocate unhealthy devices {R1}"),
        (pod3, f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {R3}"),
    ):
        with pytest.raises(AllocationError) as error:
            await kit.manager.allocate_container(owner, owner.container("c"))
        assert str(error.value) == text


@scenario(12)
async def test_resource_known_only_from_records_is_unregistered(kit: ManagerKit) -> None:
    kit.manager.state.records.insert("other", "c", R2, {0: ["dev5"]}, api.ContainerAllocateResponse())
    owner = kit.pod("pod2", container("c", {R2: 1}))
    with pytest.raises(AllocationError, match=f"^cannot allocate unregistered device {R2}$"):
        await kit.manager.allocate_container(owner, owner.container("c"))


async def test_changed_request_is_refused(kit: ManagerKit) -> None:
    await kit.plugin(R1, healthy("a", "b"))
    owner = await kit.admit("p", container("c", {R1: 1}))
    with pytest.raises(AllocationError) as error:
        await kit.manager.allocate_container(owner, container("c", {R1: 2}))
    assert str(error.value) == f'pod "p" container "c" changed request for resource "{R1}" from 1 to 2'


async def test_repeated_allocation_does_not_call_plugin_again(kit: ManagerKit) -> None:
    plugin = await kit.plugin(R1, healthy("a", "b"))
    owner = await kit.admit("p", container("c", {R1: 1}))
    await kit.manager.allocate_container(owner, owner.container("c"))
    assert len(plugin.called("Allocate")) == 1


async def test_limit_of_zero_needs_a_healthy_device(kit: ManagerKit) -> None:
    plugin = await kit.plugin(R1, unhealthy("a"))
    owner = kit.pod("p", container("c", {R1: 0}))
    with pytest.raises(AllocationError, match="no healthy devices present"):
        await kit.manager.allocate_container(owner, owner.container("c"))
    plugin.update(healthy("a"))
    await kit.listed(R1, healthy("a"))
    await kit.manager.allocate_container(owner, owner.container("c"))
    assert plugin.called("Allocate") == []


async def test_resource_without_plugin_is_ignored(kit: ManagerKit) -> None:
    owner = await kit.admit("p", container("c", {"example.com/unknown": 1, "cpu": "500m"}))
    assert await option_counts(kit, owner) == (0, 0, 0)


@pytest.mark.parametrize(
    ("behaviour", "text"),
    [
        (failing("cannot give d0"), "rpc error: code = Internal desc = cannot give d0"),
        (answering(b"\xff\xff"), "rpc error: code = Internal desc = grpc: failed to unmarshal the received message"),
        (
            answering(
                api.AllocateResponse(container_responses=[api.ContainerAllocateResponse(envs={"A": "x" * 5_000_000})])
            ),
            "rpc error: code = ResourceExhausted desc = grpc: received message larger than max (50000",
        ),
    ],
    ids=["error", "no message", "over 4 MiB"],
)
async def test_failed_allocation_frees_its_devices(kit: ManagerKit, behaviour: Behaviour, text: str) -> None:
    plugin = await kit.plugin(R1, healthy("a"))
    plugin.behaviours["Allocate"] = behaviour
    owner = kit.pod("p", container("c", {R1: 1}))
    before = kit.manager.state.checkpoint()
    with pytest.raises((AllocationError, PluginCallError)) as error:
        await kit.manager.allocate_container(owner, owner.container("c"))
    assert str(error.value).startswith(text)
    assert kit.in_use() == 0
    assert kit.manager.state.checkpoint() == before
    del plugin.behaviours["Allocate"]
    await kit.manager.allocate_container(owner, owner.container("c"))
    assert kit.held(owner, "c") == {"a"}


@pytest.mark.parametrize(
    ("method", "behaviour", "text", "taken"),
    [
        ("Allocate", answering(api.AllocateResponse()), "no containers return in allocation response ", 2),
        ("GetPreferredAllocation", failing("no idea"), "device plugin GetPreferredAllocation rpc failed", 1),
    ],
    ids=["no responses", "no preference"],
)
async def test_devices_of_refused_allocation_stay_taken_until_next_recount(
    folder: Path, method: str, behaviour: Behaviour, text: str, taken: int
) -> None:
    """Device manager specification, sections 4.2 (step 8) and 4.3. Aligned devices are chosen before any call."""
    async with ManagerKit(folder, affinity=FixedAffinity(0), numa_nodes=(0, 1)) as kit:
        plugin = await kit.plugin(R1, [*healthy("a", node=0), *healthy("b", node=1)], preferred_allocation=True)
        await kit.plugin(R2, healthy("x"))
        holder = await kit.admit("holder", container("c", {R2: 1}))
        plugin.behaviours[method] = behaviour
        unlucky = kit.pod("unlucky", container("c", {R1: 2}))
        with pytest.raises(AllocationError, match=text):
            await kit.manager.allocate_container(unlucky, unlucky.container("c"))
        del plugin.behaviours[method]
        assert kit.manager.get_devices("unlucky", "c") is None
        with pytest.raises(AllocationError, match=FULL.format(R1, 2, 2 - taken)):
            await kit.admit("next", container("c", {R1: 2}))
        kit.active.remove(holder)
        await kit.admit("last", container("c", {R1: 2}))


async def test_first_of_two_container_responses_is_used(kit: ManagerKit) -> None:
    plugin = await kit.plugin(R1, healthy("a"))
    both = [api.ContainerAllocateResponse(envs={"N": number}) for number in "12"]
    plugin.behaviours["Allocate"] = answering(api.AllocateResponse(container_responses=both))
    owner = await kit.admit("p", container("c", {R1: 1}))
    options = await kit.manager.get_device_run_container_options(owner, owner.container("c"))
    assert [env.value for env in options.envs] == ["1"]


async def test_checkpoint_write_error_fails_container_and_keeps_record(kit: ManagerKit) -> None:
    await kit.plugin(R1, healthy("a"))
    await kit.manager.checkpoint.write(kit.manager.state.checkpoint())
    kit.manager.checkpoint.path.unlink()
    kit.manager.checkpoint.path.mkdir()
    owner = kit.pod("p", container("c", {R1: 1}))
    with pytest.raises(AllocationError, match=r'^failed to write checkpoint file "kubelet_internal_checkpoint": '):
        await kit.manager.allocate_container(owner, owner.container("c"))
    assert kit.held(owner, "c") == {"a"}, "the record in memory is kept"
    kit.manager.checkpoint.path.rmdir()


@scenario(13)
async def test_pod_can_be_removed_during_plugin_call(kit: ManagerKit) -> None:
    plugin = await kit.plugin(R1, healthy("a", "b"), preferred_allocation=True)
    other = await kit.admit("other", container("c", {R1: 1}))
    gate = plugin.behaviours["GetPreferredAllocation"] = Gate(api.PreferredAllocationResponse())
    owner = kit.pod("p", container("c", {R1: 1}))
    asked = asyncio.create_task(kit.manager.allocate_container(owner, owner.container("c")))
    await plugin.until(lambda: len(plugin.called("GetPreferredAllocation")) == 2)
    kit.active.remove(other)
    kit.manager.update_allocated_devices()
    assert kit.in_use() == 0
    gate.open()
    await asked
    assert kit.held(owner, "c") == {"b"}


async def test_concurrent_allocations_get_different_devices(kit: ManagerKit) -> None:
    plugin = await kit.plugin(R1, healthy("a", "b"), preferred_allocation=True)
    preferred_response = api.ContainerPreferredAllocationResponse(deviceIDs=["a"])
    gate = plugin.behaviours["GetPreferredAllocation"] = Gate(
        api.PreferredAllocationResponse(container_responses=[preferred_response])
    )
    pods = [kit.pod(name, container("c", {R1: 1})) for name in "pq"]
    tasks = [asyncio.create_task(kit.manager.allocate_container(each, each.container("c"))) for each in pods]
    await plugin.until(lambda: len(plugin.called("GetPreferredAllocation")) == 2)
    gate.open()
    await asyncio.gather(*tasks)
    assert sorted(id_ for each in pods for id_ in kit.held(each, "c")) == ["a", "b"]


@scenario(15)
async def test_init_containers_pass_devices_to_later_containers(kit: ManagerKit) -> None:
    await register_two_resources(kit)
    owner = await kit.admit(
        "p",
        container("app1", {R1: 1, R2: 1}),
        container("app2", {R1: 1, R2: 1}),
        init=[container("init1", {R1: 1}), container("init2", {R1: 2})],
    )
    held = {each.name: kit.held(owner, each.name) for each in owner.all_containers}
    assert {name: len(ids) for name, ids in held.items()} == {"init1": 1, "init2": 2, "app1": 1, "app2": 1}
    assert held["init2"] >= held["init1"] | held["app1"] | held["app2"]
    assert not held["app1"] & held["app2"]


@scenario(16)
async def test_sidecars_keep_their_devices(kit: ManagerKit) -> None:
    await kit.plugin(R1, healthy(*(f"dev{number}" for number in range(1, 7))))
    owner = await kit.admit(
        "p",
        container("app1", {R1: 1}),
        container("app2", {R1: 2}),
        init=[
            container("init1", {R1: 3}),
            container("side2", {R1: 1}, sidecar=True),
            container("side3", {R1: 2}, sidecar=True),
        ],
    )
    held = {each.name: kit.held(owner, each.name) for each in owner.all_containers}
    assert [len(ids) for ids in held.values()] == [3, 1, 2, 1, 2]
    assert held["init1"] >= held["side2"] | held["side3"]
    keepers = [held[name] for name in ("side2", "side3", "app1", "app2")]
    assert len(set().union(*keepers)) == sum(map(len, keepers)) == 6


@scenario(18)
async def test_pre_start_is_called_before_every_container_start(kit: ManagerKit) -> None:
    plugin = await kit.plugin(R1, healthy("dev1", "dev2"), pre_start_required=True)
    plugin.behaviours["Allocate"] = answer
    owner = await kit.admit("p", container("c", {R1: 2}))
    assert plugin.called("PreStartContainer") == []
    for count in (1, 2):
        assert await option_counts(kit, owner) == (3, 2, 1)
        assert len(plugin.called("PreStartContainer")) == count
    assert set(plugin.called("PreStartContainer")[0].devices_ids) == {"dev1", "dev2"}
    nothing = await kit.admit("q", container("c", {R1: 0}))
    assert await option_counts(kit, nothing) == (0, 0, 0)
    assert len(plugin.called("PreStartContainer")) == 2


async def test_failed_pre_start_has_upstream_error(kit: ManagerKit) -> None:
    plugin = await kit.plugin(R1, healthy("a"), pre_start_required=True)
    plugin.behaviours["PreStartContainer"] = failing("broken")
    owner = await kit.admit("p", container("c", {R1: 1}))
    with pytest.raises(AllocationError) as error:
        await option_counts(kit, owner)
    assert str(error.value) == (
        "device plugin PreStartContainer rpc failed with err: rpc error: code = Internal desc = broken"
    )
    kit.manager.state.records.delete(["p"])
    with pytest.raises(AllocationError) as error:
        await option_counts(kit, owner)
    assert str(error.value) == (f"no devices found allocated in local cache for pod p, container c, resource {R1}")


async def test_container_without_record_is_allocated_at_start(kit: ManagerKit) -> None:
    await kit.plugin(R1, healthy("a"))
    owner = kit.pod("p", container("c", {R1: 1}))
    assert await option_counts(kit, owner) == (0, 0, 1)
    assert kit.held(owner, "c") == {"a"}


@scenario(21)
async def test_container_status_has_health_of_its_devices(kit: ManagerKit) -> None:
    plugin = await kit.plugin(R1, healthy("dev1", "dev2"))
    owner = await kit.admit("p", container("c", {R1: 2}), init=[container("i", {R1: 1})])
    plugin.update([*healthy("dev1"), *unhealthy("dev2")])
    await kit.listed(R1, [*healthy("dev1"), *unhealthy("dev2")])
    status = PodStatus(
        container_statuses=(ContainerStatus(name="c"), ContainerStatus(name="other")),
        init_container_statuses=(ContainerStatus(name="i"),),
    )
    for listed, expected in (
        (None, {"dev1": "Healthy", "dev2": "Unhealthy"}),
        ([], {"dev1": "Healthy", "dev2": "Healthy"}),
    ):
        if listed is not None:
            plugin.update(listed)
            await kit.listed(R1, listed)
        updated = kit.manager.update_allocated_resources_status(owner, status)
        (resource,) = updated.container_statuses[0].allocated_resources_status
        assert resource.name == R1
        assert {each.resource_id: each.health for each in resource.resources} == expected
        assert updated.container_statuses[1] == ContainerStatus(name="other")
        assert updated.init_container_statuses == status.init_container_statuses


@scenario(23)
@pytest.mark.parametrize("kubernetes", RELEASES)
async def test_extended_resource_of_claim_is_not_allocated_from_plugin(kit: ManagerKit, kubernetes: Version) -> None:
    claim = PodExtendedResourceClaimStatus(
        request_mappings=(ContainerExtendedResourceRequest(container_name="container1", resource_name=R1),)
    )
    kit.manager.state.records.insert("other", "c", R1, {0: ["Dev"]}, api.ContainerAllocateResponse())
    made = kit.pod("p", container("container1", {R1: 1}))
    claimed = Pod(metadata=made.metadata, spec=made.spec, status=PodStatus(extended_resource_claim_status=claim))
    allocating = kit.manager.allocate_container(claimed, claimed.container("container1"))
    if RELEASES[kubernetes].has("DRAExtendedResource"):
        await allocating
    else:
        with pytest.raises(AllocationError, match="cannot allocate unregistered device"):
            await allocating


async def test_plugin_pre_start_for_claimed_resource_fails_container(kit: ManagerKit) -> None:
    """The kubelet allocates none of its devices, but still requires them for PreStartContainer: kubernetes#141426."""
    plugin = await kit.plugin(R1, healthy("d1"), pre_start_required=True)
    claim = PodExtendedResourceClaimStatus(
        request_mappings=(ContainerExtendedResourceRequest(container_name="c", resource_name=R1),)
    )
    made = kit.pod("p", container("c", {R1: 1}))
    claimed = Pod(metadata=made.metadata, spec=made.spec, status=PodStatus(extended_resource_claim_status=claim))
    await kit.manager.allocate_container(claimed, claimed.container("c"))
    with pytest.raises(AllocationError, match=f"no devices found allocated in local cache for pod p, .* {R1}"):
        await kit.manager.get_device_run_container_options(claimed, claimed.container("c"))
    assert (plugin.called("Allocate"), plugin.called("PreStartContainer")) == ([], [])


@scenario(9)
async def test_restart_restores_all_allocations(kit: ManagerKit) -> None:
    cdi = api.ContainerAllocateResponse(
        devices=[spec("/dev/a")], mounts=[mount(1)], cdi_devices=[api.CDIDevice(name="v.com/c=d")], envs={"k": "v"}
    )
    for resource, devices in (
        (R1, [Device("d1", topology=(0, 1)), *healthy("d2", "d3")]),
        (R2, healthy("d1", "d2")),
        (R3, healthy("d5")),
    ):
        plugin = await kit.plugin(resource, devices)
        plugin.behaviours["Allocate"] = answering(api.AllocateResponse(container_responses=[cdi]))
    pods = [
        await kit.admit("pod1", container("con1", {R1: 1, R2: 2}), container("con2", {R1: 1})),
        await kit.admit("pod2", container("con1", {R1: 1})),
        await kit.admit("pod3", container("con3", {R3: 1})),
    ]

    def everything() -> dict[str, object]:
        records = kit.manager.state.records
        return {
            "in use": kit.manager.state.allocated,
            "devices": {
                (each.uid, c.name): records.devices(each.uid, c.name) for each in pods for c in each.all_containers
            },
            "answers": {
                (each.uid, c.name): records.responses(each.uid, c.name) for each in pods for c in each.all_containers
            },
        }

    before = everything()
    await kit.restart()
    assert everything() == before
    assert kit.manager.state.records.pods() == {"pod1", "pod2", "pod3"}
    assert await option_counts(kit, pods[2], "con3") == (1, 1, 1)


async def test_running_container_keeps_device_without_plugin_after_restart(kit: ManagerKit) -> None:
    await kit.plugin(R1, healthy("a", "b"))
    runs = await kit.admit("runs", container("c", {R1: 1}))
    died = await kit.admit("died", container("c", {R1: 1}))
    kit.sources_ready = False
    await kit.restart({("runs", "c"): "id1"})
    await kit.manager.allocate_container(runs, runs.container("c"))
    with pytest.raises(AllocationError, match="no healthy devices present"):
        await kit.manager.allocate_container(died, died.container("c"))
    assert await option_counts(kit, runs) == (0, 0, 1), "the recorded answer is used again without a call"


async def test_lost_checkpoint_loses_allocations(kit: ManagerKit) -> None:
    await kit.plugin(R1, healthy("a"))
    owner = await kit.admit("p", container("c", {R1: 1}))
    await kit.manager.stop()
    kit.manager.checkpoint.path.unlink()
    await kit.restart()
    assert kit.held(owner, "c") == set()
    await kit.manager.allocate_container(owner, owner.container("c"))
    assert kit.held(owner, "c") == set(), "an unknown resource is ignored"
