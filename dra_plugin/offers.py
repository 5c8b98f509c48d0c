"""What is offered through DRA: the devices that ResourceSlices name, and where they come from."""

from msgspec import Struct

from hostdevices import Device
from hostdevices.resource import Resource


class Offered(Struct, frozen=True):
    """One device under the name that ResourceSlices give it.

    `partition` names the layout's partition when this is a part of the device; empty for the whole of it.
    """

    name: str
    resource: Resource
    device: Device
    partition: str = ""

    @property
    def occupies(self) -> frozenset[str]:
        """Return the ids that a lease of it takes whole; a share of a device takes none (see `touches`)."""
        if self.resource.shares > 1:
            return frozenset()
        return frozenset((self.name,)) if self.partition else self.device.ids

    @property
    def touches(self) -> frozenset[str]:
        """Return the ids that a lease of it takes a part of."""
        parts = self.device.ids if self.partition or self.resource.shares > 1 else frozenset[str]()
        return parts | frozenset(self.device.within)
