"""What is offered through DRA: the devices that ResourceSlices name, and where they come from.

Rules:
1. A device is offered under its id, or in parts under `<device>-<partition>`.
2. A leased device that is gone stays offered, as unhealthy, until its lease ends: its claim still names it.
3. A device that cannot be offered (a name taken by another one) is left out with a reason, which is logged once.
4. A device keeps its place (see places.py) for as long as it is offered, so that its coming, going or falling ill
   changes one slice.
"""

from collections.abc import Iterable, Mapping, Sequence, Set

from msgspec import Struct

from checkpoint import Obstacles
from hostdevices import Device
from hostdevices.resource import Resource


class Offered(Struct, frozen=True):
    """One device under the name that ResourceSlices give it.

    `partition` names the layout's partition when this is a part of the device; empty for the whole of it.
    `beside` are the ids of devices that cannot be given to others while this one is: the physical function's devices
    of a virtual function.
    """

    name: str
    resource: Resource
    device: Device
    partition: str = ""
    beside: frozenset[str] = frozenset()

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
        return parts | frozenset(self.device.within) | self.beside


class Offers:
    """What is offered now, by name. Not thread-safe: it belongs to the loop."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        """Offer nothing yet; of `resources` those count that are offered through DRA."""
        self._resources = [resource for resource in resources if resource.api != "device-plugin"]
        self._offered: dict[str, Offered] = {}

    def find(self, name: str) -> Offered | None:
        """Return what is offered under `name`; None where nothing is."""
        return self._offered.get(name)

    def update(
        self,
        assigned: Mapping[str, Sequence[Device]],
        *,
        leased: Set[str] = frozenset(),
        obstacles: Obstacles | None = None,
        withheld: Mapping[str, str] | None = None,
    ) -> bool:
        """Take over which devices each resource has now; tell whether that changed anything that slices say.

        `assigned` has the devices of all resources, also of those that are not offered here. `leased` are names that
        claims hold: they stay when their devices are gone. `obstacles` is what the other API has given out: such
        devices are tainted. `withheld` are devices that must not be given out, with the reason.
        """
        raise NotImplementedError
