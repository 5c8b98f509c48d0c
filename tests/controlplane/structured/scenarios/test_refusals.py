"""Errors of a claim or class, independent of the node: the message names the object."""

import pytest

from controlplane.structured import AllocatedState, AllocationError, Allocator, DeviceClasses, Features
from tests.allocator_scenarios import scenario
from tests.controlplane.structured.build import Json, claim, class_, device, request, wants
from tests.controlplane.structured.scenarios.two_drivers import (
    CLASSES,
    NODE_1,
    ONE,
    allocated,
    found,
    match_a,
    slice_a,
    wants_a,
)

SLICES = [slice_a("slice-1", [device("a1")])]


@scenario(12)
def test_missing_class_is_an_error() -> None:
    with pytest.raises(AllocationError, match=r"^claim ns/claim, request r: could not retrieve device class class-a: "):
        Allocator(Features(), AllocatedState(), DeviceClasses([]), SLICES).allocate(NODE_1, [ONE])


@scenario(60)
def test_empty_constraint_is_an_error() -> None:
    with pytest.raises(AllocationError) as error:
        allocated(SLICES, claim(request("r", wants_a()), constraints=[match_a("n"), {"requests": ["r"]}]))
    assert str(error.value) == "claim ns/claim, constraint #1: empty constraint (unsupported constraint type?)"


@scenario(61, 62, 63)
@pytest.mark.parametrize(
    ("wanted", "owner"),
    [
        (wants_a(1, "noSuchVar"), "claim ns/claim"),
        (wants(deviceClassName="unsound"), "class unsound"),
        (wants_a(None, "noSuchVar"), "claim ns/claim"),
    ],
)
def test_selector_compile_error_names_claim_or_class(wanted: Json, owner: str) -> None:
    with pytest.raises(AllocationError) as error:
        allocated(SLICES, claim(request("r", wanted)), classes=[*CLASSES, class_("unsound", "noSuchVar")])
    assert str(error.value).startswith(
        f"{owner}: selector #0: CEL compile error: compilation failed: ERROR: <input>:1:1: "
        "undeclared reference to 'noSuchVar' (in container '')"
    )


@scenario(64, 66, 67)
@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ([500], "request r0: adding 500 devices exceeds the claim limit of 32, with 0 already accounted for"),
        ([32, 1], "request r1: adding 1 devices exceeds the claim limit of 32, with 32 already accounted for"),
    ],
)
def test_claim_over_device_limit_is_an_error(counts: list[int], text: str) -> None:
    with pytest.raises(AllocationError) as error:
        allocated([], claim(*[request(f"r{n}", wants_a(count)) for n, count in enumerate(counts)]))
    assert str(error.value) == f"claim ns/claim, {text}"


@scenario(65)
def test_claim_at_device_limit_is_valid() -> None:
    assert found([], claim(request("r", wants_a(32)))) is None
