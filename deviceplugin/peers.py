"""Claims that keep the functions of an SR-IOV card from pods although their leases do not name them.

A lease names the virtual functions that existed when it was granted, and more can be created later. Among pods of the
device plugin API a physical function and its virtual functions can have different holders: shared RDMA needs that.
"""

from collections.abc import Callable, Iterable

from checkpoint import Lease, LeaseRefused
from deviceplugin.units import API
from hostdevices import Device


def peer_lease(device: Device, leases_of: Callable[[str], Iterable[Lease]]) -> Lease | None:
    """Return a claim's lease of a function on the same hardware as `device`; None if there is none.

    `leases_of` returns the leases that involve a device.
    """
    for peer in device.sriov_peers:
        for lease in leases_of(peer):
            if lease.api != API and (peer in lease.exclusive or lease.unit.partition("/")[0] == peer):
                return lease
    return None


def check_peers(devices: Iterable[Device], leases_of: Callable[[str], Iterable[Lease]]) -> None:
    """Raise `LeaseRefused` if a claim has a function on the same hardware as one of `devices`."""
    for device in devices:
        if (lease := peer_lease(device, leases_of)) is not None:
            raise LeaseRefused(
                f"device {device.id}: {lease}; a claim for a physical or virtual function keeps pods from the other;"
                " wait until that claim is unprepared",
                device.id,
            )
