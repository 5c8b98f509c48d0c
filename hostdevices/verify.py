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
    """Return each node's numbers and the kernel's device of it, and the USB enumeration; `_facts` names them."""
    values: list[str] = []
    for node in device.devnodes:
        values += _node_values(host, node, device.syspath)
    if device.syspath:
        values.append(_presence(host, device.syspath, device.syspath in values))  # it exists if it is behind a node
    return tuple(values)


def expected_fingerprint(device: Device) -> Fingerprint:
    """Return the fingerprint of a device that has not changed since its scan; reads nothing."""
    values: list[str] = []
    for node in device.devnodes:
        values += (f"{node.kind} {node.major}:{node.minor}", device.syspath)
    if device.syspath:
        values.append(f"USB device {device.enumeration}" if device.enumeration else "present")
    return tuple(values)


def change_since_scan(host: Host, device: Device, before: Fingerprint) -> str:
    """Return what differs from the fingerprint at the scan, as text; empty if nothing does."""
    now = fingerprint(host, device)
    if now == before:
        return ""
    facts = zip(_facts(device), before, now, strict=True)
    return next(f"{what} is {new or 'gone'} now, it was {old or 'missing'}" for what, old, new in facts if old != new)


def _facts(device: Device) -> Iterator[str]:
    """Yield the names of a fingerprint's values, in their order. They are computed because they are seldom needed."""
    for node in device.devnodes:
        yield node.path
        yield f"the kernel's device of {node.path}"
    if device.syspath:
        yield device.syspath


class Fingerprints:
    """The devices as the last scan found them, and whether they are unchanged."""

    def __init__(self, host: Host) -> None:
        """Start without devices."""
        self._host = host
        self._devices: dict[str, Device] = {}
        self._unexpected: dict[str, Fingerprint] = {}  # the few that differ from `expected_fingerprint`

    def update(self, devices: Iterable[Device]) -> None:
        """Take the present devices. One that did not change keeps its fingerprint."""
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

    def change_since_scan(self, device: Device) -> str:
        """Return what distinguishes `device` from the one at the scan, as text; empty if nothing does."""
        known = self._devices.get(device.id)
        plain = _without_health(device)
        if known is None or (known is not plain and known != plain):
            return "it was scanned again"
        return change_since_scan(self._host, device, self.scanned_fingerprint(device))

    def devnodes(self, identity: str) -> tuple[Devnode, ...]:
        """Return the present nodes of the device with this id; none if it has changed since the scan, or is gone.

        Takes microseconds. Holders of nodes that were allocated long ago check here whether these are still the
        device's.
        """
        known = self._devices.get(identity)
        if known is None or change_since_scan(self._host, known, self.scanned_fingerprint(known)):
            return ()
        return known.devnodes

    def scanned_fingerprint(self, device: Device) -> Fingerprint:
        """Return the fingerprint of a device at the scan, which is still valid if `change_since_scan` is empty."""
        return self._unexpected.get(device.id) or expected_fingerprint(self._devices[device.id])


def _completed(scanned: Fingerprint, now: Fingerprint, device: Device) -> Fingerprint:
    """Return the values that a scan has read of a device, completed by present ones that it has not read.

    A scan does not read the device behind a node, which can be one below the device, or the folder that the members of
    a group share. Other values that differ now belong to another device: a device that was exchanged after the scan
    must not pass for the scanned one.
    """
    values, nodes = list(scanned), 2 * len(device.devnodes)
    values[1:nodes:2] = now[1:nodes:2]
    if device.kind == "group":
        values[nodes:] = now[nodes:]
    return tuple(values)


def _without_health(device: Device) -> Device:
    """Return the device without its health, which can change while the device stays the same."""
    return device if device.health == HEALTHY else replace(device, health=HEALTHY)


def _node_values(host: Host, node: Devnode, syspath: str) -> tuple[str, str]:
    now = host.devnode(node.path)
    if now is None:
        return "", ""
    numbers = f"{now.major}:{now.minor}"
    behind = host.resolve(f"/sys/dev/{'char' if now.kind == 'c' else 'block'}/{numbers}") or ""
    return f"{now.kind} {numbers}", syspath if behind == syspath else behind  # one string object, not two equal ones


def _presence(host: Host, syspath: str, is_there: bool) -> str:
    if not is_there and not host.exists(syspath):
        return ""
    try:
        number = enumeration(host, syspath)
    except UnreadableFile as error:
        return f"unreadable ({error})"
    return f"USB device {number}" if number else "present"


def enumeration(host: Host, syspath: str) -> str:
    """Return the number of the USB device at or above `syspath`, which every replug increments; empty elsewhere.

    Raises `UnreadableFile`.
    """
    at = syspath
    while "/usb" in at:
        if number := host.read(f"{at}/devnum"):
            return number
        at = at.rpartition("/")[0]
    return ""
