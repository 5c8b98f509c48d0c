"""Units: what the kubelet counts and allocates. One per device, or one per share of a device.

`misc-kvm` is a whole device, `misc-kvm.3` its share number 3: device ids contain no dot, so the name is unambiguous.
With other names (resources/unit_names.py) it is `0000:3b:00.0` and `0000:3b:00.0::3`. Leases identify devices by device
ids, so a unit is recognized as leased even when the setting `ids` changes.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from checkpoint import Api, Lease
from checkpoint.lease import shares_of_owner, shares_owner, unit_owner
from hostdevices import Device
from resources.resource import Resource
from resources.shares import shares_of
from resources.unit_names import SHARE, unit_name

API: Api = "device-plugin"
"""The API that the leases of this side name."""

_SHARE_OF = re.compile(rf"(?s)(.+){SHARE}[0-9]+|([-a-z0-9]+)\.[0-9]+")


Units: TypeAlias = Mapping[str, Device]
"""The device of each unit, by the id that the kubelet uses."""


def units_of(resource: Resource, devices: Sequence[Device]) -> Units:
    """Return the units of a resource, in the order of the devices."""
    return {unit: device for device in devices for unit in units_of_device(resource, device)}


def devices_of(units: Units) -> dict[str, Device]:
    """Return the devices of units, by device id, in the order of the units."""
    return {device.id: device for device in units.values()}


def units_of_device(resource: Resource, device: Device) -> list[str]:
    """Return the ids of the units of one device."""
    name = unit_name(resource.ids, device)
    if not resource.is_shared:
        return [name]
    separator = "." if resource.ids == "identity" else SHARE
    return [f"{name}{separator}{share}" for share in range(shares_of(resource, device).count)]


def size_of(resource: Resource, devices: Sequence[Device]) -> tuple[int, int]:
    """Return a number of devices and of shares of each with as many units in total as these devices have."""
    if not resource.shares_of:
        return len(devices), resource.shares
    return 1, sum(shares_of(resource, device).count for device in devices)


def device_name_of(unit_id: str) -> str:
    """Return the device's name within a unit's id."""
    found = _SHARE_OF.fullmatch(unit_id)
    return (found[1] or found[2]) if found else unit_id


def taken_reason(lease: Lease, resource: Resource, device: Device) -> str:
    """Return in words which lease keeps others from a device, and whether only because `shares` has changed."""
    if (lease.resource, lease.api) != (resource.name, API) or device.id not in lease.exclusive:
        return str(lease)
    before = shares_of_owner(lease.owner) if device_name_of(lease.unit) != lease.unit else 1
    now = shares_of(resource, device).count if resource.is_shared else 1
    if before == now:
        return str(lease)
    return f"{lease} while the device had {before} share{'' if before == 1 else 's'}; it has {now} now"


def owner_of(resource: Resource, unit_id: str, device: Device | None) -> str:
    """Return the owner of a unit's lease: shares of one device have one owner for each number of shares.

    `device` is None if it is no longer there.
    """
    name = device_name_of(unit_id)
    if name == unit_id:
        return unit_owner(resource.name, unit_id)
    return shares_owner(resource.name, name, shares_of(resource, device).count)
