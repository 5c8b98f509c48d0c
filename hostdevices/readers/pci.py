"""PCI functions: what a function is, where it sits, and its part in SR-IOV (Linux: ABI/testing/sysfs-bus-pci).

The PCI address is the identity. A virtual function is no part of its physical function: each can have its own owner.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hostdevices.device import AttributeValue, Device
from hostdevices.host import Host
from hostdevices.identity import device_id
from hostdevices.readers.reader import Finding, Reader, each, entries
from hostdevices.readers.sysfs import hexadecimal, known, natural, numa_nodes, pcie_root
from hostdevices.readers.uplinks import uplinks

ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")  # domains above ffff exist (VMD, Hyper-V)
BUS_ID = "resource.kubernetes.io/pciBusID"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
NUMA_NODE = "resource.kubernetes.io/numaNode"

_DEVICES = "/sys/bus/pci/devices"
_INHERITED = ("vendor", "device", "sriov", "pf", "pfName", "vfIndex", BUS_ID, PCIE_ROOT, NUMA_NODE)
_VIRTUAL_FUNCTION = re.compile(r"virtfn[0-9]+")


def place_attributes(syspath: str, numa: tuple[int, ...]) -> dict[str, AttributeValue]:
    """Return the standard attributes that any device has by its place."""
    return known({PCIE_ROOT: pcie_root(syspath), NUMA_NODE: numa[0] if numa else None})


class PciFunctions:
    """The facts of PCI functions, each read once; good for the time of one scan."""

    def __init__(self, host: Host) -> None:
        """Read nothing yet."""
        self._host = host
        self._shared: dict[str, dict[str, AttributeValue]] = {}
        self._physical: dict[str, _PhysicalFunction] = {}

    def shared(self, syspath: str) -> dict[str, AttributeValue]:
        """Return those facts that what sits on a function (a NIC, a GPU) shows too. Raises `UnreadableFile`."""
        if syspath not in self._shared:
            self._shared[syspath] = self._read_shared(syspath)
        return self._shared[syspath]

    def facts(self, syspath: str) -> dict[str, AttributeValue]:
        """Return all attributes of the function at `syspath`. Raises `UnreadableFile`."""
        host = self._host
        group = host.link(f"{syspath}/iommu_group")
        shared = self.shared(syspath)
        attributes: dict[str, AttributeValue | None] = {
            "name": syspath.rpartition("/")[2],
            "bus": "pci",
            **shared,
            "class": hexadecimal(host, f"{syspath}/class", 6),
            "subsystemVendor": hexadecimal(host, f"{syspath}/subsystem_vendor", 4),
            "subsystemDevice": hexadecimal(host, f"{syspath}/subsystem_device", 4),
            "revision": hexadecimal(host, f"{syspath}/revision", 2),
            "driver": host.link(f"{syspath}/driver"),
            "iommuGroup": int(group) if group and group.isdecimal() else None,
        }
        if shared.get("sriov") == "pf":
            attributes["totalVFs"] = natural(host, f"{syspath}/sriov_totalvfs")
            # Counted, because reading sriov_numvfs waits while functions are being made.
            attributes["numVFs"] = sum(1 for name in host.list(syspath) if _VIRTUAL_FUNCTION.fullmatch(name))
        return known(attributes)

    def _read_shared(self, syspath: str) -> dict[str, AttributeValue]:
        host = self._host
        address = syspath.rpartition("/")[2]
        physical = host.link(f"{syspath}/physfn")
        above = self._of_physical(syspath) if physical else None
        role = "vf" if physical else "pf" if host.exists(f"{syspath}/sriov_totalvfs") else None
        return known(
            {
                "vendor": hexadecimal(host, f"{syspath}/vendor", 4),
                "device": hexadecimal(host, f"{syspath}/device", 4),
                "sriov": role,
                "pf": physical,
                "pfName": above.interface if above else None,
                "vfIndex": above.indexes.get(address) if above else None,
                BUS_ID: address,
                **place_attributes(syspath, numa_nodes(host, syspath)),
            }
        )

    def _of_physical(self, syspath: str) -> "_PhysicalFunction":
        """Return what a virtual function needs to know of its physical one."""
        physical = self._host.resolve(f"{syspath}/physfn") or ""
        if physical not in self._physical:
            names = (name for name in self._host.list(physical) if _VIRTUAL_FUNCTION.fullmatch(name))
            found = ((self._host.link(f"{physical}/{name}"), int(name.removeprefix("virtfn"))) for name in names)
            # No interface while it is in another network namespace, or where the function has none.
            interface = next(iter(self._host.list(f"{physical}/net")), None)
            self._physical[physical] = _PhysicalFunction({x: index for x, index in found if x}, interface)
        return self._physical[physical]


class _PhysicalFunction(NamedTuple):
    indexes: Mapping[str, int]  # of its virtual functions, by their addresses
    interface: str | None


def numa_of(attributes: Mapping[str, AttributeValue]) -> tuple[int, ...]:
    """Return the NUMA node that attributes tell of."""
    node = attributes.get(NUMA_NODE)
    return (node,) if isinstance(node, int) else ()


def function_above(syspath: str) -> str | None:
    """Return the syspath of the nearest PCI function at or above a device; None where there is none."""
    while syspath:
        if ADDRESS.fullmatch(syspath.rpartition("/")[2]):
            return syspath
        syspath = syspath.rpartition("/")[0]
    return None


def pci_id(address: str) -> str:
    """Return the device id of the PCI function at `address`."""
    return device_id("pci", address)


def read(host: Host) -> Iterator[Finding]:
    """Yield one device per PCI function; those that carry a default route say so."""
    functions = PciFunctions(host)
    carrying = {function_above(host.resolve(f"/sys/class/net/{name}") or "") for name in uplinks(host)}

    def function(syspath: str) -> Device:
        address = syspath.rpartition("/")[2]
        attributes = functions.facts(syspath)
        if syspath in carrying:
            attributes = {**attributes, "uplink": True}
        return Device(
            id=pci_id(address),
            kind="pci",
            name=address,
            syspath=syspath,
            attributes=attributes,
            numa_nodes=numa_of(attributes),
        )

    yield from each(entries(host, _DEVICES, lambda name: ADDRESS.fullmatch(name) is not None), function)


PCI = Reader("pci", frozenset({"pci"}), read)
