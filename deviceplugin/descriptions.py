"""The descriptions of a resource's devices for the container runtime: what they depend on, and the CDI spec.

A node can have thousands of devices, and a description is larger than its device. So only the devices are stored, and
the descriptions are built when the spec is written. Devices that differ only in something that a description does not
contain (their health) are described alike.
"""

from collections.abc import Mapping

from msgspec import Struct

import cdi
from deviceplugin.response import cdi_device
from hostdevices import Device
from resources.resource import NodeAccess, Resource


class SpecSettings(Struct, frozen=True):
    """The settings of a resource that apply to the descriptions of all its devices."""

    permissions: str
    access: NodeAccess | None
    with_driver: bool

    @classmethod
    def of(cls, resource: Resource) -> "SpecSettings":
        """Return the settings of `resource`."""
        return cls(resource.permissions, resource.access, resource.userspace is not None)

    def describe(self, device: Device) -> cdi.Device:
        """Describe one device, as it is now."""
        return cdi_device(device, self.permissions, self.access, with_driver=self.with_driver)


class Descriptions(Struct, frozen=True, eq=False):
    """The devices of a resource that a runtime must find, by id: as offered, or as containers have them."""

    kind: str
    settings: SpecSettings
    offered: Mapping[str, Device]
    held: Mapping[str, cdi.Device] = {}

    def __eq__(self, other: object) -> bool:
        """Return whether the spec is the same, in the same order."""
        if not isinstance(other, Descriptions):
            return NotImplemented
        return (
            (self.kind, self.held) == (other.kind, other.held)
            and list(self.held) == list(other.held)
            and list(self.offered) == list(other.offered)
            and all(other.describes(self.settings, device) for device in self.offered.values())
        )

    __hash__ = None  # type: ignore[assignment]  # a frozen Struct would be hashable, but its mappings are not

    def has(self, settings: SpecSettings, device: Device) -> bool:
        """Return whether a device is described as it is now, with these settings."""
        held = self.held.get(device.id)
        return self.describes(settings, device) if held is None else held == settings.describe(device)

    def describes(self, settings: SpecSettings, device: Device) -> bool:
        """Return whether a device is offered, and described as with these settings."""
        known = self.offered.get(device.id)
        if known is None:
            return False
        if settings == self.settings:
            if known is device:
                return True
            if (known.devnodes, known.driver_files) == (device.devnodes, device.driver_files):
                return True
        return self.settings.describe(known) == settings.describe(device)

    def spec(self) -> cdi.Spec:
        """Return the CDI spec."""
        return cdi.Spec.of(self.kind, (*map(self.settings.describe, self.offered.values()), *self.held.values()))
