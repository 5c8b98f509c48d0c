"""The device requirements of claims, observed through pods."""

from tests.controlplane.scheduler.kit import (
    DRIVER,
    Json,
    SchedulerCluster,
    claim,
    device_class,
    devices,
    node,
    pod,
    request,
    slice_,
    template,
)
from tests.dra_scenarios import scenario


def device_with_attributes(name: str, **attributes: Json) -> Json:
    return {"name": name, "attributes": attributes}


@scenario(227)
async def test_selector_runtime_error_refuses_pod() -> None:
    async with SchedulerCluster() as cluster:
        selector = f'device.attributes["{DRIVER}"].missing == "x"'
        await cluster.create(node(), device_class(), slice_("n1", "a"), claim("c", request("r", 1, selector)))
        await cluster.create(pod("p", {"g": "c"}))
        refused = await cluster.until_refused("p", "CEL runtime error", "no such key: missing")
        assert refused["reason"] == "SchedulerError"
        await cluster.until_event("FailedScheduling", refused["message"])


@scenario(218)
async def test_allocation_contains_class_and_claim_configuration() -> None:
    async with SchedulerCluster() as cluster:
        opaque = [{"opaque": {"driver": DRIVER, "parameters": {"who": who}}} for who in ("class", "claim")]
        await cluster.create(node(), device_class(config=opaque[:1]), slice_("n1", "a"))
        await cluster.create(claim("c", config=opaque[1:]), pod("p", {"g": "c"}))
        await cluster.until_bound("p")
        config = (await cluster.get("ResourceClaim", "c"))["status"]["allocation"]["devices"]["config"]
        assert [(x["source"], x["opaque"]["parameters"]["who"]) for x in config] == [
            ("FromClass", "class"),
            ("FromClaim", "claim"),
        ]


@scenario(229)
async def test_first_available_alternative_is_allocated_with_its_configuration() -> None:
    def alternative(name: str, size: int) -> Json:
        expression = f'device.attributes["{DRIVER}"].size == {size}'
        return {"name": name, "deviceClassName": "gpu", "selectors": [{"cel": {"expression": expression}}]}

    async with SchedulerCluster() as cluster:
        sizes = {"big": 3, "middle": 2}
        config = [
            {"requests": [f"r/{name}"], "opaque": {"driver": DRIVER, "parameters": {"size": name}}}
            for name in ("large", "medium")
        ]
        wanted = {"name": "r", "firstAvailable": [alternative("large", 3), alternative("medium", 2)]}
        found = [device_with_attributes(name, size={"int": size}) for name, size in sizes.items()]
        await cluster.create(node(), device_class(), slice_("n1", *found))
        for number in range(3):
            await cluster.create(claim(f"c{number}", wanted, config=config), pod(f"p{number}", {"g": f"c{number}"}))
        await cluster.until_refused("p2", "cannot allocate all claims")
        allocations = [(await cluster.get("ResourceClaim", f"c{n}"))["status"]["allocation"]["devices"] for n in (0, 1)]
        assert [(x["results"][0]["request"], x["results"][0]["device"]) for x in allocations] == [
            ("r/large", "big"),
            ("r/medium", "middle"),
        ]
        assert [x["config"][0]["opaque"]["parameters"]["size"] for x in allocations] == ["large", "medium"]


@scenario(231)
async def test_shared_counters_limit_allocations() -> None:
    drawn = {"consumesCounters": [{"counterSet": "set", "counters": {"memory": {"value": "4Gi"}}}]}
    shared = [{"name": "set", "counters": {"memory": {"value": "6Gi"}}}]
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), device_class(), template())
        await cluster.create(slice_("n1", name="s1", count=2, sharedCounters=shared))
        await cluster.create(slice_("n1", {"name": "a"} | drawn, {"name": "b"} | drawn, name="s2", count=2))
        await cluster.create(pod("p", templates={"g": "t"}))
        await cluster.until_bound("p")
        await cluster.create(pod("q", templates={"g": "t"}))
        await cluster.until_refused("q", "cannot allocate all claims")
        await cluster.finish("p")
        await cluster.until_bound("q")


@scenario(232)
async def test_claims_share_capacity_of_one_device() -> None:
    async with SchedulerCluster() as cluster:
        capacity = {"memory": {"value": "8Gi"}}
        device = {"name": "a", "allowMultipleAllocations": True, "capacity": capacity}
        half = request(capacity={"requests": {"memory": "4Gi"}})
        await cluster.create(node(), device_class(), slice_("n1", device), template("t", half))
        await cluster.create(pod("p", templates={"g": "t"}))
        await cluster.until_bound("p")
        await cluster.create(pod("q", templates={"g": "t"}))
        await cluster.until_bound("q")
        whole = template("whole", request(capacity={"requests": {"memory": "8Gi"}}))
        await cluster.create(whole, pod("r", templates={"g": "whole"}))
        await cluster.until_refused("r", "cannot allocate all claims")
        results = [
            (await cluster.claims_of(name))["g"]["status"]["allocation"]["devices"]["results"][0] for name in "pq"
        ]
        assert [each["consumedCapacity"] for each in results] == [{"memory": "4Gi"}] * 2
        assert results[0]["shareID"] != results[1]["shareID"]
        await cluster.finish("p")
        await cluster.finish("q")
        await cluster.until_bound("r")


@scenario(203, 241)
async def test_admin_access_allocates_all_devices_even_in_use() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node("n1"), node("n2"), device_class(), slice_("n1", "a"), slice_("n2", "b"), claim())
        await cluster.create(pod("user", {"g": "c"}, nodeSelector={}))
        await cluster.until_bound("user")
        await cluster.patch(
            "Namespace", "default", {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
        )
        await cluster.create(template("all", request(adminAccess=True, allocationMode="All", count=0)))
        for name in ("n1", "n2"):
            await cluster.patch("Node", name, {"metadata": {"labels": {"host": name}}})
            await cluster.create(pod(f"daemon-{name}", templates={"g": "all"}, nodeSelector={"host": name}))
        for name, device in (("n1", "n1/a"), ("n2", "n2/b")):
            await cluster.until_bound(f"daemon-{name}")
            made = (await cluster.claims_of(f"daemon-{name}"))["g"]
            assert devices(made) == [device]
            assert made["status"]["allocation"]["devices"]["results"][0]["adminAccess"] is True


@scenario(241)
async def test_admin_access_without_namespace_label_is_refused() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.patch(
            "Namespace", "default", {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
        )
        await cluster.create(node(), device_class(), slice_("n1", "a"), template("t", request(adminAccess=True)))
        await cluster.patch(
            "Namespace", "default", {"metadata": {"labels": {"resource.kubernetes.io/admin-access": None}}}
        )
        await cluster.create(pod("p", templates={"g": "t"}))
        await cluster.until_refused("p", "ResourceClaim not created yet")
        (message,) = await cluster.events("FailedResourceClaimCreation")
        assert "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label" in message
        assert "PodResourceClaim g: create ResourceClaim : " in message


async def test_slice_node_selector_limits_nodes_of_claim() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node("n1"), node("n2", {"net": "yes"}), device_class())
        await cluster.create(
            slice_(
                "net",
                "a",
                nodeSelector={"nodeSelectorTerms": [{"matchExpressions": [{"key": "net", "operator": "Exists"}]}]},
            )
        )
        await cluster.create(claim(), pod("p", {"g": "c"}))
        assert (await cluster.until_bound("p"))["spec"]["nodeName"] == "n2"
        await cluster.patch("Node", "n2", {"spec": {"unschedulable": True}})
        await cluster.create(pod("q", {"g": "c"}))
        text = "1 node(s) were unschedulable, 1 resourceclaim not available on the node"
        await cluster.until_refused("q", f"0/2 nodes are available: {text}.")


async def test_claim_without_requests_is_reserved() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), claim("c") | {"spec": {"devices": {}}}, pod("p", {"g": "c"}))
        await cluster.until_bound("p")
        assert (await cluster.get("ResourceClaim", "c"))["status"]["reservedFor"]
