"""The pools that a node can use, their order, and the reasons that make them unusable."""

import pytest
from msgspec.structs import replace

from controlplane.structured import AllocationError, Features, gather_pools
from resourceapi.objects.v1 import ResourceSlice
from tests.allocator_scenarios import scenario
from tests.controlplane.structured.build import consumes, counters, device, equal_devices, node, slice_

IN_ZONE = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}


def _pools(*slices: ResourceSlice, features: Features | None = None) -> list[str]:
    pools = gather_pools(slices, node(zone="a"), features)
    return [
        f"{pool.id}{' incomplete' if pool.is_incomplete else ''}{f' ({pool.invalid})' if pool.is_invalid else ''}"
        for pool in pools
    ]


def test_slice_reaches_node_by_name_selector_device_or_all_nodes() -> None:
    assert _pools(
        slice_("1", pool="by-name"),
        slice_("2", pool="for-all", allNodes=True),
        slice_("3", pool="selected", nodeSelector=IN_ZONE),
        slice_("4", [device("x", nodeSelector=IN_ZONE)], pool="by-device", perDeviceNodeSelection=True),
        slice_("5", [device("x", nodeName="other")], pool="by-other-device", perDeviceNodeSelection=True),
        slice_("6", pool="elsewhere", nodeName="other"),
        slice_("7", pool="unknown", perDeviceNodeSelection=False),
    ) == ["drv/by-device", "drv/by-name", "drv/for-all", "drv/selected"]


@scenario(236)
def test_pools_are_sorted_by_driver_and_name_and_slices_by_name() -> None:
    assert _pools(
        slice_("1", pool="b"), slice_("2", pool="a", driver="z"), slice_("3", pool="c"), slice_("4", pool="B")
    ) == ["drv/B", "drv/b", "drv/c", "z/a"]
    pool = gather_pools([slice_("s-2", count=2), slice_("s-10", count=2)], node())[0]
    assert [each.metadata.name for each in pool.slices] == ["s-10", "s-2"]


def test_pools_with_binding_conditions_are_sorted_last() -> None:
    assert _pools(
        slice_("1", [device("x"), device("y", bindingConditions=["ready"])], pool="a"), slice_("2", pool="b")
    ) == ["drv/b", "drv/a"]


def test_only_highest_pool_generation_is_used() -> None:
    pool = gather_pools([slice_("old", equal_devices(2)), slice_("new", equal_devices(1), generation=2)], node())[0]
    assert [each.metadata.name for each in pool.slices] == ["new"]
    assert not pool.is_incomplete
    assert _pools(slice_("new", generation=2, count=2), slice_("old")) == ["drv/pool incomplete"]


def test_pool_is_complete_with_slices_of_other_nodes() -> None:
    here, there = (
        slice_("here", equal_devices(1), count=2),
        slice_("there", equal_devices(1), count=2, nodeName="other"),
    )
    assert _pools(here) == ["drv/pool incomplete"]
    assert _pools(here, there) == ["drv/pool"]
    newer = slice_("there", equal_devices(1), count=2, nodeName="other", generation=2)
    assert _pools(here, newer) == []


def test_invalid_pool_reports_duplicates_and_missing_counters() -> None:
    assert _pools(slice_("1", [device("x"), device("x")])) == ["drv/pool (duplicate device name x)"]
    assert _pools(counters("1", m="1"), counters("2", m="1")) == ["drv/pool (duplicate counter set name set)"]
    draws = device("x", **consumes(m="1"))
    assert _pools(slice_("1", [draws])) == ["drv/pool (counter set set not found)"]
    assert _pools(slice_("1", [draws], count=2), counters("2", n="1")) == [
        "drv/pool (counter m not found in counter set set)"
    ]
    assert _pools(slice_("1", [draws]), features=Features(partitionable_devices=False)) == ["drv/pool"]
    far = slice_("2", [draws], count=2, nodeName="other")
    assert _pools(slice_("1", [device("y")], count=2), far) == ["drv/pool (counter set set not found)"]
    here = slice_("1", [draws], count=2)
    there = counters("2", m="1")
    assert _pools(here, replace(there, spec=replace(there.spec, node_name="other"))) == ["drv/pool"]
    same_name = replace(there, metadata=here.metadata, spec=replace(there.spec, node_name="other"))
    assert _pools(here, same_name) == ["drv/pool (counter set set not found)"], "upstream identifies slices by name"


def test_invalid_node_selector_fails_gathering_for_every_node() -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "Is", "values": ["a"]}]}]
    with pytest.raises(AllocationError) as error:
        _pools(slice_("s", nodeSelector={"nodeSelectorTerms": terms}))
    assert str(error.value) == (
        "gather pool information: failed to perform node selection for slice s: failed to parse node selector "
        "&NodeSelector{NodeSelectorTerms:[]NodeSelectorTerm{NodeSelectorTerm{MatchExpressions:[]"
        "NodeSelectorRequirement{NodeSelectorRequirement{Key:zone,Operator:Is,Values:[a],},},MatchFields:[]"
        "NodeSelectorRequirement{},},},}: nodeSelectorTerms[0].matchExpressions[0].operator: "
        'Unsupported value: "Is": supported values: "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"'
    )


def test_slice_with_unsupported_feature_makes_pool_incomplete() -> None:
    drawn = [{"counterSet": "set", "counters": {"m": {"value": "1"}}, "compatibilityGroups": ["group"]}]
    grouped = slice_("1", [device("x", consumesCounters=drawn)], count=2)
    assert _pools(grouped, slice_("2", equal_devices(1), count=2)) == ["drv/pool incomplete"]
    newer = slice_("1", [device("x", consumesCounters=drawn)], count=2, generation=2)
    assert _pools(newer, slice_("2", equal_devices(1), count=2)) == [], (
        "an unsupported slice still hides the older generation"
    )
