"""Devices of one claim that must differ in an attribute."""

import pytest

from controlplane.structured import AllocationError
from tests.allocator_scenarios import scenario
from tests.controlplane.structured.build import Json, claim, distinct, first_of, request, slice_, wants
from tests.controlplane.structured.scenarios.shared_devices import even, found, shared, takes

Q, R, S, T = (request(name) for name in "qrst")


def _device(name: str, is_on: bool, version: str, numa: int) -> Json:
    return shared(name, attributes={"on": is_on, "version": {"version": version}, "numa": numa})


@scenario(167)
def test_constraints_over_more_and_more_requests() -> None:
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
def test_a_device_without_the_attribute_differs_from_nothing() -> None:
    assert found([slice_("s", [shared("a")])], claim(Q, constraints=[distinct("on", "q")])) is None


@scenario(169)
def test_an_attribute_without_a_value_is_an_error_once_a_selector_is_evaluated() -> None:
    wanted = request("q", wants(1, 'device.driver == "drv"'))
    with pytest.raises(AllocationError) as error:
        found([slice_("s", [shared("a", attributes={"on": {}})])], claim(wanted, constraints=[distinct("on", "q")]))
    assert str(error.value) == (
        "claim ns/claim: selector #0 on device drv/pool/a: CEL runtime error: attribute on: unsupported attribute value"
    )


@scenario(170)
def test_an_alternative_makes_two_requests_differ_and_leaves_the_third_its_preference() -> None:
    devices = [shared("a", attributes={"on": True}), shared("b", attributes={"on": False})]
    wanted = [first_of(name, wants(1, 'device.attributes["drv"].on'), wants()) for name in "qrs"]
    assert found([slice_("s", devices)], claim(*wanted, constraints=[distinct("on", "q", "r")])) == [
        "q/s0=pool/a shared",
        "r/s1=pool/b shared",
        "s/s0=pool/a shared",
    ]


@scenario(171, 172)
def test_a_shared_device_does_not_differ_from_itself() -> None:
    a, b = (shared(name, c=even("4"), attributes={"name": name}) for name in "ab")
    wanted = claim(request("q", takes("2")), request("r", takes("2")), constraints=[distinct("name")])
    assert found([slice_("s", [a])], wanted) is None
    slices = [slice_("s", [a], count=2), slice_("s", [b], count=2)]
    assert found(slices, wanted) == ["q=pool/a shared c=2", "r=pool/b shared c=2"]
