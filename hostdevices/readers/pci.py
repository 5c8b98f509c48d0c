"""PCI functions: what a function is, where it sits, and its part in SR-IOV (Linux: ABI/testing/sysfs-bus-pci).

The PCI address is the identity. A virtual function is no part of its physical function: each can have its own owner.
"""

import re
from collections.abc import Iterator, Mapping

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
        self._facts: dict[str, Mapping[str, AttributeValue]] = {}
        self._vf_indexes: dict[str, Mapping[str, int]] = {}

    def facts(self, syspath: str) -> Mapping[str, AttributeValue]:
        """Return the attributes of the function at `syspath`. Raises `UnreadableFile`."""
        if syspath not in self._facts:
            self._facts[syspath] = self._read(syspath)
        return self._facts[syspath]

    def inherited(self, syspath: str) -> dict[str, AttributeValue]:
        """Return those attributes that what sits on the function (a NIC, a GPU) shows too. Raises `UnreadableFile`."""
        facts = self.facts(syspath)
        return {name: facts[name] for name in _INHERITED if name in facts}

    def _read(self, syspath: str) -> dict[str, AttributeValue]:
        host = self._host
        address = syspath.rpartition("/")[2]
        names = set(host.list(syspath))
        group = host.link(f"{syspath}/iommu_group") if "iommu_group" in names else None
        attributes: dict[str, AttributeValue | None] = {
            "name": address,
            "bus": "pci",
            "vendor": hexadecimal(host, f"{syspath}/vendor", 4),
            "device": hexadecimal(host, f"{syspath}/device", 4),
            "class": hexadecimal(host, f"{syspath}/class", 6),
            "subsystemVendor": hexadecimal(host, f"{syspath}/subsystem_vendor", 4),
            "subsystemDevice": hexadecimal(host, f"{syspath}/subsystem_device", 4),
            "revision": hexadecimal(host, f"{syspath}/revision", 2) if "revision" in names else None,
            "driver": host.link(f"{syspath}/driver") if "driver" in names else None,
            "iommuGroup": int(group) if group and group.isdecimal() else None,
            BUS_ID: address,
            **place_attributes(syspath, numa_nodes(host, syspath)),
        }
        if "physfn" in names:
            physical = host.link(f"{syspath}/physfn") or ""
            attributes |= {
                "sriov": "vf",
                "pf": physical,
                # None while the interface is in another network namespace, or where the function has none.
                "pfName": next(iter(host.list(f"{syspath}/physfn/net")), None),
                "vfIndex": self._vf_index(syspath, address),
            }
        elif "sriov_totalvfs" in names:
            attributes |= {
                "sriov": "pf",
                "totalVFs": natural(host, f"{syspath}/sriov_totalvfs"),
                # Counted, because reading sriov_numvfs waits while functions are being made.
                "numVFs": sum(1 for name in names if _VIRTUAL_FUNCTION.fullmatch(name)),
            }
        return known(attributes)

    def _vf_index(self, syspath: str, address: str) -> int | None:
        physical = self._host.resolve(f"{syspath}/physfn")
        if physical is None:
            return None
        if physical not in self._vf_indexes:
            names = (name for name in self._host.list(physical) if _VIRTUAL_FUNCTION.fullmatch(name))
            found = ((self._host.link(f"{physical}/{name}"), int(name.removeprefix("virtfn"))) for name in names)
            self._vf_indexes[physical] = {target: index for target, index in found if target}
        return self._vf_indexes[physical].get(address)


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
        numa = attributes.get(NUMA_NODE)
        return Device(
            id=pci_id(address),
            kind="pci",
            name=address,
            syspath=syspath,
            attributes=attributes,
            numa_nodes=(numa,) if isinstance(numa, int) else (),
        )

    yield from each(entries(host, _DEVICES, lambda name: ADDRESS.fullmatch(name) is not None), function)


PCI = Reader("pci", frozenset({"pci"}), read)
