"""How many containers can use a device at once: set by its resource for some devices, or for all.

With `memory`, a device has one share for each such amount of its memory, so that different cards under one name have
shares of the same size.
"""

from msgspec import Struct

from hostdevices.device import Device
from resources.attribute_settings import providing_setting
from resources.resource import Resource, Shares

MEMORY = "memory"  # readers' attribute, bytes


class DeviceShares(Struct, frozen=True):
    """The shares of a device; if they are by memory, also the memory of each, in bytes."""

    count: int
    memory_each: int = 0


def shares_of(resource: Resource, device: Device | None) -> DeviceShares:
    """Return the shares of a device of `resource`; at least one.

    For a missing device, only the resource's count applies.
    """
    rule = _rule(resource, device) if device is not None else None
    if rule is None or device is None:
        return DeviceShares(resource.shares)
    if not rule.memory:
        return DeviceShares(rule.count)
    return DeviceShares(max(1, _memory(device) // rule.memory), rule.memory)


def sharing_problem(resource: Resource, device: Device) -> str:
    """Return why a device cannot be shared as its resource requires; empty if it can."""
    rule = _rule(resource, device)
    if rule is None or not rule.memory or _memory(device) >= rule.memory:
        return ""
    if has := _memory(device):
        return f"it has {has} bytes of memory, and a share of {resource.name} is {rule.memory}"
    unsaid = f"the size of its memory is not known{providing_setting(MEMORY, device)}"
    return f"{unsaid}, by which {resource.name} shares it; give it a `count`"


def _rule(resource: Resource, device: Device) -> Shares | None:
    return next((x for x in resource.shares_of if x.selector is None or not x.selector.mismatch(device)), None)


def _memory(device: Device) -> int:
    value = device.attributes.get(MEMORY)
    return value if isinstance(value, int) and value > 0 else 0
