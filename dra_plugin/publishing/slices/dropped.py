"""Fields that the API server did not store because a feature is disabled there.

Source: DRA node specification, 3.8, and the alpha features of 1.37.
"""

from collections.abc import Callable, Iterator
from datetime import datetime

from dra_plugin.publishing.slices.compare import is_as_desired
from dra_plugin.publishing.slices.desired import Slice
from resourceapi.objects import v1, with_defaults


class DroppedFieldsError(Exception):
    """The server stored less than what was desired; the rest is published."""

    def __init__(self, pool: str, index: int, desired: Slice, actual: Slice) -> None:
        found = tuple(_disabled_features(desired, actual))
        features = " ".join(found) or "unknown"
        super().__init__(
            f'pool "{pool}", slice #{index}: some fields were dropped by the apiserver,'
            f" probably because these features are disabled: {features}"
        )
        self.loses_taints = "DRADeviceTaints" in found
        self.pool = pool
        self.index = index
        self.desired = desired
        self.actual = actual


def content(spec: v1.ResourceSliceSpec) -> Slice:
    """Return the fields of a stored slice that the driver decides."""
    return Slice(
        devices=spec.devices,
        shared_counters=spec.shared_counters,
        per_device_node_selection=spec.per_device_node_selection,
        skip_node_operations=spec.skip_node_operations,
        partition_type_attribute=spec.partition_type_attribute,
    )


def is_dropped(sent: v1.ResourceSlice, stored: v1.ResourceSlice, now: datetime) -> bool:
    """Return whether the server stored something other than what was sent, apart from the defaults that it fills in."""
    if is_as_desired(content(sent.spec), stored.spec):
        return False
    return not is_as_desired(content(with_defaults(sent, now).spec), stored.spec)


def _disabled_features(desired: Slice, actual: Slice) -> Iterator[str]:
    stored = {device.name: device for device in actual.devices}

    def lost(measure: Callable[[v1.Device], int]) -> bool:
        return any(
            device.name in stored and measure(stored[device.name]) < measure(device) for device in desired.devices
        )

    if lost(lambda device: len(device.taints)):
        yield "DRADeviceTaints"
    if (
        (desired.per_device_node_selection and not actual.per_device_node_selection)
        or len(actual.shared_counters) < len(desired.shared_counters)
        or lost(lambda device: len(device.consumes_counters))
    ):
        yield "DRAPartitionableDevices"
    if lost(lambda x: len(x.binding_conditions) + len(x.binding_failure_conditions) + (x.binds_to_node is not None)):
        yield "DRADeviceBindingConditions"
    if lost(lambda x: x.allow_multiple_allocations is not None) or lost(_policies):
        yield "DRAConsumableCapacity"
    if any(map(_lost_groups, desired.devices, (stored.get(device.name) for device in desired.devices))):
        yield "DRADeviceCompatibilityGroups"
    if lost(lambda device: len(device.node_allocatable_resources)):
        yield "DRANodeAllocatableResources"
    if len(actual.skip_node_operations) < len(desired.skip_node_operations):
        yield "DRAOptionalNodeOperations"
    if desired.partition_type_attribute and not actual.partition_type_attribute:
        yield "DRAPartitionableDevicesType"


def _policies(device: v1.Device) -> int:
    return sum(capacity.request_policy is not None for capacity in device.capacity.values())


def _lost_groups(desired: v1.Device, stored: v1.Device | None) -> bool:
    """Return whether any remaining consumption has fewer compatibility groups."""
    if stored is None:
        return False
    pairs = zip(desired.consumes_counters, stored.consumes_counters, strict=False)
    return any(len(now.compatibility_groups) < len(wanted.compatibility_groups) for wanted, now in pairs)
