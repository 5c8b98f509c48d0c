"""The consequences of a configuration for the present leases: `nodeplug check --state` and `--against`, `nodeplug
reload`.

A pod keeps its devices with every configuration. What changes is what others can get until it ends.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from checkpoint import Api, Lease
from checkpoint.lease import Book
from deviceplugin.units import Units, device_name_of, owner_of, units_of, units_of_device
from nodeplug.config import Config
from resources.assignment import Assignment

if TYPE_CHECKING:
    from dra_plugin.publishing.offers import Offers


class BlockedDevice(Struct, frozen=True):
    """A device that would be offered, but is unavailable until a lease ends."""

    resource: str
    device: str

    def __str__(self) -> str:
        """Return the device and its resource."""
        return f"{self.device} of {self.resource}"


class LeaseChange(Struct, frozen=True):
    """A lease, what the configuration changes about it (empty if nothing), and the devices that it then blocks.

    The first four fields identify the lease, as in `Lease`.
    """

    resource: str
    api: Api
    unit: str
    holder: str
    change: str = ""
    blocks: tuple[BlockedDevice, ...] = ()

    def __str__(self) -> str:
        """Describe the change for the lease."""
        if not self.change:
            return "unchanged"
        is_claim = self.api == "dra"
        keeps, end = ("its pods keep it", "they end") if is_claim else ("its pod keeps it", "it ends")
        nobody = f", and no other pod gets {', '.join(map(str, self.blocks))} before {end}" if self.blocks else ""
        return f"{self.change}; {keeps}{nobody}"


def lease_changes(config: Config, assignment: Assignment, held: Iterable[Lease]) -> list[LeaseChange]:
    """Return the change for each lease."""
    leases = Book(held)
    offers = _offers(config, assignment)
    units = {
        resource.name: units_of(resource, assignment.devices[resource.name])
        for resource in config.resources
        if resource.api != "dra"
    }
    blocked: dict[str, dict[BlockedDevice, None]] = {}  # by the owner of the leases
    for owner, device in _blocked_devices(config, assignment, offers, leases):
        blocked.setdefault(owner, {})[device] = None
    found = []
    for lease in leases:
        is_claim = lease.api == "dra"
        change = _change_of_claim(lease, offers) if is_claim else _change_of_unit(lease, config, units)
        blocks = tuple(blocked.get(lease.owner, ())) if change else ()
        found.append(LeaseChange(lease.resource, lease.api, lease.unit, lease.holder, change, blocks))
    return found


def _change_of_unit(lease: Lease, config: Config, units: Mapping[str, Units]) -> str:
    resource = next((x for x in config.resources if x.name == lease.resource), None)
    if resource is None:
        return f"{lease.resource} is not offered any more"
    if resource.api == "dra":
        return f"{lease.resource} is offered through DRA alone"
    if (device := units[resource.name].get(lease.unit)) is None:
        return f"{lease.resource} has no {lease.unit} any more"
    is_alike = owner_of(resource, lease.unit, device) == lease.owner
    return "" if is_alike else f"{device_name_of(lease.unit)} has other shares"


def _change_of_claim(lease: Lease, offers: "Offers | None") -> str:
    name, at, _ = lease.unit.partition("@")  # the part after it is the administrator's access, which takes nothing
    name = name.partition("/")[0]
    offered = offers.find(name) if offers is not None else None
    if offered is None:
        return f"{name} is not offered through DRA any more"
    if offered.resource.name != lease.resource:
        return f"{name} belongs to {offered.resource.name}"
    return "" if at or offered.exclusive == lease.exclusive else f"{name} is offered in another way"


def _blocked_devices(
    config: Config, assignment: Assignment, offers: "Offers | None", leases: Book
) -> Iterator[tuple[str, BlockedDevice]]:
    """Yield the owners of leases that make an offered device unavailable, with the device."""
    for resource in config.resources:
        if resource.api != "dra":
            for device in assignment.devices[resource.name]:
                owner = owner_of(resource, units_of_device(resource, device)[0], device)
                for _, lease in leases.conflicts(owner, device.ids, device.parents):
                    yield lease.owner, BlockedDevice(resource.name, device.id)
    for offered in offers or ():
        for _, lease in leases.conflicts("", offered.exclusive, offered.shared):
            yield lease.owner, BlockedDevice(offered.resource.name, offered.device.id)


def _offers(config: Config, assignment: Assignment) -> "Offers | None":
    """Return what would be offered through DRA; None if nothing is."""
    if all(resource.api == "device-plugin" for resource in config.resources):
        return None
    from dra_plugin.publishing.offers import Offers  # imported here: it brings the API's objects

    offers = Offers(config.resources)
    offers.update(assignment.devices)
    return offers
