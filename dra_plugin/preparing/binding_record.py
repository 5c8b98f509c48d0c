"""The PCI functions of a claim that have another driver while the claim has them, as its lease stores them.

A function is identified by its address. Drivers have the kernel's names; the record is the state before the change.
"""

from msgspec import Struct

from dra_plugin.errors import DraPluginError
from hostdevices import Device


class BindRefused(DraPluginError):
    """A device cannot get the driver that its claim needs, or not yet; names the device, the reason and what to do."""


class BoundFunction(Struct, frozen=True):
    """A PCI function with its driver and its `driver_override` before the change; empty for none."""

    address: str
    driver: str
    override: str = ""


class Binding(Struct, frozen=True):
    """All functions of an IOMMU group, bound to `driver` together.

    `devices` are the functions and everything that was on them, as offered: while they are bound the kernel shows other
    devices. With `iommufd` containers get the nodes for it, otherwise those of the group.
    """

    driver: str
    functions: tuple[BoundFunction, ...]
    devices: tuple[Device, ...]
    iommufd: bool = False
