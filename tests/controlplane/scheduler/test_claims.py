"""Existing claims and claims from templates: allocation, sharing, reservation, deallocation."""

import pytest

from controlplane.scheduler.claims import generate_name
from tests.controlplane.scheduler.kit import (
    SchedulerCluster,
    claim,
    condition,
    device_class,
    devices,
    node,
    pod,
    request,
    slice_,
    template,
    users,
)
from tests.dra_scenarios import scenario

PROTECTION = "resource.kubernetes.io/delete-protection"


@scenario(211)
async def test_template_claim_is_allocated_until_pod_finishes() -> None:
    async with SchedulerCluster() as cluster:
        about = {"labels": {"a": "b"}, "annotations": {"c": "d"}}
        await cluster.create(node(), device_class(), slice_("n1", "gpu-0"), template(metadata=about))
        await cluster.create(pod("p", templates={"g": "t"}))
        bound = await cluster.until_bound("p")
        assert bound["spec"]["nodeName"] == "n1"
        made = (await cluster.claims_of("p"))["g"]
        metadata = made["metadata"]
        assert metadata["name"].startswith("p-g-")
        assert metadata["labels"] == {"a": "b"}
        assert metadata["annotations"] == {"c": "d", "resource.kubernetes.io/pod-claim-name": "g"}
        assert metadata["finalizers"] == [PROTECTION]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": bound["metadata"]["uid"]}
        assert metadata["ownerReferences"] == [owner | {"controller": True}]
        assert devices(made) == ["n1/gpu-0"]
        assert users(made) == {"p"}
        assert made["status"]["allocation"]["allocationTimestamp"] == "2100-01-01T00:00:00Z"
        await cluster.until_event("Scheduled", "Successfully assigned default/p to n1")
        await cluster.finish("p")
        await cluster.until_gone("ResourceClaim", metadata["name"])
        assert await cluster.get("Pod", "p"), "the pod itself stays"


async def test_template_claim_is_deleted_with_its_pod() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), device_class(), slice_("n1", "gpu-0"), template(), pod("p", templates={"g": "t"}))
        await cluster.until_bound("p")
        name = (await cluster.claims_of("p"))["g"]["metadata"]["name"]
        await cluster.delete("Pod", "p")
        await cluster.until_gone("ResourceClaim", name)


@scenario(220, 222, 224)
async def test_shared_claim_is_reserved_for_both_pods_until_they_end() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), device_class(), slice_("n1", "gpu-0"), claim())
        await cluster.create(pod("a", {"g": "c"}), pod("b", {"g": "c"}))
        await cluster.until_bound("a")
        await cluster.until_bound("b")
        shared = await cluster.get("ResourceClaim", "c")
        assert users(shared) == {"a", "b"}
        assert shared["metadata"]["finalizers"] == [PROTECTION]
        assert len(await cluster.all("ResourceClaim")) == 1, "none is made for a direct reference"
        await cluster.finish("a")
        await cluster.delete("Pod", "b")
        free = await cluster.until_free("c")
        assert free["status"] == {}


@scenario(210)
@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_finished_pod_loses_its_reservation(phase: str) -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), device_class(), slice_("n1", "gpu-0"), claim())
        await cluster.create(pod("a", {"g": "c"}), pod("b", {"g": "c"}))
        await cluster.until_bound("a")
        await cluster.until_bound("b")
        await cluster.finish("a", phase)

        async def only_b() -> bool:
            return users(await cluster.get("ResourceClaim", "c")) == {"b"}

        assert await cluster.until(only_b)
        assert devices(await cluster.get("ResourceClaim", "c")) == ["n1/gpu-0"]


@scenario(212)
async def test_pod_with_restarting_container_keeps_its_claim() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), device_class(), slice_("n1", "gpu-0"), template(), claim("other"))
        await cluster.create(pod("p", templates={"g": "t"}))
        await cluster.until_bound("p")
        ended = {"name": "c0", "state": {"terminated": {"exitCode": 1}}, "restartCount": 1}
        await cluster.set_status("Pod", "p", phase="Running", containerStatuses=[ended])
        await cluster.create(pod("q", {"g": "other"}))  # its refusal shows that the change above was handled
        await cluster.until_refused("q", "cannot allocate all claims")
        made = (await cluster.claims_of("p"))["g"]
        assert (users(made), devices(made)) == ({"p"}, ["n1/gpu-0"])


@scenario(219)
async def test_freed_device_is_allocated_to_waiting_pod() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), device_class(), slice_("n1", "gpu-0"), template())
        await cluster.create(pod("a", templates={"g": "t"}))
        await cluster.until_bound("a")
        await cluster.create(pod("b", templates={"g": "t"}))
        refused = await cluster.until_refused("b", "0/1 nodes are available: 1 cannot allocate all claims.")
        await cluster.until_event("FailedScheduling", refused["message"])
        await cluster.delete("Pod", "a")
        await cluster.until_bound("b")
        assert devices((await cluster.claims_of("b"))["g"]) == ["n1/gpu-0"]


@scenario(223, 226)
async def test_pod_gets_distinct_devices_for_all_its_claims() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), device_class(), slice_("n1", "a", "b", "c"), template(), claim("c1"), claim("c2"))
        await cluster.create(pod("first", {"x": "c1"}))
        await cluster.until_bound("first")
        await cluster.create(pod("p", {"x": "c1", "y": "c2"}, {"z": "t"}))
        await cluster.until_bound("p")
        made = (await cluster.claims_of("p"))["z"]
        c1, c2 = await cluster.get("ResourceClaim", "c1"), await cluster.get("ResourceClaim", "c2")
        assert [users(each) for each in (c1, c2, made)] == [{"first", "p"}, {"p"}, {"p"}]
        assert len({*devices(c1), *devices(c2), *devices(made)}) == 3


@scenario(213)
async def test_pod_waits_for_resource_slice() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), device_class(), template(), pod("p", templates={"g": "t"}))
        await cluster.until_refused("p", "cannot allocate all claims")
        await cluster.create(slice_("n1", "gpu-0"))
        await cluster.until_bound("p")


@scenario(221)
async def test_pod_waits_for_device_class() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), slice_("n1", "gpu-0"), claim(), pod("p", {"g": "c"}))
        await cluster.until_refused("p", "request r: device class gpu does not exist")
        await cluster.create(device_class("gpu", "false"))
        await cluster.until_refused("p", "cannot allocate all claims")
        await cluster.patch("DeviceClass", "gpu", {"spec": {"selectors": None}})
        await cluster.until_bound("p")


async def test_pod_waits_for_claim() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), device_class(), slice_("n1", "gpu-0"), pod("p", {"g": "c"}))
        await cluster.until_refused("p", 'resourceclaim.resource.k8s.io "c" not found')
        await cluster.create(claim())
        await cluster.until_bound("p")


async def test_pod_waits_for_claim_template() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), device_class(), slice_("n1", "gpu-0"), pod("p", templates={"g": "t"}))
        await cluster.until_refused("p", 'pod "default/p": ResourceClaim not created yet')
        missing = 'resource claim template "t": resourceclaimtemplate.resource.k8s.io "t" not found'
        assert await cluster.events("FailedResourceClaimCreation") == [f"PodResourceClaim g: {missing}"]
        await cluster.create(template())
        await cluster.until_bound("p")


async def test_pod_waits_for_node() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(device_class(), claim(), slice_("n1", "gpu-0"), pod("p", {"g": "c"}), pod("plain"))
        await cluster.until_refused("p", "no nodes available to schedule pods")
        await cluster.until_refused("plain", "no nodes available to schedule pods")
        await cluster.create(node())
        await cluster.until_bound("p")
        await cluster.until_bound("plain")


async def test_claim_made_for_another_pod_is_refused() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), device_class(), slice_("n1", "a", "b"), template(), pod("p", templates={"g": "t"}))
        await cluster.until_bound("p")
        name = (await cluster.claims_of("p"))["g"]["metadata"]["name"]
        await cluster.create(pod("q", templates={"g": "none"}))
        await cluster.set_status("Pod", "q", resourceClaimStatuses=[{"name": "g", "resourceClaimName": name}])
        await cluster.until_refused("q", f"ResourceClaim default/{name} was not created for Pod default/q")


async def test_claim_being_deleted_is_refused() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), device_class(), slice_("n1", "gpu-0"), claim(), pod("p", {"g": "c"}))
        await cluster.until_bound("p")
        await cluster.delete("ResourceClaim", "c")
        assert (await cluster.get("ResourceClaim", "c"))["metadata"]["deletionTimestamp"]
        await cluster.create(pod("q", {"g": "c"}))
        await cluster.until_refused("q", 'resourceclaim "c" is being deleted')
        await cluster.delete("Pod", "p")
        await cluster.until_gone("ResourceClaim", "c")


async def test_deleted_claim_without_users_is_deallocated_after_restart() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), device_class(), slice_("n1", "gpu-0"), claim(), pod("p", {"g": "c"}))
        await cluster.until_bound("p")
        await cluster.scheduler.stop()
        await cluster.set_status("ResourceClaim", "c", reservedFor=None)
        await cluster.delete("ResourceClaim", "c")
        await cluster.restart()
        await cluster.until_gone("ResourceClaim", "c")


async def test_claim_without_finalizer_stays_allocated() -> None:
    """The allocation was written by hand, as tests of drivers do. Only a scheduler would have added the finalizer."""
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), device_class(), slice_("n1", "gpu-0"), claim(), pod("p", {"g": "c"}))
        await cluster.until_bound("p")
        await cluster.patch("ResourceClaim", "c", {"metadata": {"finalizers": None}})
        await cluster.finish("p")

        async def is_free() -> bool:
            return not users(await cluster.get("ResourceClaim", "c"))

        assert await cluster.until(is_free)
        assert devices(await cluster.get("ResourceClaim", "c")) == ["n1/gpu-0"]


async def test_pod_with_preset_node_gets_reservation() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), device_class(), slice_("n1", "gpu-0"), claim(), pod("p", {"g": "c"}))
        await cluster.until_bound("p")
        await cluster.create(pod("q", {"g": "c"}, nodeName="n1"))

        async def both() -> bool:
            return users(await cluster.get("ResourceClaim", "c")) == {"p", "q"}

        assert await cluster.until(both)


async def test_removed_reservation_is_restored() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), device_class(), slice_("n1", "gpu-0"), claim(), pod("p", {"g": "c"}))
        await cluster.until_bound("p")
        await cluster.set_status("ResourceClaim", "c", reservedFor=None)

        async def again() -> bool:
            return users(await cluster.get("ResourceClaim", "c")) == {"p"}

        assert await cluster.until(again)


async def test_deleted_template_claim_is_created_again() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(device_class(), template(), pod("p", templates={"g": "t"}))

        async def name() -> str:
            return str((await cluster.claims_of("p")).get("g", {}).get("metadata", {}).get("name", ""))

        first = await cluster.until(name)
        await cluster.delete("ResourceClaim", first)

        async def other() -> str:
            now = await name()
            return "" if now == first else now

        assert await cluster.until(other)


async def test_gated_pod_waits_for_removal_of_gate() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), pod("gated", schedulingGates=[{"name": "wait"}]), pod("other"), pod("last"))
        await cluster.until_bound("last")
        assert not (await cluster.get("Pod", "gated"))["spec"].get("nodeName")
        await cluster.patch("Pod", "gated", {"spec": {"schedulingGates": None}})
        await cluster.until_bound("gated")


async def test_pod_of_another_scheduler_is_ignored() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), pod("theirs", schedulerName="custom"), pod("ours"))
        await cluster.until_bound("ours")
        assert not condition(await cluster.get("Pod", "theirs"), "PodScheduled")


async def test_pod_waits_for_node_that_matches_selector_and_is_schedulable() -> None:
    async with SchedulerCluster() as cluster:
        cordoned = node("n2", {"disk": "ssd"}) | {"spec": {"unschedulable": True}}
        selected = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [selected]}}
        q = pod("q", affinity={"nodeAffinity": required})
        await cluster.create(node("n1"), cordoned, pod("p", nodeSelector={"disk": "ssd"}), q)
        reasons = "1 node(s) didn't match Pod's node affinity/selector, 1 node(s) were unschedulable."
        for name in ("p", "q"):
            assert (await cluster.until_refused(name))["message"] == f"0/2 nodes are available: {reasons}"
        await cluster.patch("Node", "n2", {"spec": {"unschedulable": False}})
        for name in ("p", "q"):
            assert (await cluster.until_bound(name))["spec"]["nodeName"] == "n2"


@scenario(228)
async def test_pods_use_all_devices_of_all_nodes() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(device_class(), template())
        for number in range(3):
            await cluster.create(node(f"n{number}"), slice_(f"n{number}", "a", "b"))
        await cluster.create(*[pod(f"p{number}", templates={"g": "t"}) for number in range(6)])
        allocated = set()
        for number in range(6):
            bound = await cluster.until_bound(f"p{number}")
            (device,) = devices((await cluster.claims_of(f"p{number}"))["g"])
            assert device.startswith(bound["spec"]["nodeName"])
            allocated.add(device)
        assert len(allocated) == 6


async def test_unused_allocation_is_released_when_it_blocks_pod() -> None:
    """Claim c was allocated on n1, and its pod no longer exists. The next pod also needs a device that only n2 has."""
    async with SchedulerCluster() as cluster:
        await cluster.create(
            node("n1"), node("n2"), device_class(), device_class("b", 'device.attributes["gpu.example.com"].b')
        )
        await cluster.create(
            slice_("n1", "a"), claim("c"), claim("d", request(deviceClassName="b")), pod("p", {"g": "c"})
        )
        await cluster.until_bound("p")
        await cluster.scheduler.stop()
        await cluster.set_status("ResourceClaim", "c", reservedFor=None)
        await cluster.delete("Pod", "p")
        special = {"name": "b", "attributes": {"b": {"bool": True}}}
        plain = {"name": "a", "attributes": {"b": {"bool": False}}}
        await cluster.patch("ResourceSlice", "n1-slice", {"spec": {"devices": [plain]}})
        await cluster.create(slice_("n2", plain, special))
        await cluster.create(pod("q", {"x": "c", "y": "d"}))
        await cluster.restart()
        assert (await cluster.until_bound("q"))["spec"]["nodeName"] == "n2"
        assert devices(await cluster.get("ResourceClaim", "c")) == ["n2/a"]


@scenario(242)
def test_generated_claim_name_is_shortened_in_proportion() -> None:
    assert generate_name("pod", "claim") == "pod-claim-"
    cut = generate_name("p" * 63, "c" * 63)
    assert cut == "p" * 28 + "-" + "c" * 28
    assert len(generate_name("p" * 253, "c")) <= 57


@scenario(242)
async def test_claim_name_is_shortened_for_long_pod_and_reference_names() -> None:
    async with SchedulerCluster() as cluster:
        name, reference = "p" * 63, "c" * 63
        await cluster.create(
            node(), device_class(), slice_("n1", "gpu-0"), template(), pod(name, templates={reference: "t"})
        )
        await cluster.until_bound(name)
        made = (await cluster.claims_of(name))[reference]["metadata"]["name"]
        assert len(made) <= 63
        assert made.startswith("p" * 28 + "-" + "c" * 28)
