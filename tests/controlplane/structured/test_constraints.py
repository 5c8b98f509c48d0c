"""matchAttribute and distinctAttribute."""

import pytest

from controlplane.structured import Features
from tests.allocator_scenarios import scenario
from tests.controlplane.structured.build import (
    DRIVER,
    Json,
    allocator,
    claim,
    device,
    distinct,
    first_of,
    match,
    names,
    node,
    request,
    slice_,
    wants,
)


def _allocated_devices(
    values: list[object], count: int, constraint: Json, features: Features | None = None
) -> str | None:
    """The allocated devices among a, b, c, ..., which have these values of the attribute `n`."""
    devices = [
        device(name, attributes={} if value is None else {"n": value})
        for name, value in zip("abcdef", values, strict=False)
    ]
    made = allocator([slice_("s", devices)], features=features)
    results = made.allocate(node(), [claim(request("r", wants(count)), constraints=[constraint])])
    return None if results is None else "".join(result.device for result in results[0].devices.results)


@scenario(46, 47, 49, 50, 51)
@pytest.mark.parametrize(
    ("values", "count", "expected"),
    [
        ([1, 2, 1], 2, "ac"),
        ([1, 2], 2, None),
        (["a", "b"], 2, None),
        ([True, False], 2, None),
        ([None], 1, None),
        ([None, 1, 1], 2, "bc"),
        ([1, True, "1", 1], 2, "ad"),
        ([{"version": "1.0.0"}, {"version": "1.0.0+build"}], 2, None),
        ([{"string": "1.0.0"}, {"version": "1.0.0"}], 2, None),
        ([[1, 2, 3], [2, 3, 4]], 2, "ab"),
        ([[1, 2], [2, 3], [3, 1]], 3, None),
        ([1, [1, 2]], 2, "ab"),
        ([["x"], [1]], 2, None),
        ([[1, 2], 1, 2, 2], 3, "acd"),
    ],
)
@scenario(234)
def test_matching_devices_share_a_value_of_same_type(values: list[object], count: int, expected: str | None) -> None:
    assert _allocated_devices(values, count, match("n")) == expected


@scenario(234)
@pytest.mark.parametrize(
    ("values", "count", "expected"),
    [
        ([1, 1, 2], 2, "ac"),
        ([1, 1], 2, None),
        ([None, 1], 1, "b"),
        ([1, True, "1"], 3, "abc"),
        ([1, 2, 1, 3], 3, "abd"),
        ([[1, 2], [2, 3], [3, 4]], 2, "ac"),
        ([1, [1, 2], [2, 3]], 2, "ac"),
    ],
)
def test_distinct_devices_share_no_value(values: list[object], count: int, expected: str | None) -> None:
    assert _allocated_devices(values, count, distinct("n")) == expected


def test_list_attribute_has_no_value_when_feature_is_off() -> None:
    off = Features(list_type_attributes=False)
    assert _allocated_devices([[1], [1]], 2, match("n"), off) is None
    assert _allocated_devices([[1], 1, 1], 2, match("n"), off) == "bc"
    assert _allocated_devices([[1], [1], 1], 2, distinct("n"), off) == "ac"


@scenario(240)
def test_unqualified_attribute_name_belongs_to_driver_of_device() -> None:
    devices = [device("a", attributes={"n": 1}), device("b", attributes={f"{DRIVER}/n": 1})]
    made = allocator([slice_("s", devices)])
    assert names(made.allocate(node(), [claim(request("r", wants(2)), constraints=[match("n")])])) is not None
    foreign = [device("c", attributes={"n": 1})]
    made = allocator([slice_("s", foreign, driver="other")])
    assert made.allocate(node(), [claim(request("r"), constraints=[match("n")])]) is None


@scenario(52)
def test_constraint_applies_only_to_requests_in_its_list() -> None:
    devices = [device("a", attributes={"n": 1}), device("b", attributes={"n": 2}), device("c", attributes={"n": 2})]
    made = allocator([slice_("s", devices)])
    two = [request("r"), request("q")]
    assert names(made.allocate(node(), [claim(*two, constraints=[match("n", "r")])])) == [["r=pool/a", "q=pool/b"]]
    assert names(made.allocate(node(), [claim(*two, constraints=[match("n")])])) == [["r=pool/b", "q=pool/c"]]
    by_alternative = claim(request("r"), first_of("q", wants()), constraints=[match("n", "r", "q/s0")])
    assert names(made.allocate(node(), [by_alternative])) == [["r=pool/b", "q/s0=pool/c"]]
    other_alternative = claim(request("r"), first_of("q", wants(5), wants()), constraints=[match("n", "r", "q/s0")])
    assert names(made.allocate(node(), [other_alternative])) == [["r=pool/a", "q/s1=pool/b"]]
