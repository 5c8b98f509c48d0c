"""Shared devices, their capacity, and counters of pools."""

import pytest

from controlplane.structured import AllocatedState, DeviceID, Features, SharedDeviceID
from controlplane.structured.capacity import CapacityError, consumption, fits
from resourceapi.objects import Quantity, from_dict
from resourceapi.objects.v1 import DeviceCapacity
from tests.allocator_scenarios import scenario
from tests.controlplane.structured.build import (
    Json,
    allocator,
    claim,
    consumes,
    counters,
    device,
    match,
    names,
    node,
    request,
    slice_,
    wants,
)


def _consumed(value: str, policy: Json | None, requested: str | None) -> str | None:
    capacity = {"c": from_dict(DeviceCapacity, {"value": value, **({"requestPolicy": policy} if policy else {})})}
    amounts = consumption(capacity, {} if requested is None else {"c": Quantity.parse(requested)})
    return None if amounts is None else str(amounts["c"])


RANGE = {"default": "2", "validRange": {"min": "2", "max": "4", "step": "2"}}
STEPS = {"default": "1", "validRange": {"min": "3", "max": "9", "step": "2"}}
VALUES = {"default": "1", "validValues": ["1", "3"]}


@pytest.mark.parametrize(
    ("value", "policy", "requested", "expected"),
    [
        ("4", None, None, "4"),
        ("4", None, "1", "1"),
        ("1500m", None, "100m", "100m"),
        ("4", None, "5", None),
        ("4", RANGE, None, "2"),
        ("4", RANGE, "1", "2"),
        ("4", RANGE, "3", "4"),
        ("8Gi", {"validRange": {"min": "1Gi", "step": "1Gi"}}, "1500000000", "2Gi"),
        ("8Gi", {"validRange": {"min": "0", "step": "1"}}, "1Gi", "1073741824"),
        ("10", RANGE, "6", None),
        ("10", STEPS, "8", "9"),
        ("10", {"default": "1", "validRange": {"min": "3", "max": "8", "step": "2"}}, "8", None),
        ("10", {"default": "1", "validRange": {"min": "1500m", "step": "400m"}}, "2100m", "3"),
        ("10", {"default": "1", "validRange": {"min": "1500m"}}, "2100m", "2100m"),
        ("10", {"default": "4", "validRange": {"max": "9"}}, "10", None),
        ("10", {"default": "6", "validRange": {"min": "1", "max": "4"}}, "6", "6"),
        ("10", VALUES, "2", "3"),
        ("10", VALUES, "4", None),
        ("10", {"default": "4", "validValues": ["9", "3"]}, "2", "9"),
        ("10", {"default": "3", "validValues": ["1"]}, "3", "3"),
        ("10", {"default": "3", "validValues": ["1"]}, "3000m", None),
        ("10", {"validValues": ["4"]}, None, None),
        # exceeds the range of Go's fast quantities
        ("10", {"default": "1.0000000001", "validValues": ["1"]}, None, None),
        ("1e30", {"default": "9223372036854775808", "validRange": {"min": "1", "max": "4"}}, None, None),
        ("1e30", {"validRange": {"min": "1", "step": "1"}}, None, "1e30"),
        ("1e30", {"validRange": {"min": "1", "step": "7"}}, None, None),
        ("1e30", {"validRange": {"min": "9223372036854775808", "step": "2"}}, "3", "9223372036854775808"),
    ],
)
def test_consumed_amount_follows_request_policy(
    value: str, policy: Json | None, requested: str | None, expected: str | None
) -> None:
    assert _consumed(value, policy, requested) == expected


@pytest.mark.parametrize(
    ("value", "policy", "requested", "text"),
    [
        ("4", None, "-1", "capacity value is negative"),
        ("-4", None, None, "capacity value is negative"),
        (
            "4",
            RANGE,
            "18446744073709551616",
            "capacity request cannot be represented in the device's range arithmetic: "
            "request 18446744073709551616 exceeds MaxInt64",
        ),
        (
            "4",
            {"default": "1", "validRange": {"min": "9223372036854775800", "step": "6"}},
            "9223372036854775807",
            "capacity request cannot be represented in the device's range arithmetic: "
            "rounding request 9223372036854775807 up to the next step passes MaxInt64",
        ),
        (
            "4",
            {"default": "1", "validRange": {"min": "1", "step": "0"}},
            "3",
            "capacity request cannot be represented in the device's range arithmetic: step 0 is not positive",
        ),
    ],
)
def test_uncomputable_amount_is_refused_with_reason(
    value: str, policy: Json | None, requested: str | None, text: str
) -> None:
    with pytest.raises(CapacityError) as error:
        _consumed(value, policy, requested)
    assert str(error.value) == f'capacity "c": {text}'


def test_qualified_capacity_name_does_not_match_unqualified_name() -> None:
    capacity = {"c": from_dict(DeviceCapacity, {"value": "4"})}
    assert consumption(capacity, {"drv/c": Quantity.of(1)}) is None


def test_capacity_in_use_reduces_available_capacity() -> None:
    capacity = {"c": from_dict(DeviceCapacity, {"value": "4"})}
    one, two = {"c": Quantity.of(1)}, {"c": Quantity.of(2)}
    assert fits(capacity, two, one, one)
    assert not fits(capacity, two, two, one)


def _memory(amount: str) -> Json:
    return wants(1, capacity={"requests": {"memory": amount}})


def _shared(name: str, memory: str, **fields: object) -> Json:
    return device(name, allowMultipleAllocations=True, capacity={"memory": {"value": memory}}, **fields)


def test_claims_share_device_until_capacity_is_used_up() -> None:
    slices = [slice_("s", [_shared("a", "4"), _shared("b", "4")])]
    claims = [claim(request("r", _memory("2")), name=name) for name in ("one", "two", "three")]
    results = allocator(slices).allocate(node(), claims)
    assert names(results) == [["r=pool/a"], ["r=pool/a"], ["r=pool/b"]]
    assert results is not None
    allocated = [result.devices.results[0] for result in results]
    assert len({each.share_id for each in allocated}) == 3
    assert [str(each.consumed_capacity["memory"]) for each in allocated] == ["2", "2", "2"]
    off = allocator(slices, features=Features(consumable_capacity=False))
    assert off.allocate(node(), [claim(request("r", wants(3)))]) is None


@pytest.mark.parametrize("memory", ["80Gi", "1e30"])
def test_pruning_handles_device_with_billions_of_shares(memory: str) -> None:
    slices = [slice_("s", [_shared("a", memory), device("b")])]
    pruning = allocator(slices, failures_before_pruning=0)
    results = pruning.allocate(node(), [claim(request("r", _memory("1")), request("q", wants(2)))])
    assert names(results) is None
    results = pruning.allocate(node(), [claim(request("r", _memory("1")), request("q", _memory("2")), request("p"))])
    assert names(results) == [["r=pool/a", "q=pool/a", "p=pool/b"]]


def test_allocated_shares_reduce_capacity_and_exclusive_use_blocks_sharing() -> None:
    slices = [slice_("s", [_shared("a", "4")])]
    shared = DeviceID("drv", "pool", "a")
    state = AllocatedState(
        allocated_shared_device_ids=frozenset([SharedDeviceID(shared, "u")]),
        aggregated_capacity={shared: {"memory": Quantity.of(3)}},
    )
    assert allocator(slices, state=state).allocate(node(), [claim(request("r", _memory("2")))]) is None
    assert names(allocator(slices, state=state).allocate(node(), [claim(request("r", _memory("1")))])) == [["r=pool/a"]]
    exclusive = AllocatedState(allocated_devices=frozenset([shared]))
    assert allocator(slices, state=exclusive).allocate(node(), [claim(request("r", _memory("1")))]) is None


@scenario(158)
def test_all_devices_request_fails_if_a_shared_device_is_full() -> None:
    slices = [slice_("s", [_shared("a", "2"), _shared("b", "2")])]
    every = wants(None, capacity={"requests": {"memory": "1"}})
    state = AllocatedState(aggregated_capacity={DeviceID("drv", "pool", "a"): {"memory": Quantity.of(2)}})
    assert names(allocator(slices).allocate(node(), [claim(request("r", every))])) == [["r=pool/a", "r=pool/b"]]
    assert allocator(slices, state=state).allocate(node(), [claim(request("r", every))]) is None
    too_much = wants(None, capacity={"requests": {"memory": "3"}})
    assert allocator(slices).allocate(node(), [claim(request("r", too_much))]) is None


def test_counters_limit_devices_allocated_together() -> None:
    partitions = [device(name, **consumes(memory=amount)) for name, amount in (("a", "5"), ("b", "4"), ("c", "4"))]
    slices = [slice_("s", partitions, count=2), counters("t", memory="8")]
    assert names(allocator(slices).allocate(node(), [claim(request("r", wants(2)))])) == [["r=pool/b", "r=pool/c"]]
    state = AllocatedState(allocated_devices=frozenset([DeviceID("drv", "pool", "b")]))
    assert names(allocator(slices, state=state).allocate(node(), [claim(request("r"))])) == [["r=pool/c"]]


@scenario(234)
def test_counters_are_released_when_taint_or_constraint_rejects_device() -> None:
    taint = [{"key": "k", "effect": "NoSchedule"}]
    slices = [
        slice_(
            "s",
            [
                device("tainted", **consumes(memory="8"), taints=taint),
                device("a", attributes={"n": 1}, **consumes(memory="4")),
                device("b", attributes={"n": 2}, **consumes(memory="4")),
                device("c", attributes={"n": 1}, **consumes(memory="4")),
            ],
            count=2,
        ),
        counters("t", memory="8"),
    ]
    results = allocator(slices).allocate(node(), [claim(request("r", wants(2)), constraints=[match("n")])])
    assert names(results) == [["r=pool/a", "r=pool/c"]]


def test_counters_of_shared_device_are_consumed_once() -> None:
    partition = device("a", allowMultipleAllocations=True, **consumes(memory="4"))
    slices = [slice_("s", [partition, device("b", **consumes(memory="4"))], count=2), counters("t", memory="8")]
    claims = [claim(request("r"), name=name) for name in ("one", "two")]
    assert names(allocator(slices).allocate(node(), claims)) == [["r=pool/a"], ["r=pool/a"]]
    both = [*claims, claim(request("r", wants(1, "!device.allowMultipleAllocations")), name="three")]
    assert names(allocator(slices).allocate(node(), both)) == [["r=pool/a"], ["r=pool/a"], ["r=pool/b"]]


@scenario(235)
def test_counters_of_drivers_with_equal_pool_names_are_separate() -> None:
    shared = [{"name": "set", "counters": {"memory": {"value": "4"}}}]
    slices = [
        made
        for driver in ("one", "two")
        for made in (
            slice_(f"{driver}-d", [device("a", **consumes(memory="4"))], driver=driver, count=2),
            slice_(f"{driver}-c", driver=driver, count=2, sharedCounters=shared),
        )
    ]
    assert names(allocator(slices).allocate(node(), [claim(request("r", wants(2)))])) == [["r=pool/a", "r=pool/a"]]


def test_overdrawn_pool_offers_only_devices_without_counters() -> None:
    partitions = [device("used", **consumes(memory="9")), device("none", **consumes(memory="0")), device("free")]
    slices = [slice_("s", partitions, count=2), counters("t", memory="8")]
    state = AllocatedState(allocated_devices=frozenset([DeviceID("drv", "pool", "used")]))
    assert names(allocator(slices, state=state).allocate(node(), [claim(request("r"))])) == [["r=pool/free"]]
