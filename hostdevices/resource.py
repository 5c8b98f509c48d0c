"""A resource: a name under which some of the host's devices are offered, and how a container gets them.

The kubelet's device plugins and DRA both serve resources; a configuration file is where they come from.
"""

from collections.abc import Mapping
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from hostdevices.device import Device
from hostdevices.groups import Group

PreferredPolicy: TypeAlias = Literal["numa", "packed", "spread", "distinct"]
HealthPolicy: TypeAlias = Literal["strict", "present"]


class Selector(Protocol):
    """Says which devices are meant (selector.py has the kinds)."""

    def why_not(self, device: Device) -> str:
        """Return why `device` is not meant, in words; empty when it is."""
        ...


class Mount(Struct, frozen=True):
    """A host path that the container sees."""

    host_path: str
    container_path: str
    read_only: bool = True


class NodeAccess(Struct, frozen=True):
    """Who owns a device node inside the container, so that a user other than root can open it. Applied through CDI."""

    uid: int | None = None
    gid: int | None = None
    mode: int | None = None  # permission bits, 0o660


class Resource(Struct, frozen=True):
    """A named set of devices and how containers get them.

    `name` is an extended resource name, `example.com/gpu`. `shares` is how many containers may use one device at once.
    `group` puts devices together that are handed out as one. `nodes` are path globs: only these of a device's nodes
    are handed out (all of them without).
    `env` values and annotations may name the facts of the devices given: `{ids}`, `{devnodes}`, `{attribute}`.
    `health`: with `strict` every signal counts, with `present` only that the device and its nodes exist.
    `reset`: reset the device through sysfs before each container starts (PCI function-level reset).
    `dangerous`: offer devices with which a container can harm the node (danger.py), too.
    """

    name: str
    selector: Selector
    group: Group | None = None
    nodes: tuple[str, ...] = ()
    shares: int = 1
    permissions: str = "rw"
    env: Mapping[str, str] = {}
    mounts: tuple[Mount, ...] = ()
    annotations: Mapping[str, str] = {}
    cdi: bool = False
    access: NodeAccess | None = None
    preferred: PreferredPolicy = "numa"
    health: HealthPolicy = "strict"
    reset: bool = False
    dangerous: bool = False
