"""Devices that several claims share, each of which consumes a part of their capacity."""

import pytest

from controlplane.structured import AllocatedState, AllocationError, DeviceID, Features, SharedDeviceID
from controlplane.structured.capacity import consumption
from resourceapi.objects import Quantity, from_dict
from resourceapi.objects.v1 import DeviceCapacity, ResourceClaim
from tests.allocator_scenarios import scenario
from tests.controlplane.structured.build import (
    Json,
    claim,
    class_,
    consumes,
    device,
    first_of,
    held,
    match,
    request,
    slice_,
    wants,
)
from tests.controlplane.structured.scenarios.shared_devices import (
    capacity_of_two_or_four,
    consumed,
    found,
    partitioned,
    shared,
    value,
    wants_capacity,
)

SHARED = class_("shared", "device.allowMultipleAllocations == true")
EXCLUSIVE = class_("exclusive", "device.allowMultipleAllocations == false")
OFF = Features(consumable_capacity=False)


def _one(wanted: Json) -> list[ResourceClaim]:
    return [claim(request("r", wanted))]


def _two(wanted: Json) -> list[ResourceClaim]:
    return [claim(request("r", wanted), name=name) for name in ("one", "two")]


@scenario(131, 132)
@pytest.mark.parametrize(
    ("wanted", "request_name"),
    [
        (request("r", wants_capacity("1")), "request r"),
        (first_of("r", wants_capacity("1"), wants_capacity("1")), "subrequest s0"),
    ],
)
def test_capacity_request_is_refused_when_feature_is_off(wanted: Json, request_name: str) -> None:
    with pytest.raises(AllocationError) as error:
        found([slice_("s", [device("a")])], claim(wanted), features=OFF)
    assert str(error.value) == (
        f"claim ns/claim, {request_name}: has capacity requests, but the DRAConsumableCapacity feature is disabled"
    )


@scenario(133, 134)
@pytest.mark.parametrize("count", [1, None])
def test_device_without_requested_capacity_is_skipped(count: int | None) -> None:
    other = shared("a", capacity={"d": {"value": "1"}})
    assert found([slice_("s", [other])], *_one(wants_capacity("1", count=count))) is None


@scenario(135)
def test_shared_device_without_capacity_consumes_nothing() -> None:
    assert found([slice_("s", [shared("a")])], *_two(wants())) == ["r=pool/a shared", "r=pool/a shared"]


@scenario(136, 137)
def test_request_without_amount_consumes_all_without_policy() -> None:
    a, b = shared("a", c=value("2")), shared("b", c=value("2"))
    assert found([slice_("s", [a, b])], *_two(wants())) == ["r=pool/a shared c=2", "r=pool/b shared c=2"]
    assert found([slice_("s", [a])], *_two(wants())) is None


@scenario(138)
def test_requested_amount_is_consumed_without_policy() -> None:
    slices = [slice_("s", [shared("a", c=value("2"))])]
    assert found(slices, *_two(wants_capacity("1"))) == ["r=pool/a shared c=1", "r=pool/a shared c=1"]


@scenario(139)
def test_request_without_amount_consumes_policy_default() -> None:
    slices = [slice_("s", [shared("a", c=capacity_of_two_or_four("4"))])]
    assert found(slices, *_two(wants())) == ["r=pool/a shared c=2", "r=pool/a shared c=2"]


@scenario(140, 141)
def test_zero_default_is_consumed_and_recorded() -> None:
    slices = [slice_("s", [shared("a", c=value("1", default="0", values=["0"]))])]
    assert found(slices, *_two(wants())) == ["r=pool/a shared c=0", "r=pool/a shared c=0"]
    assert found(slices, *_one(wants_capacity("1"))) is None


@scenario(142)
def test_amount_below_minimum_is_rounded_up_to_minimum() -> None:
    slices = [slice_("s", [shared("a", c=capacity_of_two_or_four("4"))])]
    assert found(slices, *_two(wants_capacity("1"))) == ["r=pool/a shared c=2", "r=pool/a shared c=2"]


@scenario(143)
def test_amount_between_steps_is_rounded_up() -> None:
    slices = [slice_("s", [shared("a", c=capacity_of_two_or_four("4"))])]
    assert found(slices, *_one(wants_capacity("3"))) == ["r=pool/a shared c=4"]


@scenario(144, 145)
@pytest.mark.parametrize(("values", "amount"), [(["1", "2"], "2"), (["1", "3"], "3")])
def test_amount_is_rounded_up_to_next_valid_value(values: list[str], amount: str) -> None:
    slices = [slice_("s", [shared("a", c=value("4", default="1", values=values))])]
    assert found(slices, *_one(wants_capacity("2"))) == [f"r=pool/a shared c={amount}"]


@scenario(146)
def test_sum_of_rounded_amounts_must_fit_capacity() -> None:
    slices = [slice_("s", [shared("a", c=capacity_of_two_or_four("2"))])]
    assert found(slices, *_two(wants_capacity("1"))) is None
    assert found(slices, *_one(wants_capacity("1"))) == ["r=pool/a shared c=2"]


@scenario(147)
def test_amount_above_policy_maximum_is_not_allocated() -> None:
    assert found([slice_("s", [shared("a", c=capacity_of_two_or_four("10"))])], *_one(wants_capacity("6"))) is None


@scenario(148)
def test_capacity_left_by_earlier_claims_is_consumed() -> None:
    slices = [slice_("s", [shared("a", c=capacity_of_two_or_four("4"))])]
    assert found(slices, *_one(wants_capacity("2")), state=consumed(a="2")) == ["r=pool/a shared c=2"]


@scenario(149, 152)
def test_device_without_free_capacity_is_skipped() -> None:
    a, b = shared("a", c=capacity_of_two_or_four("2")), shared("b", c=capacity_of_two_or_four("2"))
    assert found([slice_("s", [a, b])], *_one(wants_capacity("2")), state=consumed(a="2")) == ["r=pool/b shared c=2"]
    assert found([slice_("s", [a])], *_one(wants_capacity("2")), state=consumed(a="2")) is None


@scenario(150)
def test_backtracking_releases_capacity_for_next_claim() -> None:
    """Both requests must use one device. The search tries the small one first, then releases it for the next claim."""
    small = shared("small", c=capacity_of_two_or_four("2"), attributes={"n": 1})
    large = shared("large", c=capacity_of_two_or_four("4"), attributes={"n": 2})
    pair = claim(
        request("q", wants_capacity("2")), request("r", wants_capacity("2")), constraints=[match("n")], name="pair"
    )
    assert found([slice_("s", [small, large])], pair, *_one(wants_capacity("2"))) == [
        "q=pool/large shared c=2",
        "r=pool/large shared c=2",
        "r=pool/small shared c=2",
    ]


@scenario(151)
def test_first_alternative_within_capacity_is_chosen() -> None:
    wanted = claim(first_of("r", wants_capacity("4"), wants_capacity("2"), wants()))
    assert found([slice_("s", [shared("a", c=capacity_of_two_or_four("2"))])], wanted) == ["r/s1=pool/a shared c=2"]


@scenario(153, 154)
@pytest.mark.parametrize("other", [{"d": {"value": "2"}}, {"c": {"value": "1"}}])
def test_all_devices_request_selects_devices_with_enough_capacity(other: Json) -> None:
    slices = [slice_("s", [shared("a", c=value("2")), shared("b", capacity=other)])]
    assert found(slices, *_one(wants_capacity("2", count=None))) == ["r=pool/a shared c=2"]


@scenario(155, 157)
def test_all_devices_request_needs_capacity_left_by_earlier_request() -> None:
    b = shared("b", c=value("1"))
    wanted = claim(request("q", wants_capacity("1")), request("r", wants_capacity("1", count=None)))
    assert found([slice_("s", [shared("a", c=value("2")), b])], wanted) == [
        "q=pool/a shared c=1",
        "r=pool/a shared c=1",
        "r=pool/b shared c=1",
    ]
    assert found([slice_("s", [shared("a", c=value("1")), b])], wanted) is None


@scenario(156, 158)
def test_all_devices_request_needs_capacity_left_by_earlier_claim() -> None:
    b = shared("b", c=value("1"))
    every, state = _one(wants_capacity("1", count=None)), consumed(a="1")
    assert found([slice_("s", [shared("a", c=value("2")), b])], *every, state=state) == [
        "r=pool/a shared c=1",
        "r=pool/b shared c=1",
    ]
    assert found([slice_("s", [shared("a", c=value("1")), b])], *every, state=state) is None


@scenario(159, 160)
def test_exclusive_device_needs_enough_capacity_and_is_not_shared() -> None:
    slices = [slice_("s", [device("a", capacity={"c": {"value": "4"}})])]
    assert found(slices, *_one(wants_capacity("2"))) == ["r=pool/a"]
    assert found(slices, *_one(wants_capacity("5"))) is None
    assert found(slices, *_two(wants_capacity("2"))) is None


@scenario(161)
def test_class_for_exclusive_devices_selects_no_shared_device() -> None:
    slices = [slice_("s", [shared("a", c=value("2"))])]
    assert found(slices, *_one(wants_capacity("1", deviceClassName="exclusive")), classes=[EXCLUSIVE]) is None
    assert found(slices, *_one(wants_capacity("1", deviceClassName="shared")), classes=[SHARED]) == [
        "r=pool/a shared c=1"
    ]


@scenario(162)
def test_device_in_exclusive_use_is_not_shared() -> None:
    slices = [slice_("s", [shared("a", c=capacity_of_two_or_four("2"))])]
    assert found(slices, *_one(wants_capacity("1")), state=held("a")) is None


@scenario(163)
def test_device_that_is_no_longer_shared_is_not_allocated_again() -> None:
    exclusive = [slice_("s", [device("a", capacity={"c": capacity_of_two_or_four("2")})])]
    shares = _one(wants_capacity("1", deviceClassName="shared"))
    assert found(exclusive, *shares, classes=[SHARED], state=consumed(a="2")) is None
    assert found(exclusive, *_one(wants_capacity("1")), state=consumed(a="2")) is None


def _partition(name: str, memory: str) -> Json:
    return shared(name, **consumes(memory=memory), capacity={"memory": {"value": memory}})


def _memory(amount: str) -> str:
    return f'device.capacity["drv"].memory.compareTo(quantity("{amount}")) >= 0'


@scenario(164)
def test_shared_partitions_consume_counters() -> None:
    slices = partitioned([_partition("a", "4Gi"), _partition("b", "6Gi"), _partition("c", "4Gi")], memory="8Gi")
    wanted = claim(
        request("q", wants(1, _memory("4Gi"))), first_of("r", wants(1, _memory("6Gi")), wants(1, _memory("4Gi")))
    )
    assert found(slices, wanted) == ["q=pool/a shared memory=4Gi", "r/s1=pool/c shared memory=4Gi"]


@scenario(165)
def test_shared_partition_in_use_keeps_its_counters() -> None:
    state = AllocatedState(allocated_shared_device_ids=frozenset([SharedDeviceID(DeviceID("drv", "pool", "a"), "u")]))
    slices = partitioned([device("b", **consumes(m="1")), shared("a", **consumes(m="1"))], m="1")
    other = _one(wants(1, "!device.allowMultipleAllocations"))
    assert found(slices, *other, state=state) is None
    assert found(slices, *other) == ["r=pool/b"]
    assert found(slices, *_one(wants()), state=state) == ["r=pool/a shared"]


@scenario(166)
def test_counters_of_shared_partition_are_consumed_once() -> None:
    def partition(name: str, c: str) -> Json:
        draws = [
            {"counterSet": "one", "counters": {"c": {"value": c}}},
            {"counterSet": "two", "counters": {"d": {"value": "4"}}},
        ]
        return shared(name, consumesCounters=draws, capacity={"c": {"value": c}, "d": capacity_of_two_or_four("4")})

    sets = [{"name": "one", "counters": {"c": {"value": "4"}}}, {"name": "two", "counters": {"d": {"value": "8"}}}]
    devices = [partition("a", "2"), partition("b", "4"), partition("c", "2")]
    slices = [slice_("s", devices, count=2), slice_("t", count=2, sharedCounters=sets)]
    large, small = (f'device.capacity["drv"].c.compareTo(quantity("{x}")) >= 0' for x in (4, 2))
    alternatives = first_of("z", wants_capacity("1", large), wants_capacity("1", small))
    assert found(slices, claim(request("x", wants_capacity("1")), request("y", wants_capacity("2")), alternatives)) == [
        "x=pool/a shared c=1 d=2",
        "y=pool/c shared c=2 d=2",
        "z/s1=pool/a shared c=1 d=2",
    ]


@scenario(228, 234)
@pytest.mark.parametrize("amount", ["1", "0"])
def test_counters_are_released_with_last_share(amount: str) -> None:
    """The counters become free only when no request uses the shared device, even with an amount of zero."""
    devices = [shared("a", **consumes(m="4"), c=value("2")), device("b", **consumes(m="4")), shared("other")]
    either = wants_capacity(amount), wants(1, "device.allowMultipleAllocations && device.capacity.size() == 0")
    exclusive = request("r", wants(1, "!device.allowMultipleAllocations"))
    wanted = claim(first_of("p", *either), first_of("q", *either), exclusive)
    assert found(partitioned(devices, m="4"), wanted) == [
        "p/s1=pool/other shared",
        "q/s1=pool/other shared",
        "r=pool/b",
    ]


@scenario(229)
def test_aggregated_capacity_is_the_sum_over_allocated_claims() -> None:
    def allocated(share: str) -> ResourceClaim:
        result = {"request": "r", "driver": "drv", "pool": "pool", "device": "a", "shareID": share}
        results = [{**result, "consumedCapacity": {"c": "1"}}]
        return from_dict(ResourceClaim, {"status": {"allocation": {"devices": {"results": results}}}})

    one, two = allocated("one"), allocated("two")
    a = DeviceID("drv", "pool", "a")
    assert AllocatedState.from_claims([one, two]).aggregated_capacity == {a: {"c": Quantity.of(2)}}
    assert AllocatedState.from_claims([two]).aggregated_capacity == {a: {"c": Quantity.of(1)}}
    assert AllocatedState.from_claims([]).is_empty


def _consumed(requested: str | None, capacity: Json) -> str | None:
    amounts = consumption(
        {"c": from_dict(DeviceCapacity, capacity)}, {} if requested is None else {"c": Quantity.parse(requested)}
    )
    return None if amounts is None else str(amounts["c"])


@scenario(230)
def test_requested_amount_overrides_default() -> None:
    assert _consumed("1", value("2", default="2", values=["1", "2"])) == "1"
    assert _consumed(None, value("2", default="1")) == "1"
    assert _consumed("1", value("2")) == "1"


def _range(**limits: str) -> Json:
    return {"value": "9", "requestPolicy": {"default": "1", "validRange": limits}}


@scenario(231)
@pytest.mark.parametrize(
    ("requested", "capacity", "is_refused"),
    [
        ("1", value("9"), False),
        ("1", _range(min="1", max="2"), False),
        ("2", _range(min="1", max="1"), True),
        ("1", value("9", default="9", values=["1"]), False),
        ("2", value("9", default="9", values=["1"]), True),
    ],
)
def test_amount_that_violates_policy_is_refused(requested: str, capacity: Json, is_refused: bool) -> None:
    assert _consumed(requested, capacity) == (None if is_refused else requested)


@scenario(232)
@pytest.mark.parametrize(
    ("requested", "capacity", "amount"),
    [
        (None, value("1"), "1"),
        (None, _range(min="1"), "1"),
        (None, value("2", default="1", values=["1"]), "1"),
        ("2", _range(min="1"), "2"),
        ("1", _range(min="2"), "2"),
        ("2", _range(min="1", step="2"), "3"),
        ("2", _range(min="1", step="1"), "2"),
        ("2", value("9", default="1", values=["1", "2", "3"]), "2"),
        ("2", value("9", default="1", values=["1", "3"]), "3"),
        ("3", value("9", default="1", values=["1", "2"]), None),
    ],
)
def test_policy_determines_consumed_amount(requested: str | None, capacity: Json, amount: str | None) -> None:
    assert _consumed(requested, capacity) == amount
