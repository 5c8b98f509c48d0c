"""Drops the fields of features whose gates are off in a release, as a server does before it validates an object.

Fields that the stored object already uses are kept, decided per feature. Source: changes-1.37 section 6, the
strategies of 1.34 and 1.35.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from resourceapi.objects import v1
from resourceapi.objects.meta import KubernetesObject
from resourceapi.objects.release import Release

K = TypeVar("K", bound=KubernetesObject)
_Drop = Callable[[Any], Any]


def without_disabled(new: K, old: K | None, release: Release) -> K:
    """Return the object without the fields that the release drops; fields that the old object uses are kept."""
    if release.has_all_fields:
        return new
    for drop in _DROPS.get(type(new), ()):
        if old is None or drop(old) == old:
            new = cast("K", drop(new))
    return new


def _device_fields(**fields: Any) -> _Drop:
    def drop(obj: v1.ResourceSlice) -> v1.ResourceSlice:
        devices = tuple(replace(device, **fields) for device in obj.spec.devices)
        return replace(obj, spec=replace(obj.spec, devices=devices))

    return drop


def _partitions(obj: v1.ResourceSlice) -> v1.ResourceSlice:
    obj = replace(obj, spec=replace(obj.spec, shared_counters=(), per_device_node_selection=None))
    drop = _device_fields(consumes_counters=(), node_name=None, node_selector=None, all_nodes=None)
    return cast("v1.ResourceSlice", drop(obj))


def _policies(obj: v1.ResourceSlice) -> v1.ResourceSlice:
    devices = []
    for device in obj.spec.devices:
        capacity = {name: replace(item, request_policy=None) for name, item in device.capacity.items()}
        devices.append(replace(device, capacity=capacity, allow_multiple_allocations=None))
    return replace(obj, spec=replace(obj.spec, devices=tuple(devices)))


def _lists(obj: v1.ResourceSlice) -> v1.ResourceSlice:
    none = {"int_values": None, "bool_values": None, "string_values": None, "version_values": None}
    devices = []
    for device in obj.spec.devices:
        attributes = {name: replace(item, **none) for name, item in device.attributes.items()}
        devices.append(replace(device, attributes=attributes))
    return replace(obj, spec=replace(obj.spec, devices=tuple(devices)))


def _without_capacity_requests(spec: v1.ResourceClaimSpec) -> v1.ResourceClaimSpec:
    requests = []
    for request in spec.devices.requests:
        exactly = replace(request.exactly, capacity=None) if request.exactly else None
        alternatives = tuple(replace(each, capacity=None) for each in request.first_available)
        requests.append(replace(request, exactly=exactly, first_available=alternatives))
    return replace(spec, devices=replace(spec.devices, requests=tuple(requests)))


def _results(obj: v1.ResourceClaim, **fields: Any) -> v1.ResourceClaim:
    allocation = obj.status.allocation
    if allocation is None:
        return obj
    results = tuple(replace(result, **fields) for result in allocation.devices.results)
    allocation = replace(allocation, devices=replace(allocation.devices, results=results))
    return replace(obj, status=replace(obj.status, allocation=allocation))


def _shared_devices(obj: v1.ResourceClaim) -> v1.ResourceClaim:
    obj = _results(replace(obj, spec=_without_capacity_requests(obj.spec)), share_id=None, consumed_capacity={})
    devices = tuple(replace(device, share_id=None) for device in obj.status.devices)
    return replace(obj, status=replace(obj.status, devices=devices))


def _binding_conditions(obj: v1.ResourceClaim) -> v1.ResourceClaim:
    obj = _results(obj, binding_conditions=(), binding_failure_conditions=())
    if obj.status.allocation is None:
        return obj
    allocation = replace(obj.status.allocation, allocation_timestamp=None)
    return replace(obj, status=replace(obj.status, allocation=allocation))


def _template_capacity(obj: v1.ResourceClaimTemplate) -> v1.ResourceClaimTemplate:
    return replace(obj, spec=replace(obj.spec, spec=_without_capacity_requests(obj.spec.spec)))


def _extended_resource(obj: v1.DeviceClass) -> v1.DeviceClass:
    return replace(obj, spec=replace(obj.spec, extended_resource_name=None))


_DROPS: dict[type[KubernetesObject], tuple[_Drop, ...]] = {
    v1.DeviceClass: (_extended_resource,),
    v1.ResourceClaim: (_binding_conditions, _shared_devices),
    v1.ResourceClaimTemplate: (_template_capacity,),
    v1.ResourceSlice: (
        _device_fields(taints=()),
        _partitions,
        _device_fields(binding_conditions=(), binding_failure_conditions=(), binds_to_node=None),
        _policies,
        _lists,
    ),
}
"""The fields that 1.34 and 1.35 drop, one function per gate. They do not drop constraints with distinctAttribute."""
