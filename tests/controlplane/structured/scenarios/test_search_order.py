"""The order in which devices are tried, and the number of search steps without pruning."""

import pytest

from resourceapi.objects import to_dict
from resourceapi.objects.v1 import ResourceSlice
from tests.allocator_scenarios import scenario
from tests.controlplane.structured.build import Json, allocator, claim, device, names, request
from tests.controlplane.structured.scenarios.two_drivers import CLASSES, NODE_1, found, slice_a, wants_a

FIVE, TWO = claim(request("r", wants_a(5))), claim(request("r", wants_a(2)))


def _slice(name: str, *devices: str, pool: str = "pool-1", count: int = 1) -> ResourceSlice:
    return slice_a(name, map(device, devices), pool=pool, count=count)


@scenario(215, 216)
@pytest.mark.parametrize(
    "slices",
    [
        [
            _slice("slice-1", "a1", count=2),
            _slice("slice-2", "a2", count=2),
            _slice("slice-3", "a3", "a4", pool="pool-2"),
        ],
        [_slice("slice-1", f"a{n}", pool=f"pool-{n}") for n in range(1, 5)],
    ],
)
def test_each_device_combination_is_tried_once_across_slices_and_pools(slices: list[ResourceSlice]) -> None:
    made = allocator(slices, classes=CLASSES, prune=False)
    assert made.allocate(NODE_1, [FIVE]) is None
    assert made.stats.num_allocate_one_invocations == 16


X = 'device.attributes["driver-a"].type == "X"'
BINDING: Json = {"bindingConditions": ["ready"], "bindingFailureConditions": []}


def _typed(name: str, kind: str, **fields: object) -> Json:
    return device(name, attributes={"type": kind}, **fields)


@scenario(218)
def test_only_device_of_a_type_is_left_for_request_that_needs_it() -> None:
    slices = [
        slice_a("slice-1", [_typed("a3", "Y", **BINDING)], pool="pool-0"),
        slice_a("slice-2", [_typed("a1", "X")], count=2),
        slice_a("slice-3", [_typed("a2", "Y")], count=2),
    ]
    made = allocator(slices, classes=CLASSES, prune=False)
    results = made.allocate(NODE_1, [claim(request("any", wants_a(2)), request("x", wants_a(1, X)))])
    assert names(results) == [["any=pool-1/a2", "any=pool-0/a3", "x=pool-1/a1"]]
    assert made.stats.num_allocate_one_invocations == 12
    assert results is not None
    assert to_dict(results[0])["devices"]["results"][1] == {
        "request": "any",
        "driver": "driver-a",
        "pool": "pool-0",
        "device": "a3",
        "bindingConditions": ["ready"],
    }


POOLS = [_slice("slice-1", "a1", pool=f"pool-{n}") for n in (3, 2, 1)]


@scenario(224)
def test_pools_are_tried_in_name_order() -> None:
    assert found(POOLS, TWO) == [["r=pool-1/a1", "r=pool-2/a1"]]


@scenario(225)
def test_pool_with_binding_conditions_is_tried_last() -> None:
    slices = [*POOLS[:2], slice_a("slice-1", [device("a1", bindingConditions=["ready"])])]
    assert found(slices, TWO) == [["r=pool-2/a1", "r=pool-3/a1"]]


@scenario(226)
def test_slices_are_tried_in_name_order() -> None:
    slices = [_slice(f"slice-{n}", f"a{n}", count=3) for n in (3, 2, 1)]
    assert found(slices, TWO) == [["r=pool-1/a1", "r=pool-1/a2"]]


@scenario(227)
def test_binding_conditions_do_not_change_slice_order() -> None:
    first = slice_a("slice-1", [device("a1", bindingConditions=["ready"])], count=3)
    slices = [_slice("slice-3", "a3", count=3), _slice("slice-2", "a2", count=3), first]
    made = allocator(slices, classes=CLASSES)
    assert names(made.allocate(NODE_1, [TWO])) == [["r=pool-1/a1", "r=pool-1/a2"]]
