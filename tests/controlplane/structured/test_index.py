"""The cached data that allocators share, and its invalidation."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec.structs import replace

from controlplane.structured import AllocatedState, Allocator, DeviceClasses, Features, SliceIndex
from resourceapi.objects.v1 import ResourceSlice
from tests.controlplane.structured.build import (
    claim,
    class_,
    device,
    equal_devices,
    names,
    node,
    request,
    slice_,
    wants,
)

CLASSES = DeviceClasses([class_()])


def _allocate(index: SliceIndex, slices: list[ResourceSlice], node_name: str = "node") -> list[list[str]] | None:
    wanted = [claim(request("r", wants(1, 'device.attributes["drv"].good')))]
    made = Allocator(Features(), AllocatedState(), CLASSES, slices, index=index)
    return names(made.allocate(node(node_name), wanted))


def _slice(name: str, good: bool, **fields: Any) -> ResourceSlice:
    return slice_(name, [device("x", attributes={"good": good})], pool=name, **fields)


def test_layout_is_reused_while_slices_are_unchanged() -> None:
    index = SliceIndex()
    slices = [_slice("a", True), _slice("b", False, nodeName="other")]
    assert _allocate(index, slices) == [["r=a/x"]]
    layout = index.layout(node(), Features())
    assert _allocate(index, list(slices)) == [["r=a/x"]]
    assert index.layout(node(), Features()) is layout
    assert _allocate(index, [replace(each) for each in slices]) == [["r=a/x"]]
    assert index.layout(node(), Features()) is layout


def test_changed_slice_invalidates_layouts_of_its_nodes_only() -> None:
    index = SliceIndex()
    here, there = _slice("a", True), _slice("b", True, nodeName="other")
    assert _allocate(index, [here, there]) == [["r=a/x"]]
    assert _allocate(index, [here, there], "other") == [["r=b/x"]]
    kept = index.layout(node("other"), Features())
    assert _allocate(index, [_slice("a", False), there]) is None
    assert index.layout(node("other"), Features()) is kept
    assert _allocate(index, [there]) is None
    assert _allocate(index, [_slice("c", True, allNodes=True), there], "other") == [["r=b/x"]]
    assert index.layout(node("other"), Features()) is not kept


def test_pool_is_complete_with_slice_of_another_node() -> None:
    index = SliceIndex()
    part = slice_("a", equal_devices(1, attributes={"good": True}), count=2)
    rest = slice_("b", equal_devices(1, "e"), count=2, nodeName="other")
    assert _allocate(index, [part]) is None
    assert _allocate(index, [part, rest]) == [["r=pool/d000"]]
    assert _allocate(index, [part, replace(rest, spec=replace(rest.spec, node_name="third"))]) == [["r=pool/d000"]]


def test_unnamed_node_counts_each_slice_once() -> None:
    assert _allocate(SliceIndex(), [_slice("a", True, allNodes=True)], "") == [["r=a/x"]]


def test_changed_node_labels_select_other_slices() -> None:
    index = SliceIndex()
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    slices = (_slice("a", True, nodeSelector={"nodeSelectorTerms": terms}),)
    made = Allocator(Features(), AllocatedState(), CLASSES, slices, index=index)
    wanted = [claim(request("r"))]
    assert names(made.allocate(node(zone="a"), wanted)) == [["r=a/x"]]
    assert made.allocate(node(zone="b"), wanted) is None
    assert names(made.allocate(node(zone="a"), wanted)) == [["r=a/x"]]


def test_threads_share_one_allocator() -> None:
    slices = tuple(_slice(f"n{number}", True, nodeName=f"n{number}") for number in range(20))
    made = Allocator(Features(), AllocatedState(), CLASSES, slices)
    wanted = [claim(request("r", wants(1, 'device.attributes["drv"].good')))]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda n: names(made.allocate(node(f"n{n % 20}"), wanted)), range(100)))
    assert found == [[[f"r=n{n % 20}/x"]] for n in range(100)]
