"""The feature gates of the allocator, with upstream's names."""

from msgspec import Struct


class Features(Struct, frozen=True, kw_only=True):
    """Which optional behaviour is enabled. Everything is enabled by default."""

    admin_access: bool = True  # DRAAdminAccess
    consumable_capacity: bool = True  # DRAConsumableCapacity
    device_binding_and_status: bool = True  # DRADeviceBindingConditions+DRAResourceClaimDeviceStatus
    device_taints: bool = True  # DRADeviceTaints
    list_type_attributes: bool = True  # DRAListTypeAttributes
    partitionable_devices: bool = True  # DRAPartitionableDevices
    prioritized_list: bool = True  # DRAPrioritizedList
