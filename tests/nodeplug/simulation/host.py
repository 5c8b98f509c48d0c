"""The simulated host: devices of every kind for which the two APIs exclude each other. They come, go and move.

misc-one ... misc-four    a node each, always with the same path
misc-many                 the same, with shares
misc-card                 a whole device through the device plugin API, two halves through DRA
pci-...-0, -1, -2         a physical function and its two virtual functions
tty-...-05, -06           serial ports that can exchange their nodes: /dev/ttyS4 becomes /dev/ttyS5
usb-...                   a stick that becomes another device at its port (stick.py)
nic-...-07, -08           network cards; the first has the node's default route and must never be allocated
"""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from hostdevices import Device, Health, Host, Inventory, Scanner
from hostdevices.readers.misc import MISC
from hostdevices.readers.net import NIC
from hostdevices.readers.pci import PCI
from hostdevices.readers.tty import TTY
from hostdevices.readers.usb import USB
from resources.assignment import Assignment, assign
from resources.resource import Resource
from tests.deviceplugin.host import MadeUpHost
from tests.nodeplug.simulation.disk import Disk
from tests.nodeplug.simulation.names import address_of, device_of, is_own, without_share
from tests.nodeplug.simulation.stick import PORT, STICK, STICK_IDS, Stick

MISC_NAMES = ("one", "two", "three", "four", "many", "card")
PHYSICAL, *VIRTUAL = (f"pci-0000-3b-00-{i}" for i in range(3))
PORTS = ("tty-0000-05-00-0", "tty-0000-06-00-0")
CARDS = ("nic-0000-07-00-0", "nic-0000-08-00-0")
UPLINK = frozenset((CARDS[0], CARDS[0].replace("nic", "pci")))
FIXED = frozenset((*PORTS, *CARDS))
PLUGGABLE = (PHYSICAL, PORT, *(f"misc-{x}" for x in MISC_NAMES))
_ADDRESSES = {address_of(x): x for x in (PHYSICAL, *VIRTUAL, *PORTS, *CARDS)}
_PCI = Path("sys/devices/pci0000:00")
_CARD = {"vendor": "0x8086", "device": "0x1572", "class": "0x020000"}
_CGROUPS = Path("sys/fs/cgroup")
Namespace = Literal["the node's", "a pod's", "a pod's with hostPID"]


class HardwareUse(Struct, frozen=True):
    """What a holder takes from the host by the rules of the hardware: whole things, and parts of things."""

    whole: frozenset[str] = frozenset()
    part: frozenset[str] = frozenset()

    def excludes(self, other: "HardwareUse") -> bool:
        """Return whether the two holders exclude each other."""
        return bool(self.whole & (other.whole | other.part) or other.whole & self.part)

    def __or__(self, other: "HardwareUse") -> "HardwareUse":
        """The union."""
        return HardwareUse(self.whole | other.whole, self.part | other.part)


class SimulatedHost:
    """The host's tree, and the faults of its devices."""

    def __init__(self, root: Path, has_cgroups: bool, disk: Disk) -> None:
        self._root = root
        self._disk = disk
        self._made_up = MadeUpHost(root, *MISC_NAMES)
        self.host = Host(root)
        self.plugged = {f"misc-{name}" for name in MISC_NAMES}
        self.unhealthy: set[str] = set()
        self.moves: dict[str, int] = {}  # how often a device's node was replaced
        self.has_cgroups = has_cgroups
        self._minor = 300  # lower minors have fixed meanings
        self._groups: dict[str, tuple[str, ...]] = {}  # the members of each group that was offered
        self._stick, self._is_known_by_port = Stick(root), False
        self._scanner = Scanner(self.host, (MISC, NIC, PCI, TTY, USB))
        self._inventory = Inventory()
        self._tree: object = None  # its state at the last scan
        cgroups = [_CGROUPS / "kubepods.slice"] if has_cgroups else ()
        for folder in ("sys/bus/pci/devices", "sys/bus/pci/drivers/ice", "sys/class/tty", "sys/class/net", *cgroups):
            (root / folder).mkdir(parents=True)
        if has_cgroups:
            (root / _CGROUPS / "cgroup.controllers").touch()
        for port, name in zip(PORTS, ("ttyS4", "ttyS5"), strict=True):
            self._add_function(address_of(port), {"vendor": "0x9710", "class": "0x070002"})
            self._add_port(port, name)
        for card, name in zip(CARDS, ("eno1", "eno2"), strict=True):
            self._add_card(card, name)
        self.move_daemon("the node's")
        self.plug(PHYSICAL)
        self.plug(PORT)

    # Its devices.

    def assign(self, resources: Sequence[Resource]) -> tuple[Mapping[str, Device], Assignment]:
        """Scan; return the devices and their assignment."""
        tree = frozenset(self.plugged), tuple(sorted(self.moves.items())), self._namespace
        if tree != self._tree:
            self._inventory, self._tree = self._scanner.scan(), tree
        devices = {i: self._judged(x) for i, x in self._inventory.devices.items()}
        found = assign(replace(self._inventory, devices=devices), resources)
        self._is_known_by_port = PORT in found.owners
        self._groups.update(
            (x.id, x.children) for offered in found.devices.values() for x in offered if x.kind == "group"
        )
        return devices, found

    def state(self) -> object:
        """A value that changes when the result of a scan changes."""
        return frozenset(self.plugged), frozenset(self.unhealthy), tuple(sorted(self.moves.items()))

    def named(self, name: str) -> str:
        """The current device or group of a unit's or published device's name."""
        if is_own(name):
            return device_of(name)
        plain = without_share(name)
        at_path = {f"/dev/{self._port_name(port)}": port for port in PORTS}
        at_path[self._stick.path] = PORT if self._is_known_by_port else self._stick.stick_id
        return at_path.get(plain) or _ADDRESSES.get(plain) or f"misc-{plain.removeprefix('/dev/')}"

    def leased(self, unit: str, ids: Iterable[str]) -> str:
        """The device or group of a unit's lease with these ids; the name itself can be another device's by now."""
        if is_own(unit):
            return device_of(unit)
        known = ({*self._groups}, {PORT}, {*PLUGGABLE, *VIRTUAL, *FIXED, *STICK_IDS})  # a port before the device at it
        return next((min(found) for each in known if (found := each & {*ids})), "")

    def devices_of(self, name: str) -> tuple[str, ...]:
        """The host's devices of a unit, a published device or a group."""
        device = self.named(name)
        return self._groups.get(device, (device,))

    def takes(
        self, name: str, api: str, *, is_shared: bool = False, devices: Iterable[str] | None = None
    ) -> HardwareUse:
        """What a unit of the device plugin API takes, or a published or claimed device of DRA.

        `devices` are those at the time of the allocation, if they can differ from today's. A group is a thing in
        addition to its members: a holder keeps its name, even when all members have changed.
        """
        if "@" in name:
            return HardwareUse()
        if "-half" in name:
            return HardwareUse(frozenset({name}), frozenset({device_of(name)}))
        found, group = HardwareUse(), self.named(name)
        members = self.devices_of(name) if devices is None else devices
        for device in (group, *members) if self.is_group(group) else members:
            if device == PHYSICAL:
                found |= HardwareUse(frozenset((PHYSICAL, *VIRTUAL)))
            elif device in VIRTUAL:
                found |= HardwareUse(frozenset({device}), frozenset({PHYSICAL}))
            elif device == PORT:
                found |= HardwareUse(frozenset(STICK))
            elif device in STICK_IDS:
                found |= HardwareUse(frozenset({device}), frozenset({PORT}))
            elif api == "dra" and (is_shared or "/" in name):
                found |= HardwareUse(part=frozenset({device}))
            else:
                found |= HardwareUse(frozenset({device}))
        return found

    def members(self, name: str, ids: Iterable[str]) -> list[str] | None:
        """The devices of a group that are among `ids`; None if it is no group."""
        return sorted({*ids} & {*PLUGGABLE, *VIRTUAL, *FIXED, *STICK_IDS}) if self.is_group(name) else None

    def is_group(self, name: str) -> bool:
        """Return whether a unit or a published device is, or was, a group."""
        return self.named(name) in self._groups

    def places(self, devices: Iterable[str]) -> dict[str, object]:
        """A value that changes when these devices move."""
        return {x: (self.moves.get(x, 0), self.is_plugged([x])) for x in devices}

    @property
    def there(self) -> frozenset[str]:
        """All present devices."""
        return FIXED | self.plugged | ({self._stick.stick_id} if self._stick.is_there else set())

    def is_plugged(self, devices: Iterable[str]) -> bool:
        """Return whether all of these devices are present."""
        return self.there >= {*devices}

    def is_usable(self, name: str) -> bool:
        """Return whether all devices of a unit or a published device are present and healthy."""
        return all(x in self.there and _health_key(x) not in self.unhealthy for x in self.devices_of(name))

    def nodes_of(self, devices: Iterable[str]) -> frozenset[str]:
        """The current device numbers of these devices' nodes."""
        found = {self._numbers(x) for x in devices}
        return frozenset(x for x in found if x)

    def behind(self, numbers: Iterable[str]) -> frozenset[str]:
        """The devices that these device numbers open now."""
        return frozenset(x for x in self.there if self._numbers(x) in {*numbers} - {""})

    def opens(self, path: str) -> str:
        """The device number of the node at a path; "" if there is none."""
        try:
            return (self._root / path.lstrip("/")).read_text().strip()
        except FileNotFoundError:
            return ""

    # Changes of it.

    def unplug(self, device: str) -> None:
        """Remove a device; a physical function takes its virtual functions with it."""
        if device in VIRTUAL:
            return
        if device == PORT:
            self.plugged.discard(device)
            self._stick.go()
            return
        if device != PHYSICAL:
            self.plugged.discard(device)
            self._made_up.remove_node(device.removeprefix("misc-"))
            return
        for each in (PHYSICAL, *sorted(self.plugged & {*VIRTUAL})):
            self._remove_function(each)

    def plug(self, device: str) -> None:
        """Add a device again, with another device number."""
        self.plugged.add(device)
        if device == PORT:
            self._stick.come()
            self._moved(device)
            return
        if device != PHYSICAL:
            self._minor += 1
            name = device.removeprefix("misc-")
            (self._root / f"sys/devices/virtual/misc/{name}/dev").write_text(f"10:{self._minor}\n")
            self._made_up.renumber(name, self._minor)
            self._moved(device)
            return
        self._add_function(address_of(PHYSICAL), {**_CARD, "sriov_totalvfs": "2"})
        self.change_functions()

    def change_functions(self) -> bool:
        """Create the virtual functions if there are none, else remove them; return whether they exist now."""
        if gone := self.plugged & {*VIRTUAL}:
            for each in sorted(gone):
                self._remove_function(each)
        elif PHYSICAL in self.plugged:
            self.plugged.update(VIRTUAL)
            for each in VIRTUAL:
                self._add_function(address_of(each), _CARD, {"physfn": f"../{address_of(PHYSICAL)}"})
        return not self.plugged.isdisjoint(VIRTUAL)

    def change_identity(self) -> bool:
        """If the stick is present, replace it by another device at its port; return whether it is present."""
        if self._stick.is_there:
            self._stick.change_identity()
            self._moved(PORT)
        return self._stick.is_there

    def swap_ports(self) -> None:
        """Exchange the nodes of the two ports, as after replugging."""
        names = [self._port_name(port) for port in PORTS]
        for port, name in zip(PORTS, names, strict=True):
            shutil.rmtree(self._root / _PCI / address_of(port) / "tty")
            (self._root / "sys/class/tty" / name).unlink()
        for port, name in zip(PORTS, reversed(names), strict=True):
            self._add_port(port, name)
            self._moved(port)

    def move_daemon(self, namespace: Namespace) -> None:
        """Run the daemon in a network namespace: /proc/net belongs to it, while /sys is always the node's."""
        self._namespace = namespace
        node, pod = ("eno1", "eno1", "eno2"), ("eth0", "eth0")  # the interface of the default route, and all interfaces
        self._show_routes("proc/net", *(node if namespace == "the node's" else pod))
        self._show_routes("proc/1/net", *(pod if namespace == "a pod's" else node))

    def begin_pod(self, uid: str) -> None:
        """Create a pod's cgroup, as the kubelet does before the first container starts."""
        if self.has_cgroups:
            with self._disk.unwatched():
                self._cgroup(uid).mkdir(exist_ok=True)

    def end_pod(self, uid: str) -> None:
        """Remove a pod's cgroup, as the kubelet does after the last container has ended."""
        if self.has_cgroups and self._cgroup(uid).exists():
            with self._disk.unwatched():
                self._cgroup(uid).rmdir()

    def pods(self) -> Iterable[str]:
        """The pods that have cgroups."""
        found = (self._root / _CGROUPS / "kubepods.slice").glob("kubepods-pod*.slice") if self.has_cgroups else ()
        return [x.name.removeprefix("kubepods-pod").removesuffix(".slice").replace("_", "-") for x in found]

    def _cgroup(self, uid: str) -> Path:
        return self._root / _CGROUPS / f"kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice"

    def _judged(self, device: Device) -> Device:
        return (
            replace(device, health=Health(False, "it is ill")) if _health_key(device.id) in self.unhealthy else device
        )

    def _moved(self, device: str) -> None:
        for each in STICK if device == PORT else (device,):
            self.moves[each] = self.moves.get(each, 0) + 1

    def _numbers(self, device: str) -> str:
        if device in (PORT, self._stick.stick_id):
            return self._stick.numbers
        if device in PORTS:
            name = self._port_name(device)
            return f"c {(self._root / 'sys/class/tty' / name / 'dev').read_text().strip()}"
        if not device.startswith("misc-") or device not in self.plugged:
            return ""
        name = device.removeprefix("misc-")
        return f"c {(self._root / f'sys/devices/virtual/misc/{name}/dev').read_text().strip()}"

    def _port_name(self, port: str) -> str:
        (found,) = (self._root / _PCI / address_of(port) / "tty").iterdir()
        return found.name

    def _add_port(self, port: str, name: str) -> None:
        numbers = f"4:{60 + int(name.removeprefix('ttyS'))}"
        syspath = f"{_PCI}/{address_of(port)}/tty/{name}".removeprefix("sys/")
        folder = self._root / "sys" / syspath
        folder.mkdir(parents=True)
        for file, text in {"dev": numbers, "type": "4", "uevent": f"DEVNAME={name}"}.items():
            (folder / file).write_text(f"{text}\n")
        (self._root / "sys/class/tty" / name).symlink_to(f"../../{syspath}")
        (self._root / "dev" / name).write_text(f"c {numbers}\n")
        link = self._root / "sys/dev/char" / numbers
        link.unlink(missing_ok=True)
        link.symlink_to(f"../../{syspath}")

    def _remove_function(self, device: str) -> None:
        self.plugged.discard(device)
        (self._root / "sys/bus/pci/devices" / address_of(device)).unlink()
        shutil.rmtree(self._root / _PCI / address_of(device))

    def _add_card(self, card: str, name: str) -> None:
        address = address_of(card)
        facts, links = {"vendor": "0x8086", "class": "0x020000"}, {"driver": "../../../bus/pci/drivers/ice"}
        self._add_function(address, facts, links)
        folder = self._root / _PCI / address / "net" / name
        folder.mkdir(parents=True)
        for file, text in {"type": "1", "flags": "0x1003", "carrier": "1", "uevent": f"INTERFACE={name}"}.items():
            (folder / file).write_text(f"{text}\n")
        (folder / "device").symlink_to(f"../../../{address}")
        (self._root / "sys/class/net" / name).symlink_to(f"../../../{_PCI}/{address}/net/{name}")

    def _show_routes(self, folder: str, way_out: str, *names: str) -> None:
        shown = self._root / folder
        shown.mkdir(parents=True, exist_ok=True)
        (shown / "dev").write_text("\n".join(["Inter-|", " face |", *(f"{x}: 0" for x in names)]))
        (shown / "route").write_text(f"Iface Destination\n{way_out} 00000000 0100A8C0 0003 0 0 0 00000000 0 0 0\n")

    def _add_function(self, address: str, facts: Mapping[str, str], links: Mapping[str, str] = {}) -> None:
        folder = self._root / _PCI / address
        folder.mkdir(parents=True)
        for name, text in facts.items():
            (folder / name).write_text(f"{text}\n")
        for name, target in links.items():
            (folder / name).symlink_to(target)
        (self._root / "sys/bus/pci/devices" / address).symlink_to(f"../../../../{_PCI}/{address}")


def _health_key(device: str) -> str:
    """The part that becomes unhealthy: for a stick its port, whatever its identity is."""
    return PORT if device in STICK_IDS else device
