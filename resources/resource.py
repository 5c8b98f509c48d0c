"""A resource: a name under which some of the host's devices are offered, and how a container gets them.

The kubelet's device plugins and DRA both serve resources; a configuration file is where they come from.
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
    """Says which devices are meant (selector.py has the kinds)."""

    def why_not(self, device: Device) -> str:
        """Return why `device` is not meant, in words; empty when it is."""
        ...


class Shares(Struct, frozen=True):
    """How many shares the devices have that `selector` means: `count`, or one for each `memory` bytes of theirs."""

    selector: Selector | None = None
    count: int = 1
    memory: int = 0


class Mount(Struct, frozen=True):
    """A host path that the container sees."""

    host_path: str
    container_path: str
    read_only: bool = True


VHOST_NET = ("/dev/vhost-net", "/dev/net/tun")
"""The nodes with which a DPDK program gives the kernel packets (virtio_user as exceptional path)."""


class NodeAccess(Struct, frozen=True):
    """Who owns a device node inside the container, so that a user other than root can open it. Applied through CDI."""

    uid: int | None = None
    gid: int | None = None
    mode: int | None = None  # permission bits, 0o660


class Capacity(Struct, frozen=True):
    """How much of something a device has, and which amounts of it can be asked for. Amounts are Kubernetes quantities.

    The policy is for devices with shares: `default` is what who asks for nothing gets. `valid_values`, in ascending
    order, or a range from `minimum` to `maximum` in steps, say what can be asked for; without both, any amount.
    """

    value: str
    default: str = ""
    valid_values: tuple[str, ...] = ()
    minimum: str = ""
    maximum: str = ""
    step: str = ""


class Partition(Struct, frozen=True):
    """A part of a device that can be given out alone, `count` times, as long as it finds what it consumes.

    `consumes` are amounts of the device's counters. `attributes` come on top of the device's; `capacity` is the part's
    alone.
    """

    name: str
    consumes: Mapping[str, str]
    count: int = 1
    attributes: Mapping[str, AttributeValue] = {}
    capacity: Mapping[str, Capacity] = {}


class InterfaceMoves(Struct, frozen=True):
    """Network interfaces move into pods, and a claim may choose this of them; addresses from these prefixes."""

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

    `taint` is what an unhealthy device gets. `attributes` come on top of a device's own; texts are templates. With
    `partitions` each device is offered in parts, which draw on its `counters`, and never as a whole. With
    `extended_resource` the generated DeviceClass says that pods may ask for it by the resource's name. With `interface`
    the network interface of a device moves into the pod.
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

    `name` is an extended resource name, `example.com/gpu`. `shares` is how many containers may use one device at once,
    `shares_of` how many of those devices that the first of them means (shares.py).
    `evict_after_seconds`: how long a device must be gone until the pod that has it is evicted; 0: it never is.
    `group` puts devices together that are handed out as one. `nodes` are path globs: only these of a device's nodes
    are handed out (all of them without). `container_path` is where a container sees a device's one node, or the nodes
    of a folder; it may name facts of the device.
    `env` values and annotations may name the facts of the devices given: `{ids}`, `{devnodes}`, `{attribute}`.
    `topology`: the kubelet's topology manager is told the NUMA nodes of devices.
    `identity`: what a device is known by: itself, or its USB port, for one that becomes another device there.
    `ids`: by which name the device plugin API knows a device (unit_names.py). `device_info`: the variable that tells
    containers more of their PCI devices, in the device plugin API; with it Multus is told, too, in both
    (deviceplugin/device_info.py). `additional_info` is what the variable says besides, by the address of a device, or
    by `*` of all.
    `vhost_net`: containers get `VHOST_NET` beside their devices.
    `health`: with `strict` every signal counts, with `present` only that the device and its nodes exist.
    `cdi_devices`: names of CDI devices that others describe, which go with each device (foreign_cdi.py).
    `userspace`: containers get the host's files of this driver with the device, by its CDI name.
    `mps`: the folder in which programs find the service that shares GPUs among them; without it nobody gets a device.
    `reset`: reset the device through sysfs before each container starts (PCI function-level reset).
    `cdi`: device nodes travel by CDI names (True), as plain nodes (False), or as both, for whoever knows names
    ("auto"). `dangerous`: offer devices with which a container can harm the node (danger.py), too. `api`: through which
    of the kubelet's APIs; `dra` has what DRA alone can say.
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
        """Tell whether devices are offered in shares, be it one."""
        return self.shares > 1 or bool(self.shares_of)

    @property
    def needs_cdi(self) -> bool:
        """Tell whether a container that is not given CDI names would lack something."""
        return self.cdi is True or self.userspace is not None
