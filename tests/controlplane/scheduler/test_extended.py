"""Extended resources: from device classes, from device plugins, from both."""

import pytest

from controlplane.scheduler.extended import classes_by_resource
from resourceapi.objects import read_as
from resourceapi.objects.v1 import DeviceClass
from tests.controlplane.scheduler.kit import Json, Stand, claim, device_class, devices, node, pod, slice_, users
from tests.dra_scenarios import scenario

X = "example.com/x"
IMPLICIT = "deviceclass.resource.kubernetes.io/gpu"


def named(name: str = "gpu", resource: str = X) -> Json:
    return device_class(name, extendedResourceName=resource)


@scenario(240)
async def test_a_class_stands_for_a_resource() -> None:
    async with Stand() as stand:
        await stand.create(node(), named(), slice_("n1", "a", "b"), pod("p", limits=[{X: "2"}]))
        bound = await stand.until_bound("p")
        special = (await stand.claims_of("p"))["extended"]
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
@pytest.mark.parametrize("resource", [X, IMPLICIT])
@pytest.mark.parametrize("containers", [1, 3])
async def test_names_and_containers(resource: str, containers: int) -> None:
    async with Stand() as stand:
        await stand.create(node(), named(), slice_("n1", *"abc"))
        await stand.create(pod("p", limits=[{"cpu": "1", resource: "1"}] * containers))
        bound = await stand.until_bound("p")
        assert len(devices((await stand.claims_of("p"))["extended"])) == containers
        index = sorted(["cpu", resource]).index(resource)
        mappings = bound["status"]["extendedResourceClaimStatus"]["requestMappings"]
        assert [each["requestName"] for each in mappings] == [
            f"container-{number}-request-{index}" for number in range(containers)
        ]


@scenario(240)
@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_the_special_claim_goes_with_the_pods_end(phase: str) -> None:
    async with Stand() as stand:
        await stand.create(node(), named(), slice_("n1", "a"), pod("p", limits=[{X: "1"}]))
        await stand.until_bound("p")
        special = (await stand.claims_of("p"))["extended"]["metadata"]["name"]
        await stand.create(pod("q", limits=[{X: "1"}]))
        await stand.until_refused("q", "0/1 nodes are available: 1 cannot allocate all claims.")
        await stand.finish("p", phase)
        await stand.until_gone("ResourceClaim", special)
        await stand.until_bound("q")


def init(name: str, count: int, **more: str) -> Json:
    return {"name": name, "image": "any", "resources": {"limits": {X: str(count)}}, **more}


async def test_init_containers_use_what_the_others_will_have() -> None:
    async with Stand() as stand:
        await stand.create(node(), named(), slice_("n1", "a"))
        await stand.create(pod("p", limits=[{X: "1"}], initContainers=[init("i", 1)]))
        bound = await stand.until_bound("p")
        assert devices((await stand.claims_of("p"))["extended"]) == ["n1/a"]
        mappings = bound["status"]["extendedResourceClaimStatus"]["requestMappings"]
        assert [(each["containerName"], each["requestName"]) for each in mappings] == [
            ("c0", "container-1-request-0"),
            ("i", "container-1-request-0"),
        ]


async def test_what_init_containers_need_beyond_is_one_request() -> None:
    async with Stand() as stand:
        before = [init("i", 3), init("s", 1, restartPolicy="Always"), init("k", 4), init("l", 1)]
        await stand.create(node(), named(), slice_("n1", *"abcdef"))
        await stand.create(pod("p", limits=[{X: "1"}], initContainers=before))
        bound = await stand.until_bound("p")
        special = (await stand.claims_of("p"))["extended"]
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
async def test_nothing_of_a_resource_needs_no_claim() -> None:
    async with Stand() as stand:
        await stand.create(node(), named(), pod("p", limits=[{X: "0"}]))
        await stand.until_bound("p")
        assert await stand.claims_of("p") == {}


@scenario(240)
async def test_a_class_that_comes_later() -> None:
    async with Stand() as stand:
        await stand.create(node(), slice_("n1", "a"), pod("p", limits=[{X: "1"}]))
        await stand.until_refused("p", f"0/1 nodes are available: 1 Insufficient {X}.")
        await stand.create(named())
        await stand.until_bound("p")


@scenario(240)
async def test_an_implicit_name_without_its_class() -> None:
    async with Stand() as stand:
        wanted = "deviceclass.resource.kubernetes.io/no_such_class"
        await stand.create(node(), named(), slice_("n1", "a"), pod("p", limits=[{wanted: "1"}]))
        await stand.until_refused("p", f"1 Insufficient {wanted}")


async def test_device_plugins_have_their_own_devices() -> None:
    async with Stand() as stand:
        await stand.create(node("n1", example_com=2), pod("p", limits=[{X: "1"}, {X: "1"}]))
        await stand.until_bound("p")
        assert await stand.claims_of("p") == {}
        await stand.create(pod("q", limits=[{X: "1"}]))
        await stand.until_refused("q", f"1 Insufficient {X}")
        await stand.finish("p")
        await stand.until_bound("q")


async def test_init_containers_end_before_the_others_begin() -> None:
    async with Stand() as stand:
        init = [{"name": "i", "image": "any", "resources": {"limits": {X: "2"}}}]
        await stand.create(node("n1", example_com=2), pod("p", limits=[{X: "1"}, {X: "1"}], initContainers=init))
        await stand.until_bound("p")


async def test_sidecars_run_beside_the_others() -> None:
    """The scheduler does not bind a pod that the kubelet would refuse."""
    async with Stand() as stand:
        await stand.create(node(example_com=1))
        sidecar = {"name": "s", "image": "any", "restartPolicy": "Always", "resources": {"limits": {X: "1"}}}
        await stand.create(pod("p", limits=[{X: "1"}], initContainers=[sidecar]))
        await stand.until_refused("p", f"1 Insufficient {X}")


@scenario(225, 240)
async def test_a_device_plugin_goes_first() -> None:
    async with Stand() as stand:
        await stand.create(node("n1", example_com=1), named(), slice_("n1", "a"))
        await stand.create(pod("p", limits=[{X: "1"}]))
        await stand.until_bound("p")
        assert await stand.claims_of("p") == {}
        await stand.create(pod("q", limits=[{X: "1"}]))
        await stand.until_refused("q", f"1 Insufficient {X}")
        await stand.set_status("Node", "n1", allocatable={X: "0"})  # the plugin is removed
        await stand.until_bound("q")
        assert devices((await stand.claims_of("q"))["extended"]) == ["n1/a"]


@scenario(240)
async def test_nodes_with_and_without_a_device_plugin() -> None:
    async with Stand() as stand:
        await stand.create(node("n1", example_com=1), node("n2"), named(), slice_("n2", "a"))
        for name in "pqr":
            await stand.create(pod(name, limits=[{X: "1"}]))
        bound = [await stand.until_bound(name) for name in "pq"]
        assert {each["spec"]["nodeName"] for each in bound} == {"n1", "n2"}
        text = f"0/2 nodes are available: 1 Insufficient {X}, 1 cannot allocate all claims."
        await stand.until_refused("r", text)


async def test_claims_and_extended_resources_together() -> None:
    async with Stand() as stand:
        await stand.create(node(), named(), slice_("n1", "a", "b"), claim(), pod("p", {"g": "c"}, limits=[{X: "1"}]))
        await stand.until_bound("p")
        found = devices((await stand.claims_of("p"))["extended"]) + devices(await stand.get("ResourceClaim", "c"))
        assert sorted(found) == ["n1/a", "n1/b"]


async def test_a_special_claim_that_was_given_up_is_removed() -> None:
    """A scheduler created the claim and stopped before it wrote the pod's status."""
    async with Stand() as stand:
        await stand.create(node(), named(), slice_("n1", "a"))
        await stand.scheduler.stop()
        await stand.create(pod("p", limits=[{X: "1"}]))
        made = await stand.get("Pod", "p")
        left = claim("p-extended-resources-left")
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": made["metadata"]["uid"], "controller": True}
        left["metadata"] |= {
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
            "finalizers": ["resource.kubernetes.io/delete-protection"],
            "ownerReferences": [owner],
        }
        result = {"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": "a"}
        user = {"resource": "pods", "name": "p", "uid": made["metadata"]["uid"]}
        await stand.create(left | {"status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]}})
        await stand.restart()
        await stand.until_bound("p")
        assert devices((await stand.claims_of("p"))["extended"]) == ["n1/a"]
        await stand.until_gone("ResourceClaim", "p-extended-resources-left")


@scenario(60)
def test_which_class_stands_for_a_resource() -> None:
    def at(name: str, second: int) -> DeviceClass:
        metadata = {"name": name, "creationTimestamp": f"2026-01-01T00:00:0{second}Z"}
        return read_as(DeviceClass, {"metadata": metadata, "spec": {"extendedResourceName": X}})

    assert classes_by_resource([at("a", 1), at("b", 2)])[X] == "b"
    assert classes_by_resource([at("b", 2), at("a", 1)])[X] == "b"
    assert classes_by_resource([at("b", 1), at("a", 1)])[X] == "a"
    found = classes_by_resource([read_as(DeviceClass, {"metadata": {"name": "a"}})])
    assert found == {"deviceclass.resource.kubernetes.io/a": "a"}
