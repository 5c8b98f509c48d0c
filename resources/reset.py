"""Resets devices before a container gets them: PCI's function-level reset, through sysfs.

So the next holder finds no data of the previous one. Blocks as long as the hardware needs: call from a thread. Whether
a device can be reset, and which others its reset would affect, is decided at the assignment (assignment.py); a reset
that a claim requests is checked here.
"""

from collections.abc import Sequence

from hostdevices.device import Device
from hostdevices.errors import HostDevicesError
from hostdevices.host import Host

_FUNCTIONS = "/sys/bus/pci/devices"


class ResetFailed(HostDevicesError):
    """A device could not be reset; the message names it and the reason."""


def reset(host: Host, devices: Sequence[Device]) -> None:
    """Reset each PCI function of `devices` once. Raises `ResetFailed` with the device and the cause."""
    functions: dict[str, Device] = {}
    for device in devices:
        if not device.pci_functions:
            raise ResetFailed(
                f"device {device.id} is not on a PCI bus and cannot be reset; do not ask for a reset of it"
            )
        for address in device.pci_functions:
            functions.setdefault(address, device)
    for address, device in functions.items():
        if device.offered_peers and host.exists(f"{_FUNCTIONS}/{address}/virtfn0"):
            raise ResetFailed(
                f"device {device.id}: a reset of {address} would end its virtual functions, which are offered"
                f" ({', '.join(device.offered_peers)}); do not ask for a reset of it"
            )
    for address, device in functions.items():
        try:
            host.write(f"{_FUNCTIONS}/{address}/reset", "1")
        except OSError as error:
            raise ResetFailed(f"device {device.id}: reset of {address} failed: {error.strerror}") from error
