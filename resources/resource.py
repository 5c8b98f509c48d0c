"""A resource: a name under which some of the host's devices are offered, and how a container gets them.

The device plugin side and DRA both serve resources; a configuration file defines them.
"""

from collections.abc import Mapping
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct, field

from hostdevices.device import AttributeValue, Device
from resources.groups import Group

Api: TypeAlias = Literal["device-plugin", "dra", "both"]
TaintPolicy: TypeAlias = Literal["none", "NoSchedule", "NoExecute"]
PreferredPolicy: TypeAlias = Literal["numa", "packed", "spread", "distinct"]
HealthPolicy: TypeAlias = Literal["strict", "present"]
Identity: TypeAlias = Literal["device", "port"]
Ids: TypeAlias = Literal["identity", "pciBusID", "uuid", "path", "auxiliary"]
Userspace: TypeAlias = Literal["nvidia"]
CdiPolicy: TypeAlias = bool | Literal["auto"]


class Selector(Protocol):
    """Selects devices (selector.py has the kinds of selectors)."""

    def mismatch(self, device: Device) -> str:
        """Return why `device` is not selected, as text; empty if it is."""
        ...


class Shares(Struct, frozen=True):
    """How many shares the devices of `selector` have: `count`, or one for each `memory` bytes of theirs."""

    selector: Selector | None = None
    count: int = 1
    memory: int = 0


class Mount(Struct, frozen=True):
    """A host path that the container sees."""

    host_path: str
    container_path: str
    read_only: bool = True


VHOST_NET = ("/dev/vhost-net", "/dev/net/tun")
"""The nodes with which a DPDK program passes packets to the kernel (virtio_user as exceptional path)."""


class NodeAccess(Struct, frozen=True):
    """The owner and mode of a device node inside the container, for users other than root. Applied through CDI."""

    uid: int | None = None
    gid: int | None = None
    mode: int | None = None  # permission bits, 0o660


class Capacity(Struct, frozen=True):
    """The capacity of a device, and the amounts of it that can be requested. Amounts are Kubernetes quantities.

    The policy is for devices with shares: `default` is the amount for a request without one. `valid_values`, in
    ascending order, or a range from `minimum` to `maximum` in steps, are the amounts that can be requested; without
    both, any amount.
    """

    value: str
    default: str = ""
    valid_values: tuple[str, ...] = ()
    minimum: str = ""
    maximum: str = ""
    step: str = ""


class Partition(Struct, frozen=True):
    """A part of a device that can be allocated alone, `count` times, as long as what it consumes is available.

    `consumes` are amounts of the device's counters. `attributes` are added to the device's; `capacity` is the part's
    alone.
    """

    name: str
    consumes: Mapping[str, str]
    count: int = 1
    attributes: Mapping[str, AttributeValue] = {}
    capacity: Mapping[str, Capacity] = {}


class InterfaceMoves(Struct, frozen=True):
    """Network interfaces move into pods; a claim can choose these properties, with addresses from these prefixes."""

    name: bool = False
    mtu: bool = False
    mac: bool = False
    addresses: tuple[str, ...] = ()


class DriverBinding(Struct, frozen=True):
    """PCI functions get this driver for as long as a claim has them, for virtual machines and drivers in user space.

    With `iommufd` containers get the nodes for that, else those of the IOMMU group.
    """

    driver: str = "vfio-pci"
    iommufd: bool = False


class DraOptions(Struct, frozen=True, rename="camel"):
    """How devices are offered through DRA.

    `taint` is the taint of an unhealthy device. `attributes` are added to a device's own; texts are templates. With
    `partitions` each device is offered in parts, which consume its `counters`, and never as a whole. With
    `extended_resource` the generated DeviceClass lets pods request it by the resource's name. With `interface` the
    network interface of a device moves into the pod.
    """

    taint: TaintPolicy = "NoSchedule"
    attributes: Mapping[str, AttributeValue] = {}
    capacity: Mapping[str, Capacity] = {}
    counters: Mapping[str, str] = {}
    partitions: tuple[Partition, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    extended_resource: bool = False
    interface: InterfaceMoves | None = None
    bind: DriverBinding | None = None


class Resource(Struct, frozen=True, rename="camel"):
    """A named set of devices and how containers get them; encoded, fields have the names of the configuration.

    `name` is an extended resource name, `example.com/gpu`. `shares` is how many containers can use one device at once;
    for some devices the first matching entry of `shares_of` overrides it (shares.py).

    `evict_after_seconds`: how long a device must be gone until the pod that has it is evicted; 0: never.

    `group` combines devices that are allocated as one. `nodes` are path globs: only these of a device's nodes are
    passed to containers (default: all). `container_path` is the path of a device's one node in a container, or of the
    nodes of a folder; it can contain attributes of the device.

    `env` values and annotations can contain facts of the allocated devices: `{ids}`, `{devnodes}`, `{attribute}`.

    `topology`: the kubelet's topology manager gets the NUMA nodes of devices.

    `identity`: how a device is identified: by itself, or by its USB port, for one that becomes another device there.

    `ids`: the name of a device in the device plugin API (unit_names.py). `device_info`: the variable with details of
    PCI devices for containers, in the device plugin API; with it, Multus gets details through both APIs
    (deviceplugin/device_info.py). `additional_info` are further details in the variable, by the address of a device, or
    by `*` for all.

    `vhost_net`: containers get `VHOST_NET` beside their devices.

    `health`: with `strict` every signal counts, with `present` only that the device and its nodes exist.

    `cdi_devices`: names of CDI devices that others describe, which accompany each device (foreign_cdi.py).

    `userspace`: containers get the host's files of this driver with the device, by its CDI name.

    `mps`: the folder in which programs find the service that shares GPUs among them; without the service, no pod gets a
    device.

    `reset`: reset the device through sysfs before each container starts (PCI function-level reset).

    `cdi`: containers get device nodes by CDI names (True), as plain nodes (False), or both ways, for runtimes that know
    CDI ("auto"). `dangerous`: also offer devices with which a container can harm the node (danger.py). `api`: through
    which of the kubelet's APIs; `dra` has the options for DRA alone.
    """

    name: str
    selector: Selector = field(name="select")
    group: Group | None = None
    nodes: tuple[str, ...] = ()
    container_path: str = ""
    shares: int = 1
    shares_of: tuple[Shares, ...] = ()
    evict_after_seconds: int = 0
    permissions: str = "rw"
    env: Mapping[str, str] = {}
    mounts: tuple[Mount, ...] = ()
    annotations: Mapping[str, str] = {}
    cdi: CdiPolicy = "auto"
    cdi_devices: tuple[str, ...] = ()
    userspace: Userspace | None = None
    mps: str = ""
    access: NodeAccess | None = None
    preferred: PreferredPolicy = "numa"
    topology: bool = True
    identity: Identity = "device"
    ids: Ids = "identity"
    device_info: str = ""
    additional_info: Mapping[str, Mapping[str, str]] = {}
    vhost_net: bool = False
    health: HealthPolicy = "strict"
    reset: bool = False
    dangerous: bool = False
    api: Api = "device-plugin"
    dra: DraOptions = DraOptions()

    @property
    def is_shared(self) -> bool:
        """Return whether devices are offered in shares, even if it is only one."""
        return self.shares > 1 or bool(self.shares_of)

    @property
    def needs_cdi(self) -> bool:
        """Return whether a container without CDI names would lack something."""
        return self.cdi is True or self.userspace is not None
