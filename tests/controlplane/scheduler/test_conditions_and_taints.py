"""Delayed effects: binding conditions, taints, and tolerations that expire."""

from datetime import timedelta

import pytest

from tests.controlplane.scheduler.kit import (
    DRIVER,
    Json,
    SchedulerCluster,
    claim,
    condition,
    device_class,
    devices,
    node,
    pod,
    request,
    slice_,
)
from tests.dra_scenarios import scenario

DEVICE_WITH_CONDITIONS = {"name": "a", "bindingConditions": ["attached"], "bindingFailureConditions": ["broken"]}


def device_status(type_: str, device: str = "a") -> list[Json]:
    """A device status with a condition."""
    at = "2026-01-01T00:00:00Z"
    state = {"type": type_, "status": "True", "reason": "Why", "message": "because", "lastTransitionTime": at}
    return [{"driver": DRIVER, "pool": "n1", "device": device, "conditions": [state]}]


def taint(effect: str, key: str = "example.com/ill") -> Json:
    return {"key": key, "effect": effect}


def taint_rule(effect: str, **selector: str) -> Json:
    return {
        "apiVersion": "resource.k8s.io/v1beta2",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "rule"},
        "spec": {"deviceSelector": selector, "taint": taint(effect)},
    }


async def until_allocated(cluster: SchedulerCluster, name: str, *wanted: str) -> None:
    async def allocated() -> bool:
        return devices(await cluster.get("ResourceClaim", name)) == list(wanted)

    await cluster.until(allocated)


async def test_binding_waits_for_conditions() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(
            node(), device_class(), slice_("n1", DEVICE_WITH_CONDITIONS), claim(), pod("p", {"g": "c"})
        )
        await until_allocated(cluster, "c", "n1/a")
        await cluster.create(pod("other"))
        await cluster.until_bound("other")
        assert not (await cluster.get("Pod", "p"))["spec"].get("nodeName")
        await cluster.set_status("ResourceClaim", "c", devices=device_status("attached"))
        await cluster.until_bound("p")
        pending = await cluster.events("BindingConditionsPending")
        assert pending == ["waiting for binding conditions for device on node n1"]


async def test_failure_is_reported_only_after_earlier_devices_are_ready() -> None:
    async with SchedulerCluster() as cluster:
        more = DEVICE_WITH_CONDITIONS | {"name": "b"}
        await cluster.create(
            node(), device_class(), slice_("n1", DEVICE_WITH_CONDITIONS, more), claim("c", request("r", 2))
        )
        await cluster.create(pod("p", {"g": "c"}))
        await until_allocated(cluster, "c", "n1/a", "n1/b")
        await cluster.set_status("ResourceClaim", "c", devices=device_status("broken", "b"))
        await cluster.create(pod("later"))
        await cluster.until_bound("later")
        assert devices(await cluster.get("ResourceClaim", "c")) == ["n1/a", "n1/b"]
        await cluster.set_status(
            "ResourceClaim", "c", devices=[*device_status("attached", "a"), *device_status("broken", "b")]
        )
        failed = 'device binding failed: claim=c, reason=Why, message="because"'
        await cluster.until_event("FailedScheduling", f'running PreBind plugin "DynamicResources": {failed}')


async def test_binding_waits_for_conditions_after_restart() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(
            node(), device_class(), slice_("n1", DEVICE_WITH_CONDITIONS), claim(), pod("p", {"g": "c"})
        )
        await until_allocated(cluster, "c", "n1/a")
        await cluster.restart()
        await cluster.set_status("ResourceClaim", "c", devices=device_status("attached"))
        await cluster.until_bound("p")


async def test_failed_condition_releases_device() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(
            node(), device_class(), slice_("n1", DEVICE_WITH_CONDITIONS, "b"), claim(), pod("p", {"g": "c"})
        )
        await until_allocated(cluster, "c", "n1/a")
        await cluster.patch(
            "ResourceSlice",
            "n1-slice",
            {"spec": {"devices": [DEVICE_WITH_CONDITIONS | {"taints": [taint("NoSchedule")]}, {"name": "b"}]}},
        )
        await cluster.set_status("ResourceClaim", "c", devices=device_status("broken"))
        await cluster.until_bound("p")
        assert devices(await cluster.get("ResourceClaim", "c")) == ["n1/b"]
        failed = (
            'running PreBind plugin "DynamicResources": device binding failed: claim=c, reason=Why, message="because"'
        )
        await cluster.until_event("FailedScheduling", failed)


async def test_binding_timeout_reallocates_claim() -> None:
    async with SchedulerCluster(binding_timeout=60.0) as cluster:
        await cluster.create(
            node(), device_class(), slice_("n1", DEVICE_WITH_CONDITIONS), claim(), pod("p", {"g": "c"})
        )
        await until_allocated(cluster, "c", "n1/a")
        first = (await cluster.get("ResourceClaim", "c"))["status"]["allocation"]["allocationTimestamp"]
        await cluster.advance_scheduler_time(61)
        await cluster.until_event(
            "FailedScheduling", 'running PreBind plugin "DynamicResources": device binding timeout: claim=c'
        )

        async def again() -> bool:
            status = (await cluster.get("ResourceClaim", "c")).get("status", {})
            return bool(status.get("allocation", {}).get("allocationTimestamp", first) != first)

        assert await cluster.until(again)


async def test_failed_device_of_running_pod_stays_allocated() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(
            node(), device_class(), slice_("n1", DEVICE_WITH_CONDITIONS), claim(), pod("p", {"g": "c"})
        )
        await until_allocated(cluster, "c", "n1/a")
        await cluster.set_status("ResourceClaim", "c", devices=device_status("attached"))
        await cluster.until_bound("p")
        await cluster.set_status("ResourceClaim", "c", devices=device_status("broken"))
        await cluster.create(pod("q", {"g": "c"}))
        await cluster.until_refused("q", "device binding failed: claim=c")
        assert devices(await cluster.get("ResourceClaim", "c")) == ["n1/a"]


@scenario(236, 238)
@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
async def test_tainted_device_needs_toleration(effect: str) -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), device_class(), slice_("n1", {"name": "a", "taints": [taint(effect)]}))
        tolerations = [{"key": "example.com/ill", "operator": "Exists", "effect": effect}]
        await cluster.create(claim("no"), claim("yes", request(tolerations=tolerations)))
        await cluster.create(pod("p", {"g": "no"}))
        await cluster.until_refused("p", "cannot allocate all claims")
        await cluster.create(pod("q", {"g": "yes"}))
        await cluster.until_bound("q")


@scenario(237)
async def test_no_execute_taint_evicts_only_pod_of_that_device() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), device_class(), slice_("n1", "a", "b"), claim("c"), claim("d"))
        await cluster.create(pod("p", {"g": "c"}), pod("q", {"g": "d"}))
        await cluster.until_bound("p")
        await cluster.until_bound("q")
        allocated = devices(await cluster.get("ResourceClaim", "c"))[0].partition("/")[2]
        (kept,) = {"a", "b"} - {allocated}
        ill = [{"name": allocated, "taints": [taint("NoExecute")]}, {"name": kept}]
        await cluster.patch("ResourceSlice", "n1-slice", {"spec": {"devices": ill}})
        await cluster.until_gone("Pod", "p")
        await cluster.until_free("c")
        assert await cluster.events("DeviceTaintManagerEviction") == ["Marking for deletion Pod default/p"]
        assert await cluster.get("Pod", "q")


@scenario(239)
async def test_taint_rule_evicts_all_pods_of_shared_claim() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(
            node(), device_class(), slice_("n1", "a"), claim(), pod("p", {"g": "c"}), pod("q", {"g": "c"})
        )
        await cluster.until_bound("p")
        await cluster.until_bound("q")
        await cluster.create(taint_rule("NoExecute", driver=DRIVER, device="a"))
        await cluster.until_gone("Pod", "p")
        await cluster.until_gone("Pod", "q")
        await cluster.until_free("c")
        await cluster.create(pod("r", {"g": "c"}))
        await cluster.until_refused("r", "cannot allocate all claims")
        await cluster.delete("DeviceTaintRule", "rule")
        await cluster.until_bound("r")


async def test_taint_rule_applies_to_unpublished_device() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), device_class(), slice_("n1", "a"), claim(), pod("p", {"g": "c"}))
        await cluster.until_bound("p")
        await cluster.delete("ResourceSlice", "n1-slice")
        await cluster.create(taint_rule("NoExecute", driver=DRIVER, pool="n1", device="other"), pod("later"))
        await cluster.until_bound("later")
        assert await cluster.get("Pod", "p")
        await cluster.delete("DeviceTaintRule", "rule")
        await cluster.create(taint_rule("NoExecute", driver=DRIVER, pool="n1", device="a"))
        await cluster.until_gone("Pod", "p")


async def test_taint_in_slice_of_older_generation_evicts_no_pod() -> None:
    async with SchedulerCluster() as cluster:
        newer = slice_("n1", "a", name="newer")
        newer["spec"]["pool"]["generation"] += 1
        older = slice_("n1", {"name": "a", "taints": [taint("NoExecute")]}, name="older")
        await cluster.create(node(), device_class(), newer, older, claim(), pod("p", {"g": "c"}))
        await cluster.until_bound("p")
        await cluster.create(pod("later"))
        await cluster.until_bound("later")
        assert await cluster.get("Pod", "p")


async def test_evicted_pod_has_disruption_condition() -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), device_class(), slice_("n1", "a"), claim())
        held = pod("p", {"g": "c"})
        held["metadata"]["finalizers"] = ["example.com/wait"]
        await cluster.create(held)
        await cluster.until_bound("p")
        await cluster.create(taint_rule("NoExecute"))

        async def deleted_pod() -> Json:
            found = await cluster.get("Pod", "p")
            return found if found["metadata"].get("deletionTimestamp") else {}

        reason = condition(await cluster.until(deleted_pod), "DisruptionTarget")
        assert reason["reason"] == "DeletionByDeviceTaintManager"


@scenario(239)
async def test_expired_toleration_evicts_pod() -> None:
    async with SchedulerCluster() as cluster:
        tolerations = [
            {"key": "example.com/ill", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
            for seconds in (100, 300)
        ]
        await cluster.create(node(), device_class(), slice_("n1", "a"), claim("c", request(tolerations=tolerations)))
        await cluster.create(pod("p", {"g": "c"}))
        await cluster.until_bound("p")
        added = cluster.scheduler_time - timedelta(seconds=50)
        tainted = {"name": "a", "taints": [taint("NoExecute") | {"timeAdded": added.strftime("%Y-%m-%dT%H:%M:%SZ")}]}
        await cluster.patch("ResourceSlice", "n1-slice", {"spec": {"devices": [tainted]}})
        await cluster.advance_scheduler_time(49)
        await cluster.create(pod("later"))
        await cluster.until_bound("later")
        assert await cluster.get("Pod", "p")
        await cluster.advance_scheduler_time(2)
        await cluster.until_gone("Pod", "p")


async def test_pod_with_extended_resource_is_not_evicted() -> None:
    async with SchedulerCluster() as cluster:
        resource = device_class("gpu", extendedResourceName="example.com/x")
        await cluster.create(node(), resource, slice_("n1", "a", "b"), pod("p", limits=[{"example.com/x": "1"}]))
        await cluster.until_bound("p")
        await cluster.create(claim(), pod("q", {"g": "c"}))
        await cluster.until_bound("q")
        await cluster.create(taint_rule("NoExecute", driver=DRIVER))
        await cluster.until_gone("Pod", "q")
        assert await cluster.get("Pod", "p")


async def test_toleration_of_every_effect_allows_allocation_but_not_running() -> None:
    async with SchedulerCluster() as cluster:
        every = claim("c", request(tolerations=[{"operator": "Exists"}]))
        await cluster.create(node(), device_class(), slice_("n1", {"name": "a", "taints": [taint("NoExecute")]}), every)
        await cluster.create(pod("p", {"g": "c"}))
        await cluster.until_gone("Pod", "p")
        assert "Successfully assigned default/p to n1" in await cluster.events("Scheduled")


@pytest.mark.parametrize("effect", ["NoSchedule", "None"])
async def test_taint_of_other_effect_evicts_no_pod(effect: str) -> None:
    async with SchedulerCluster() as cluster:
        await cluster.create(node(), device_class(), slice_("n1", "a"), claim(), pod("p", {"g": "c"}))
        await cluster.until_bound("p")
        await cluster.create(taint_rule(effect), pod("later"))
        await cluster.until_bound("later")
        assert await cluster.get("Pod", "p")
