"""Whether a device is still the one that was scanned. Checked when it is allocated.

Nodes are renumbered: /dev/ttyUSB0 may be another stick when a container requests it. A fingerprint is everything about
a device that a replacement would change and that can be read in microseconds.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from msgspec.structs import replace

from hostdevices.device import HEALTHY, Device, Devnode
from hostdevices.errors import UnreadableFile
from hostdevices.host import Host

Fingerprint: TypeAlias = tuple[str, ...]


def fingerprint(host: Host, device: Device) -> Fingerprint:
    """Return each node's numbers and the kernel's device behind them, and the USB enumeration; `_facts` names them."""
    values: list[str] = []
    for node in device.devnodes:
        values += _node_values(host, node, device.syspath)
    if device.syspath:
        values.append(_presence(host, device.syspath, device.syspath in values))  # behind a node: so it is there
    return tuple(values)


def expected_fingerprint(device: Device) -> Fingerprint:
    """Return the fingerprint of a device of which nothing is otherwise than its scan said; reads nothing."""
    values: list[str] = []
    for node in device.devnodes:
        values += (f"{node.kind} {node.major}:{node.minor}", device.syspath)
    if device.syspath:
        values.append(f"USB device {device.enumeration}" if device.enumeration else "present")
    return tuple(values)


def why_changed(host: Host, device: Device, before: Fingerprint) -> str:
    """Return in words what differs from the fingerprint taken at the scan; empty when nothing does."""
    now = fingerprint(host, device)
    if now == before:
        return ""
    facts = zip(_facts(device), before, now, strict=True)
    return next(f"{what} is {new or 'gone'} now, it was {old or 'missing'}" for what, old, new in facts if old != new)


def _facts(device: Device) -> Iterator[str]:
    """Name what the values of a fingerprint are of, in their order. There are thousands, and a name is seldom asked."""
    for node in device.devnodes:
        yield node.path
        yield f"the kernel's device of {node.path}"
    if device.syspath:
        yield device.syspath


class Fingerprints:
    """The devices as the last scan found them, and whether they still are."""

    def __init__(self, host: Host) -> None:
        """Start without devices."""
        self._host = host
        self._devices: dict[str, Device] = {}
        self._unexpected: dict[str, Fingerprint] = {}  # nearly all are what the device says: thousands are not kept

    def update(self, devices: Iterable[Device]) -> None:
        """Take over the devices that there are now. One that did not change keeps the fingerprint that it has."""
        known, unexpected = self._devices, self._unexpected
        self._devices, self._unexpected = {}, {}
        for device in map(_without_health, devices):
            before = known.get(device.id)
            if before is not None and (before is device or before == device):
                taken = unexpected.get(device.id)
            else:
                expected = expected_fingerprint(device)
                taken = _completed(expected, fingerprint(self._host, device), device)
                taken = None if taken == expected else taken
            self._devices[device.id] = device
            self._unexpected.pop(device.id, None)
            if taken is not None:
                self._unexpected[device.id] = taken

    def why_changed(self, device: Device) -> str:
        """Return in words what makes `device` another one than at the scan; empty when nothing does."""
        known = self._devices.get(device.id)
        plain = _without_health(device)
        if known is None or (known is not plain and known != plain):
            return "it was scanned again"
        return why_changed(self._host, device, self.taken(device))

    def devnodes(self, identity: str) -> tuple[Devnode, ...]:
        """Return the nodes that the device with this id has now; none where it has changed since the scan, or is gone.

        Takes microseconds: whoever handed out nodes of a device long ago asks here whether they still are its.
        """
        known = self._devices.get(identity)
        return () if known is None or why_changed(self._host, known, self.taken(known)) else known.devnodes

    def taken(self, device: Device) -> Fingerprint:
        """Return the fingerprint of a device at the scan, which it still has if `why_changed` says nothing."""
        return self._unexpected.get(device.id) or expected_fingerprint(self._devices[device.id])


def _completed(scanned: Fingerprint, now: Fingerprint, device: Device) -> Fingerprint:
    """Return what a scan has read of a device, and of what it has not, what is there now.

    A scan does not read what is behind a node, which may be something below the device, nor anything of the folder that
    the members of a group have in common. All else that is otherwise by now is somebody else's: a device that was
    exchanged after it was read must not pass for the one that was.
    """
    values, nodes = list(scanned), 2 * len(device.devnodes)
    values[1:nodes:2] = now[1:nodes:2]
    if device.kind == "group":
        values[nodes:] = now[nodes:]
    return tuple(values)


def _without_health(device: Device) -> Device:
    """Return what does not change when a device falls ill."""
    return device if device.health == HEALTHY else replace(device, health=HEALTHY)


def _node_values(host: Host, node: Devnode, syspath: str) -> tuple[str, str]:
    now = host.devnode(node.path)
    if now is None:
        return "", ""
    numbers = f"{now.major}:{now.minor}"
    behind = host.resolve(f"/sys/dev/{'char' if now.kind == 'c' else 'block'}/{numbers}") or ""
    return f"{now.kind} {numbers}", syspath if behind == syspath else behind  # one text, not two that are the same


def _presence(host: Host, syspath: str, is_there: bool) -> str:
    if not is_there and not host.exists(syspath):
        return ""
    try:
        number = enumeration(host, syspath)
    except UnreadableFile as error:
        return f"unreadable ({error})"
    return f"USB device {number}" if number else "present"


def enumeration(host: Host, syspath: str) -> str:
    """Return the number of the USB device at or above `syspath`, which every replug counts up; empty elsewhere.

    Raises `UnreadableFile`.
    """
    at = syspath
    while "/usb" in at:
        if number := host.read(f"{at}/devnum"):
            return number
        at = at.rpartition("/")[0]
    return ""
