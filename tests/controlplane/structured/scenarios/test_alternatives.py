"""Requests with alternatives: the choice, and backtracking."""

import pytest

from tests.allocator_scenarios import scenario
from tests.controlplane.structured.build import Json, claim, device, first_of, request
from tests.controlplane.structured.scenarios.two_drivers import (
    at_least,
    found,
    held_a,
    match_a,
    sized,
    slice_a,
    slice_b,
    wants_a,
    wants_b,
)


@scenario(68)
def test_alternative_without_devices_falls_back_to_next() -> None:
    assert found([slice_a("slice-1", [device("a1")])], claim(first_of("r", wants_b(), wants_a()))) == [
        ["r/s1=pool-1/a1"]
    ]


@scenario(69)
def test_request_fails_if_no_alternative_has_enough_devices() -> None:
    slices = [slice_a("slice-1", [device("a1")]), slice_b("slice-1", [device("b1")])]
    assert found(slices, claim(first_of("r", wants_a(2), wants_b(2)))) is None


@scenario(74)
def test_search_moves_earlier_request_for_last_alternative() -> None:
    slices = [slice_a("slice-1", [sized("a1", "2Gi"), sized("a2", "2Gi"), sized("a3", "1Gi")])]
    alternatives = first_of("q", wants_a(1, at_least("4Gi")), wants_a(2, at_least("2Gi")))
    assert found(slices, claim(request("r", wants_a(1, at_least("1Gi"))), alternatives)) == [
        ["r=pool-1/a3", "q/s1=pool-1/a1", "q/s1=pool-1/a2"]
    ]


def _versioned(name: str, memory: str, version: str) -> Json:
    return sized(name, memory, attributes={"driverVersion": {"version": version}})


@scenario(75)
def test_constraint_on_request_applies_to_each_alternative() -> None:
    slices = [
        slice_a("slice-1", [_versioned("a1", "8Gi", "1.0.0")]),
        slice_a("slice-1", [_versioned("a2", "2Gi", "2.0.0"), _versioned("a3", "1Gi", "1.0.0")], pool="pool-2"),
    ]
    wanted = claim(
        request("r", wants_a(1, at_least("8Gi"))),
        first_of("q", wants_a(1, at_least("2Gi")), wants_a(1, at_least("1Gi"))),
        constraints=[match_a("driverVersion", "r", "q")],
    )
    assert found(slices, wanted) == [["r=pool-1/a1", "q/s1=pool-2/a3"]]


@scenario(76)
def test_constraint_on_alternative_does_not_apply_to_others() -> None:
    slices = [
        slice_a("slice-1", [_versioned("a1", "8Gi", "1.0.0")]),
        slice_a("slice-1", [_versioned("a2", "2Gi", "2.0.0")], pool="pool-2"),
    ]
    wanted = claim(
        request("r", wants_a(1, at_least("8Gi"))),
        first_of("q", wants_a(1, at_least("2Gi")), wants_a(1, at_least("1Gi"))),
        constraints=[match_a("driverVersion", "r", "q/s0")],
    )
    assert found(slices, wanted) == [["r=pool-1/a1", "q/s1=pool-2/a2"]]


TWO = [slice_a("slice-1", [device("a1"), device("a2")])]
ALL_OR_ONE = first_of("q", wants_a(None), wants_a())


@scenario(77)
def test_one_device_alternative_is_used_if_another_device_is_in_use() -> None:
    assert found(TWO, claim(ALL_OR_ONE), state=held_a("a1")) == [["q/s1=pool-1/a2"]]


@scenario(78)
def test_alternatives_are_tried_before_earlier_request_moves() -> None:
    assert found(TWO, claim(request("r", wants_a()), ALL_OR_ONE)) == [["r=pool-1/a1", "q/s1=pool-1/a2"]]


@scenario(80, 81)
@pytest.mark.parametrize("are_alternatives_first", [False, True])
def test_large_device_goes_to_request_without_alternatives(are_alternatives_first: bool) -> None:
    slices = [slice_a("slice-1", [sized("8gi", "8Gi")]), slice_a("slice-1", [sized("4gi", "4Gi")], pool="pool-2")]
    alternatives = first_of("r", wants_a(1, at_least("8Gi")), wants_a(1, at_least("4Gi")))
    order = -1 if are_alternatives_first else 1
    requests = [request("q", wants_a(1, at_least("8Gi"))), alternatives]
    assert found(slices, claim(*requests[::order])) == [["q=pool-1/8gi", "r/s1=pool-2/4gi"][::order]]
