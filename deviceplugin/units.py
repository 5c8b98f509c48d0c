"""Units: what the kubelet counts and hands out. One per device, or one per share of a device.

`misc-kvm` is a whole device, `misc-kvm.3` its share number 3: a dot cannot occur in a device id, so both read back.
"""

from msgspec import Struct

from checkpoint import Api
from checkpoint.lease import shares_owner, unit_owner
from hostdevices import Device
from resources.resource import Resource

API: Api = "device-plugin"
"""What a lease says of where it came from."""


class Unit(Struct, frozen=True):
    """One allocatable piece of a device under the id that the kubelet knows."""

    id: str
    device: Device


def units_of(resource: Resource, devices: tuple[Device, ...]) -> dict[str, Unit]:
    """Return the units of a resource by id, in the order of the devices."""
    if resource.shares == 1:
        return {device.id: Unit(device.id, device) for device in devices}
    ids = ((f"{device.id}.{share}", device) for device in devices for share in range(resource.shares))
    return {unit: Unit(unit, device) for unit, device in ids}


def device_of(unit_id: str) -> str:
    """Return the device id within a unit's id."""
    return unit_id.partition(".")[0]


def owner_of(resource: Resource, unit_id: str) -> str:
    """Return who owns the lease of a unit: shares of one device go together as long as it has as many."""
    device, dot, _ = unit_id.partition(".")
    return shares_owner(resource.name, device, resource.shares) if dot else unit_owner(resource.name, unit_id)
