"""Withheld devices for the two plugins: for each offered device, the reason why no new pod gets it."""

from collections.abc import Mapping

from msgspec import structs

from checkpoint import Withheld
from checkpoint.withheld import withheld_reason
from hostdevices import Device
from resources.assignment import Assignment


def with_withheld(assignment: Assignment, withheld: Mapping[str, Withheld]) -> Assignment:
    """Return an assignment whose devices have the reason why they, a member or a parent are withheld."""
    if not withheld:
        return assignment

    def with_reason(device: Device) -> Device:
        words = withheld_reason(device.id, device.ids.union(device.parents), withheld)
        return structs.replace(device, withheld=words) if words else device

    devices = {name: tuple(map(with_reason, each)) for name, each in assignment.devices.items()}
    return structs.replace(assignment, devices=devices)
