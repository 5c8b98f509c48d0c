"""What a device is: an identity, typed attributes, the nodes that open it, its place and its health.

All values are frozen; a device that changed is another value with the same `id`.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct


class Version(Struct, frozen=True):
    """A semantic version, kept apart from text because DRA compares it as one."""

    text: str

    def __str__(self) -> str:
        """Return the version as written."""
        return self.text


AttributeValue: TypeAlias = bool | int | str | Version
"""The value types of DRA's device attributes (resource.k8s.io, DeviceAttribute)."""


PCI_BUS_ID = "resource.kubernetes.io/pciBusID"
"""The attribute that has the address of the PCI function below a device."""


class Devnode(Struct, frozen=True, order=True, gc=False):
    """A file below /dev that opens a device."""

    path: str  # on the host: /dev/dri/renderD128
    kind: Literal["c", "b"]
    major: int
    minor: int
    container_path: str = ""  # where a container sees it; empty: at the same path
    target: str = ""  # the node itself where `path` is a link to it: CDI does not follow links


class Health(Struct, frozen=True):
    """A verdict with its reason in words; the reason is empty while healthy."""

    healthy: bool = True
    reason: str = ""


HEALTHY = Health()


class DriverMount(Struct, frozen=True):
    """A folder or file of the host that containers see, read-only."""

    host_path: str
    container_path: str


class DriverFiles(Struct, frozen=True):
    """What programs need of a device's driver beside its nodes, or why that cannot be had, in words."""

    mounts: tuple[DriverMount, ...] = ()
    problem: str = ""


class Device(Struct, frozen=True, gc=False):  # a node has thousands, and none can be part of a cycle
    """One thing of the host that a container can be given.

    `id` is stable across reboots and renumbering, at most 63 characters, a DNS label (see identity.py).
    `attributes` have the names that DRA publishes: our own unqualified (`vendor`, `driver`), standard ones in full
    (`resource.kubernetes.io/pcieRoot`).
    `parents` are the ids of devices that this one is a part of: who is given one (a PCI function) has its parts, too
    (the GPU, the NIC), so a whole and a part never have two owners. Two parts of one whole may.
    `children` are the ids of the devices that were put together to this one (a pair, a whole with its parts).
    `sriov_peers` are the ids of devices that are neither, and yet the same hardware: of a virtual function those of its
    physical one, and the other way round, whether offered or not: somebody may have one from before. `offered_peers`
    are those among them that are offered. Only assignments fill these in.
    `functions` are the addresses of the PCI functions that it sits on, where they are more than the one that
    `resource.kubernetes.io/pciBusID` names.
    `numa_nodes` is empty where the host does not say.
    `unavailable` is why nobody new is given it although it is well, in words: whoever has it keeps it. Only assignments
    fill it in.
    `withheld` is why nobody new is given it although it is well and can be had: somebody who runs the node says so, in
    words. Only the daemon fills it in.
    `enumeration` is what the kernel counts up when a device is plugged in again (see verify.py): the one thing by which
    two that look alike differ. Empty where it counts nothing.
    `links` are the PCI addresses of those that NVLink or xGMI joins it with directly, or through switches, and by how
    many links.
    `driver_files` are filled in where a resource asks for them (package userspace), as are `absent_services`: what is
    not there of what containers get beside it, folders of services that share it among programs (MPS) and nodes.
    """

    id: str
    kind: str  # the reader's noun: misc, pci, gpu, nic, usb, tty, ...
    name: str  # the kernel's name today: fuse, card0, eth1, 1-2
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
        """Return the ids that whoever has the device has: its own and its members'."""
        return frozenset((self.id, *self.children))

    @property
    def lacks_driver_files(self) -> bool:
        """Tell whether programs cannot have, or nobody knows, what they need of its driver."""
        return self.driver_files is None or bool(self.driver_files.problem)

    @property
    def pci_functions(self) -> tuple[str, ...]:
        """Return the addresses of the PCI functions that the device sits on; empty where it sits on none."""
        address = self.attributes.get(PCI_BUS_ID)
        return self.functions or ((address,) if isinstance(address, str) else ())
