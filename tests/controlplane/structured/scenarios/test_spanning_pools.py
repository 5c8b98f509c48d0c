"""Pools that span nodes, that are being updated, or that violate a rule."""

from functools import partial

import pytest

from controlplane.structured import AllocatedState, NodeError
from resourceapi.objects.v1 import ResourceSlice
from tests.allocator_scenarios import scenario
from tests.controlplane.structured.build import (
    Json,
    claim,
    consumes,
    device,
    equal_devices,
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
slice_of_node_2 = partial(slice_, nodeName="node-2")


def _partition(name: str, memory: str) -> Json:
    return device(name, **consumes(memory=memory), capacity={"memory": {"value": memory}})


def _with_memory(memory: str) -> Json:
    return wants(1, f'device.capacity["drv"].memory.compareTo(quantity("{memory}")) >= 0')


def _node_error(*slices: ResourceSlice, state: AllocatedState | None = None) -> str:
    with pytest.raises(NodeError) as error:
        found(slices, ONE, state=state)
    return str(error.value)


@scenario(196)
def test_all_devices_request_excludes_devices_of_other_nodes() -> None:
    assert found([slice_("s", [A], count=2), slice_of_node_2("t", [B], count=2)], EVERY) == ["r=pool/a"]


@scenario(197)
def test_node_with_stale_slice_gets_no_device_of_pool() -> None:
    slices = [slice_("s", [A], count=2), slice_of_node_2("t", [B], count=2, generation=2)]
    assert found(slices, ONE) is None
    other = slice_("u", [A], pool="p2")
    assert found([*slices, other], EVERY) == ["r=p2/a"]  # an incomplete pool would stop mode All


@scenario(198, 200)
@pytest.mark.parametrize("updated", [1, 2])
def test_complete_old_generation_is_used_while_new_one_is_on_other_node(updated: int) -> None:
    """Upstream documents this as undesirable: it does not search for newer slices if the old ones are complete."""
    old = [slice_("s", [A], count=2), slice_("s", [B], count=2)]
    new = [slice_of_node_2("t", [device(name)], count=2, generation=2) for name in "ab"]
    assert found([*old, *new[:updated]], ONE) == ["r=pool/a"]


@scenario(199, 201)
def test_new_generation_is_used_once_complete() -> None:
    old = [slice_of_node_2("s", [A], count=2), slice_of_node_2("s", [B], count=2)]
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
        pytest.param([slice_("s", [_partition("a", "8Gi")])], id="203"),
        pytest.param(
            [
                slice_("s", [_partition("a", "8Gi")], count=2),
                slice_("t", count=2, sharedCounters=[{"name": "set", "counters": {"other": {"value": "8Gi"}}}]),
            ],
            id="204",
        ),
        pytest.param([slice_("s", [_partition("a", "8Gi")]), slice_("t", pool="p2", sharedCounters=[SET])], id="205"),
    ],
)
def test_pool_with_invalid_counters_is_node_error(slices: list[ResourceSlice]) -> None:
    assert _node_error(*slices) == "invalid resource pools were encountered"


@scenario(206)
def test_counters_consumed_on_other_node_are_not_available() -> None:
    slices = [
        slice_("1", count=3, sharedCounters=[SET]),
        slice_("2", [_partition("a", "6Gi"), _partition("b", "2Gi")], count=3),
        slice_of_node_2("3", [_partition("c", "6Gi")], count=3),
    ]
    wanted = claim(first_of("r", _with_memory("6Gi"), _with_memory("2Gi")))
    assert found(slices, wanted, state=held("c")) == ["r/s1=pool/b"]
    assert found(slices, wanted) == ["r/s0=pool/a"]


@scenario(207)
def test_counters_published_by_other_node_limit_devices() -> None:
    slices = [
        slice_("1", count=3, sharedCounters=[SET]),
        slice_("2", [_partition("a", "6Gi")], count=3),
        slice_of_node_2("3", [_partition("b", "4Gi"), _partition("c", "2Gi")], count=3),
    ]
    assert found(slices, ONE, on=NODE_2, state=held("a")) == ["r=pool/c"]
    assert found(slices, ONE, on=NODE_2) == ["r=pool/b"]


@scenario(208)
def test_slice_of_other_node_can_invalidate_pool() -> None:
    stray = device("b", consumesCounters=[{"counterSet": "unknown", "counters": {"memory": {"value": "1Gi"}}}])
    slices = [
        slice_("1", count=3, sharedCounters=[SET]),
        slice_("2", [_partition("a", "4Gi")], count=3),
        slice_of_node_2("3", [stray], count=3),
    ]
    assert _node_error(*slices) == "invalid resource pools were encountered"


@scenario(209)
def test_node_gets_local_device_of_pool_over_several_nodes() -> None:
    assert found([slice_of_node_2("s", [A], count=2), slice_("t", [B], count=2)], ONE) == ["r=pool/b"]


@scenario(210, 211)
def test_invalid_pool_is_an_error_only_if_no_other_pool_fits() -> None:
    twice = [slice_("s", [A], count=2), slice_("t", [A], count=2)]
    other = slice_("u", [B], pool="p2")
    assert found([*twice, other], ONE) == ["r=p2/b"]
    assert _node_error(*twice, other, state=held("b", pool="p2")) == "invalid resource pools were encountered"


@scenario(212)
def test_incomplete_pool_offers_no_devices() -> None:
    assert found([slice_("s", equal_devices(3), count=2)], ONE) is None
