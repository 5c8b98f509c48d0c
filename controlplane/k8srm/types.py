"""The kinds of devmgmtproto.k8s.io/v1alpha1, as data.

JSON names are in lower camel case. In the prototype the Go tags of a class's `driver` and `deviceType` are malformed,
so it writes `Driver` and `DeviceType`; both forms are read. `adminAccess` of an allocation is an addition of this
project: it records that the allocation holds nothing. Source: allocator specification 6.2.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from resourceapi.objects import DecodeError, Quantity, Record, from_dict, to_dict
from resourceapi.objects.meta import Always, Condition, KubernetesObject

GROUP = "devmgmtproto.k8s.io"
API_VERSION = f"{GROUP}/v1alpha1"

SemVer: TypeAlias = str
"""A semantic version; the prototype does not parse it."""

COUNT = "count"
"""The resource that every driver supports: the number of devices."""


class Attribute(Record, frozen=True):
    """A named value of exactly one type."""

    name: Always[str] = ""
    string_value: str | None = None
    int_value: int | None = None
    quantity_value: Quantity | None = None
    sem_ver_value: SemVer | None = None

    @property
    def typed_value(self) -> tuple[str, str | int | Quantity] | None:
        """Type name and value; None without a value. The first type that is set counts, in the prototype's order."""
        for kind, value in (
            ("string", self.string_value),
            ("int", self.int_value),
            ("quantity", self.quantity_value),
            ("semver", self.sem_ver_value),
        ):
            if value is not None:
                return kind, value
        return None

    def equal_value(self, other: "Attribute") -> bool:
        """Return whether both have a value of the same type, and the values are equal; quantities by amount."""
        mine = self.typed_value
        return mine is not None and mine == other.typed_value

    def equal(self, other: "Attribute") -> bool:
        """Return whether name and value are equal."""
        return self.name == other.name and self.equal_value(other)


class ResourceCapacity(Record, frozen=True):
    """The total amount of a resource, and the block size of its allocations (default 1)."""

    name: Always[str] = ""
    capacity: Always[Quantity] = Quantity.of(0)
    block_size: Quantity | None = None


class Device(Record, frozen=True):
    """A device. An allocation uses `requests` of its pool's resources; claims can share its own `resources`."""

    name: Always[str] = ""
    attributes: tuple[Attribute, ...] = ()
    requests: Mapping[str, Quantity] = {}
    resources: tuple[ResourceCapacity, ...] = ()


class DevicePoolSpec(Record, frozen=True):
    """Devices of one driver. Without a node name they are attached to the network."""

    node_name: str | None = None
    driver: str = ""
    attributes: tuple[Attribute, ...] = ()
    resources: tuple[ResourceCapacity, ...] = ()
    devices: tuple[Device, ...] = ()


class DevicePoolStatus(Record, frozen=True):
    """The last status that the driver reported. The scheduler does not use it."""

    available_devices: int = 0


class DevicePool(KubernetesObject, frozen=True):
    """A collection of devices."""

    KIND: ClassVar[str] = "DevicePool"
    API_VERSION: ClassVar[str] = API_VERSION

    spec: Always[DevicePoolSpec] = DevicePoolSpec()
    status: DevicePoolStatus = DevicePoolStatus()


class DeviceDriver(KubernetesObject, frozen=True):
    """A driver and its device types. The list is a top-level field, beside the metadata."""

    KIND: ClassVar[str] = "DeviceDriver"
    API_VERSION: ClassVar[str] = API_VERSION

    device_types: tuple[str, ...] = ()


class DeviceClassConfigReference(Record, frozen=True):
    """A configuration object in any namespace."""

    api_version: Always[str] = ""
    kind: Always[str] = ""
    namespace: Always[str] = ""
    name: Always[str] = ""


class DeviceClassSpec(Record, frozen=True):
    """The selection and the configuration of a class's devices."""

    driver: str = ""
    device_type: str = ""
    constraints: str | None = None
    admin_access: bool | None = None
    configs: tuple[DeviceClassConfigReference, ...] = ()


class DeviceClass(KubernetesObject, frozen=True):
    """A reusable part of claims, which a vendor or an administrator creates."""

    KIND: ClassVar[str] = "DeviceClass"
    API_VERSION: ClassVar[str] = API_VERSION

    spec: Always[DeviceClassSpec] = DeviceClassSpec()


class DeviceConfigReference(Record, frozen=True):
    """A configuration object in the namespace of the claim."""

    api_version: Always[str] = ""
    kind: Always[str] = ""
    name: Always[str] = ""


class DeviceClaimDetail(Record, frozen=True):
    """A request for devices of a class, or of any class of a type."""

    device_type: str | None = None
    device_class: str | None = None
    constraints: str | None = None
    requests: Mapping[str, Quantity] = {}
    limits: Mapping[str, Quantity] = {}
    match_attributes: tuple[str, ...] = ()
    configs: tuple[DeviceConfigReference, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether no field is set."""
        return self == DeviceClaimDetail()


class DeviceClaimInstance(DeviceClaimDetail, frozen=True):
    """A detail that must be satisfied, or a list of alternatives, of which the first satisfiable one is used."""

    one_of: tuple[DeviceClaimDetail, ...] = ()

    @property
    def detail(self) -> DeviceClaimDetail:
        """The inline detail only."""
        return DeviceClaimDetail(**{name: getattr(self, name) for name in DeviceClaimDetail.__struct_fields__})


class DeviceClaimSpec(Record, frozen=True):
    """Details that must all be satisfied. All their devices have the same values of `matchAttributes`."""

    match_attributes: tuple[str, ...] = ()
    claims: tuple[DeviceClaimInstance, ...] = ()


class ResourceAllocation(Record, frozen=True):
    """The allocated amount of a device's resource."""

    name: Always[str] = ""
    allocation: Always[Quantity] = Quantity.of(0)


class DeviceAllocation(Record, frozen=True):
    """A device, or the listed amounts of its resources. With admin access it uses none of them."""

    device_pool_name: Always[str] = ""
    device_name: Always[str] = ""
    admin_access: bool | None = None
    allocations: tuple[ResourceAllocation, ...] = ()


class DeviceIP(Record, frozen=True):
    """An address of a device."""

    ip: str = ""


class DeviceStatus(Record, frozen=True):
    """A driver's status of an allocated device."""

    device_pool_name: Always[str] = ""
    device_name: Always[str] = ""
    conditions: Always[tuple[Condition, ...]] = ()
    device_ip: str | None = msgspec.field(name="deviceIP", default=None)
    device_ips: tuple[DeviceIP, ...] = msgspec.field(name="deviceIPs", default=())
    device_info: tuple[Any, ...] = ()
    allocations: tuple[ResourceAllocation, ...] = ()


class DeviceClaimStatus(Record, frozen=True):
    """The status of a claim. The scheduler owns allocations and configurations, the drivers own deviceStatuses."""

    class_configs: tuple[Any, ...] = ()
    claim_configs: tuple[Any, ...] = ()
    allocations: tuple[DeviceAllocation, ...] = ()
    device_statuses: tuple[DeviceStatus, ...] = ()
    pod_names: tuple[str, ...] = ()


class DeviceClaim(KubernetesObject, frozen=True):
    """A request for a set of devices."""

    KIND: ClassVar[str] = "DeviceClaim"
    API_VERSION: ClassVar[str] = API_VERSION

    spec: Always[DeviceClaimSpec] = DeviceClaimSpec()
    status: DeviceClaimStatus = DeviceClaimStatus()


class DevicePrivilegedClaim(DeviceClaim, frozen=True):
    """A claim with admin access to all devices that its classes select."""

    KIND: ClassVar[str] = "DevicePrivilegedClaim"


class PodDeviceClaim(Record, frozen=True):
    """An entry of a pod's `spec.deviceClaims`: the name of a claim or of a claim template, or an inline claim."""

    name: Always[str] = ""
    claim_name: str | None = None
    privileged_claim_name: str | None = None
    claim_template_name: str | None = None
    claim: DeviceClaimSpec | None = None


KINDS: Mapping[str, type[KubernetesObject]] = {
    kind.KIND: kind for kind in (DeviceDriver, DeviceClass, DeviceClaim, DevicePrivilegedClaim, DevicePool)
}
"""Name of the kind -> kind, for the whole group."""

K = TypeVar("K", bound=KubernetesObject)


def read_as(kind: type[K], value: Mapping[str, Any]) -> K:
    """Return the object of this kind that a JSON value represents. Raises DecodeError."""
    members = {name: member for name, member in value.items() if name not in ("apiVersion", "kind")}
    if kind is DeviceClass and isinstance(members.get("spec"), dict):
        spec = dict(members["spec"])
        for written, name in (("Driver", "driver"), ("DeviceType", "deviceType")):
            if written in spec:
                spec.setdefault(name, spec.pop(written))
        members["spec"] = spec
    return from_dict(kind, members, "v1alpha1")


def write(obj: KubernetesObject) -> dict[str, Any]:
    """Return an object's JSON value, with kind and apiVersion."""
    return {"apiVersion": obj.API_VERSION, "kind": obj.KIND} | to_dict(obj)


def check_spec(spec: DeviceClaimSpec, path: str) -> None:
    """Check that each instance is either a detail or a list, and has classes or types. Raises DecodeError."""
    if not spec.claims:
        raise DecodeError("requests no devices; list the requested devices here", f"{path}.claims")
    for number, instance in enumerate(spec.claims):
        where = f"{path}.claims[{number}]"
        if instance.one_of and not instance.detail.is_empty:
            raise DecodeError("no other field can be set beside oneOf", where)
        details = [(f"{where}.oneOf[{index}]", detail) for index, detail in enumerate(instance.one_of)]
        for place, detail in details or [(where, instance.detail)]:
            if not detail.device_class and not detail.device_type:
                raise DecodeError("needs deviceClass or deviceType", place)
            for name, amount in (*detail.requests.items(), *detail.limits.items()):
                if amount.sign < 0:
                    raise DecodeError(f"{name}: {amount} is negative", place)


def details_of(instance: DeviceClaimInstance) -> tuple[DeviceClaimDetail, ...]:
    """Return the alternatives of an instance, the preferred one first."""
    return instance.one_of or (instance.detail,)


def with_status(claim: DeviceClaim, **changes: Any) -> DeviceClaim:
    """Return the claim with a changed status."""
    return replace(claim, status=replace(claim.status, **changes))
