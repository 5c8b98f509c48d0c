"""Extended resources: from device classes, from device plugins, from both."""

import pytest

from controlplane.scheduler.extended import classes_by_resource
from resourceapi.objects import read_as
from resourceapi.objects.v1 import DeviceClass
from tests.controlplane.scheduler.kit import (
    Json,
    SchedulerCluster,
    claim,
    device_class,
    devices,
    node,
    pod,
    slice_,
    users,
)
from tests.dra_scenarios import scenario

X = "example.com/x"
IMPLICIT_RESOURCE = "deviceclass.resource.kubernetes.io/gpu"


def class_with_resource(name: str = "gpu", resource: str = X) -> Json:
    return device_class(name, extendedResourceName=resource)


@scenario(240)
async def test_extended_resource_is_allocated_through_device_class() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), class_with_resource(), slice_("n1", "a", "b"), pod("p", limits=[{X: "2"}]))
        bound = await cluster.until_bound("p")
        special = (await cluster.claims_of("p"))["extended"]
        metadata = special["metadata"]
        assert metadata["name"].startswith("p-extended-resources-")
        assert metadata["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": bound["metadata"]["uid"], "controller": True}
        assert metadata["ownerReferences"] == [owner]
        (request,) = special["spec"]["devices"]["requests"]
        exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}
        assert request == {"name": "container-0-request-0", "exactly": exactly}
        assert devices(special) == ["n1/a", "n1/b"]
        assert users(special) == {"p"}
        assert bound["status"]["extendedResourceClaimStatus"]["requestMappings"] == [
            {"containerName": "c0", "resourceName": X, "requestName": "container-0-request-0"}
        ]


@scenario(240)
@pytest.mark.parametrize("resource", [X, IMPLICIT_RESOURCE])
@pytest.mark.parametrize("containers", [1, 3])
async def test_each_container_has_a_request_for_explicit_or_implicit_name(resource: str, containers: int) -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), class_with_resource(), slice_("n1", *"abc"))
        await cluster.create(pod("p", limits=[{"cpu": "1", resource: "1"}] * containers))
        bound = await cluster.until_bound("p")
        assert len(devices((await cluster.claims_of("p"))["extended"])) == containers
        index = sorted(["cpu", resource]).index(resource)
        mappings = bound["status"]["extendedResourceClaimStatus"]["requestMappings"]
        assert [each["requestName"] for each in mappings] == [
            f"container-{number}-request-{index}" for number in range(containers)
        ]


@scenario(240)
@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_extended_resource_claim_is_deleted_when_pod_ends(phase: str) -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), class_with_resource(), slice_("n1", "a"), pod("p", limits=[{X: "1"}]))
        await cluster.until_bound("p")
        special = (await cluster.claims_of("p"))["extended"]["metadata"]["name"]
        await cluster.create(pod("q", limits=[{X: "1"}]))
        await cluster.until_refused("q", "0/1 nodes are available: 1 cannot allocate all claims.")
        await cluster.finish("p", phase)
        await cluster.until_gone("ResourceClaim", special)
        await cluster.until_bound("q")


def init_container(name: str, count: int, **more: str) -> Json:
    return {"name": name, "image": "any", "resources": {"limits": {X: str(count)}}, **more}


async def test_init_container_shares_request_of_later_container() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), class_with_resource(), slice_("n1", "a"))
        await cluster.create(pod("p", limits=[{X: "1"}], initContainers=[init_container("i", 1)]))
        bound = await cluster.until_bound("p")
        assert devices((await cluster.claims_of("p"))["extended"]) == ["n1/a"]
        mappings = bound["status"]["extendedResourceClaimStatus"]["requestMappings"]
        assert [(each["containerName"], each["requestName"]) for each in mappings] == [
            ("c0", "container-1-request-0"),
            ("i", "container-1-request-0"),
        ]


async def test_excess_of_init_containers_is_one_request() -> None:
    async with SchedulerCluster() as cluster:
        before = [
            init_container("i", 3),
            init_container("s", 1, restartPolicy="Always"),
            init_container("k", 4),
            init_container("l", 1),
        ]
        await cluster.create(node(), class_with_resource(), slice_("n1", *"abcdef"))
        await cluster.create(pod("p", limits=[{X: "1"}], initContainers=before))
        bound = await cluster.until_bound("p")
        special = (await cluster.claims_of("p"))["extended"]
        requests = special["spec"]["devices"]["requests"]
        assert [(each["name"], each["exactly"]["count"]) for each in requests] == [
            ("container-1-request-0", 1),
            ("container-2-request-0", 3),
            ("container-4-request-0", 1),
        ]
        mappings = bound["status"]["extendedResourceClaimStatus"]["requestMappings"]
        assert [(each["containerName"], each["requestName"]) for each in mappings] == [
            ("s", "container-1-request-0"),
            ("c0", "container-4-request-0"),
            ("i", "container-1-request-0"),
            ("i", "container-4-request-0"),
            ("i", "container-2-request-0"),
            ("k", "container-4-request-0"),
            ("k", "container-2-request-0"),
            ("l", "container-4-request-0"),
        ]


@scenario(240)
async def test_zero_amount_needs_no_claim() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), class_with_resource(), pod("p", limits=[{X: "0"}]))
        await cluster.until_bound("p")
        assert await cluster.claims_of("p") == {}


@scenario(240)
async def test_pod_waits_for_class_of_extended_resource() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), slice_("n1", "a"), pod("p", limits=[{X: "1"}]))
        await cluster.until_refused("p", f"0/1 nodes are available: 1 Insufficient {X}.")
        await cluster.create(class_with_resource())
        await cluster.until_bound("p")


@scenario(240)
async def test_implicit_resource_without_class_is_insufficient() -> None:
    async with SchedulerCluster() as cluster:
        wanted = "deviceclass.resource.kubernetes.io/no_such_class"
        await cluster.create(node(), class_with_resource(), slice_("n1", "a"), pod("p", limits=[{wanted: "1"}]))
        await cluster.until_refused("p", f"1 Insufficient {wanted}")


async def test_device_plugin_resource_needs_no_claim() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node("n1", example_com=2), pod("p", limits=[{X: "1"}, {X: "1"}]))
        await cluster.until_bound("p")
        assert await cluster.claims_of("p") == {}
        await cluster.create(pod("q", limits=[{X: "1"}]))
        await cluster.until_refused("q", f"1 Insufficient {X}")
        await cluster.finish("p")
        await cluster.until_bound("q")


async def test_init_container_does_not_add_to_device_plugin_requests() -> None:
    async with SchedulerCluster() as cluster:
        init = [{"name": "i", "image": "any", "resources": {"limits": {X: "2"}}}]
        await cluster.create(node("n1", example_com=2), pod("p", limits=[{X: "1"}, {X: "1"}], initContainers=init))
        await cluster.until_bound("p")


async def test_sidecar_adds_to_device_plugin_requests() -> None:
    """The scheduler does not bind a pod that the kubelet would refuse."""
    async with SchedulerCluster() as cluster:
        await cluster.create(node(example_com=1))
        sidecar = {"name": "s", "image": "any", "restartPolicy": "Always", "resources": {"limits": {X: "1"}}}
        await cluster.create(pod("p", limits=[{X: "1"}], initContainers=[sidecar]))
        await cluster.until_refused("p", f"1 Insufficient {X}")


@scenario(225, 240)
async def test_device_plugin_has_precedence_over_device_class() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node("n1", example_com=1), class_with_resource(), slice_("n1", "a"))
        await cluster.create(pod("p", limits=[{X: "1"}]))
        await cluster.until_bound("p")
        assert await cluster.claims_of("p") == {}
        await cluster.create(pod("q", limits=[{X: "1"}]))
        await cluster.until_refused("q", f"1 Insufficient {X}")
        await cluster.set_status("Node", "n1", allocatable={X: "0"})  # the plugin is removed
        await cluster.until_bound("q")
        assert devices((await cluster.claims_of("q"))["extended"]) == ["n1/a"]


@scenario(240)
async def test_pods_use_nodes_with_and_without_device_plugin() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node("n1", example_com=1), node("n2"), class_with_resource(), slice_("n2", "a"))
        for name in "pqr":
            await cluster.create(pod(name, limits=[{X: "1"}]))
        bound = [await cluster.until_bound(name) for name in "pq"]
        assert {each["spec"]["nodeName"] for each in bound} == {"n1", "n2"}
        text = f"0/2 nodes are available: 1 Insufficient {X}, 1 cannot allocate all claims."
        await cluster.until_refused("r", text)


async def test_pod_gets_claim_and_extended_resource() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(
            node(), class_with_resource(), slice_("n1", "a", "b"), claim(), pod("p", {"g": "c"}, limits=[{X: "1"}])
        )
        await cluster.until_bound("p")
        found = devices((await cluster.claims_of("p"))["extended"]) + devices(await cluster.get("ResourceClaim", "c"))
        assert sorted(found) == ["n1/a", "n1/b"]


async def test_abandoned_extended_resource_claim_is_deleted() -> None:
    """A scheduler created the claim and stopped before it wrote the pod's status."""
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), class_with_resource(), slice_("n1", "a"))
        await cluster.scheduler.stop()
        await cluster.create(pod("p", limits=[{X: "1"}]))
        made = await cluster.get("Pod", "p")
        left = claim("p-extended-resources-left")
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": made["metadata"]["uid"], "controller": True}
        left["metadata"] |= {
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
            "finalizers": ["resource.kubernetes.io/delete-protection"],
            "ownerReferences": [owner],
        }
        result = {"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": "a"}
        user = {"resource": "pods", "name": "p", "uid": made["metadata"]["uid"]}
        await cluster.create(
            left | {"status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]}}
        )
        await cluster.restart()
        await cluster.until_bound("p")
        assert devices((await cluster.claims_of("p"))["extended"]) == ["n1/a"]
        await cluster.until_gone("ResourceClaim", "p-extended-resources-left")


@scenario(60)
def test_newest_class_provides_extended_resource() -> None:
    def at(name: str, second: int) -> DeviceClass:
        metadata = {"name": name, "creationTimestamp": f"2026-01-01T00:00:0{second}Z"}
        return read_as(DeviceClass, {"metadata": metadata, "spec": {"extendedResourceName": X}})

    assert classes_by_resource([at("a", 1), at("b", 2)])[X] == "b"
    assert classes_by_resource([at("b", 2), at("a", 1)])[X] == "b"
    assert classes_by_resource([at("b", 1), at("a", 1)])[X] == "a"
    found = classes_by_resource([read_as(DeviceClass, {"metadata": {"name": "a"}})])
    assert found == {"deviceclass.resource.kubernetes.io/a": "a"}
