"""Compares a stored slice with the desired one as the API does: quantities by value, lists in order.

The server sets the time of a taint that has none, so a desired taint without a time equals one with any time.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from dra_plugin.publishing.slices.desired import Slice
from resourceapi.objects import v1, without_unknown

_TOLERANCE = 1.0  # seconds by which two equal times can differ


def comparable(stored: v1.ResourceSlice) -> v1.ResourceSlice:
    """Return the slice without fields of devices and counters that only newer servers know: nothing desires them."""
    spec = stored.spec
    devices, counters = map(without_unknown, spec.devices), map(without_unknown, spec.shared_counters)
    return replace(stored, spec=replace(spec, devices=tuple(devices), shared_counters=tuple(counters)))


def is_as_desired(desired: Slice, stored: v1.ResourceSliceSpec) -> bool:
    """Return whether the slice has the desired content; its pool and its nodes are not compared."""
    return (
        desired.per_device_node_selection == stored.per_device_node_selection
        and desired.shared_counters == stored.shared_counters
        and desired.skip_node_operations == stored.skip_node_operations
        and desired.partition_type_attribute == stored.partition_type_attribute
        and same_devices(desired.devices, stored.devices)
    )


def same_devices(desired: Sequence[v1.Device], stored: Sequence[v1.Device]) -> bool:
    """Return whether the devices are the same, in the same order."""
    return len(desired) == len(stored) and all(map(_same_device, desired, stored))


def same_taint(desired: v1.DeviceTaint, stored: v1.DeviceTaint) -> bool:
    """Return whether the taints are the same except for their times."""
    return (desired.key, desired.value, desired.effect) == (stored.key, stored.value, stored.effect)


def _same_device(desired: v1.Device, stored: v1.Device) -> bool:
    if desired == stored:
        return True
    return (
        len(desired.taints) == len(stored.taints) > 0
        and all(map(_same_taint_in_time, desired.taints, stored.taints))
        and replace(desired, taints=()) == replace(stored, taints=())
    )


def _same_taint_in_time(desired: v1.DeviceTaint, stored: v1.DeviceTaint) -> bool:
    if not same_taint(desired, stored):
        return False
    if desired.time_added is None or desired.time_added == stored.time_added:
        return True
    if stored.time_added is None:
        return False
    return abs((desired.time_added - stored.time_added).total_seconds()) <= _TOLERANCE
