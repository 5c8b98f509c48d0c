"""The defaults that the API server fills in when it decodes an object, in the object's own version."""

from datetime import datetime
from typing import TypeVar, cast

from msgspec.structs import replace

from resourceapi.objects import v1, v1beta1
from resourceapi.objects.meta import KubernetesObject, map_items
from resourceapi.objects.quantity import Quantity

K = TypeVar("K", bound=KubernetesObject)
S = TypeVar("S", v1.ResourceClaimSpec, v1beta1.ResourceClaimSpec)
D = TypeVar("D", v1.ExactDeviceRequest, v1.DeviceSubRequest, v1beta1.DeviceRequest)
B = TypeVar("B", v1.Device, v1beta1.BasicDevice)

_ONE = Quantity.of(1)


def with_defaults(obj: K, now: datetime) -> K:
    """Return the object with defaults: allocation mode, count, toleration operator, and `now` as taints' timeAdded."""
    result: KubernetesObject = obj
    match obj:
        case v1.ResourceClaim():
            result = replace(obj, spec=_claim_spec(obj.spec), status=_claim_status(obj.status))
        case v1beta1.ResourceClaim():
            result = replace(obj, spec=_claim_spec(obj.spec), status=_claim_status(obj.status))
        case v1.ResourceClaimTemplate():
            result = replace(obj, spec=replace(obj.spec, spec=_claim_spec(obj.spec.spec)))
        case v1beta1.ResourceClaimTemplate():
            result = replace(obj, spec=replace(obj.spec, spec=_claim_spec(obj.spec.spec)))
        case v1.ResourceSlice():
            devices = map_items(lambda device: _device(device, now), obj.spec.devices)
            result = replace(obj, spec=replace(obj.spec, devices=devices))
        case v1beta1.ResourceSlice():
            older_devices = map_items(
                lambda device: replace(device, basic=device.basic and _device(device.basic, now)), obj.spec.devices
            )
            result = replace(obj, spec=replace(obj.spec, devices=older_devices))
        case v1.DeviceTaintRule():
            result = replace(obj, spec=replace(obj.spec, taint=_taint(obj.spec.taint, now)))
    return cast("K", result)


def _claim_spec(spec: S) -> S:
    requests = map_items(_request, spec.devices.requests)
    return replace(spec, devices=replace(spec.devices, requests=requests))


def _request(request: v1.DeviceRequest | v1beta1.DeviceRequest) -> v1.DeviceRequest | v1beta1.DeviceRequest:
    alternatives = map_items(_mode_and_count, request.first_available)
    request = replace(request, first_available=alternatives)
    if isinstance(request, v1.DeviceRequest):
        return replace(request, exactly=request.exactly and _mode_and_count(request.exactly))
    if request.device_class_name:
        return _mode_and_count(request)
    return replace(request, tolerations=_tolerations(request.tolerations))


def _mode_and_count(request: D) -> D:
    mode = request.allocation_mode or v1.EXACT_COUNT
    count = request.count or (1 if mode == v1.EXACT_COUNT else 0)
    return replace(request, allocation_mode=mode, count=count, tolerations=_tolerations(request.tolerations))


def _claim_status(status: v1.ResourceClaimStatus) -> v1.ResourceClaimStatus:
    allocation = status.allocation
    if allocation is None:
        return status
    results = map_items(lambda x: replace(x, tolerations=_tolerations(x.tolerations)), allocation.devices.results)
    return replace(status, allocation=replace(allocation, devices=replace(allocation.devices, results=results)))


def _tolerations(tolerations: tuple[v1.DeviceToleration, ...]) -> tuple[v1.DeviceToleration, ...]:
    return map_items(lambda toleration: replace(toleration, operator=toleration.operator or v1.EQUAL), tolerations)


def _device(device: B, now: datetime) -> B:
    if not device.taints and not device.node_allocatable_resources:
        return device
    resources = {name: _allocatable(resource) for name, resource in device.node_allocatable_resources.items()}
    taints = map_items(lambda taint: _taint(taint, now), device.taints)
    return replace(device, taints=taints, node_allocatable_resources=resources)


def _allocatable(resource: v1.NodeAllocatableResource) -> v1.NodeAllocatableResource:
    mapping = resource.mapping
    if mapping is None:
        return resource
    if mapping.capacity_key is not None and mapping.capacity_multiplier is None:
        mapping = replace(mapping, capacity_multiplier=_ONE)
    elif mapping.capacity_multiplier is None and mapping.device_multiplier is None:
        mapping = replace(mapping, device_multiplier=_ONE)
    return replace(resource, mapping=mapping)


def _taint(taint: v1.DeviceTaint, now: datetime) -> v1.DeviceTaint:
    return taint if taint.time_added else replace(taint, time_added=now.replace(microsecond=0))
