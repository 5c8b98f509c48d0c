"""resource.k8s.io/v1 as of 1.37: device classes, claims, claim templates, slices, taint rules.

This is the version that everything here computes with; older versions are converted at the border (see `older`).
JSON names are those of the API in camel case; where one would shadow a Python builtin, the field says so.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar

import msgspec

from resourceapi.objects.core import NodeSelector
from resourceapi.objects.json_value import json_equal
from resourceapi.objects.meta import Alpha, Always, Condition, KubernetesObject, ObjectMeta, Record, Uid
from resourceapi.objects.quantity import Quantity

GROUP = "resource.k8s.io"

# what Go calls maps by qualified names, in refusals of a value that is none; the group stands for its version
ATTRIBUTES = msgspec.Meta(extra={"go_type": f"map[{GROUP}.QualifiedName]{GROUP}.DeviceAttribute"})
CAPACITIES = msgspec.Meta(extra={"go_type": f"map[{GROUP}.QualifiedName]{GROUP}.DeviceCapacity"})
AMOUNTS = msgspec.Meta(extra={"go_type": f"map[{GROUP}.QualifiedName]resource.Quantity"})

# the same of texts
AllocationMode = Annotated[str, msgspec.Meta(extra={"go_type": f"{GROUP}.DeviceAllocationMode"})]
AllocationConfigSource = Annotated[str, msgspec.Meta(extra={"go_type": f"{GROUP}.AllocationConfigSource"})]
FullyQualifiedName = Annotated[str | None, msgspec.Meta(extra={"go_type": f"{GROUP}.FullyQualifiedName"})]
QualifiedName = Annotated[str | None, msgspec.Meta(extra={"go_type": f"{GROUP}.QualifiedName"})]
SkipNodeOperation = Annotated[str, msgspec.Meta(extra={"go_type": f"{GROUP}.SkipNodeOperation"})]
TaintEffect = Annotated[str, msgspec.Meta(extra={"go_type": f"{GROUP}.DeviceTaintEffect"})]
TolerationOperator = Annotated[str, msgspec.Meta(extra={"go_type": f"{GROUP}.DeviceTolerationOperator"})]
ShareId = Annotated[str | None, msgspec.Meta(extra={"go_type": "types.UID"})]

# allocationMode
EXACT_COUNT = "ExactCount"
ALL = "All"

# effect of taints and tolerations
NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"
NO_EFFECT = "None"
TAINT_EFFECTS = (NO_EXECUTE, NO_SCHEDULE, NO_EFFECT)

# operator of tolerations
EXISTS = "Exists"
EQUAL = "Equal"

# source of allocation configuration
FROM_CLASS = "FromClass"
FROM_CLAIM = "FromClaim"

# skipNodeOperations
NODE_PREPARE_RESOURCES = "NodePrepareResources"
NODE_UNPREPARE_RESOURCES = "NodeUnprepareResources"
ALL_NODE_OPERATIONS = "*"

FINALIZER = "resource.kubernetes.io/delete-protection"
"""Protects an allocated claim."""

ADMIN_ACCESS_LABEL = "resource.kubernetes.io/admin-access"
"""The namespace label that allows claims with admin access when it is `true`."""

EXTENDED_RESOURCE_CLAIM = "resource.kubernetes.io/extended-resource-claim"
"""The annotation, `true`, of a claim that a scheduler made for a pod's extended resources."""

IMPLICIT_RESOURCE_PREFIX = "deviceclass.resource.kubernetes.io/"
"""Before a class's name it is an extended resource that the class stands for."""


class CELDeviceSelector(Record, frozen=True):
    """A CEL expression over `device` that yields a bool."""

    expression: Always[str] = ""


class DeviceSelector(Record, frozen=True):
    """One criterion; only CEL exists."""

    cel: CELDeviceSelector | None = None


class OpaqueDeviceConfiguration(Record, frozen=True):
    """Parameters that only the named driver understands."""

    driver: Always[str] = ""
    parameters: Always[Any] = None

    def __eq__(self, other: object) -> bool:
        """Parameters are a driver's: it may tell 1 from true, so a change from one to the other is a change."""
        return (
            isinstance(other, OpaqueDeviceConfiguration)
            and _members(self) == _members(other)
            and json_equal(self.parameters, other.parameters)
        )

    __hash__ = None  # type: ignore[assignment]  # as of all that hold free-form values


Configuration = Annotated[OpaqueDeviceConfiguration | None, msgspec.Meta(extra={"embedded_in": "DeviceConfiguration"})]
"""In Go a member of a struct that three others have without a name of its own."""


class DeviceClassConfiguration(Record, frozen=True):
    """Configuration that comes with a class."""

    opaque: Configuration = None


class DeviceClassSpec(Record, frozen=True):
    """Which devices are in a class and how they are configured.

    `suitable_nodes` existed in 1.31 only: it is stored and returned, and no part of the allocation.
    """

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()
    suitable_nodes: NodeSelector | None = None
    extended_resource_name: str | None = None


class DeviceClass(KubernetesObject, frozen=True):
    """A vendor's or administrator's name for a set of devices."""

    KIND: ClassVar[str] = "DeviceClass"
    API_VERSION: ClassVar[str] = "resource.k8s.io/v1"

    spec: Always[DeviceClassSpec] = DeviceClassSpec()


class DeviceToleration(Record, frozen=True):
    """Which taints a request puts up with."""

    key: str = ""
    operator: TolerationOperator = ""
    value: str = ""
    effect: TaintEffect = ""
    toleration_seconds: int | None = None


class CapacityRequirements(Record, frozen=True):
    """How much of a device's capacities a request needs."""

    requests: Annotated[Mapping[str, Quantity], AMOUNTS] = {}


class DeviceDerivedAttribute(Record, frozen=True):
    """An attribute that a request computes from a device (alpha in 1.37)."""

    name: Always[str] = ""
    expression: Always[str] = ""


class ExactDeviceRequest(Record, frozen=True):
    """Devices of one class, without alternatives."""

    device_class_name: Always[str] = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: AllocationMode = ""
    count: int = 0
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: Alpha[tuple[DeviceDerivedAttribute, ...]] = ()


class DeviceSubRequest(Record, frozen=True):
    """One alternative of a request."""

    name: Always[str] = ""
    device_class_name: Always[str] = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: AllocationMode = ""
    count: int = 0
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: Alpha[tuple[DeviceDerivedAttribute, ...]] = ()


class DeviceRequest(Record, frozen=True):
    """One request of a claim: `exactly` this, or the first available of these."""

    name: Always[str] = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(Record, frozen=True):
    """An attribute that all devices of some requests share, or in which all differ."""

    requests: tuple[str, ...] = ()
    match_attribute: FullyQualifiedName = None
    distinct_attribute: FullyQualifiedName = None


class DeviceClaimConfiguration(Record, frozen=True):
    """Configuration that comes with a claim, for some or all of its requests."""

    requests: tuple[str, ...] = ()
    opaque: Configuration = None


class DeviceClaim(Record, frozen=True):
    """Requests, what binds them together, and their configuration."""

    requests: Always[tuple[DeviceRequest, ...]] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(Record, frozen=True):
    """What is wanted."""

    devices: Always[DeviceClaim] = DeviceClaim()


class DeviceRequestAllocationResult(Record, frozen=True):
    """One device that a request got. `request` is `name` or `name/subrequest`."""

    request: Always[str] = ""
    driver: Always[str] = ""
    pool: Always[str] = ""
    device: Always[str] = ""
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: ShareId = msgspec.field(name="shareID", default=None)
    consumed_capacity: Annotated[Mapping[str, Quantity], AMOUNTS] = {}
    skip_node_operations: Alpha[tuple[SkipNodeOperation, ...]] = ()


class DeviceAllocationConfiguration(Record, frozen=True):
    """Configuration to use, with where it came from."""

    source: Always[AllocationConfigSource] = ""
    requests: tuple[str, ...] = ()
    opaque: Configuration = None


class DeviceAllocationResult(Record, frozen=True):
    """All devices of a claim and their configuration."""

    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class AllocationResult(Record, frozen=True):
    """What a claim got, and on which nodes that can be used (None: on all)."""

    devices: Always[DeviceAllocationResult] = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: datetime | None = None


class ResourceClaimConsumerReference(Record, frozen=True):
    """A user of a claim, normally a pod."""

    api_group: str = ""
    resource: Always[str] = ""
    name: Always[str] = ""
    uid: Always[Uid] = ""


class NetworkDeviceData(Record, frozen=True):
    """What a network driver says of an allocated device."""

    interface_name: str = ""
    ips: tuple[str, ...] = ()
    hardware_address: str = ""


class AllocatedDeviceStatus(Record, frozen=True):
    """What the driver says of an allocated device."""

    driver: Always[str] = ""
    pool: Always[str] = ""
    device: Always[str] = ""
    share_id: str | None = msgspec.field(name="shareID", default=None)
    conditions: Always[tuple[Condition, ...]] = ()
    data: Any = None
    network_data: NetworkDeviceData | None = None

    def __eq__(self, other: object) -> bool:
        """The data is a driver's, as parameters are."""
        if not isinstance(other, AllocatedDeviceStatus):
            return NotImplemented
        return _members(self) == _members(other) and json_equal(self.data, other.data)

    __hash__ = None  # type: ignore[assignment]  # as of all that hold free-form values


class ResourceClaimStatus(Record, frozen=True):
    """What a claim got, who uses it, how its devices fare."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ResourceClaim(KubernetesObject, frozen=True):
    """A request for devices."""

    KIND: ClassVar[str] = "ResourceClaim"
    API_VERSION: ClassVar[str] = "resource.k8s.io/v1"

    spec: Always[ResourceClaimSpec] = ResourceClaimSpec()
    status: Always[ResourceClaimStatus] = ResourceClaimStatus()


class ResourceClaimTemplateSpec(Record, frozen=True):
    """Labels, annotations and spec of the claims to make."""

    metadata: Always[ObjectMeta] = ObjectMeta()
    spec: Always[ResourceClaimSpec] = ResourceClaimSpec()


class ResourceClaimTemplate(KubernetesObject, frozen=True):
    """From which a claim is made for each pod that refers to it."""

    KIND: ClassVar[str] = "ResourceClaimTemplate"
    API_VERSION: ClassVar[str] = "resource.k8s.io/v1"

    spec: Always[ResourceClaimTemplateSpec] = ResourceClaimTemplateSpec()


class Counter(Record, frozen=True):
    """An amount that devices share."""

    value: Always[Quantity] = Quantity.of(0)


class CounterSet(Record, frozen=True):
    """Counters of a pool that its devices draw on."""

    name: Always[str] = ""
    counters: Mapping[str, Counter] = {}


class DeviceCounterConsumption(Record, frozen=True):
    """What a device takes from one counter set; compatibility groups are alpha in 1.37."""

    counter_set: Always[str] = ""
    counters: Mapping[str, Counter] = {}
    compatibility_groups: Alpha[tuple[str, ...]] = ()


class CapacityRequestPolicyRange(Record, frozen=True):
    """Amounts from min to max in steps."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(Record, frozen=True):
    """Which amounts of a capacity can be requested; others are rounded up to the next."""

    default: Always[Quantity | None] = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(Record, frozen=True):
    """How much of something a device has."""

    value: Always[Quantity] = Quantity.of(0)
    request_policy: CapacityRequestPolicy | None = None


class DeviceAttribute(Record, frozen=True):
    """Exactly one value or list of values. An empty list is not an absent one."""

    int_value: int | None = msgspec.field(name="int", default=None)
    bool_value: bool | None = msgspec.field(name="bool", default=None)
    string_value: str | None = msgspec.field(name="string", default=None)
    version_value: str | None = msgspec.field(name="version", default=None)
    int_values: tuple[int, ...] | None = msgspec.field(name="ints", default=None)
    bool_values: tuple[bool, ...] | None = msgspec.field(name="bools", default=None)
    string_values: tuple[str, ...] | None = msgspec.field(name="strings", default=None)
    version_values: tuple[str, ...] | None = msgspec.field(name="versions", default=None)


class DeviceTaint(Record, frozen=True):
    """Keeps claims without a matching toleration off a device."""

    key: Always[str] = ""
    value: str = ""
    effect: Always[TaintEffect] = ""
    time_added: datetime | None = None


class NodeAllocatableMapping(Record, frozen=True):
    """How a device's use counts against a node resource (alpha in 1.37)."""

    capacity_key: QualifiedName = None
    capacity_multiplier: Quantity | None = None
    device_multiplier: Quantity | None = None


class NodeAllocatableOverhead(Record, frozen=True):
    """What using a device costs besides (alpha in 1.37)."""

    per_pod: Quantity | None = None
    per_container: Quantity | None = None


class NodeAllocatableResource(Record, frozen=True):
    """A device's share in a node resource (alpha in 1.37)."""

    mapping: NodeAllocatableMapping | None = None
    overhead: NodeAllocatableOverhead | None = None


class Device(Record, frozen=True):
    """One device of a pool."""

    name: Always[str] = ""
    attributes: Annotated[Mapping[str, DeviceAttribute], ATTRIBUTES] = {}
    capacity: Annotated[Mapping[str, DeviceCapacity], CAPACITIES] = {}
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool | None = None
    node_allocatable_resources: Alpha[Mapping[str, NodeAllocatableResource]] = msgspec.field(default_factory=dict)


class ResourcePool(Record, frozen=True):
    """The pool that a slice is part of: of its slices those of the highest generation count."""

    name: Always[str] = ""
    generation: Always[int] = 0
    resource_slice_count: Always[int] = 0


class ResourceSliceSpec(Record, frozen=True):
    """Devices or shared counters of a pool, and where they can be used."""

    driver: Always[str] = ""
    pool: Always[ResourcePool] = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    devices: tuple[Device, ...] = ()
    per_device_node_selection: bool | None = None
    shared_counters: tuple[CounterSet, ...] = ()
    partition_type_attribute: Alpha[FullyQualifiedName] = None
    skip_node_operations: Alpha[tuple[SkipNodeOperation, ...]] = ()


class ResourceSlice(KubernetesObject, frozen=True):
    """What a driver offers."""

    KIND: ClassVar[str] = "ResourceSlice"
    API_VERSION: ClassVar[str] = "resource.k8s.io/v1"

    spec: Always[ResourceSliceSpec] = ResourceSliceSpec()


class DeviceTaintSelector(Record, frozen=True):
    """Which devices a rule taints: all criteria that are set hold. An empty selector means every device."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Record, frozen=True):
    """A taint and the devices that get it. Without a selector no device gets it."""

    device_selector: DeviceTaintSelector | None = None
    taint: Always[DeviceTaint] = DeviceTaint()


class DeviceTaintRuleStatus(Record, frozen=True):
    """What the eviction controller says of a rule."""

    conditions: tuple[Condition, ...] = ()


class DeviceTaintRule(KubernetesObject, frozen=True):
    """Taints devices from outside of their driver."""

    KIND: ClassVar[str] = "DeviceTaintRule"
    API_VERSION: ClassVar[str] = "resource.k8s.io/v1"

    spec: Always[DeviceTaintRuleSpec] = DeviceTaintRuleSpec()
    status: Always[DeviceTaintRuleStatus] = DeviceTaintRuleStatus()


def _members(record: Record) -> tuple[Any, ...]:
    return tuple(getattr(record, name) for name in record.__struct_fields__)
