"""Plans how a device's functions get the driver of a claim: all checks before anything is recorded or changed.

An IOMMU group is isolated as a whole, so all its functions change their driver together. Bridges stay: they have no
driver, or one that does not access the memory of other devices. If one member cannot change, none does. A device that
the node itself uses is never taken from it, whatever the configuration says (hostdevices/usage.py). Blocking: use a
thread.

Source: Linux, driver-api/vfio.rst; ABI/testing/sysfs-bus-pci (driver_override).
"""

from collections.abc import Sequence

from msgspec import structs

from dra_plugin.preparing.binding_record import Binding, BindRefused, BoundFunction
from dra_plugin.preparing.driver_binding import driver_of, override_of
from hostdevices import HEALTHY, Device, Host
from hostdevices.readers.pci import ADDRESS, is_on
from hostdevices.readers.vfio import endpoints, group_members
from hostdevices.usage import in_use_reason
from resources.resource import DriverBinding

_DRIVERS = "/sys/bus/pci/drivers"
_FUNCTIONS = "/sys/bus/pci/devices"
_BRIDGE_DRIVERS = (None, "pcieport", "pci-stub", "shpchp")  # these do not access the memory of other devices


def plan_binding(host: Host, device: Device, parts: Sequence[Device], bind: DriverBinding) -> Binding:
    """Return how the functions of `device` get the driver; `parts` are the functions and what is on them, as scanned.

    Raises `BindRefused`.
    """
    where = f"device {device.id}"
    if why := host_problem(host, bind):
        raise BindRefused(f"{where}: {why}")
    functions = []
    for member in _members(host, device):
        address = member.rpartition("/")[2]
        driver, override = driver_of(host, address) or "", override_of(host, address)
        member_parts = [x for x in parts if is_on(x, member)]
        if driver and driver != bind.driver and (why := in_use_reason(host, member, member_parts)):
            raise BindRefused(f"{where}: {address} is in use: {why}")
        functions.append(BoundFunction(address, driver, override))
    return Binding(
        bind.driver,
        tuple(functions),
        tuple(structs.replace(x, health=HEALTHY) for x in parts),
        bind.iommufd,
    )


def host_problem(host: Host, bind: DriverBinding) -> str:
    """Return what the host lacks to bind any device, and what to do; empty if nothing is missing."""
    if not host.exists(f"{_DRIVERS}/{bind.driver}"):
        return f"the kernel has no driver {bind.driver}; load it (modprobe {bind.driver})"
    node, module = ("/dev/iommu", "iommufd") if bind.iommufd else ("/dev/vfio/vfio", "vfio")
    if host.devnode(node) is None:
        return f"there is no {node}; load its kernel module (modprobe {module})"
    return ""


def _members(host: Host, device: Device) -> list[str]:
    """Return the functions of a device's IOMMU group. Raises `BindRefused`."""
    where, address = f"device {device.id}", device.pci_functions[0]
    if not host.exists(f"{_FUNCTIONS}/{address}"):
        raise BindRefused(f"{where}: the function {address} is gone; delete the pod to get another device")
    group = host.link(f"{_FUNCTIONS}/{address}/iommu_group")
    if not group:
        raise BindRefused(f"{where}: {address} is in no IOMMU group; is the IOMMU switched on (firmware, kernel)?")
    members = group_members(host, group)
    functions = endpoints(host, members)
    for member in set(members) - set(functions):
        if (driver := host.link(f"{member}/driver")) not in _BRIDGE_DRIVERS:
            bridge = member.rpartition("/")[2]
            raise BindRefused(f"{where}: the bridge {bridge} of the same IOMMU group is held by driver {driver}")
    addresses = {x.rpartition("/")[2] for x in functions}
    if other := next((x for x in sorted(addresses) if not ADDRESS.fullmatch(x)), ""):
        raise BindRefused(f"{where}: {other} of the same IOMMU group is not a PCI function and cannot be bound")
    if addresses != set(device.pci_functions):
        now = ", ".join(sorted(addresses))
        raise BindRefused(f"{where}: its IOMMU group changed since the last scan: {now}; the kubelet tries again")
    return functions
