"""Devices with binding conditions, and devices that bind an allocation to its node."""

from typing import Any

from controlplane.structured import Features
from resourceapi.objects.v1 import ResourceClaim, ResourceSlice
from tests.allocator_scenarios import scenario
from tests.controlplane.structured.build import Json, claim, consumes, device, request, slice_, wants
from tests.controlplane.structured.scenarios.shared_devices import HERE, allocated, found, line, partitioned

TAINT = {"key": "key1", "value": "value1", "effect": "NoSchedule"}
TOLERATION = {"key": "key1", "operator": "Exists", "effect": "NoSchedule"}


def _device_with_conditions(name: str, **fields: Any) -> Json:
    """A device whose conditions contain its name."""
    return device(name, bindingConditions=[f"{name}-ready"], bindingFailureConditions=[f"{name}-failed"], **fields)


def _partition_with_conditions(name: str, memory: str = "4Gi", **fields: Any) -> Json:
    return _device_with_conditions(name, **consumes(memory=memory), capacity={"memory": {"value": memory}}, **fields)


def _devices_and_conditions(slices: list[ResourceSlice], *claims: ResourceClaim) -> list[str] | None:
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
def test_result_contains_binding_conditions() -> None:
    assert _devices_and_conditions([slice_("s", [_device_with_conditions("a")])], claim(request("r"))) == [
        "r=pool/a a-ready a-failed"
    ]


@scenario(121)
def test_each_result_contains_conditions_of_its_device() -> None:
    devices = [_device_with_conditions("a"), _device_with_conditions("b"), _device_with_conditions("c")]
    wanted = claim(request("q"), request("r"), request("s"))
    assert _devices_and_conditions([slice_("s", devices)], wanted) == [
        "q=pool/a a-ready a-failed",
        "r=pool/b b-ready b-failed",
        "s=pool/c c-ready c-failed",
    ]


@scenario(122)
def test_conditions_do_not_change_device_order_in_slice() -> None:
    wanted = claim(request("q"), request("r"))
    assert _devices_and_conditions([slice_("s", [device("a"), _device_with_conditions("b")])], wanted) == [
        "q=pool/a",
        "r=pool/b b-ready b-failed",
    ]
    assert _devices_and_conditions([slice_("s", [_device_with_conditions("b"), device("a")])], wanted) == [
        "q=pool/b b-ready b-failed",
        "r=pool/a",
    ]


@scenario(123)
def test_device_with_conditions_is_skipped_when_feature_is_off() -> None:
    off = Features(device_binding_and_status=False)
    assert found([slice_("s", [_device_with_conditions("a")])], claim(request("r")), features=off) is None
    assert found([slice_("s", [_device_with_conditions("a"), device("b")])], claim(request("r")), features=off) == [
        "r=pool/b"
    ]


@scenario(124)
def test_device_of_several_nodes_can_bind_allocation_to_one_node() -> None:
    planet = {"key": "planet", "operator": "In", "values": ["earth"]}
    selector = {"nodeSelectorTerms": [{"matchExpressions": [planet]}]}
    slices = [slice_("s", [device("a", bindsToNode=True)], nodeSelector=selector)]
    assert found(slices, claim(request("r"))) == ["r=pool/a"]


@scenario(125)
def test_partition_can_have_conditions() -> None:
    assert _devices_and_conditions(
        partitioned([_partition_with_conditions("a")], memory="8Gi"), claim(request("r"))
    ) == ["r=pool/a a-ready a-failed"]


@scenario(126)
def test_partitions_with_conditions_consume_counters() -> None:
    slices = partitioned([_partition_with_conditions("a"), _partition_with_conditions("b")], memory="8Gi")
    both = ["r=pool/a a-ready a-failed", "r=pool/b b-ready b-failed"]
    assert _devices_and_conditions(slices, claim(request("r", wants(2)))) == both
    assert (
        _devices_and_conditions(
            partitioned([_partition_with_conditions("a"), _partition_with_conditions("b")], memory="7Gi"),
            claim(request("r", wants(2))),
        )
        is None
    )


@scenario(127)
def test_partitions_with_and_without_conditions_share_counters() -> None:
    plain = device("b", **consumes(memory="2Gi"))
    slices = partitioned(
        [_partition_with_conditions("a", "2Gi"), plain, _partition_with_conditions("c", "4Gi")], memory="8Gi"
    )
    assert _devices_and_conditions(slices, claim(request("r", wants(3)))) == [
        "r=pool/a a-ready a-failed",
        "r=pool/b",
        "r=pool/c c-ready c-failed",
    ]


@scenario(128)
def test_partitions_and_counters_can_be_in_slices_of_any_order() -> None:
    def partition_in(name: str, counter_set: str) -> list[Json]:
        return [
            _device_with_conditions(
                name, consumesCounters=[{"counterSet": counter_set, "counters": {"m": {"value": "4Gi"}}}]
            )
        ]

    def counter_set_named(counter_set: str) -> list[Json]:
        return [{"name": counter_set, "counters": {"m": {"value": "4Gi"}}}]

    slices = [
        slice_("slice-4", count=4, sharedCounters=counter_set_named("two")),
        slice_("slice-3", count=4, sharedCounters=counter_set_named("one")),
        slice_("slice-2", partition_in("b", "two"), count=4),
        slice_("slice-1", partition_in("a", "one"), count=4),
    ]
    assert _devices_and_conditions(slices, claim(request("r", wants(2)))) == [
        "r=pool/a a-ready a-failed",
        "r=pool/b b-ready b-failed",
    ]


@scenario(129)
def test_tainted_partition_with_conditions_is_not_allocated() -> None:
    slices = partitioned(
        [_partition_with_conditions("a", taints=[TAINT]), _partition_with_conditions("b")], memory="8Gi"
    )
    assert found(slices, claim(request("r", wants(2)))) is None
    assert _devices_and_conditions(slices, claim(request("r"))) == ["r=pool/b b-ready b-failed"]


@scenario(130)
def test_each_result_contains_toleration_of_its_request() -> None:
    slices = partitioned(
        [_partition_with_conditions("a", taints=[TAINT]), device("b", **consumes(memory="4Gi"))], memory="8Gi"
    )
    results = allocated(slices, claim(request("r", wants(2, tolerations=[TOLERATION]))))
    assert results is not None
    common = {"request": "r", "driver": "drv", "pool": "pool", "tolerations": [TOLERATION]}
    conditions = {"bindingConditions": ["a-ready"], "bindingFailureConditions": ["a-failed"]}
    assert results[0]["devices"]["results"] == [{**common, "device": "a", **conditions}, {**common, "device": "b"}]
