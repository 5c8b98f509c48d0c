"""The host's devices. All access to /sys, /proc and /dev goes through `Host(root)`; readers build an `Inventory`.

Host -> readers -> Inventory -> Diff
"""

from hostdevices.device import HEALTHY, AttributeValue, Device, Devnode, DriverFiles, DriverMount, Health, Version
from hostdevices.errors import HostDevicesError, ReadStuck, UnreadableFile
from hostdevices.health import HealthTracker, needs_polling
from hostdevices.host import Host
from hostdevices.identity import device_id, is_device_id
from hostdevices.inventory import Diff, Inventory, Problem, diff
from hostdevices.scan import Scanner, scan

__all__ = [
    "HEALTHY",
    "AttributeValue",
    "Device",
    "Devnode",
    "Diff",
    "DriverFiles",
    "DriverMount",
    "Health",
    "HealthTracker",
    "Host",
    "HostDevicesError",
    "Inventory",
    "Problem",
    "ReadStuck",
    "Scanner",
    "UnreadableFile",
    "Version",
    "device_id",
    "diff",
    "is_device_id",
    "needs_polling",
    "scan",
]
