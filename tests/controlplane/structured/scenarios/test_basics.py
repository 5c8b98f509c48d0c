"""Requests for a number of devices: the choice, backtracking, and requests that cannot be satisfied."""

import pytest

from controlplane.structured import NodeError
from tests.allocator_scenarios import scenario
from tests.controlplane.structured.build import claim, device, request
from tests.controlplane.structured.scenarios.two_drivers import (
    NODE_2,
    ONE,
    at_least,
    found,
    held_a,
    sized,
    slice_a,
    slice_b,
    wants_a,
    wants_b,
)

SMALL, LARGE = request("small", wants_a(1, at_least("1Gi"))), request("large", wants_a(1, at_least("2Gi")))


@scenario(2)
def test_one_request_gets_only_device() -> None:
    assert found([slice_a("slice-1", [device("a1")])], ONE) == [["r=pool-1/a1"]]


@scenario(3)
def test_device_matches_node_and_class() -> None:
    slices = [
        slice_a("slice-1", [device("a1")]),
        slice_b("slice-1", [device("b1")], nodeName="node-2"),
        slice_a("slice-1", [device("a1")], pool="pool-2", nodeName="node-2"),
    ]
    assert found(slices, ONE, on=NODE_2) == [["r=pool-2/a1"]]


@scenario(4, 5)
@pytest.mark.parametrize("is_large_first", [False, True])
def test_large_device_is_left_for_request_that_needs_it(is_large_first: bool) -> None:
    devices = [sized("1gi", "1Gi"), sized("2gi", "2Gi")]
    slices = [slice_a("slice-1", devices[::-1] if is_large_first else devices)]
    assert found(slices, claim(SMALL, LARGE)) == [["small=pool-1/1gi", "large=pool-1/2gi"]]


@scenario(6)
def test_large_device_is_left_for_claim_that_needs_it() -> None:
    slices = [slice_a("slice-1", [sized("2gi", "2Gi"), sized("1gi", "1Gi")])]
    claims = [claim(SMALL, name="first"), claim(LARGE, name="second")]
    assert found(slices, *claims) == [["small=pool-1/1gi"], ["large=pool-1/2gi"]]


@scenario(7)
def test_request_can_get_devices_of_two_pools() -> None:
    slices = [slice_a("slice-1", [device("a1")]), slice_a("slice-1", [device("a1")], pool="pool-2")]
    assert found(slices, claim(request("r", wants_a(2)))) == [["r=pool-1/a1", "r=pool-2/a1"]]


@scenario(8)
@pytest.mark.parametrize("generations", [(1, 2), (2, 1)])
def test_incomplete_new_generation_hides_old_generation(generations: tuple[int, int]) -> None:
    slices = [slice_a("slice-1", [device("a1")], generation=each, count=2) for each in generations]
    assert found(slices, ONE) is None


@scenario(9)
def test_device_in_two_slices_makes_pool_invalid() -> None:
    slices = [slice_a(name, [device("a1")], count=2) for name in ("slice-1", "slice-2")]
    with pytest.raises(NodeError, match=r"^invalid resource pools were encountered$"):
        found(slices, ONE)


@scenario(10)
def test_claim_fails_without_slices() -> None:
    assert found([], ONE) is None


@scenario(11)
def test_two_claims_cannot_get_same_device() -> None:
    assert found([slice_a("slice-1", [device("a1")])], ONE, claim(request("r", wants_a()), name="second")) is None


@scenario(41)
def test_claims_for_two_drivers_get_one_device_each() -> None:
    slices = [slice_a("slice-1", [device("a1")]), slice_b("slice-1", [device("b1")])]
    assert found(slices, ONE, claim(request("r", wants_b()))) == [["r=pool-1/a1"], ["r=pool-1/b1"]]


@scenario(42)
def test_device_in_use_is_not_allocated() -> None:
    assert found([slice_a("slice-1", [device("a1")])], ONE, state=held_a("a1", "a2")) is None
