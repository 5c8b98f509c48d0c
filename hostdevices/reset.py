"""Resetting devices before a container gets them: PCI's function-level reset, through sysfs.

Nobody then finds what the last one left on the device. Blocks for as long as the hardware takes: call from a thread.
"""

from collections.abc import Sequence

from hostdevices.attributes import STANDARD
from hostdevices.device import Device
from hostdevices.host import Host, HostDevicesError


class ResetFailed(HostDevicesError):
    """A device could not be reset; says which one and why."""


def reset(host: Host, devices: Sequence[Device]) -> None:
    """Reset PCI devices one after the other. Raises `ResetFailed` with the device and the cause."""
    for device in devices:
        address = device.attributes.get(STANDARD["pciBusID"])
        if address is None:
            raise ResetFailed(
                f"device {device.id} is not on a PCI bus and cannot be reset; do not ask for a reset of it"
            )
        try:
            host.write(f"/sys/bus/pci/devices/{address}/reset", "1")
        except OSError as error:
            raise ResetFailed(f"device {device.id}: reset of {address} failed: {error.strerror}") from error
