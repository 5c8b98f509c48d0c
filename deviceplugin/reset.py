"""Resetting devices before a container starts: PCI's function-level reset, through sysfs.

No pod then finds what the last one left on the device. The write blocks while the hardware resets: it runs in a thread.
"""

import asyncio
from collections.abc import Sequence

from deviceplugin.errors import ResetFailed
from hostdevices import Device, Host

_BUS_ID = "resource.kubernetes.io/pciBusID"


async def reset(host: Host, devices: Sequence[Device]) -> None:
    """Reset PCI devices one after the other. Raises `ResetFailed` with the device and the cause."""
    for device in devices:
        address = device.attributes.get(_BUS_ID)
        if address is None:
            raise ResetFailed(
                f"device {device.id} is not on a PCI bus and cannot be reset; remove `reset` from its resource"
            )
        try:
            await asyncio.to_thread(host.write, f"/sys/bus/pci/devices/{address}/reset", "1")
        except OSError as error:
            raise ResetFailed(f"device {device.id}: reset of {address} failed: {error.strerror}") from error
