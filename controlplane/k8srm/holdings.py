"""What remains of the devices after subtracting existing allocations.

Rules: every allocation in the status of any claim counts, except those with admin access. An allocation that lists
amounts takes these; one that lists none takes the whole device. Source: allocator specification 6.3.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from controlplane.k8srm.amounts import Supply, block_of
from controlplane.k8srm.types import Device, DeviceAllocation, DeviceClaim, DevicePool, ResourceCapacity
from controlplane.structured.capacity import billionths
from resourceapi.objects import Quantity


class DeviceName(NamedTuple):
    """A device in a pool."""

    pool: str
    device: str


class Holdings:
    """What claims hold already: whole devices, and amounts of others."""

    def __init__(self, claims: Iterable[DeviceClaim] = ()) -> None:
        self.whole: set[DeviceName] = set()
        self.portions: dict[DeviceName, dict[str, Quantity]] = {}
        for claim in claims:
            self._add(claim.status.allocations)

    def with_allocations(self, allocations: Iterable[DeviceAllocation]) -> "Holdings":
        """Return the holdings after further allocations."""
        combined = Holdings()
        combined.whole |= self.whole
        combined.portions |= {name: dict(portions) for name, portions in self.portions.items()}
        combined._add(allocations)
        return combined

    def _add(self, allocations: Iterable[DeviceAllocation]) -> None:
        for allocation in allocations:
            if allocation.admin_access:
                continue
            name = DeviceName(allocation.device_pool_name, allocation.device_name)
            if not allocation.allocations:
                self.whole.add(name)
                continue
            held = self.portions.setdefault(name, {})
            for portion in allocation.allocations:
                held[portion.name] = held.get(portion.name, Quantity.of(0)) + portion.allocation

    def is_free(self, pool: DevicePool, device: Device) -> bool:
        """Return whether no claim holds any part of a device."""
        name = DeviceName(pool.metadata.name, device.name)
        return name not in self.whole and name not in self.portions

    def supply(self, pool: DevicePool, device: Device, resource: str) -> Supply | None:
        """Return what remains of a device's resource, in whole blocks; None if that is less than one."""
        name = DeviceName(pool.metadata.name, device.name)
        declared = resources_of(device).get(resource)
        if declared is None or name in self.whole:
            return None
        block = block_of(declared.block_size)
        remaining = billionths(declared.capacity) - billionths(
            self.portions.get(name, {}).get(resource, Quantity.of(0))
        )
        usable = remaining // block * block
        return Supply(resource, block, usable) if usable >= block else None


def resources_of(device: Device) -> Mapping[str, ResourceCapacity]:
    """Return a device's resources by name."""
    return {resource.name: resource for resource in device.resources}


def missing_resources(pool: DevicePool, device: Device) -> list[str]:
    """Return what a device takes from its pool although the pool lacks it. Such a device cannot be allocated."""
    declared = {resource.name for resource in pool.spec.resources}
    return [name for name, amount in device.requests.items() if name not in declared or amount.sign < 0]
