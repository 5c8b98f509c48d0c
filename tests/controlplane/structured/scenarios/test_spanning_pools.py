"""Pools that span nodes, that are being updated, or that violate a rule."""

from functools import partial

import pytest

from controlplane.structured import AllocatedState, NodeError
from resourceapi.objects.v1 import ResourceSlice
from tests.allocator_scenarios import scenario
from tests.controlplane.structured.build import (
    Json,
    alike,
    claim,
    consumes,
    device,
    first_of,
    held,
    node,
    request,
    slice_,
    wants,
)
from tests.controlplane.structured.scenarios.shared_devices import found

A, B = device("a"), device("b")
ONE, EVERY = claim(request("r")), claim(request("r", wants(None)))
SET = {"name": "set", "counters": {"memory": {"value": "8Gi"}}}
NODE_2 = node("node-2")
there = partial(slice_, nodeName="node-2")


def _drawing(name: str, memory: str) -> Json:
    return device(name, **consumes(memory=memory), capacity={"memory": {"value": memory}})


def _least(memory: str) -> Json:
    return wants(1, f'device.capacity["drv"].memory.compareTo(quantity("{memory}")) >= 0')


def _refusal(*slices: ResourceSlice, state: AllocatedState | None = None) -> str:
    with pytest.raises(NodeError) as error:
        found(slices, ONE, state=state)
    return str(error.value)


@scenario(196)
def test_all_are_the_nodes_own_devices_of_a_pool_of_several_nodes() -> None:
    assert found([slice_("s", [A], count=2), there("t", [B], count=2)], EVERY) == ["r=pool/a"]


@scenario(197)
def test_a_node_whose_slice_is_stale_has_nothing_of_the_pool() -> None:
    slices = [slice_("s", [A], count=2), there("t", [B], count=2, generation=2)]
    assert found(slices, ONE) is None
    other = slice_("u", [A], pool="p2")
    assert found([*slices, other], EVERY) == ["r=p2/a"]  # an incomplete pool would stop mode All


@scenario(198, 200)
@pytest.mark.parametrize("updated", [1, 2])
def test_a_complete_old_generation_is_used_while_the_new_one_is_elsewhere(updated: int) -> None:
    """Upstream documents this as undesirable: it does not search for newer slices if the old ones are complete."""
    old = [slice_("s", [A], count=2), slice_("s", [B], count=2)]
    new = [there("t", [device(name)], count=2, generation=2) for name in "ab"]
    assert found([*old, *new[:updated]], ONE) == ["r=pool/a"]


@scenario(199, 201)
def test_a_new_generation_is_used_once_it_is_complete() -> None:
    old = [there("s", [A], count=2), there("s", [B], count=2)]
    new = [slice_("t", [device(name)], count=2, generation=2) for name in "ab"]
    assert found([*old, *new], ONE) == ["r=pool/a"]
    assert found([*old, new[0]], ONE) is None


@scenario(202, 203, 204, 205)
@pytest.mark.parametrize(
    "slices",
    [
        pytest.param(
            [slice_("s", count=2, sharedCounters=[SET]), slice_("t", count=2, sharedCounters=[SET])], id="202"
        ),
        pytest.param([slice_("s", [_drawing("a", "8Gi")])], id="203"),
        pytest.param(
            [
                slice_("s", [_drawing("a", "8Gi")], count=2),
                slice_("t", count=2, sharedCounters=[{"name": "set", "counters": {"other": {"value": "8Gi"}}}]),
            ],
            id="204",
        ),
        pytest.param([slice_("s", [_drawing("a", "8Gi")]), slice_("t", pool="p2", sharedCounters=[SET])], id="205"),
    ],
)
def test_a_pool_whose_counters_make_no_sense_is_an_error_of_the_node(slices: list[ResourceSlice]) -> None:
    assert _refusal(*slices) == "invalid resource pools were encountered"


@scenario(206)
def test_what_a_device_of_another_node_draws_is_gone_here_too() -> None:
    slices = [
        slice_("1", count=3, sharedCounters=[SET]),
        slice_("2", [_drawing("a", "6Gi"), _drawing("b", "2Gi")], count=3),
        there("3", [_drawing("c", "6Gi")], count=3),
    ]
    wanted = claim(first_of("r", _least("6Gi"), _least("2Gi")))
    assert found(slices, wanted, state=held("c")) == ["r/s1=pool/b"]
    assert found(slices, wanted) == ["r/s0=pool/a"]


@scenario(207)
def test_counters_that_another_node_publishes_limit_this_one() -> None:
    slices = [
        slice_("1", count=3, sharedCounters=[SET]),
        slice_("2", [_drawing("a", "6Gi")], count=3),
        there("3", [_drawing("b", "4Gi"), _drawing("c", "2Gi")], count=3),
    ]
    assert found(slices, ONE, on=NODE_2, state=held("a")) == ["r=pool/c"]
    assert found(slices, ONE, on=NODE_2) == ["r=pool/b"]


@scenario(208)
def test_a_slice_of_another_node_can_make_the_pool_invalid() -> None:
    stray = device("b", consumesCounters=[{"counterSet": "unknown", "counters": {"memory": {"value": "1Gi"}}}])
    slices = [
        slice_("1", count=3, sharedCounters=[SET]),
        slice_("2", [_drawing("a", "4Gi")], count=3),
        there("3", [stray], count=3),
    ]
    assert _refusal(*slices) == "invalid resource pools were encountered"


@scenario(209)
def test_a_node_gets_its_own_device_of_a_pool_of_several_nodes() -> None:
    assert found([there("s", [A], count=2), slice_("t", [B], count=2)], ONE) == ["r=pool/b"]


@scenario(210, 211)
def test_an_invalid_pool_is_an_error_only_if_no_other_has_a_device() -> None:
    twice = [slice_("s", [A], count=2), slice_("t", [A], count=2)]
    other = slice_("u", [B], pool="p2")
    assert found([*twice, other], ONE) == ["r=p2/b"]
    assert _refusal(*twice, other, state=held("b", pool="p2")) == "invalid resource pools were encountered"


@scenario(212)
def test_an_incomplete_pool_has_no_devices() -> None:
    assert found([slice_("s", alike(3), count=2)], ONE) is None
