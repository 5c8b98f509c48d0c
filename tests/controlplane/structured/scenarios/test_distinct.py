"""Devices of one claim that must differ in an attribute."""

import pytest

from controlplane.structured import AllocationError
from tests.allocator_scenarios import scenario
from tests.controlplane.structured.build import Json, claim, distinct, first_of, request, slice_, wants
from tests.controlplane.structured.scenarios.shared_devices import (
    capacity_of_two_or_four,
    found,
    shared,
    wants_capacity,
)

Q, R, S, T = (request(name) for name in "qrst")


def _device(name: str, is_on: bool, version: str, numa: int) -> Json:
    return shared(name, attributes={"on": is_on, "version": {"version": version}, "numa": numa})


@scenario(167)
def test_constraints_over_growing_request_lists_hold_together() -> None:
    devices = [
        _device("a", True, "1.0.0", 0),
        _device("b", False, "1.0.1", 1),
        _device("c", True, "1.0.2", 2),
        _device("d", True, "1.0.0", 3),
    ]
    constraints = [distinct("on", "q", "r"), distinct("version", "q", "r", "s"), distinct("numa", "q", "r", "s", "t")]
    assert found([slice_("s", devices)], claim(Q, R, S, T, constraints=constraints)) == [
        "q=pool/a shared",
        "r=pool/b shared",
        "s=pool/c shared",
        "t=pool/d shared",
    ]


@scenario(168)
def test_device_without_constrained_attribute_is_not_allocated() -> None:
    assert found([slice_("s", [shared("a")])], claim(Q, constraints=[distinct("on", "q")])) is None


@scenario(169)
def test_attribute_without_value_is_an_error_in_selector() -> None:
    wanted = request("q", wants(1, 'device.driver == "drv"'))
    with pytest.raises(AllocationError) as error:
        found([slice_("s", [shared("a", attributes={"on": {}})])], claim(wanted, constraints=[distinct("on", "q")]))
    assert str(error.value) == (
        "claim ns/claim: selector #0 on device drv/pool/a: CEL runtime error: attribute on: unsupported attribute value"
    )


@scenario(170)
def test_second_alternative_is_chosen_only_to_satisfy_constraint() -> None:
    devices = [shared("a", attributes={"on": True}), shared("b", attributes={"on": False})]
    wanted = [first_of(name, wants(1, 'device.attributes["drv"].on'), wants()) for name in "qrs"]
    assert found([slice_("s", devices)], claim(*wanted, constraints=[distinct("on", "q", "r")])) == [
        "q/s0=pool/a shared",
        "r/s1=pool/b shared",
        "s/s0=pool/a shared",
    ]


@scenario(171, 172)
def test_shared_device_is_not_distinct_from_itself() -> None:
    a, b = (shared(name, c=capacity_of_two_or_four("4"), attributes={"name": name}) for name in "ab")
    wanted = claim(request("q", wants_capacity("2")), request("r", wants_capacity("2")), constraints=[distinct("name")])
    assert found([slice_("s", [a])], wanted) is None
    slices = [slice_("s", [a], count=2), slice_("s", [b], count=2)]
    assert found(slices, wanted) == ["q=pool/a shared c=2", "r=pool/b shared c=2"]
