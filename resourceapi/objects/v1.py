"""resource.k8s.io/v1 as of 1.37: device classes, claims, claim templates, slices, taint rules.

All code here computes with this version; older versions are converted when they are read or written (see `v1beta1`).
JSON names are the field names in camel case; a field whose JSON name would shadow a Python builtin states it.
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

# Go's names of the types of maps by qualified name, for errors; the group is a placeholder for its version
ATTRIBUTES = msgspec.Meta(extra={"go_type": f"map[{GROUP}.QualifiedName]{GROUP}.DeviceAttribute"})
CAPACITIES = msgspec.Meta(extra={"go_type": f"map[{GROUP}.QualifiedName]{GROUP}.DeviceCapacity"})
AMOUNTS = msgspec.Meta(extra={"go_type": f"map[{GROUP}.QualifiedName]resource.Quantity"})

# Go's names of string types, for errors
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
"""The finalizer that protects an allocated claim."""

ADMIN_ACCESS_LABEL = "resource.kubernetes.io/admin-access"
"""The namespace label that allows claims with admin access when it is `true`."""

EXTENDED_RESOURCE_CLAIM = "resource.kubernetes.io/extended-resource-claim"
"""The annotation, with the value `true`, of a claim that a scheduler created for a pod's extended resources."""

IMPLICIT_RESOURCE_PREFIX = "deviceclass.resource.kubernetes.io/"
"""With a class's name after it, this prefix is the name of an extended resource that the class implements."""


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
        """Compare parameters as JSON: a driver can distinguish 1 from true, so they must not be equal."""
        return (
            isinstance(other, OpaqueDeviceConfiguration)
            and _members(self) == _members(other)
            and json_equal(self.parameters, other.parameters)
        )

    __hash__ = None  # type: ignore[assignment]  # as of all that hold free-form values


Configuration = Annotated[OpaqueDeviceConfiguration | None, msgspec.Meta(extra={"embedded_in": "DeviceConfiguration"})]
"""In Go this field belongs to the struct DeviceConfiguration, which three other structs embed."""


class DeviceClassConfiguration(Record, frozen=True):
    """Configuration that comes with a class."""

    opaque: Configuration = None


class DeviceClassSpec(Record, frozen=True):
    """Which devices are in a class and how they are configured.

    `suitable_nodes` existed in 1.31 only: it is stored and returned, but not used for allocation.
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
    """The taints that a request tolerates."""

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
    """An attribute whose value must be the same for all devices of some requests, or different for each."""

    requests: tuple[str, ...] = ()
    match_attribute: FullyQualifiedName = None
    distinct_attribute: FullyQualifiedName = None


class DeviceClaimConfiguration(Record, frozen=True):
    """Configuration that comes with a claim, for some or all of its requests."""

    requests: tuple[str, ...] = ()
    opaque: Configuration = None


class DeviceClaim(Record, frozen=True):
    """Requests, the constraints between them, and their configuration."""

    requests: Always[tuple[DeviceRequest, ...]] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(Record, frozen=True):
    """The requested devices."""

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
    """Configuration of allocated devices and its source."""

    source: Always[AllocationConfigSource] = ""
    requests: tuple[str, ...] = ()
    opaque: Configuration = None


class DeviceAllocationResult(Record, frozen=True):
    """All devices of a claim and their configuration."""

    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class AllocationResult(Record, frozen=True):
    """The devices that a claim got, and the nodes on which they can be used (None: all nodes)."""

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
    """The network data of an allocated device, reported by its driver."""

    interface_name: str = ""
    ips: tuple[str, ...] = ()
    hardware_address: str = ""


class AllocatedDeviceStatus(Record, frozen=True):
    """The status of an allocated device, reported by its driver."""

    driver: Always[str] = ""
    pool: Always[str] = ""
    device: Always[str] = ""
    share_id: str | None = msgspec.field(name="shareID", default=None)
    conditions: Always[tuple[Condition, ...]] = ()
    data: Any = None
    network_data: NetworkDeviceData | None = None

    def __eq__(self, other: object) -> bool:
        """Compare `data` as JSON, for the reason that `OpaqueDeviceConfiguration` has."""
        if not isinstance(other, AllocatedDeviceStatus):
            return NotImplemented
        return _members(self) == _members(other) and json_equal(self.data, other.data)

    __hash__ = None  # type: ignore[assignment]  # as of all that hold free-form values


class ResourceClaimStatus(Record, frozen=True):
    """The allocation of a claim, its consumers, and the status of its devices."""

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
    """Labels, annotations and spec of the claims to create."""

    metadata: Always[ObjectMeta] = ObjectMeta()
    spec: Always[ResourceClaimSpec] = ResourceClaimSpec()


class ResourceClaimTemplate(KubernetesObject, frozen=True):
    """A template: each pod that refers to it gets a claim created from it."""

    KIND: ClassVar[str] = "ResourceClaimTemplate"
    API_VERSION: ClassVar[str] = "resource.k8s.io/v1"

    spec: Always[ResourceClaimTemplateSpec] = ResourceClaimTemplateSpec()


class Counter(Record, frozen=True):
    """An amount that devices share."""

    value: Always[Quantity] = Quantity.of(0)


class CounterSet(Record, frozen=True):
    """Counters of a pool that its devices consume."""

    name: Always[str] = ""
    counters: Mapping[str, Counter] = {}


class DeviceCounterConsumption(Record, frozen=True):
    """The amounts that a device consumes of one counter set; compatibility groups are alpha in 1.37."""

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
    """The amount of one resource that a device has."""

    value: Always[Quantity] = Quantity.of(0)
    request_policy: CapacityRequestPolicy | None = None


class DeviceAttribute(Record, frozen=True):
    """Exactly one value or list of values. An empty list differs from an absent one."""

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
    """The additional amounts of a node resource that the use of a device costs (alpha in 1.37)."""

    per_pod: Quantity | None = None
    per_container: Quantity | None = None


class NodeAllocatableResource(Record, frozen=True):
    """A device's share of a node resource (alpha in 1.37)."""

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
    """The pool that a slice is part of. Only slices of the pool's highest generation are valid."""

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
    """The devices that a driver offers."""

    KIND: ClassVar[str] = "ResourceSlice"
    API_VERSION: ClassVar[str] = "resource.k8s.io/v1"

    spec: Always[ResourceSliceSpec] = ResourceSliceSpec()


class DeviceTaintSelector(Record, frozen=True):
    """The devices that a rule taints: all criteria that are set must hold. An empty selector selects every device."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Record, frozen=True):
    """A taint and the devices that get it. Without a selector no device gets it."""

    device_selector: DeviceTaintSelector | None = None
    taint: Always[DeviceTaint] = DeviceTaint()


class DeviceTaintRuleStatus(Record, frozen=True):
    """The status of a rule, reported by the eviction controller."""

    conditions: tuple[Condition, ...] = ()


class DeviceTaintRule(KubernetesObject, frozen=True):
    """A rule of an administrator or a controller, not of the driver, that taints devices."""

    KIND: ClassVar[str] = "DeviceTaintRule"
    API_VERSION: ClassVar[str] = "resource.k8s.io/v1"

    spec: Always[DeviceTaintRuleSpec] = DeviceTaintRuleSpec()
    status: Always[DeviceTaintRuleStatus] = DeviceTaintRuleStatus()


def _members(record: Record) -> tuple[Any, ...]:
    return tuple(getattr(record, name) for name in record.__struct_fields__)
