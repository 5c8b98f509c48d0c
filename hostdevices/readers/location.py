"""The location of a class device: the PCI function, USB interface or platform device that it is a part of.

From its location in sysfs a class device (a tty, a GPU, a camera) has its identity, its parents, its NUMA node, and the
attributes of the hardware below it. Numbers that the kernel assigns (ttyUSB0, card1, virtio2) are never part of it.
"""

import re
from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

from hostdevices.device import AttributeValue
from hostdevices.host import Host
from hostdevices.identity import device_id
from hostdevices.readers.pci import ADDRESS, PciFunctions, location_attributes, numa_of, pci_id
from hostdevices.readers.reader import attributes
from hostdevices.readers.sysfs import known, numa_nodes, text_value
from hostdevices.readers.usb import DEVICE_NAME, UsbDevices

_INTERFACE = re.compile(r"[0-9]+-[0-9.]+:[0-9]+\.([0-9]+)")
_SUBFUNCTION = re.compile(r".+\.sf\.[0-9]+")  # mlx5_core.sf.4 on the auxiliary bus
_COUNTED = re.compile(r"(virtio|input|i2c-|spi|host|port|rpmsg|mmc|card|gpiochip|rc)[0-9]+(\.[0-9]+)*")
_FOLDERS = ("input", "spi_master", "rc", "sound")  # of the kernel's, between a parent and its class devices


EVERYWHERE = attributes("""
    name                             text     the kernel's name for it now, which may differ after a reboot
    bus                              text     "pci", "usb", "platform", "virtual", "mdev"
    driver                           text     the kernel driver that is bound to it
    resource.kubernetes.io/pcieRoot  text     the PCIe root complex: "pci0000:3a"
    resource.kubernetes.io/numaNode  integer  the nearest NUMA node; of several the first
""")
"""The attributes of devices of every kind."""

ON_PCI = attributes("""
    resource.kubernetes.io/pciBusID  text         the address of the function: "0000:3b:00.0"
    vendor                           hexadecimal
    device                           hexadecimal
    sriov                            text         "pf" (physical function), "vf" (virtual function)
    pf                               text         of a virtual function: the address of its physical function
    pfName                           text         of a virtual or sub-function: the interface of its physical function
    auxiliary                        text         of a sub-function: its name on the auxiliary bus, "mlx5_core.sf.4"
    sfIndex                          integer      of a sub-function: its user-defined number (sfnum)
    vfIndex                          integer      of a virtual function: its number on its physical function, from 0
""")
"""The attributes of devices on a PCI function."""

ON_USB = attributes("""
    vendor     hexadecimal
    product    hexadecimal
    serial     text
    port       text         the chain of ports to the device: "2.3"
    byPath     text         the port in the notation of udev: "pci-0000:00:14.0-usb-0:2.3:1.0"
    interface  integer      the number of the USB interface
""")
"""The attributes of devices on a USB device."""


class SysfsLocation(Struct, frozen=True):
    """A location: the facts for ids, the ids of the parents from near to far, and the attributes of the hardware."""

    facts: tuple[str, ...]
    parents: tuple[str, ...] = ()
    attributes: Mapping[str, AttributeValue] = {}
    numa_nodes: tuple[int, ...] = ()
    function: str = ""  # the syspath of the PCI function; empty if it is on none
    other_facts: tuple[str, ...] = ()  # the facts after its USB device's serial number becomes ambiguous, or unique
    port_facts: tuple[str, ...] = ()  # the facts if its USB device is identified by the port


class SysfsLocations:
    """The locations of a host's class devices; valid for one scan."""

    def __init__(self, host: Host) -> None:
        """Prepare; nothing is read yet."""
        self._host = host
        self._functions = PciFunctions(host)
        self._usb = UsbDevices(host)
        self._seen: Counter[tuple[str, ...]] = Counter()

    def of(self, syspath: str) -> SysfsLocation:
        """Return the location of the class device at `syspath`. Raises `UnreadableFile`."""
        host = self._host
        parts = syspath.split("/")
        extra: tuple[str, ...] = ()
        within = ""  # configuration and interface of a USB device
        facts: dict[str, AttributeValue | None] = {"driver": self._driver(syspath)}
        for depth in range(len(parts), 3, -1):
            part = parts[depth - 1]
            above = "/".join(parts[:depth])
            if interface := _INTERFACE.fullmatch(part):
                extra = (f"if{interface[1]}",)
                facts["interface"] = int(interface[1])
                within = f":{part.partition(':')[2]}"
            elif _SUBFUNCTION.fullmatch(part):
                number = host.read(f"{above}/sfnum")
                extra = (f"sf{number or part.rpartition('.')[2]}",)
                facts["auxiliary"] = part
                facts["sfIndex"] = int(number) if number and number.isdecimal() else None
            elif ADDRESS.fullmatch(part):
                shared = self._functions.shared(above)
                if "auxiliary" in facts:
                    facts["pfName"] = self._functions.interface(above)
                return SysfsLocation(
                    (part, *extra),
                    (pci_id(part),),
                    known({"bus": "pci", **facts, **shared}),
                    numa_of(shared),
                    function=above,
                )
            elif DEVICE_NAME.fullmatch(part) and (usb := self._usb.identity(above)) is not None:
                controller = next((x for x in reversed(parts[:depth]) if ADDRESS.fullmatch(x)), None)
                numa = numa_nodes(host, above)
                of_usb = {
                    "bus": "usb",
                    **facts,
                    "vendor": usb.vendor,
                    "product": usb.product,
                    "serial": text_value(usb.serial),
                    "port": usb.port[-1],
                    "byPath": text_value(f"{usb.by_path}{within}") if usb.by_path else None,
                    **location_attributes(above, numa),
                }
                parents = (usb.id, *((pci_id(controller),) if controller else ()), *usb.other_ids)
                other = (*usb.other_facts, *extra) if usb.other_facts else ()
                by_port = (*usb.port_facts, *extra)
                parents = (*parents, device_id("usb", *usb.port_facts))
                return SysfsLocation((*usb.facts, *extra), parents, known(of_usb), numa, "", other, by_port)
        numa = numa_nodes(host, syspath)
        if "/sys/devices/virtual/" in syspath:
            return SysfsLocation((parts[-1],), (), known({"bus": "virtual"}), numa)
        name = self._platform_device(syspath)
        return SysfsLocation(
            (name,), (), known({"bus": "platform", **facts, **location_attributes(syspath, numa)}), numa
        )

    def identify(self, kind: str, location: SysfsLocation, *role: str) -> tuple[str, tuple[str, ...]]:
        """Return the id of the next device of `kind` at a location, and the ids of its parents.

        `role` distinguishes devices at one location (a port's number); otherwise their order does.
        """
        facts = (*location.facts, *role)
        self._seen[kind, *facts] += 1
        earlier = self._seen[kind, *facts] - 1
        order = (str(earlier),) if earlier else ()
        others = filter(None, (location.other_facts, location.port_facts))
        return device_id(kind, *facts, *order), (
            *location.parents,
            *(device_id(kind, *other, *role, *order) for other in others),
        )

    def _driver(self, syspath: str) -> str | None:
        return self._host.link(f"{syspath}/device/driver")

    def _platform_device(self, syspath: str) -> str:
        """Return the name of the nearest parent that firmware or the board named."""
        parent = self._host.resolve(f"{syspath}/device") or syspath.rpartition("/")[0]
        names = parent.split("/")[3:]
        while len(names) > 1 and (names[-1] in _FOLDERS or _COUNTED.fullmatch(names[-1])):
            names.pop()
        return names[-1] if names else syspath.rpartition("/")[2]
