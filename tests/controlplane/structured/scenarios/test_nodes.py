"""Devices that several nodes can reach, and the node selector of their allocation."""

from controlplane.structured import Features
from resourceapi.objects import to_dict
from resourceapi.objects.v1 import ResourceClaim, ResourceSlice
from tests.allocator_scenarios import scenario
from tests.controlplane.structured.build import Json, claim, consumes, counter_set, device, first_of, names, request
from tests.controlplane.structured.scenarios.two_drivers import (
    NODE_2,
    ONE,
    allocated,
    at_least,
    found,
    is_in,
    sized,
    slice_a,
    slice_b,
    wants_a,
    wants_b,
    where,
)

REGION_1 = where(is_in("region", "region-1"))


def _devices_and_node_selector(
    slices: list[ResourceSlice], wanted: ResourceClaim
) -> tuple[list[list[str]] | None, Json | None]:
    """The devices of the claim, and the node selector of its allocation."""
    results = allocated(slices, wanted)
    assert results is not None
    return names(results), to_dict(results[0]).get("nodeSelector")


@scenario(37)
def test_allocation_keeps_node_selector_of_slice() -> None:
    assert _devices_and_node_selector([slice_a("slice-1", [device("a1")], nodeSelector=REGION_1)], ONE) == (
        [["r=pool-1/a1"]],
        REGION_1,
    )


@scenario(38)
def test_device_of_another_region_is_not_allocated() -> None:
    assert found([slice_a("slice-1", [device("a1")], nodeSelector=REGION_1)], ONE, on=NODE_2) is None


@scenario(39)
def test_node_selectors_of_all_devices_are_merged() -> None:
    this_node = is_in("metadata.name", "node-1")
    places: list[Json] = [
        {"nodeSelector": REGION_1},
        {"allNodes": True},
        {"nodeSelector": where(is_in("planet", "earth"))},
        {"nodeSelector": where(matchFields=[this_node])},
    ]
    slices = [slice_a("slice-1", [device("a1")], pool=f"pool-{n}", **place) for n, place in enumerate(places, 1)]
    assert _devices_and_node_selector(slices, claim(request("r", wants_a(4)))) == (
        [[f"r=pool-{n}/a1" for n in range(1, 5)]],
        where(is_in("region", "region-1"), is_in("planet", "earth"), matchFields=[this_node]),
    )


@scenario(94)
def test_device_with_node_name_is_skipped_when_feature_is_off() -> None:
    slices = [slice_a("slice-1", [device("a1", nodeName="node-1")], perDeviceNodeSelection=True)]
    assert found(slices, ONE) == [["r=pool-1/a1"]]
    assert found(slices, ONE, features=Features(partitionable_devices=False)) is None


COUNTERS = slice_a("slice-2", count=2, perDeviceNodeSelection=True, sharedCounters=[counter_set(memory="18Gi")])


@scenario(95)
def test_device_with_name_of_other_node_is_not_allocated() -> None:
    devices = [
        sized("4gi", "4Gi", nodeName="node-1", **consumes(memory="4Gi")),
        sized("6gi", "6Gi", nodeName="node-2", **consumes(memory="6Gi")),
    ]
    slices = [slice_a("slice-1", devices, count=2, perDeviceNodeSelection=True), COUNTERS]
    wanted = claim(first_of("r", wants_a(1, at_least("6Gi")), wants_a(1, at_least("4Gi"))))
    assert found(slices, wanted) == [["r/s1=pool-1/4gi"]]


@scenario(96)
def test_allocation_keeps_node_selector_of_device() -> None:
    devices = [device("a1", nodeSelector=REGION_1, **consumes(memory="4Gi"))]
    slices = [slice_a("slice-1", devices, count=2, perDeviceNodeSelection=True), COUNTERS]
    assert _devices_and_node_selector(slices, ONE) == ([["r=pool-1/a1"]], REGION_1)


@scenario(97)
def test_allocation_with_node_local_device_is_restricted_to_node() -> None:
    places: list[Json] = [{"nodeSelector": REGION_1}, {"nodeName": "node-1"}, {"allNodes": True}]
    devices = [device(f"a{n}", **place, **consumes(memory="4Gi")) for n, place in enumerate(places, 1)]
    local = [device(f"b{n}", **consumes(memory="4Gi")) for n in range(1, 4)]
    slices = [
        slice_a("slice-1", devices, count=2, perDeviceNodeSelection=True),
        COUNTERS,
        slice_b("slice-3", local, count=2, pool="pool-2"),
        slice_b("slice-4", count=2, pool="pool-2", sharedCounters=[counter_set(memory="12Gi")]),
    ]
    wanted = claim(request("a", wants_a(3)), request("b", wants_b(3)))
    assert found(slices, wanted) == [
        ["a=pool-1/a1", "a=pool-1/a2", "a=pool-1/a3", "b=pool-2/b1", "b=pool-2/b2", "b=pool-2/b3"]
    ]
