"""Defaults, and the API server's changes to an object before it is stored."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from resourceapi.objects import KubernetesObject, Quantity, read_object, v1, with_defaults, write_object
from resourceapi.objects.meta import ObjectMeta
from resourceapi.objects.strategy import prepare_create, prepare_status_update, prepare_update, warnings
from tests.resourceapi.objects import samples

NOW = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
NOW_IN_SECONDS = NOW.replace(microsecond=0)


def claim(version: str, *requests: dict[str, Any]) -> dict[str, Any]:
    sample = samples.changed(samples.CLAIM, "spec.devices", {"requests": list(requests)})
    return samples.changed(sample, "apiVersion", f"resource.k8s.io/{version}")


def request_after(value: dict[str, Any]) -> dict[str, Any]:
    """The first request with defaults, in v1 form."""
    written = write_object(read_object(value, defaults_at=NOW))
    request: dict[str, Any] = written["spec"]["devices"]["requests"][0]
    return request


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"allocationMode": "ExactCount", "count": 1}),
        ({"count": 3}, {"allocationMode": "ExactCount", "count": 3}),
        ({"allocationMode": "All"}, {"allocationMode": "All"}),
        ({"allocationMode": "Odd"}, {"allocationMode": "Odd"}),
        (
            {"tolerations": [{"key": "a"}, {"operator": "Exists"}]},
            {
                "allocationMode": "ExactCount",
                "count": 1,
                "tolerations": [{"key": "a", "operator": "Equal"}, {"operator": "Exists"}],
            },
        ),
    ],
)
def test_request_gets_default_mode_count_and_toleration_operator(before: dict[str, Any], after: dict[str, Any]) -> None:
    exactly = {"name": "a", "exactly": {"deviceClassName": "c"} | before}
    assert request_after(claim("v1", exactly)) == {"name": "a", "exactly": {"deviceClassName": "c"} | after}
    assert request_after(claim("v1beta1", {"name": "a", "deviceClassName": "c"} | before)) == {
        "name": "a",
        "exactly": {"deviceClassName": "c"} | after,
    }
    alternatives = {"name": "a", "firstAvailable": [{"name": "x", "deviceClassName": "c"} | before]}
    expected = {"name": "a", "firstAvailable": [{"name": "x", "deviceClassName": "c"} | after]}
    assert request_after(claim("v1", alternatives)) == request_after(claim("v1beta1", alternatives)) == expected


def test_v1beta1_request_without_class_gets_no_default_mode() -> None:
    assert request_after(claim("v1beta1", {"name": "a", "adminAccess": True})) == {
        "name": "a",
        "exactly": {"deviceClassName": "", "adminAccess": True},
    }


def test_template_requests_get_same_defaults() -> None:
    value = samples.changed(samples.TEMPLATE, "spec.spec.devices.requests", [{"name": "a", "exactly": {}}])
    for version in ("v1", "v1beta2"):
        template = read_object(value | {"apiVersion": f"resource.k8s.io/{version}"}, defaults_at=NOW)
        assert isinstance(template, v1.ResourceClaimTemplate)
        assert template.spec.spec.devices.requests[0].exactly == v1.ExactDeviceRequest(
            allocation_mode="ExactCount", count=1
        )
    old = samples.changed(samples.TEMPLATE, "spec.spec.devices.requests", [{"name": "a", "deviceClassName": "c"}])
    template = read_object(old | {"apiVersion": "resource.k8s.io/v1beta1"}, defaults_at=NOW)
    assert isinstance(template, v1.ResourceClaimTemplate)
    assert template.spec.spec.devices.requests[0].exactly is not None


def test_toleration_of_result_gets_default_operator() -> None:
    value = samples.changed(samples.CLAIM, "status.allocation.devices.results.0.tolerations", [{"key": "a"}])
    obj = read_object(value, defaults_at=NOW)
    assert isinstance(obj, v1.ResourceClaim)
    assert obj.status.allocation is not None
    assert obj.status.allocation.devices.results[0].tolerations[0].operator == "Equal"


def test_taint_gets_time_added_in_whole_seconds() -> None:
    taint = {"key": "a", "effect": "NoSchedule"}
    new = samples.changed(samples.SLICE, "spec.devices.0.taints", [taint])
    devices = [{"name": "a", "basic": {"taints": [taint]}}, {"name": "b"}]
    old = samples.changed(samples.SLICE, "spec.devices", devices) | {"apiVersion": "resource.k8s.io/v1beta1"}
    for value in (new, old):
        resource_slice = read_object(value, defaults_at=NOW)
        assert isinstance(resource_slice, v1.ResourceSlice)
        assert resource_slice.spec.devices[0].taints[0].time_added == NOW_IN_SECONDS
    rule = read_object(samples.changed(samples.TAINT_RULE, "spec.taint.timeAdded", ...), defaults_at=NOW)
    assert isinstance(rule, v1.DeviceTaintRule)
    assert rule.spec.taint.time_added == NOW_IN_SECONDS
    assert with_defaults(rule, NOW + timedelta(days=1)) == rule


def test_node_allocatable_mapping_gets_default_multiplier() -> None:
    resources = {"a": {"mapping": {"capacityKey": "m"}}, "b": {"mapping": {}}, "c": {"overhead": {}}}
    value = samples.changed(samples.SLICE, "spec.devices.0.nodeAllocatableResources", resources)
    resource_slice = read_object(value, defaults_at=NOW)
    assert isinstance(resource_slice, v1.ResourceSlice)
    found = resource_slice.spec.devices[0].node_allocatable_resources
    assert found["a"].mapping == v1.NodeAllocatableMapping(capacity_key="m", capacity_multiplier=Quantity.of(1))
    assert found["b"].mapping == v1.NodeAllocatableMapping(device_multiplier=Quantity.of(1))
    assert found["c"].mapping is None


@pytest.mark.parametrize("name", ["class", "node", "pod", "namespace"])
def test_kind_without_defaults_is_unchanged(name: str) -> None:
    obj = read_object(samples.ALL[name])
    assert with_defaults(obj, NOW) == obj


def test_create_clears_status_and_sets_generation_one() -> None:
    assert prepare_create(read_object(samples.CLAIM)) == samples.build_object(samples.CLAIM, "status", {})
    for sample in (samples.DEVICE_CLASS, samples.SLICE, samples.TAINT_RULE):
        assert prepare_create(read_object(sample)).metadata.generation == 1
    assert prepare_create(read_object(samples.TEMPLATE)).metadata.generation == 0


def test_update_increments_generation_only_if_spec_changes() -> None:
    old = samples.build_object(samples.SLICE, "metadata.generation", 4)
    labelled = samples.build_object(samples.SLICE, "metadata.labels", {"a": "b"})
    assert prepare_update(labelled, old, NOW).metadata.generation == 0
    changed = samples.build_object(samples.SLICE, "spec.pool.generation", 2)
    assert prepare_update(changed, old, NOW).metadata.generation == 5


def test_update_keeps_stored_status() -> None:
    old = read_object(samples.CLAIM)
    new = samples.build_object(samples.CLAIM, "status", {})
    assert prepare_update(new, old, NOW) == old


def test_changed_taint_effect_gets_new_time_unless_set() -> None:
    old = read_object(samples.TAINT_RULE)
    changed = samples.build_object(samples.TAINT_RULE, "spec.taint.effect", "NoSchedule")
    later = NOW + timedelta(days=1)
    assert _time(prepare_update(changed, old, later)) == NOW_IN_SECONDS + timedelta(days=1)
    with_effect = samples.changed(samples.TAINT_RULE, "spec.taint.effect", "NoSchedule")
    with_time = samples.build_object(with_effect, "spec.taint.timeAdded", "2027-01-01T00:00:00Z")
    assert _time(prepare_update(with_time, old, later)) == datetime(2027, 1, 1, tzinfo=UTC)
    assert _time(prepare_update(old, old, later)) == _time(old)


def _time(rule: KubernetesObject) -> datetime | None:
    assert isinstance(rule, v1.DeviceTaintRule)
    return rule.spec.taint.time_added


def test_status_update_keeps_stored_spec_and_metadata() -> None:
    old = read_object(samples.CLAIM)
    meta = ObjectMeta(name="claim", namespace="default", labels={"a": "b"}, resource_version="5", finalizers=("x",))
    new = replace(samples.build_object(samples.CLAIM, "spec", {}), metadata=meta)
    prepared = prepare_status_update(new, old)
    assert prepared == replace(old, metadata=replace(old.metadata, resource_version="5"))
    rule = read_object(samples.TAINT_RULE)
    assert prepare_status_update(samples.build_object(samples.TAINT_RULE, "spec", {}), rule) == rule


def test_status_update_drops_status_of_deallocated_devices() -> None:
    old = read_object(samples.CLAIM)
    deallocated = samples.build_object(samples.CLAIM, "status.allocation", None)
    prepared = prepare_status_update(deallocated, old)
    assert isinstance(prepared, v1.ResourceClaim)
    assert prepared.status.devices == ()
    assert prepare_status_update(old, old) == old
    never_allocated = samples.build_object(samples.CLAIM, "status", {})
    kept = prepare_status_update(deallocated, never_allocated)
    assert isinstance(kept, v1.ResourceClaim)
    assert len(kept.status.devices) == 1  # kept here, and refused by the validation


def test_uppercase_driver_name_causes_warning() -> None:
    assert warnings(read_object(samples.SLICE)) == []
    assert warnings(samples.build_object(samples.SLICE, "spec.driver", "GPU.example.com")) == [
        'spec.driver: driver names should be lowercase; "GPU.example.com" contains uppercase characters'
    ]
