"""Older API versions and v1: the shapes, and lossless conversion in both directions."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resourceapi.objects import KINDS, DecodeError, Quantity, read_object, read_with_problems, v1, v1beta1, write_object
from resourceapi.objects.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from resourceapi.objects.meta import ObjectMeta
from tests.resourceapi.objects import samples

V1BETA1 = "resource.k8s.io/v1beta1"

OLD_CLAIM = {
    "kind": "ResourceClaim",
    "apiVersion": V1BETA1,
    "metadata": {"name": "claim"},
    "spec": {
        "devices": {
            "requests": [
                {"name": "a", "deviceClassName": "c", "allocationMode": "All", "adminAccess": True},
                {"name": "b", "deviceClassName": "", "firstAvailable": [{"name": "x", "deviceClassName": "c"}]},
            ]
        }
    },
    "status": {},
}
OLD_SLICE = {
    "kind": "ResourceSlice",
    "apiVersion": V1BETA1,
    "metadata": {"name": "slice"},
    "spec": {
        "driver": "d",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "allNodes": True,
        "devices": [{"name": "a", "basic": {"attributes": {"x": {"int": 1}}, "capacity": {"m": {"value": "1Gi"}}}}],
    },
}


def test_v1beta1_request_contains_fields_of_exactly() -> None:
    claim = read_object(OLD_CLAIM)
    assert isinstance(claim, v1.ResourceClaim)
    first, second = claim.spec.devices.requests
    assert first.exactly == v1.ExactDeviceRequest(device_class_name="c", allocation_mode="All", admin_access=True)
    assert second.exactly is None
    assert second.first_available[0].device_class_name == "c"
    assert write_object(claim, V1BETA1) == OLD_CLAIM
    assert write_object(claim)["spec"]["devices"]["requests"][0] == {
        "name": "a",
        "exactly": {"deviceClassName": "c", "allocationMode": "All", "adminAccess": True},
    }


def test_v1beta1_device_contains_basic() -> None:
    resource_slice = read_object(OLD_SLICE)
    assert isinstance(resource_slice, v1.ResourceSlice)
    assert resource_slice.spec.all_nodes is True
    assert resource_slice.spec.node_name is None
    assert resource_slice.spec.devices[0].capacity["m"].value == Quantity.parse("1Gi")
    assert write_object(resource_slice, V1BETA1) == OLD_SLICE


def test_v1beta1_device_without_fields_has_empty_basic() -> None:
    bare = samples.changed(OLD_SLICE, "spec.devices", [{"name": "a"}])
    assert write_object(read_object(bare), V1BETA1)["spec"]["devices"] == [{"name": "a", "basic": {}}]


def test_v1beta1_drops_false_and_empty_values() -> None:
    sample = samples.changed(samples.COUNTER_SLICE, "spec.allNodes", False)
    converted = read_object(write_object(samples.build_object(sample, "spec.nodeName", ""), V1BETA1))
    assert isinstance(converted, v1.ResourceSlice)
    assert converted.spec.all_nodes is None
    assert converted.spec.node_name is None


@pytest.mark.parametrize("sample", samples.ALL.values(), ids=samples.ALL)
def test_object_round_trips_through_every_served_version(sample: dict[str, Any]) -> None:
    obj = read_object(sample)
    for api_version, kind in KINDS:
        if kind == sample["kind"]:
            written = write_object(obj, api_version)
            assert (written["apiVersion"], written["kind"]) == (api_version, kind)
            assert read_object(written) == obj


def test_unknown_members_round_trip_through_v1beta1() -> None:
    claim = samples.changed(OLD_CLAIM, "spec.devices.requests.0.novel", 1)
    assert write_object(read_object(claim), V1BETA1) == claim
    new = samples.changed(samples.CLAIM, "spec.devices.requests.0.exactly.novel", {"a": None})
    assert read_object(write_object(read_object(new), V1BETA1)) == read_object(new)
    old = samples.changed(samples.changed(OLD_SLICE, "spec.devices.0.basic.novel", 1), "spec.devices.0.other", 2)
    assert write_object(read_object(old), V1BETA1) == old
    device = samples.changed(samples.SLICE, "spec.devices.0.novel", [1])
    assert read_object(write_object(read_object(device), V1BETA1)) == read_object(device)


def test_field_of_other_version_is_reported_as_unknown() -> None:
    new_in_old = samples.changed(OLD_CLAIM, "spec.devices.requests.0", {"name": "a", "exactly": {"count": 1}})
    assert read_with_problems(new_in_old).problems == ('unknown field "spec.devices.requests[0].exactly"',)
    old_in_new = samples.changed(samples.CLAIM, "spec.devices.requests.0", {"name": "a", "count": 1})
    assert read_with_problems(old_in_new).problems == ('unknown field "spec.devices.requests[0].count"',)


def test_v1beta1_class_keeps_suitable_nodes() -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}
    old = {"kind": "DeviceClass", "apiVersion": V1BETA1, "metadata": {"name": "c"}, "spec": {"suitableNodes": terms}}
    assert read_with_problems(old).problems == ()
    assert write_object(read_object(old), V1BETA1) == old


def test_type_error_names_type_of_request_version() -> None:
    with pytest.raises(DecodeError) as raised:
        read_object(samples.changed(OLD_SLICE, "spec.devices.0.basic", "x"))
    assert str(raised.value) == (
        "spec.devices[0].basic: json: cannot unmarshal string into Go struct field Device.spec.devices.basic"
        " of type v1beta1.BasicDevice"
    )


def test_kind_is_written_only_in_served_versions() -> None:
    rule = read_object(samples.TAINT_RULE)
    assert write_object(rule, "resource.k8s.io/v1alpha3")["apiVersion"] == "resource.k8s.io/v1alpha3"
    with pytest.raises(DecodeError, match="no kind"):
        write_object(rule, V1BETA1)


texts = st.text(alphabet="ab/.", max_size=4)
optional_booleans = st.none() | st.booleans()
quantities = st.sampled_from(["0", "1", "1Gi", "1500m", "-3"]).map(Quantity.parse)
requirements = st.builds(
    NodeSelectorRequirement, key=texts, operator=texts, values=st.lists(texts, max_size=2).map(tuple)
)
terms = st.builds(NodeSelectorTerm, match_expressions=st.lists(requirements, max_size=2).map(tuple))
node_selectors = st.none() | st.builds(NodeSelector, node_selector_terms=st.lists(terms, max_size=2).map(tuple))
attributes = st.builds(
    v1.DeviceAttribute, int_value=st.none() | st.integers(-(2**63), 2**63 - 1), bool_value=optional_booleans
)
capacities = st.builds(v1.DeviceCapacity, value=quantities)
devices = st.builds(
    v1.Device,
    name=texts,
    attributes=st.dictionaries(texts, attributes, max_size=2),
    capacity=st.dictionaries(texts, capacities, max_size=2),
    node_name=st.none() | texts,
    all_nodes=optional_booleans,
    node_selector=node_selectors,
    binding_conditions=st.lists(texts, max_size=2).map(tuple),
    allow_multiple_allocations=optional_booleans,
)
slices = st.builds(
    v1.ResourceSlice,
    metadata=st.builds(ObjectMeta, name=texts, labels=st.dictionaries(texts, texts, max_size=2)),
    spec=st.builds(
        v1.ResourceSliceSpec,
        driver=texts,
        node_name=st.none() | texts.filter(bool),
        all_nodes=st.none() | st.just(True),
        node_selector=node_selectors,
        per_device_node_selection=optional_booleans,
        devices=st.lists(devices, max_size=3).map(tuple),
    ),
)
selectors = st.lists(
    st.builds(v1.DeviceSelector, cel=st.none() | st.builds(v1.CELDeviceSelector, expression=texts)), max_size=2
)
exact_requests = st.builds(
    v1.ExactDeviceRequest,
    device_class_name=texts.filter(bool),
    selectors=selectors.map(tuple),
    allocation_mode=texts,
    count=st.integers(-1, 3),
    admin_access=optional_booleans,
    capacity=st.none() | st.builds(v1.CapacityRequirements, requests=st.dictionaries(texts, quantities, max_size=2)),
)
requests = st.builds(
    v1.DeviceRequest,
    name=texts,
    exactly=st.none() | exact_requests,
    first_available=st.lists(st.builds(v1.DeviceSubRequest, name=texts), max_size=2).map(tuple),
)
claims = st.builds(
    v1.ResourceClaim,
    spec=st.builds(
        v1.ResourceClaimSpec, devices=st.builds(v1.DeviceClaim, requests=st.lists(requests, max_size=3).map(tuple))
    ),
)


@given(slices | claims)
def test_any_object_round_trips_through_every_version_and_json(obj: v1.ResourceSlice | v1.ResourceClaim) -> None:
    for api_version in (V1BETA1, "resource.k8s.io/v1beta2", "resource.k8s.io/v1"):
        data = msgspec.json.encode(write_object(obj, api_version))
        assert read_object(msgspec.json.decode(data)) == obj


@given(claims)
def test_any_template_round_trips_through_v1beta1(claim: v1.ResourceClaim) -> None:
    template = v1.ResourceClaimTemplate(spec=v1.ResourceClaimTemplateSpec(spec=claim.spec))
    assert v1beta1.template_to_v1(v1beta1.template_from_v1(template)) == template
