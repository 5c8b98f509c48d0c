"""USB devices, with an identity that outlives replugging and renumbering.

The identity is vendor, product and serial number; without a serial number, with one that many sticks of a model have,
or while two devices here have the same, it is vendor, product and the port: the controller, its root hub, and the chain
of hub ports. Bus and device numbers are never part of it, because the kernel assigns them.

The other possible ids of a device (of these two, and the one by its port alone, which a resource may use) are in
`parents`. So if a second device with the same serial number appears or disappears and the ids change, a lease with one
id still protects the device under the other.
"""

import re
from collections import Counter
from collections.abc import Iterator

from msgspec import Struct, structs

from hostdevices.device import AttributeValue, Device
from hostdevices.errors import UnreadableFile
from hostdevices.host import Host
from hostdevices.identity import PORT, device_id
from hostdevices.readers.pci import function_above, location_attributes, pci_id
from hostdevices.readers.reader import Finding, PresetFacts, Reader, attributes, each
from hostdevices.readers.signals import ErrorCounter, Sample
from hostdevices.readers.sysfs import devnodes, hexadecimal, known, natural_order, numa_nodes, text, text_value

DEVICE_NAME = re.compile(r"[0-9]+-[0-9]+(\.[0-9]+)*")  # bus-port.port...; root hubs are named usb1

_DEVICES = "/sys/bus/usb/devices"
_OVERCURRENT = ErrorCounter("over-current events of the USB port", 0)
_ROOT_HUB = re.compile(r"usb[0-9]+")
_PCI_ROOT = re.compile(r"pci[0-9a-f]+:[0-9a-f]+")
_SEQUENCES = ("0123456789abcdef", "1234567890abcdef", "abcdefghijklmnopqrstuvwxyz", "deadbeef")


class UsbIdentity(Struct, frozen=True):
    """The facts that identify a USB device; `facts` form its id, and those of the devices on it."""

    vendor: str
    product: str
    serial: str  # empty if it has none
    port: tuple[str, ...]  # controller, number of its root hub, chain of ports
    serial_is_unique: bool = False
    by_path: str = ""  # the location in udev's form

    @property
    def facts(self) -> tuple[str, ...]:
        """Return vendor, product, and the serial number or the port."""
        return (self.vendor, self.product, *((self.serial,) if self.serial_is_unique else self.port))

    @property
    def id(self) -> str:
        """Return the device id."""
        return device_id("usb", *self.facts)

    @property
    def port_facts(self) -> tuple[str, ...]:
        """Return the facts for an identity by the port alone."""
        return (PORT, *self.port)

    @property
    def other_facts(self) -> tuple[str, ...]:
        """Return the facts for when its serial number stops or starts to be unique; empty if it never does."""
        if not _is_plausible(self.serial):
            return ()
        return (self.vendor, self.product, *(self.port if self.serial_is_unique else (self.serial,)))

    @property
    def other_ids(self) -> tuple[str, ...]:
        """Return the device id by `other_facts`."""
        return (device_id("usb", *self.other_facts),) if self.other_facts else ()


class UsbDevices:
    """The identities of all USB devices, read at the first question; valid for one scan."""

    def __init__(self, host: Host) -> None:
        """Prepare; nothing is read yet."""
        self._host = host
        self._found: dict[str, UsbIdentity | UnreadableFile] | None = None

    def syspaths(self) -> tuple[str, ...]:
        """Return the syspaths of all USB devices without root hubs."""
        return tuple(self._table())

    def identity(self, syspath: str) -> UsbIdentity | None:
        """Return the identity of the device at `syspath`; None if it is not a USB device. Raises `UnreadableFile`."""
        found = self._table().get(syspath)
        if isinstance(found, UnreadableFile):
            raise found
        return found

    def _table(self) -> dict[str, UsbIdentity | UnreadableFile]:
        if self._found is None:
            names = sorted(filter(DEVICE_NAME.fullmatch, self._host.list(_DEVICES)), key=natural_order)
            paths = (self._host.resolve(f"{_DEVICES}/{name}") for name in names)
            self._found = _with_unique_serials({path: self._read(path) for path in paths if path})
        return self._found

    def _read(self, syspath: str) -> UsbIdentity | UnreadableFile:
        try:
            return UsbIdentity(
                vendor=hexadecimal(self._host, f"{syspath}/idVendor", 4) or "",
                product=hexadecimal(self._host, f"{syspath}/idProduct", 4) or "",
                serial=self._host.read(f"{syspath}/serial") or "",
                port=_port(self._host, syspath),
                by_path=_by_path(self._host, syspath),
            )
        except UnreadableFile as error:
            return error


def _with_unique_serials(
    found: dict[str, UsbIdentity | UnreadableFile],
) -> dict[str, UsbIdentity | UnreadableFile]:
    known_ones = [x for x in found.values() if isinstance(x, UsbIdentity)]
    holders = Counter((x.vendor, x.product, x.serial) for x in known_ones)
    unique = {key for key, count in holders.items() if count == 1 and _is_plausible(key[2])}
    return {
        path: structs.replace(x, serial_is_unique=(x.vendor, x.product, x.serial) in unique)
        if isinstance(x, UsbIdentity)
        else x
        for path, x in found.items()
    }


def _is_plausible(serial: str) -> bool:
    """Return whether a serial number is plausible: cheap chips all have 0001, 123456 or 0000000000."""
    plain = re.sub(r"[^0-9a-z]", "", serial.lower())
    if len(plain.lstrip("0")) < 4 or len(set(plain)) < 3:
        return False
    return not any(sequence.startswith(plain) for sequence in _SEQUENCES)


def _port(host: Host, syspath: str) -> tuple[str, ...]:
    parts = syspath.split("/")
    at = next((i for i, part in enumerate(parts) if _ROOT_HUB.fullmatch(part)), 0)
    chain = parts[-1].partition("-")[2]
    if not at:
        return (chain,)
    siblings = sorted(filter(_ROOT_HUB.fullmatch, host.list("/".join(parts[:at]))), key=natural_order)
    return (parts[at - 1], str(siblings.index(parts[at])) if parts[at] in siblings else "0", chain)


def _by_path(host: Host, syspath: str) -> str:
    """Return the location as udev writes it in ID_PATH: `pci-0000:00:14.0-usb-0:2.3`, on a board after its bridge.

    It names the nearest PCI function, then the nearest platform device above all PCI devices. The bus is 0 there.
    """
    parts = syspath.split("/")
    at = next((i for i, part in enumerate(parts) if _ROOT_HUB.fullmatch(part)), 0)
    if not at:
        return ""
    names = [f"usb-0:{parts[-1].partition('-')[2]}"]
    if function := function_above(syspath):
        names.append(f"pci-{function.rpartition('/')[2]}")
    top = next((i for i, part in enumerate(parts) if _PCI_ROOT.fullmatch(part)), at)
    for depth in range(top, 3, -1):
        if host.link(f"{'/'.join(parts[:depth])}/subsystem") == "platform":
            names.append(f"platform-{parts[depth - 1]}")
            break
    return "-".join(reversed(names)) if len(names) > 1 else ""


def read(host: Host) -> Iterator[Finding]:
    """Yield one device per USB device, including hubs, without root hubs."""
    devices = UsbDevices(host)

    def device(syspath: str) -> Device | None:
        identity = devices.identity(syspath)
        if identity is None or not identity.vendor:
            return None
        controller = function_above(syspath)
        above = (pci_id(controller.rpartition("/")[2]),) if controller else ()
        numa = numa_nodes(host, syspath)
        return Device(
            id=identity.id,
            kind="usb",
            name=syspath.rpartition("/")[2],
            syspath=syspath,
            attributes=_attributes(host, syspath, identity) | location_attributes(syspath, numa),
            devnodes=devnodes(host, syspath),
            numa_nodes=numa,
            parents=(*above, *identity.other_ids, device_id("usb", *identity.port_facts)),
        )

    yield from each(devices.syspaths(), device)


def _attributes(host: Host, syspath: str, identity: UsbIdentity) -> dict[str, AttributeValue]:
    name = syspath.rpartition("/")[2]
    interfaces = (x for x in host.list(syspath) if x.startswith(f"{name}:"))
    classes = {hexadecimal(host, f"{syspath}/{x}/bInterfaceClass", 2) for x in interfaces}
    speed = text(host, f"{syspath}/speed") or ""
    bus, number = host.read(f"{syspath}/busnum") or "", host.read(f"{syspath}/devnum") or ""
    is_numbered = bus.isdecimal() and number.isdecimal()
    return known(
        {
            "name": name,
            "bus": "usb",
            "driver": host.link(f"{syspath}/driver"),
            "vendor": identity.vendor,
            "product": identity.product,
            "serial": text_value(identity.serial),
            "port": identity.port[-1],
            "byPath": text_value(identity.by_path),
            "manufacturer": text(host, f"{syspath}/manufacturer"),
            "model": text(host, f"{syspath}/product"),
            "class": hexadecimal(host, f"{syspath}/bDeviceClass", 2),
            "interfaceClasses": ",".join(sorted(filter(None, classes))),
            "speed": int(speed.partition(".")[0]) if speed.partition(".")[0].isdecimal() else None,
            "revision": hexadecimal(host, f"{syspath}/bcdDevice", 4),
            "busnum": int(bus) if is_numbered else None,
            "devnum": int(number) if is_numbered else None,
            "usbAddress": f"{int(bus)}:{int(number)}" if is_numbered else None,
        }
    )


def signals(sample: Sample, syspath: str) -> None:
    """Take whether it is authorized and powered, and the counter of its port."""
    if sample.host.read(f"{syspath}/authorized") == "0":
        sample.faults["authorized"] = "it is not authorized (usbguard, or the administrator)"
    if sample.host.read(f"{syspath}/power/runtime_status") == "error":
        sample.faults["power"] = "its power management failed (runtime status: error)"
    sample.count(_OVERCURRENT, f"{syspath}/port/over_current_count")


USB = Reader(
    "usb",
    frozenset({"usb"}),
    read,
    one_per="USB device, no root hubs",
    attributes=attributes("""
        manufacturer      text
        model             text
        vendor            hexadecimal
        product           hexadecimal
        serial            text
        port              text         the chain of ports to the device: "2.3"
        byPath            text         the port in the notation of udev: "pci-0000:00:14.0-usb-0:2.3"
        class             hexadecimal  the USB class of the device
        interfaceClasses  text         the USB classes of its interfaces: "03,0e"
        speed             integer      in Mbit/s
        revision          hexadecimal  the version of the device (bcdDevice)
        busnum            integer      the number of the bus now
        devnum            integer      the number of the device on the bus, which changes whenever it is plugged in
        usbAddress        text         `busnum` and `devnum`: "1:7"
    """),
    presets={
        "usb": PresetFacts("USB devices, without hubs", lacking={"class": "09"}),
        "coral-usb": PresetFacts(
            "Coral USB accelerators, before and after their firmware is loaded; take `identity: port`",
            having={"vendor": ("1a6e", "18d1"), "product": ("089a", "9302")},
        ),
    },
    signals=signals,
    is_judged_by_function=False,  # the controller's, which all devices on it share
    needs_node=True,
)
READERS = (USB,)
