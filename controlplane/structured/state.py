"""What other claims hold already.

Rule: results with admin access hold nothing. Results with a share id hold a share and the capacity that it consumes.
All others hold their device exclusively.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from controlplane.structured.identity import DeviceID, SharedDeviceID
from resourceapi.objects.quantity import Quantity
from resourceapi.objects.v1 import ResourceClaim


class AllocatedState(Struct, frozen=True, kw_only=True):
    """Devices in exclusive use, shares, and the capacity that all shares of a device consume together."""

    allocated_devices: frozenset[DeviceID] = frozenset()
    allocated_shared_device_ids: frozenset[SharedDeviceID] = frozenset()
    aggregated_capacity: Mapping[DeviceID, Mapping[str, Quantity]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held."""
        return not (self.allocated_devices or self.allocated_shared_device_ids or self.aggregated_capacity)

    @classmethod
    def from_claims(cls, claims: Iterable[ResourceClaim]) -> "AllocatedState":
        """Return what the allocations of these claims hold. Claims without an allocation are skipped."""
        devices: set[DeviceID] = set()
        shares: set[SharedDeviceID] = set()
        capacity: dict[DeviceID, dict[str, Quantity]] = {}
        for claim in claims:
            if claim.status.allocation is None:
                continue
            for result in claim.status.allocation.devices.results:
                if result.admin_access:
                    continue
                device = DeviceID(result.driver, result.pool, result.device)
                if result.share_id is None:
                    devices.add(device)
                    continue
                shares.add(SharedDeviceID(device, result.share_id))
                if result.consumed_capacity:
                    total = capacity.setdefault(device, {})
                    for name, amount in result.consumed_capacity.items():
                        total[name] = total[name] + amount if name in total else amount
        return cls(
            allocated_devices=frozenset(devices),
            allocated_shared_device_ids=frozenset(shares),
            aggregated_capacity=capacity,
        )
