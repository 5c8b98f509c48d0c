"""PCI functions: their facts, location, part in SR-IOV, and health.

Sources: Linux, ABI/testing/sysfs-bus-pci, sysfs-bus-pci-devices-aer_stats and hwmon/sysfs-interface.

The PCI address is the identity. A virtual function is not a part of its physical function: each can have its own owner.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hostdevices.device import PCI_BUS_ID, AttributeValue, Device
from hostdevices.host import Host
from hostdevices.identity import device_id
from hostdevices.readers.reader import Finding, PresetFacts, Reader, attributes, each, entries
from hostdevices.readers.signals import AWAKE, ErrorCounter, Sample
from hostdevices.readers.sysfs import (
    hexadecimal,
    interfaces,
    is_up,
    known,
    link_type,
    natural,
    natural_order,
    numa_nodes,
    number,
    pcie_root,
    text,
)
from hostdevices.readers.uplinks import uplinks

ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")  # domains above ffff exist (VMD, Hyper-V)
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
NUMA_NODE = "resource.kubernetes.io/numaNode"

_DEVICES = "/sys/bus/pci/devices"
_DEAD = b"\xff" * 8  # a virtual function has ffff ffff as vendor and device even when it works: check eight bytes
_AER = {
    "fatal": ErrorCounter("fatal PCIe errors", 0),  # after which the link has been reset
    "nonfatal": ErrorCounter("non-fatal PCIe errors", 10),
    "correctable": ErrorCounter("correctable PCIe errors", 1000),
}
_AER_TOTAL = re.compile(r"TOTAL_ERR_[A-Z]+ ([0-9]+)")
_TEMPERATURE = re.compile(r"(temp[0-9]+)_input")
_ALARM = re.compile(r"((fan|in|temp)[0-9]+)_(crit_|emergency_)?alarm")
_NETWORK = "02"  # PCI base class
_VDPA = "/sys/bus/vdpa/devices"
_VDPA_TYPES = {"vhost_vdpa": "vhost", "virtio_vdpa": "virtio"}  # by the driver that holds it
_VIRTUAL_FUNCTION = re.compile(r"virtfn[0-9]+")


def location_attributes(syspath: str, numa: tuple[int, ...]) -> dict[str, AttributeValue]:
    """Return the standard attributes that any device has by its location."""
    return known({PCIE_ROOT: pcie_root(syspath), NUMA_NODE: numa[0] if numa else None})


class PciFunctions:
    """The facts of PCI functions, each read once; valid for one scan."""

    def __init__(self, host: Host) -> None:
        """Prepare; nothing is read yet."""
        self._host = host
        self._shared: dict[str, dict[str, AttributeValue]] = {}
        self._physical: dict[str, _PhysicalFunction] = {}
        self._interfaces: dict[str, str | None] = {}
        self._vdpa: dict[str, str] | None = None  # names of vDPA devices, by the syspath of their parent

    def shared(self, syspath: str) -> dict[str, AttributeValue]:
        """Return the facts that devices on a function (a NIC, a GPU) show too. Raises `UnreadableFile`."""
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
        if str(attributes["class"]).startswith(_NETWORK):
            attributes.update(self._of_network(syspath))
        if shared.get("sriov") == "pf":
            attributes["totalVFs"] = natural(host, f"{syspath}/sriov_totalvfs")
            # Counted, because reading sriov_numvfs waits while functions are being created.
            attributes["numVFs"] = sum(1 for name in host.list(syspath) if _VIRTUAL_FUNCTION.fullmatch(name))
        return known(attributes)

    def interface(self, syspath: str) -> str | None:
        """Return the first own interface of a function; None also while it is in another network namespace."""
        if syspath not in self._interfaces:
            self._interfaces[syspath] = next(iter(interfaces(self._host, syspath)), None)
        return self._interfaces[syspath]

    def _of_network(self, syspath: str) -> dict[str, AttributeValue | None]:
        """Return the facts that only network functions have."""
        host = self._host
        names = host.list(syspath)
        # A virtual function's own interface can be in a pod; its physical function has the same link type.
        card = (host.resolve(f"{syspath}/physfn") or "") if "physfn" in names else syspath
        interface = self.interface(card)
        port = next(iter(host.list(f"{syspath}/infiniband")), None) if "infiniband" in names else None
        vdpa = self._vdpa_devices().get(syspath)
        driver = host.link(f"{syspath}/{vdpa}/driver") if vdpa else None
        return {
            "acpiIndex": natural(host, f"{syspath}/acpi_index"),
            "linkType": link_type(host, f"{card}/net/{interface}") if interface else None,
            "rdma": True if port else None,
            "pKey": partition_key(host, f"{syspath}/infiniband/{port}") if port else None,
            "vdpa": vdpa,
            "vdpaType": _VDPA_TYPES.get(driver or ""),
        }

    def _vdpa_devices(self) -> Mapping[str, str]:
        """Return vDPA devices by the syspath of their parent; of several on one function the first."""
        if self._vdpa is None:
            self._vdpa = {}
            for name in sorted(self._host.list(_VDPA), key=natural_order):
                above = (self._host.resolve(f"{_VDPA}/{name}") or "").rpartition("/")[0]
                self._vdpa.setdefault(above, name)
        return self._vdpa

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
                PCI_BUS_ID: address,
                **location_attributes(syspath, numa_nodes(host, syspath)),
            }
        )

    def _of_physical(self, syspath: str) -> "_PhysicalFunction":
        """Return the facts that a virtual function needs from its physical one."""
        physical = self._host.resolve(f"{syspath}/physfn") or ""
        if physical not in self._physical:
            names = (name for name in self._host.list(physical) if _VIRTUAL_FUNCTION.fullmatch(name))
            found = ((self._host.link(f"{physical}/{name}"), int(name.removeprefix("virtfn"))) for name in names)
            indexes = {x: index for x, index in found if x}
            self._physical[physical] = _PhysicalFunction(indexes, self.interface(physical))
        return self._physical[physical]


class _PhysicalFunction(NamedTuple):
    indexes: Mapping[str, int]  # of its virtual functions, by their addresses
    interface: str | None


def numa_of(attributes: Mapping[str, AttributeValue]) -> tuple[int, ...]:
    """Return the NUMA node in attributes."""
    node = attributes.get(NUMA_NODE)
    return (node,) if isinstance(node, int) else ()


def partition_key(host: Host, rdma: str) -> str | None:
    """Return the first partition key of the RDMA device at a syspath, `8001`. Raises `UnreadableFile`."""
    return hexadecimal(host, f"{rdma}/ports/1/pkeys/0", 4)


def function_above(syspath: str) -> str | None:
    """Return the syspath of the nearest PCI function at or above a device; None if there is none."""
    while syspath:
        if ADDRESS.fullmatch(syspath.rpartition("/")[2]):
            return syspath
        syspath = syspath.rpartition("/")[0]
    return None


def pci_id(address: str) -> str:
    """Return the device id of the PCI function at `address`."""
    return device_id("pci", address)


def is_on(device: Device, function: str) -> bool:
    """Return whether a device is on the PCI function at a syspath.

    A disk of an NVMe controller can be elsewhere in sysfs, and is still a part of the function.
    """
    return f"{device.syspath}/".startswith(f"{function}/") or pci_id(function.rpartition("/")[2]) in device.parents


def read(host: Host) -> Iterator[Finding]:
    """Yield one device per PCI function; those that carry a default route are marked."""
    functions = PciFunctions(host)
    known_uplinks = uplinks(host)
    names: dict[str | None, set[str]] = {}
    for name in host.list("/sys/class/net"):
        names.setdefault(function_above(host.resolve(f"/sys/class/net/{name}") or ""), set()).add(name)

    def function(syspath: str) -> Device:
        address = syspath.rpartition("/")[2]
        facts = functions.facts(syspath)
        facts |= known_uplinks.mark_function(facts, names.get(syspath, ()))
        return Device(
            id=pci_id(address),
            kind="pci",
            name=address,
            syspath=syspath,
            attributes=facts,
            numa_nodes=numa_of(facts),
        )

    yield from each(entries(host, _DEVICES, lambda name: ADDRESS.fullmatch(name) is not None), function)


def function_signals(sample: Sample, function: str, card: str | None) -> None:
    """Take the signals of a PCI function, which apply to every device on it. `card` is the physical one's interface.

    A virtual function's packets use the link of the physical one.
    """
    host = sample.host
    runtime = host.read(f"{function}/power/runtime_status")
    if runtime == "error":
        sample.faults["power"] = "its power management failed (runtime status: error)"
    if host.read(f"{function}/power_state") == "D3cold" and runtime in AWAKE:
        sample.faults["power"] = "it has lost power (D3cold)"
    for severity, counter in _AER.items():
        total = _AER_TOTAL.search(host.read(f"{function}/aer_dev_{severity}") or "")
        if total:
            sample.counters[counter] = int(total[1])
    if card is not None:
        _physical_link(sample, f"{function}/physfn/net/{card}")
    if runtime not in AWAKE:
        return
    if host.read_bytes(f"{function}/config", len(_DEAD)) == _DEAD:
        sample.faults["config"] = "it does not answer on the PCI bus (its configuration reads as all ones)"
    for name in host.list(f"{function}/hwmon"):
        _sensors(sample, f"{function}/hwmon/{name}")


def _physical_link(sample: Sample, interface: str) -> None:
    """Take the link of an interface. One that is down has no signal."""
    if is_up(sample.host, interface) and sample.host.read(f"{interface}/carrier") == "0":
        name = interface.rpartition("/")[2]
        sample.faults["physical link"] = f"its physical function's interface {name} has no carrier"


def _sensors(sample: Sample, folder: str) -> None:
    host = sample.host
    for name in host.list(folder):
        if (sensor := _TEMPERATURE.fullmatch(name)) is not None:
            now, critical = number(host, f"{folder}/{name}"), number(host, f"{folder}/{sensor[1]}_crit")
            if now is not None and critical and now >= critical:
                label = text(host, f"{folder}/{sensor[1]}_label") or sensor[1]
                sample.faults[name] = f"{label}: {now // 1000} °C, critical is {critical // 1000} °C"
        elif (sensor := _ALARM.fullmatch(name)) is not None and host.read(f"{folder}/{name}") == "1":
            sample.faults[name] = f"{sensor[1]}: the sensor's alarm is on"


PCI = Reader(
    "pci",
    frozenset({"pci", "vdpa"}),
    read,
    one_per="PCI function",
    attributes=attributes("""
        class            hexadecimal  "020000"
        subsystemVendor  hexadecimal
        subsystemDevice  hexadecimal
        revision         hexadecimal
        iommuGroup       integer
        acpiIndex        integer      of a network function: the firmware's number of it
        linkType         text         of a network function, a virtual one by its physical one: "ethernet", "infiniband"
        rdma             boolean      true: of a network function that has an RDMA device
        pKey             hexadecimal  of an InfiniBand function: its first partition key
        ddpProfile       text         of Intel's network functions, with `settings.devlink`: their card's package
        vdpa             text         of a function with a vDPA device: what it is called
        vdpaType         text         of a function with a vDPA device: "vhost", "virtio", by who drives it
        totalVFs         integer
        numVFs           integer
        uplink           boolean      true: it carries the node's routes
        uplinkUnknown    boolean      true: it cannot be distinguished from the function that does
        otherDefaultRoute boolean     true: a default route of another table than main leads over its interface
    """),
    presets={
        "sriov-vf": PresetFacts(
            "virtual functions of network cards, whatever their driver", {"sriov": "vf", "class": "02*"}
        ),
    },
    is_polled=True,
)
READERS = (PCI,)
