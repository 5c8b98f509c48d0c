"""resource.k8s.io/v1beta1, where it differs from v1, and the conversion in both directions.

v1beta2 has the same fields as v1. In v1beta1 a request has the fields of `exactly` itself, a device has everything but
its name under `basic`, and a slice's `nodeName` and `allNodes` are not pointers. The conversion loses nothing: unknown
members are kept, those of `exactly` and `basic` under these names.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec

from resourceapi.objects import v1
from resourceapi.objects.core import NodeSelector
from resourceapi.objects.meta import Always, KubernetesObject, ObjectMeta, Record, Unknown, map_items

R = TypeVar("R", bound=Record)


class DeviceRequest(Record, frozen=True):
    """One request: either its own fields or `first_available` is set."""

    name: Always[str] = ""
    device_class_name: Always[str] = ""
    selectors: tuple[v1.DeviceSelector, ...] = ()
    allocation_mode: v1.AllocationMode = ""
    count: int = 0
    admin_access: bool | None = None
    first_available: tuple[v1.DeviceSubRequest, ...] = ()
    tolerations: tuple[v1.DeviceToleration, ...] = ()
    capacity: v1.CapacityRequirements | None = None
    derived_attributes: tuple[v1.DeviceDerivedAttribute, ...] = ()


class DeviceClaim(Record, frozen=True):
    """Requests, the constraints between them, and their configuration."""

    requests: Always[tuple[DeviceRequest, ...]] = ()
    constraints: tuple[v1.DeviceConstraint, ...] = ()
    config: tuple[v1.DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(Record, frozen=True):
    """The requested devices."""

    devices: Always[DeviceClaim] = DeviceClaim()


class ResourceClaim(KubernetesObject, frozen=True):
    """A request for devices."""

    KIND: ClassVar[str] = "ResourceClaim"
    API_VERSION: ClassVar[str] = "resource.k8s.io/v1beta1"

    spec: Always[ResourceClaimSpec] = ResourceClaimSpec()
    status: Always[v1.ResourceClaimStatus] = v1.ResourceClaimStatus()


class ResourceClaimTemplateSpec(Record, frozen=True):
    """Labels, annotations and spec of the claims to create."""

    metadata: Always[ObjectMeta] = ObjectMeta()
    spec: Always[ResourceClaimSpec] = ResourceClaimSpec()


class ResourceClaimTemplate(KubernetesObject, frozen=True):
    """A template: each pod that refers to it gets a claim created from it."""

    KIND: ClassVar[str] = "ResourceClaimTemplate"
    API_VERSION: ClassVar[str] = "resource.k8s.io/v1beta1"

    spec: Always[ResourceClaimTemplateSpec] = ResourceClaimTemplateSpec()


class BasicDevice(Record, frozen=True):
    """All fields of a device except its name."""

    attributes: Annotated[Mapping[str, v1.DeviceAttribute], v1.ATTRIBUTES] = {}
    capacity: Annotated[Mapping[str, v1.DeviceCapacity], v1.CAPACITIES] = {}
    consumes_counters: tuple[v1.DeviceCounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[v1.DeviceTaint, ...] = ()
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool | None = None
    node_allocatable_resources: Mapping[str, v1.NodeAllocatableResource] = {}


class Device(Record, frozen=True):
    """One device of a pool."""

    name: Always[str] = ""
    basic: BasicDevice | None = None


class ResourceSliceSpec(Record, frozen=True):
    """Devices or shared counters of a pool, and where they can be used."""

    driver: Always[str] = ""
    pool: Always[v1.ResourcePool] = v1.ResourcePool()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    devices: tuple[Device, ...] = ()
    per_device_node_selection: bool | None = None
    shared_counters: tuple[v1.CounterSet, ...] = ()
    partition_type_attribute: v1.FullyQualifiedName = None
    skip_node_operations: tuple[v1.SkipNodeOperation, ...] = ()


class ResourceSlice(KubernetesObject, frozen=True):
    """The devices that a driver offers."""

    KIND: ClassVar[str] = "ResourceSlice"
    API_VERSION: ClassVar[str] = "resource.k8s.io/v1beta1"

    spec: Always[ResourceSliceSpec] = ResourceSliceSpec()


def claim_to_v1(claim: ResourceClaim) -> v1.ResourceClaim:
    """The same claim in v1."""
    return _copied(claim, v1.ResourceClaim, spec=_claim_spec_to_v1(claim.spec))


def claim_from_v1(claim: v1.ResourceClaim) -> ResourceClaim:
    """The same claim in v1beta1."""
    return _copied(claim, ResourceClaim, spec=_claim_spec_from_v1(claim.spec))


def template_to_v1(template: ResourceClaimTemplate) -> v1.ResourceClaimTemplate:
    """The same template in v1."""
    spec = _copied(template.spec, v1.ResourceClaimTemplateSpec, spec=_claim_spec_to_v1(template.spec.spec))
    return _copied(template, v1.ResourceClaimTemplate, spec=spec)


def template_from_v1(template: v1.ResourceClaimTemplate) -> ResourceClaimTemplate:
    """The same template in v1beta1."""
    spec = _copied(template.spec, ResourceClaimTemplateSpec, spec=_claim_spec_from_v1(template.spec.spec))
    return _copied(template, ResourceClaimTemplate, spec=spec)


def slice_to_v1(resource_slice: ResourceSlice) -> v1.ResourceSlice:
    """The same slice in v1; an empty node name and a false allNodes become absent."""
    old = resource_slice.spec
    spec = _copied(
        old,
        v1.ResourceSliceSpec,
        node_name=old.node_name or None,
        all_nodes=old.all_nodes or None,
        devices=map_items(_device_to_v1, old.devices),
    )
    return _copied(resource_slice, v1.ResourceSlice, spec=spec)


def slice_from_v1(resource_slice: v1.ResourceSlice) -> ResourceSlice:
    """The same slice in v1beta1, in which an empty node name or a false allNodes equals an absent one."""
    new = resource_slice.spec
    spec = _copied(
        new,
        ResourceSliceSpec,
        node_name=new.node_name or "",
        all_nodes=new.all_nodes or False,
        devices=map_items(_device_from_v1, new.devices),
    )
    return _copied(resource_slice, ResourceSlice, spec=spec)


def _claim_spec_to_v1(spec: ResourceClaimSpec) -> v1.ResourceClaimSpec:
    requests = map_items(_request_to_v1, spec.devices.requests)
    return _copied(spec, v1.ResourceClaimSpec, devices=_copied(spec.devices, v1.DeviceClaim, requests=requests))


def _claim_spec_from_v1(spec: v1.ResourceClaimSpec) -> ResourceClaimSpec:
    requests = map_items(_request_from_v1, spec.devices.requests)
    return _copied(spec, ResourceClaimSpec, devices=_copied(spec.devices, DeviceClaim, requests=requests))


def _request_to_v1(request: DeviceRequest) -> v1.DeviceRequest:
    outer, inner = _split(request.unknown_fields, "exactly")
    exactly = _copied(request, v1.ExactDeviceRequest, unknown_fields=None)
    if exactly == v1.ExactDeviceRequest():  # unknown members alone do not make an exact request
        return v1.DeviceRequest(
            name=request.name, first_available=request.first_available, unknown_fields=request.unknown_fields
        )
    return v1.DeviceRequest(
        name=request.name,
        exactly=msgspec.structs.replace(exactly, unknown_fields=inner),
        first_available=request.first_available,
        unknown_fields=outer,
    )


def _request_from_v1(request: v1.DeviceRequest) -> DeviceRequest:
    exactly = request.exactly or v1.ExactDeviceRequest()
    return _copied(
        exactly,
        DeviceRequest,
        name=request.name,
        first_available=request.first_available,
        unknown_fields=_joined(request.unknown_fields, "exactly", exactly.unknown_fields),
    )


def _device_to_v1(device: Device) -> v1.Device:
    basic = device.basic or BasicDevice()
    unknown = _joined(device.unknown_fields, "basic", basic.unknown_fields)
    return _copied(basic, v1.Device, name=device.name, unknown_fields=unknown)


def _device_from_v1(device: v1.Device) -> Device:
    outer, inner = _split(device.unknown_fields, "basic")
    return Device(name=device.name, basic=_copied(device, BasicDevice, unknown_fields=inner), unknown_fields=outer)


def _copied(source: Record, target: type[R], **changes: Any) -> R:
    """Return a record of type `target` with the fields that both types have, and the changes."""
    names = set(target.__struct_fields__)
    values = {name: value for name, value in msgspec.structs.asdict(source).items() if name in names}
    return target(**(values | changes))


def _joined(outer: Unknown | None, name: str, inner: Unknown | None) -> Unknown | None:
    return outer if not inner else Unknown((outer or {}) | {name: dict(inner)})


def _split(unknown: Unknown | None, name: str) -> tuple[Unknown | None, Unknown | None]:
    """Reverse `_joined`."""
    if unknown is None or not isinstance(unknown.get(name), dict):
        return unknown, None
    outer = Unknown((key, value) for key, value in unknown.items() if key != name)
    return outer or None, Unknown(unknown[name])
