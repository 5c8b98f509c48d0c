"""Serial ports with hardware behind them. Consoles, pseudo terminals and empty 8250 slots do not count."""

import re
from collections.abc import Iterator

from hostdevices.device import Device
from hostdevices.host import Host
from hostdevices.identity import device_id
from hostdevices.readers.location import SysfsLocations
from hostdevices.readers.reader import Finding, PresetFacts, Reader, attributes, each, entries
from hostdevices.readers.sysfs import devnodes, known, natural, number

_PORT = re.compile(r"[a-zA-Z]+[0-9]+")


def read(host: Host) -> Iterator[Finding]:
    """Yield one device per serial port that has a node."""
    locations = SysfsLocations(host)
    consoles = (host.read("/sys/class/tty/console/active") or "").split()

    def port(syspath: str) -> Device | None:
        if "/sys/devices/virtual/" in syspath:
            return None
        name = syspath.rpartition("/")[2]
        location = locations.of(syspath)
        # usb-serial numbers the ports of an adapter itself; the board names platform ports.
        on_adapter = natural(host, f"{syspath}/device/port_number")
        identity, parents = locations.identify("tty", location, *((f"port{on_adapter}",) if on_adapter else ()))
        if location.attributes["bus"] == "platform":
            identity = device_id("tty", name.lower())
        nodes = devnodes(host, syspath)
        if not nodes or number(host, f"{syspath}/type") == 0:
            return None
        return Device(
            id=identity,
            kind="tty",
            name=name,
            syspath=syspath,
            attributes=known(
                {
                    "name": name,
                    **location.attributes,
                    "driver": _driver(host, syspath),
                    "console": True if name in consoles else None,
                }
            ),
            devnodes=nodes,
            numa_nodes=location.numa_nodes,
            parents=parents,
        )

    yield from each(entries(host, "/sys/class/tty", lambda name: _PORT.fullmatch(name) is not None), port)


def _driver(host: Host, syspath: str) -> str | None:
    """Return the hardware's driver; since Linux 6.5 a controller and a port of the serial core are in between."""
    device = host.resolve(f"{syspath}/device") or ""
    while host.link(f"{device}/subsystem") == "serial-base":
        device = device.rpartition("/")[0]
    return host.link(f"{device}/driver")


TTY = Reader(
    "tty",
    frozenset({"tty", "usb"}),
    read,
    one_per="serial port with hardware behind it",
    attributes=attributes("console  boolean  true if it is the node's console"),
    presets={
        "serial": PresetFacts("serial ports of every bus"),
        "usb-serial": PresetFacts("USB serial ports", {"bus": "usb"}),
    },
)
READERS = (TTY,)
