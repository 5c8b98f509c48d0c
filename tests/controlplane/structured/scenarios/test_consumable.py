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
    consumed,
    even,
    found,
    partitioned,
    shared,
    takes,
    value,
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
    ("wanted", "who"),
    [(request("r", takes("1")), "request r"), (first_of("r", takes("1"), takes("1")), "subrequest s0")],
)
def test_without_the_feature_nobody_can_ask_for_capacity(wanted: Json, who: str) -> None:
    with pytest.raises(AllocationError) as error:
        found([slice_("s", [device("a")])], claim(wanted), features=OFF)
    assert str(error.value) == (
        f"claim ns/claim, {who}: has capacity requests, but the DRAConsumableCapacity feature is disabled"
    )


@scenario(133, 134)
@pytest.mark.parametrize("count", [1, None])
def test_a_device_without_the_requested_capacity_is_left_out(count: int | None) -> None:
    other = shared("a", capacity={"d": {"value": "1"}})
    assert found([slice_("s", [other])], *_one(takes("1", count=count))) is None


@scenario(135)
def test_a_device_without_capacities_can_be_shared_and_nothing_is_consumed() -> None:
    assert found([slice_("s", [shared("a")])], *_two(wants())) == ["r=pool/a shared", "r=pool/a shared"]


@scenario(136, 137)
def test_who_asks_for_nothing_consumes_everything_where_no_policy_says_less() -> None:
    a, b = shared("a", c=value("2")), shared("b", c=value("2"))
    assert found([slice_("s", [a, b])], *_two(wants())) == ["r=pool/a shared c=2", "r=pool/b shared c=2"]
    assert found([slice_("s", [a])], *_two(wants())) is None


@scenario(138)
def test_without_a_policy_what_is_asked_for_is_consumed() -> None:
    slices = [slice_("s", [shared("a", c=value("2"))])]
    assert found(slices, *_two(takes("1"))) == ["r=pool/a shared c=1", "r=pool/a shared c=1"]


@scenario(139)
def test_who_asks_for_nothing_consumes_the_default() -> None:
    slices = [slice_("s", [shared("a", c=even("4"))])]
    assert found(slices, *_two(wants())) == ["r=pool/a shared c=2", "r=pool/a shared c=2"]


@scenario(140, 141)
def test_a_default_of_nothing_is_consumed_and_written_down() -> None:
    slices = [slice_("s", [shared("a", c=value("1", default="0", values=["0"]))])]
    assert found(slices, *_two(wants())) == ["r=pool/a shared c=0", "r=pool/a shared c=0"]
    assert found(slices, *_one(takes("1"))) is None


@scenario(142)
def test_less_than_the_minimum_is_rounded_up_to_it() -> None:
    slices = [slice_("s", [shared("a", c=even("4"))])]
    assert found(slices, *_two(takes("1"))) == ["r=pool/a shared c=2", "r=pool/a shared c=2"]


@scenario(143)
def test_what_is_between_two_steps_is_rounded_up() -> None:
    slices = [slice_("s", [shared("a", c=even("4"))])]
    assert found(slices, *_one(takes("3"))) == ["r=pool/a shared c=4"]


@scenario(144, 145)
@pytest.mark.parametrize(("values", "amount"), [(["1", "2"], "2"), (["1", "3"], "3")])
def test_the_next_of_the_valid_values_is_consumed(values: list[str], amount: str) -> None:
    slices = [slice_("s", [shared("a", c=value("4", default="1", values=values))])]
    assert found(slices, *_one(takes("2"))) == [f"r=pool/a shared c={amount}"]


@scenario(146)
def test_what_is_consumed_together_after_rounding_must_fit() -> None:
    slices = [slice_("s", [shared("a", c=even("2"))])]
    assert found(slices, *_two(takes("1"))) is None
    assert found(slices, *_one(takes("1"))) == ["r=pool/a shared c=2"]


@scenario(147)
def test_more_than_the_maximum_of_the_policy_is_not_to_be_had() -> None:
    assert found([slice_("s", [shared("a", c=even("10"))])], *_one(takes("6"))) is None


@scenario(148)
def test_what_earlier_claims_left_can_be_consumed() -> None:
    slices = [slice_("s", [shared("a", c=even("4"))])]
    assert found(slices, *_one(takes("2")), state=consumed(a="2")) == ["r=pool/a shared c=2"]


@scenario(149, 152)
def test_a_full_device_is_passed_over() -> None:
    a, b = shared("a", c=even("2")), shared("b", c=even("2"))
    assert found([slice_("s", [a, b])], *_one(takes("2")), state=consumed(a="2")) == ["r=pool/b shared c=2"]
    assert found([slice_("s", [a])], *_one(takes("2")), state=consumed(a="2")) is None


@scenario(150)
def test_capacity_of_a_device_that_did_not_do_is_there_for_the_next_claim() -> None:
    """Both requests must use one device. The search tries the small one first, then releases it for the next claim."""
    small = shared("small", c=even("2"), attributes={"n": 1})
    large = shared("large", c=even("4"), attributes={"n": 2})
    pair = claim(request("q", takes("2")), request("r", takes("2")), constraints=[match("n")], name="pair")
    assert found([slice_("s", [small, large])], pair, *_one(takes("2"))) == [
        "q=pool/large shared c=2",
        "r=pool/large shared c=2",
        "r=pool/small shared c=2",
    ]


@scenario(151)
def test_the_first_alternative_that_fits_into_the_capacity() -> None:
    wanted = claim(first_of("r", takes("4"), takes("2"), wants()))
    assert found([slice_("s", [shared("a", c=even("2"))])], wanted) == ["r/s1=pool/a shared c=2"]


@scenario(153, 154)
@pytest.mark.parametrize("other", [{"d": {"value": "2"}}, {"c": {"value": "1"}}])
def test_all_are_the_devices_that_have_the_capacity_and_enough_of_it(other: Json) -> None:
    slices = [slice_("s", [shared("a", c=value("2")), shared("b", capacity=other)])]
    assert found(slices, *_one(takes("2", count=None))) == ["r=pool/a shared c=2"]


@scenario(155, 157)
def test_all_need_what_an_earlier_request_left_of_each() -> None:
    b = shared("b", c=value("1"))
    wanted = claim(request("q", takes("1")), request("r", takes("1", count=None)))
    assert found([slice_("s", [shared("a", c=value("2")), b])], wanted) == [
        "q=pool/a shared c=1",
        "r=pool/a shared c=1",
        "r=pool/b shared c=1",
    ]
    assert found([slice_("s", [shared("a", c=value("1")), b])], wanted) is None


@scenario(156, 158)
def test_all_need_what_an_earlier_claim_left_of_each() -> None:
    b = shared("b", c=value("1"))
    every, state = _one(takes("1", count=None)), consumed(a="1")
    assert found([slice_("s", [shared("a", c=value("2")), b])], *every, state=state) == [
        "r=pool/a shared c=1",
        "r=pool/b shared c=1",
    ]
    assert found([slice_("s", [shared("a", c=value("1")), b])], *every, state=state) is None


@scenario(159, 160)
def test_an_exclusive_device_needs_the_capacity_but_is_not_shared() -> None:
    slices = [slice_("s", [device("a", capacity={"c": {"value": "4"}})])]
    assert found(slices, *_one(takes("2"))) == ["r=pool/a"]
    assert found(slices, *_one(takes("5"))) is None
    assert found(slices, *_two(takes("2"))) is None


@scenario(161)
def test_a_class_of_exclusive_devices_has_no_shared_ones() -> None:
    slices = [slice_("s", [shared("a", c=value("2"))])]
    assert found(slices, *_one(takes("1", deviceClassName="exclusive")), classes=[EXCLUSIVE]) is None
    assert found(slices, *_one(takes("1", deviceClassName="shared")), classes=[SHARED]) == ["r=pool/a shared c=1"]


@scenario(162)
def test_a_device_that_became_shared_is_not_while_its_exclusive_user_has_it() -> None:
    slices = [slice_("s", [shared("a", c=even("2"))])]
    assert found(slices, *_one(takes("1")), state=held("a")) is None


@scenario(163)
def test_a_device_that_became_exclusive_is_none_for_a_class_of_shared_ones() -> None:
    exclusive = [slice_("s", [device("a", capacity={"c": even("2")})])]
    shares = _one(takes("1", deviceClassName="shared"))
    assert found(exclusive, *shares, classes=[SHARED], state=consumed(a="2")) is None
    assert found(exclusive, *_one(takes("1")), state=consumed(a="2")) is None


def _partition(name: str, memory: str) -> Json:
    return shared(name, **consumes(memory=memory), capacity={"memory": {"value": memory}})


def _memory(amount: str) -> str:
    return f'device.capacity["drv"].memory.compareTo(quantity("{amount}")) >= 0'


@scenario(164)
def test_shared_partitions_draw_on_counters() -> None:
    slices = partitioned([_partition("a", "4Gi"), _partition("b", "6Gi"), _partition("c", "4Gi")], memory="8Gi")
    wanted = claim(
        request("q", wants(1, _memory("4Gi"))), first_of("r", wants(1, _memory("6Gi")), wants(1, _memory("4Gi")))
    )
    assert found(slices, wanted) == ["q=pool/a shared memory=4Gi", "r/s1=pool/c shared memory=4Gi"]


@scenario(165)
def test_a_partition_that_earlier_claims_share_has_its_counters() -> None:
    state = AllocatedState(allocated_shared_device_ids=frozenset([SharedDeviceID(DeviceID("drv", "pool", "a"), "u")]))
    slices = partitioned([device("b", **consumes(m="1")), shared("a", **consumes(m="1"))], m="1")
    other = _one(wants(1, "!device.allowMultipleAllocations"))
    assert found(slices, *other, state=state) is None
    assert found(slices, *other) == ["r=pool/b"]
    assert found(slices, *_one(wants()), state=state) == ["r=pool/a shared"]


@scenario(166)
def test_the_counters_of_a_shared_partition_are_paid_once() -> None:
    def partition(name: str, c: str) -> Json:
        draws = [
            {"counterSet": "one", "counters": {"c": {"value": c}}},
            {"counterSet": "two", "counters": {"d": {"value": "4"}}},
        ]
        return shared(name, consumesCounters=draws, capacity={"c": {"value": c}, "d": even("4")})

    sets = [{"name": "one", "counters": {"c": {"value": "4"}}}, {"name": "two", "counters": {"d": {"value": "8"}}}]
    devices = [partition("a", "2"), partition("b", "4"), partition("c", "2")]
    slices = [slice_("s", devices, count=2), slice_("t", count=2, sharedCounters=sets)]
    large, small = (f'device.capacity["drv"].c.compareTo(quantity("{x}")) >= 0' for x in (4, 2))
    alternatives = first_of("z", takes("1", large), takes("1", small))
    assert found(slices, claim(request("x", takes("1")), request("y", takes("2")), alternatives)) == [
        "x=pool/a shared c=1 d=2",
        "y=pool/c shared c=2 d=2",
        "z/s1=pool/a shared c=1 d=2",
    ]


@scenario(228, 234)
@pytest.mark.parametrize("amount", ["1", "0"])
def test_the_last_share_that_is_given_back_frees_the_counters(amount: str) -> None:
    """The counters become free only when no request uses the shared device, even with an amount of zero."""
    devices = [shared("a", **consumes(m="4"), c=value("2")), device("b", **consumes(m="4")), shared("other")]
    either = takes(amount), wants(1, "device.allowMultipleAllocations && device.capacity.size() == 0")
    exclusive = request("r", wants(1, "!device.allowMultipleAllocations"))
    wanted = claim(first_of("p", *either), first_of("q", *either), exclusive)
    assert found(partitioned(devices, m="4"), wanted) == [
        "p/s1=pool/other shared",
        "q/s1=pool/other shared",
        "r=pool/b",
    ]


@scenario(229)
def test_what_claims_consume_adds_up_and_is_gone_with_them() -> None:
    def allocated(share: str) -> ResourceClaim:
        result = {"request": "r", "driver": "drv", "pool": "pool", "device": "a", "shareID": share}
        results = [{**result, "consumedCapacity": {"c": "1"}}]
        return from_dict(ResourceClaim, {"status": {"allocation": {"devices": {"results": results}}}})

    one, two = allocated("one"), allocated("two")
    a = DeviceID("drv", "pool", "a")
    assert AllocatedState.from_claims([one, two]).aggregated_capacity == {a: {"c": Quantity.of(2)}}
    assert AllocatedState.from_claims([two]).aggregated_capacity == {a: {"c": Quantity.of(1)}}
    assert AllocatedState.from_claims([]).is_empty


def _consumed(asked: str | None, capacity: Json) -> str | None:
    amounts = consumption(
        {"c": from_dict(DeviceCapacity, capacity)}, {} if asked is None else {"c": Quantity.parse(asked)}
    )
    return None if amounts is None else str(amounts["c"])


@scenario(230)
def test_the_request_comes_before_the_default() -> None:
    assert _consumed("1", value("2", default="2", values=["1", "2"])) == "1"
    assert _consumed(None, value("2", default="1")) == "1"
    assert _consumed("1", value("2")) == "1"


def _range(**limits: str) -> Json:
    return {"value": "9", "requestPolicy": {"default": "1", "validRange": limits}}


@scenario(231)
@pytest.mark.parametrize(
    ("asked", "capacity", "is_refused"),
    [
        ("1", value("9"), False),
        ("1", _range(min="1", max="2"), False),
        ("2", _range(min="1", max="1"), True),
        ("1", value("9", default="9", values=["1"]), False),
        ("2", value("9", default="9", values=["1"]), True),
    ],
)
def test_what_a_policy_refuses(asked: str, capacity: Json, is_refused: bool) -> None:
    assert _consumed(asked, capacity) == (None if is_refused else asked)


@scenario(232)
@pytest.mark.parametrize(
    ("asked", "capacity", "amount"),
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
def test_what_a_policy_makes_of_a_request(asked: str | None, capacity: Json, amount: str | None) -> None:
    assert _consumed(asked, capacity) == amount
