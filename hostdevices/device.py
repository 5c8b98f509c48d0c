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


class Devnode(Struct, frozen=True, order=True):
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


class Device(Struct, frozen=True):
    """One thing of the host that a container can be given.

    `id` is stable across reboots and renumbering, at most 63 characters, a DNS label (see identity.py).
    `attributes` have the names that DRA publishes: our own unqualified (`vendor`, `driver`), standard ones in full
    (`resource.kubernetes.io/pcieRoot`).
    `within` are the ids of devices that this one is a part of: who is given a whole (a PCI function) has its parts too
    (the GPU, the NIC), so a whole and a part never have two owners. Two parts of one whole may.
    `members` are the ids of the devices that were put together to this one (a pair, a sound card's nodes).
    `beside` are the ids of devices that are neither its wholes nor its parts, and yet the same hardware: of a virtual
    function those of its physical one, and the other way round. Only assignments fill it in.
    `numa_nodes` is empty where the host does not say.
    `enumeration` is what the kernel counts up when a device is plugged in again (see verify.py): the one thing by which
    two that look alike differ. Empty where it counts nothing.
    """

    id: str
    kind: str  # the reader's noun: misc, pci, gpu, nic, usb, tty, ...
    name: str  # the kernel's name today: fuse, card0, eth1, 1-2
    syspath: str = ""  # /sys/devices/...; empty for plain files
    attributes: Mapping[str, AttributeValue] = {}
    devnodes: tuple[Devnode, ...] = ()
    numa_nodes: tuple[int, ...] = ()
    within: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    enumeration: str = ""
    health: Health = HEALTHY

    @property
    def ids(self) -> frozenset[str]:
        """Return the ids that whoever has the device has: its own and its members'."""
        return frozenset((self.id, *self.members))
