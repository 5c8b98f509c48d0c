"""A device: an identity, typed attributes, the nodes that open it, its location and its health.

All values are frozen; a changed device is another value with the same `id`.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct


class Version(Struct, frozen=True):
    """A semantic version, a type of its own because DRA compares it as one."""

    text: str

    def __str__(self) -> str:
        """Return the version as written."""
        return self.text


AttributeValue: TypeAlias = bool | int | str | Version
"""The value types of DRA's device attributes (resource.k8s.io, DeviceAttribute)."""


PCI_BUS_ID = "resource.kubernetes.io/pciBusID"
"""The attribute with the address of the PCI function below a device."""


class Devnode(Struct, frozen=True, order=True, gc=False):
    """A file below /dev that opens a device."""

    path: str  # on the host: /dev/dri/renderD128
    kind: Literal["c", "b"]
    major: int
    minor: int
    container_path: str = ""  # the path in a container; empty: the same path
    target: str = ""  # the node itself if `path` is a link to it: CDI does not follow links


class Health(Struct, frozen=True):
    """A verdict with its reason; the reason is empty while healthy."""

    healthy: bool = True
    reason: str = ""


HEALTHY = Health()


class DriverMount(Struct, frozen=True):
    """A folder or file of the host that containers see, read-only."""

    host_path: str
    container_path: str


class DriverFiles(Struct, frozen=True):
    """What programs need of a device's driver beside its nodes, or the reason why it is not available."""

    mounts: tuple[DriverMount, ...] = ()
    problem: str = ""


class Device(Struct, frozen=True, gc=False):  # a node has thousands, and none can be part of a cycle
    """A device of the host that can be allocated to a container.

    `id` is stable across reboots and renumbering, at most 63 characters, a DNS label (see identity.py).

    `attributes` have the names that DRA publishes: our own unqualified (`vendor`, `driver`), standard ones in full
    (`resource.kubernetes.io/pcieRoot`).

    `parents` are the ids of devices that this one is a part of. The holder of a whole (a PCI function) also has its
    parts (the GPU, the NIC), so a whole and a part never have two owners. Two parts of one whole can have two.

    `children` are the ids of the devices that form this one (a pair, a whole with its parts).

    `sriov_peers` are the ids of devices that are neither parents nor children, but the same hardware: for a virtual
    function those of its physical one, and vice versa, whether offered or not, because an earlier holder can still have
    one. `offered_peers` are the offered ones among them. Only assignments set these.

    `functions` are the addresses of its PCI functions, if there are more than the one in
    `resource.kubernetes.io/pciBusID`.

    `numa_nodes` is empty if the host does not report any.

    `unavailable` is the reason why it gets no new holders although it is healthy; present holders keep it. Only
    assignments set it.

    `withheld` is the reason why it gets no new holders although it is healthy and available: an administrator has
    withheld it. Only the daemon sets it.

    `enumeration` is the number that the kernel counts up when a device is plugged in again (see verify.py): the only
    difference between two similar devices. Empty if the kernel counts nothing.

    `links` are the PCI addresses of the devices that NVLink or xGMI connects with it, directly or through switches,
    with the number of links.

    `driver_files` are set if a resource asks for them (package userspace), as are `absent_services`: missing folders of
    services that share the device among programs (MPS), and missing nodes, that containers get beside it.
    """

    id: str
    kind: str  # the reader's noun: misc, pci, gpu, nic, usb, tty, ...
    name: str  # the kernel's present name: fuse, card0, eth1, 1-2
    syspath: str = ""  # /sys/devices/...; empty for plain files
    attributes: Mapping[str, AttributeValue] = {}
    devnodes: tuple[Devnode, ...] = ()
    numa_nodes: tuple[int, ...] = ()
    parents: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    sriov_peers: tuple[str, ...] = ()
    offered_peers: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    enumeration: str = ""
    links: tuple[tuple[str, int], ...] = ()
    health: Health = HEALTHY
    unavailable: str = ""
    withheld: str = ""
    driver_files: DriverFiles | None = None
    absent_services: tuple[str, ...] = ()

    @property
    def ids(self) -> frozenset[str]:
        """Return the ids that a holder of the device has: its own and its members'."""
        return frozenset((self.id, *self.children))

    @property
    def lacks_driver_files(self) -> bool:
        """Return whether the files of its driver are unavailable or unknown."""
        return self.driver_files is None or bool(self.driver_files.problem)

    @property
    def pci_functions(self) -> tuple[str, ...]:
        """Return the addresses of the PCI functions of the device; empty if it has none."""
        address = self.attributes.get(PCI_BUS_ID)
        return self.functions or ((address,) if isinstance(address, str) else ())
