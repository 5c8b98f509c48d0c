"""The other content of an allocation: configuration, and the nodes where its devices can be used."""

from typing import Any

import pytest

from controlplane.structured import AllocationError, Features
from resourceapi.objects import to_dict
from resourceapi.objects.v1 import AllocationResult, ResourceSlice
from tests.allocator_scenarios import scenario
from tests.controlplane.structured.build import (
    Json,
    allocator,
    claim,
    class_,
    device,
    equal_devices,
    first_of,
    node,
    request,
    slice_,
    wants,
)


def _config(name: str, *requests: str) -> Json:
    opaque = {"opaque": {"driver": "drv", "parameters": {"name": name}}}
    return {**opaque, **({"requests": list(requests)} if requests else {})}


def _configs(*requests: Json, config: list[Json]) -> list[tuple[str, str, tuple[str, ...]]]:
    gpu = class_("gpu", config=[_config("g0"), _config("g1")])
    nic = class_("nic", config=[_config("n0")])
    made = allocator([slice_("s", equal_devices(4))], classes=[gpu, nic])
    results = made.allocate(node(), [claim(*requests, config=config)])
    assert results is not None
    entries = results[0].devices.config
    return [(x.source, x.opaque.parameters["name"] if x.opaque else "", x.requests) for x in entries]


def _wants_class(name: str) -> Json:
    return {**wants(), "deviceClassName": name}


def test_class_configuration_precedes_claim_configuration() -> None:
    requests = [request("a", _wants_class("gpu")), request("b", _wants_class("nic")), request("c", _wants_class("gpu"))]
    assert _configs(*requests, config=[_config("claim", "b")]) == [
        ("FromClass", "g0", ("a", "c")),
        ("FromClass", "g1", ("a", "c")),
        ("FromClass", "n0", ("b",)),
        ("FromClaim", "claim", ("b",)),
    ]


@scenario(54, 57)
def test_configuration_of_all_requests_lists_no_request() -> None:
    assert _configs(request("a", _wants_class("nic")), config=[_config("x", "a"), _config("y")]) == [
        ("FromClass", "n0", ()),
        ("FromClaim", "x", ()),
        ("FromClaim", "y", ()),
    ]


@scenario(73)
def test_configuration_of_unchosen_alternative_is_omitted() -> None:
    requests = [first_of("a", wants(9), _wants_class("nic")), request("b")]
    assert _configs(*requests, config=[_config("no", "a/s0"), _config("yes", "a/s1"), _config("all", "a/s1", "b")]) == [
        ("FromClass", "n0", ("a/s1",)),
        ("FromClaim", "yes", ("a/s1",)),
        ("FromClaim", "all", ()),
    ]


def _node_selector(*slices: ResourceSlice, count: int = 2, features: Features | None = None) -> Any:
    made = allocator(slices, features=features)
    results: list[AllocationResult] | None = made.allocate(
        node(zone="a", region="r"), [claim(request("r", wants(count)))]
    )
    assert results is not None
    return to_dict(results[0]).get("nodeSelector")


def _in(key: str, *values: str) -> Json:
    return {"key": key, "operator": "In", "values": list(values)}


def _selector_of(*requirements: Json, **fields: Any) -> Json:
    return {"nodeSelectorTerms": [{"matchExpressions": list(requirements), **fields}]}


HERE = {"nodeSelectorTerms": [{"matchFields": [_in("metadata.name", "node")]}]}


@scenario(40)
def test_node_local_device_restricts_allocation_to_the_node() -> None:
    net = slice_("1", equal_devices(1), pool="net", nodeSelector=_selector_of(_in("zone", "a")))
    assert _node_selector(net, slice_("2", equal_devices(1))) == HERE


@scenario(241)
def test_node_selectors_of_pools_are_merged_without_duplicates() -> None:
    slices = [
        slice_("1", equal_devices(1), pool="p1", nodeSelector=_selector_of(_in("zone", "a", "b"))),
        slice_("2", equal_devices(1), pool="p2", nodeSelector=_selector_of(_in("zone", "b", "a"), _in("region", "r"))),
        slice_("3", equal_devices(1), pool="p3", allNodes=True),
    ]
    assert _node_selector(*slices, count=3) == _selector_of(_in("zone", "a", "b"), _in("region", "r"))


def test_devices_of_all_nodes_get_no_node_selector() -> None:
    assert _node_selector(slice_("1", equal_devices(2), allNodes=True)) is None


def test_node_selectors_of_devices_are_used_with_per_device_selection() -> None:
    devices = [device("a", nodeSelector=_selector_of(_in("zone", "a"))), device("b", allNodes=True)]
    assert _node_selector(slice_("1", devices, perDeviceNodeSelection=True)) == _selector_of(_in("zone", "a"))
    devices = [device("a", nodeName="node"), device("b", allNodes=True)]
    assert _node_selector(slice_("1", devices, perDeviceNodeSelection=True)) == HERE


def test_binds_to_node_field_restricts_allocation_even_when_feature_is_off() -> None:
    binding = slice_("1", [device("a", bindsToNode=True)], allNodes=True)
    assert _node_selector(binding, count=1) == HERE
    gate_off = _node_selector(binding, count=1, features=Features(device_binding_and_status=False))
    assert gate_off == _node_selector(binding, count=1)  # the gate only drops the field from new slices


@scenario(241)
def test_node_selector_with_two_terms_is_refused() -> None:
    terms = _selector_of(_in("zone", "a"))["nodeSelectorTerms"] * 2
    with pytest.raises(AllocationError) as error:
        _node_selector(slice_("1", equal_devices(1), nodeSelector={"nodeSelectorTerms": terms}), count=1)
    assert str(error.value) == (
        "create NodeSelector for claim claim: unsupported ResourceSlice.NodeSelector with 2 terms"
    )


def test_result_contains_tolerations_and_binding_conditions() -> None:
    taint = [{"key": "k", "effect": "NoSchedule"}]
    devices = [device("a", taints=taint, bindingConditions=["ready"], bindingFailureConditions=["failed"])]
    toleration = {"key": "k", "operator": "Exists"}
    made = allocator([slice_("s", devices)])
    results = made.allocate(node(), [claim(request("r", wants(1, tolerations=[toleration])))])
    assert results is not None
    assert to_dict(results[0])["devices"]["results"] == [
        {
            "request": "r",
            "driver": "drv",
            "pool": "pool",
            "device": "a",
            "tolerations": [toleration],
            "bindingConditions": ["ready"],
            "bindingFailureConditions": ["failed"],
        }
    ]
    assert made.allocate(node(), [claim(request("r"))]) is None
    off = allocator([slice_("s", devices)], features=Features(device_taints=False))
    assert off.allocate(node(), [claim(request("r"))]) is not None
    off = allocator([slice_("s", devices)], features=Features(device_binding_and_status=False))
    assert off.allocate(node(), [claim(request("r", wants(1, tolerations=[toleration])))]) is None
