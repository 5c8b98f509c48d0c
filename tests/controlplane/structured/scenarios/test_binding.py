"""Devices with binding conditions, and devices that bind an allocation to its node."""

from typing import Any

from controlplane.structured import Features
from resourceapi.objects.v1 import ResourceClaim, ResourceSlice
from tests.allocator_scenarios import scenario
from tests.controlplane.structured.build import Json, claim, consumes, device, request, slice_, wants
from tests.controlplane.structured.scenarios.shared_devices import HERE, allocated, found, line, partitioned

TAINT = {"key": "key1", "value": "value1", "effect": "NoSchedule"}
TOLERATION = {"key": "key1", "operator": "Exists", "effect": "NoSchedule"}


def _prepared(name: str, **fields: Any) -> Json:
    """A device whose conditions contain its name."""
    return device(name, bindingConditions=[f"{name}-ready"], bindingFailureConditions=[f"{name}-failed"], **fields)


def _drawing(name: str, memory: str = "4Gi", **fields: Any) -> Json:
    return _prepared(name, **consumes(memory=memory), capacity={"memory": {"value": memory}}, **fields)


def _conditions(slices: list[ResourceSlice], *claims: ResourceClaim) -> list[str] | None:
    """The devices in order, each with its conditions. Checks the other content of the allocation."""
    results = allocated(slices, *claims)
    lines = []
    for each in results or ():
        assert each["nodeSelector"] == HERE
        for result in each["devices"]["results"]:
            conditions = [*result.pop("bindingConditions", ()), *result.pop("bindingFailureConditions", ())]
            lines.append(" ".join([line(result), *conditions]))
    return None if results is None else lines


@scenario(120)
def test_the_conditions_are_in_the_result() -> None:
    assert _conditions([slice_("s", [_prepared("a")])], claim(request("r"))) == ["r=pool/a a-ready a-failed"]


@scenario(121)
def test_each_result_has_the_conditions_of_its_device() -> None:
    devices = [_prepared("a"), _prepared("b"), _prepared("c")]
    wanted = claim(request("q"), request("r"), request("s"))
    assert _conditions([slice_("s", devices)], wanted) == [
        "q=pool/a a-ready a-failed",
        "r=pool/b b-ready b-failed",
        "s=pool/c c-ready c-failed",
    ]


@scenario(122)
def test_inside_a_slice_conditions_do_not_change_the_order() -> None:
    wanted = claim(request("q"), request("r"))
    assert _conditions([slice_("s", [device("a"), _prepared("b")])], wanted) == [
        "q=pool/a",
        "r=pool/b b-ready b-failed",
    ]
    assert _conditions([slice_("s", [_prepared("b"), device("a")])], wanted) == [
        "q=pool/b b-ready b-failed",
        "r=pool/a",
    ]


@scenario(123)
def test_without_the_feature_a_device_with_conditions_is_of_no_use() -> None:
    off = Features(device_binding_and_status=False)
    assert found([slice_("s", [_prepared("a")])], claim(request("r")), features=off) is None
    assert found([slice_("s", [_prepared("a"), device("b")])], claim(request("r")), features=off) == ["r=pool/b"]


@scenario(124)
def test_a_device_that_many_nodes_reach_can_bind_the_allocation_to_one() -> None:
    planet = {"key": "planet", "operator": "In", "values": ["earth"]}
    selector = {"nodeSelectorTerms": [{"matchExpressions": [planet]}]}
    slices = [slice_("s", [device("a", bindsToNode=True)], nodeSelector=selector)]
    assert found(slices, claim(request("r"))) == ["r=pool/a"]


@scenario(125)
def test_a_partition_can_have_conditions() -> None:
    assert _conditions(partitioned([_drawing("a")], memory="8Gi"), claim(request("r"))) == ["r=pool/a a-ready a-failed"]


@scenario(126)
def test_two_partitions_with_conditions_can_use_up_the_counters() -> None:
    slices = partitioned([_drawing("a"), _drawing("b")], memory="8Gi")
    both = ["r=pool/a a-ready a-failed", "r=pool/b b-ready b-failed"]
    assert _conditions(slices, claim(request("r", wants(2)))) == both
    assert _conditions(partitioned([_drawing("a"), _drawing("b")], memory="7Gi"), claim(request("r", wants(2)))) is None


@scenario(127)
def test_partitions_with_and_without_conditions_share_the_counters() -> None:
    plain = device("b", **consumes(memory="2Gi"))
    slices = partitioned([_drawing("a", "2Gi"), plain, _drawing("c", "4Gi")], memory="8Gi")
    assert _conditions(slices, claim(request("r", wants(3)))) == [
        "r=pool/a a-ready a-failed",
        "r=pool/b",
        "r=pool/c c-ready c-failed",
    ]


@scenario(128)
def test_partitions_and_their_counters_can_be_spread_over_slices_in_any_order() -> None:
    def drawing(name: str, counter_set: str) -> list[Json]:
        return [_prepared(name, consumesCounters=[{"counterSet": counter_set, "counters": {"m": {"value": "4Gi"}}}])]

    def declaring(counter_set: str) -> list[Json]:
        return [{"name": counter_set, "counters": {"m": {"value": "4Gi"}}}]

    slices = [
        slice_("slice-4", count=4, sharedCounters=declaring("two")),
        slice_("slice-3", count=4, sharedCounters=declaring("one")),
        slice_("slice-2", drawing("b", "two"), count=4),
        slice_("slice-1", drawing("a", "one"), count=4),
    ]
    assert _conditions(slices, claim(request("r", wants(2)))) == [
        "r=pool/a a-ready a-failed",
        "r=pool/b b-ready b-failed",
    ]


@scenario(129)
def test_a_taint_on_one_of_two_partitions_that_are_needed() -> None:
    slices = partitioned([_drawing("a", taints=[TAINT]), _drawing("b")], memory="8Gi")
    assert found(slices, claim(request("r", wants(2)))) is None
    assert _conditions(slices, claim(request("r"))) == ["r=pool/b b-ready b-failed"]


@scenario(130)
def test_the_toleration_of_a_request_is_in_all_its_results() -> None:
    slices = partitioned([_drawing("a", taints=[TAINT]), device("b", **consumes(memory="4Gi"))], memory="8Gi")
    results = allocated(slices, claim(request("r", wants(2, tolerations=[TOLERATION]))))
    assert results is not None
    common = {"request": "r", "driver": "drv", "pool": "pool", "tolerations": [TOLERATION]}
    conditions = {"bindingConditions": ["a-ready"], "bindingFailureConditions": ["a-failed"]}
    assert results[0]["devices"]["results"] == [{**common, "device": "a", **conditions}, {**common, "device": "b"}]
