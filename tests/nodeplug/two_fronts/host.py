"""The host of a life: devices of every sort that the guard between the two fronts knows, which come, go and move.

misc-one ... misc-four    a node each, which always has the same path
misc-many                 the same, in shares
misc-card                 a whole through the device plugin API, two halves through DRA
pci-...-0, -1, -2         a physical function and its two virtual ones
tty-...-05, -06           serial ports whose nodes change places: what was /dev/ttyS4 is /dev/ttyS5 then
usb-...                   a stick that becomes another device at its port (stick.py)
nic-...-07, -08           network cards, of which the first has the node's default route: nobody must get it
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
from tests.nodeplug.two_fronts.disk import Disk
from tests.nodeplug.two_fronts.names import address_of, device_of, is_own, without_share
from tests.nodeplug.two_fronts.stick import FACES, PORT, STICK, Stick

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


class Takes(Struct, frozen=True):
    """What a holder has of the host, by the laws of the hardware: things as a whole, and things in part."""

    whole: frozenset[str] = frozenset()
    part: frozenset[str] = frozenset()

    def excludes(self, other: "Takes") -> bool:
        """Whether nobody may have both."""
        return bool(self.whole & (other.whole | other.part) or other.whole & self.part)

    def __or__(self, other: "Takes") -> "Takes":
        """Both."""
        return Takes(self.whole | other.whole, self.part | other.part)


class LivingHost:
    """The host's tree, and what is wrong with its devices."""

    def __init__(self, root: Path, has_cgroups: bool, disk: Disk) -> None:
        self._root = root
        self._disk = disk
        self._made_up = MadeUpHost(root, *MISC_NAMES)
        self.host = Host(root)
        self.plugged = {f"misc-{name}" for name in MISC_NAMES}
        self.ill: set[str] = set()
        self.moves: dict[str, int] = {}  # how often a device's node became another one
        self.has_cgroups = has_cgroups
        self._minor = 300  # minors of before have meanings
        self._groups: dict[str, tuple[str, ...]] = {}  # the members of what was offered as one
        self._stick, self._is_known_by_port = Stick(root), False
        self._scanner = Scanner(self.host, (MISC, NIC, PCI, TTY, USB))
        self._inventory = Inventory()
        self._tree: object = None  # what it was like when it was scanned
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

    # what it has

    def assign(self, resources: Sequence[Resource]) -> tuple[Mapping[str, Device], Assignment]:
        """What a scan finds now, and what is offered of it."""
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
        """What a scan would find, to compare."""
        return frozenset(self.plugged), frozenset(self.ill), tuple(sorted(self.moves.items()))

    def named(self, name: str) -> str:
        """The device or group that a unit's or a published device's name is of, now."""
        if is_own(name):
            return device_of(name)
        plain = without_share(name)
        at_path = {f"/dev/{self._port_name(port)}": port for port in PORTS}
        at_path[self._stick.path] = PORT if self._is_known_by_port else self._stick.face
        return at_path.get(plain) or _ADDRESSES.get(plain) or f"misc-{plain.removeprefix('/dev/')}"

    def leased(self, unit: str, ids: Iterable[str]) -> str:
        """The device or group that the lease of a unit is of, which has these ids: its name may be another's by now."""
        if is_own(unit):
            return device_of(unit)
        known = ({*self._groups}, {PORT}, {*PLUGGABLE, *VIRTUAL, *FIXED, *FACES})  # a port before what is there
        return next((min(found) for each in known if (found := each & {*ids})), "")

    def devices_of(self, name: str) -> tuple[str, ...]:
        """The devices of the host that there are to a unit, a published device or a group."""
        device = self.named(name)
        return self._groups.get(device, (device,))

    def takes(self, name: str, api: str, *, is_shared: bool = False, devices: Iterable[str] | None = None) -> Takes:
        """What there is to a unit of the device plugin API, or to what is published or claimed in DRA.

        `devices` are those that it had when it was given out, where that may be others than today. A group is a thing
        of its own beside its members: who has it has its name, also when all its members are others by now.
        """
        if "@" in name:
            return Takes()
        if "-half" in name:
            return Takes(frozenset({name}), frozenset({device_of(name)}))
        found, group = Takes(), self.named(name)
        members = self.devices_of(name) if devices is None else devices
        for device in (group, *members) if self.is_group(group) else members:
            if device == PHYSICAL:
                found |= Takes(frozenset((PHYSICAL, *VIRTUAL)))
            elif device in VIRTUAL:
                found |= Takes(frozenset({device}), frozenset({PHYSICAL}))
            elif device == PORT:
                found |= Takes(frozenset(STICK))
            elif device in FACES:
                found |= Takes(frozenset({device}), frozenset({PORT}))
            elif api == "dra" and (is_shared or "/" in name):
                found |= Takes(part=frozenset({device}))
            else:
                found |= Takes(frozenset({device}))
        return found

    def members(self, name: str, ids: Iterable[str]) -> list[str] | None:
        """The devices of a group that are among `ids`; None of what is no group."""
        return sorted({*ids} & {*PLUGGABLE, *VIRTUAL, *FIXED, *FACES}) if self.is_group(name) else None

    def is_group(self, name: str) -> bool:
        """Whether a unit or a published device is, or was, several devices that are offered as one."""
        return self.named(name) in self._groups

    def places(self, devices: Iterable[str]) -> dict[str, object]:
        """Where devices are, to compare."""
        return {x: (self.moves.get(x, 0), self.is_plugged([x])) for x in devices}

    @property
    def there(self) -> frozenset[str]:
        """All devices that are there."""
        return FIXED | self.plugged | ({self._stick.face} if self._stick.is_there else set())

    def is_plugged(self, devices: Iterable[str]) -> bool:
        """Whether all of them are there."""
        return self.there >= {*devices}

    def is_well(self, name: str) -> bool:
        """Whether all that there is to a unit or a published device is there, and well."""
        return all(x in self.there and _ill(x) not in self.ill for x in self.devices_of(name))

    def nodes_of(self, devices: Iterable[str]) -> frozenset[str]:
        """The numbers that open devices, now."""
        found = {self._numbers(x) for x in devices}
        return frozenset(x for x in found if x)

    def behind(self, numbers: Iterable[str]) -> frozenset[str]:
        """The devices that are opened by these numbers, now."""
        return frozenset(x for x in self.there if self._numbers(x) in {*numbers} - {""})

    def opens(self, path: str) -> str:
        """The numbers of the node at a path; empty where there is none."""
        try:
            return (self._root / path.lstrip("/")).read_text().strip()
        except FileNotFoundError:
            return ""

    # what happens to it

    def unplug(self, device: str) -> None:
        """Take a device away; a physical function takes its virtual ones with it."""
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
        """Bring a device back, under another number."""
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
        """Make the virtual functions where there are none, else take them away; tell whether there are now."""
        if gone := self.plugged & {*VIRTUAL}:
            for each in sorted(gone):
                self._remove_function(each)
        elif PHYSICAL in self.plugged:
            self.plugged.update(VIRTUAL)
            for each in VIRTUAL:
                self._add_function(address_of(each), _CARD, {"physfn": f"../{address_of(PHYSICAL)}"})
        return not self.plugged.isdisjoint(VIRTUAL)

    def become_another(self) -> bool:
        """Let the stick, where it is there, be another device at its port; tell whether it is."""
        if self._stick.is_there:
            self._stick.become_another()
            self._moved(PORT)
        return self._stick.is_there

    def swap_ports(self) -> None:
        """Have the two ports change places, as after a replug: each has the node of the other."""
        names = [self._port_name(port) for port in PORTS]
        for port, name in zip(PORTS, names, strict=True):
            shutil.rmtree(self._root / _PCI / address_of(port) / "tty")
            (self._root / "sys/class/tty" / name).unlink()
        for port, name in zip(PORTS, reversed(names), strict=True):
            self._add_port(port, name)
            self._moved(port)

    def move_daemon(self, namespace: Namespace) -> None:
        """Have the daemon run in a network namespace: /proc/net is that one's, /sys is the node's in each of them."""
        self._namespace = namespace
        node, pod = ("eno1", "eno1", "eno2"), ("eth0", "eth0")  # who has the default route, and who there is
        self._show_routes("proc/net", *(node if namespace == "the node's" else pod))
        self._show_routes("proc/1/net", *(pod if namespace == "a pod's" else node))

    def begin_pod(self, uid: str) -> None:
        """Make a pod's cgroup, as the kubelet does before the first container starts."""
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
        return replace(device, health=Health(False, "it is ill")) if _ill(device.id) in self.ill else device

    def _moved(self, device: str) -> None:
        for each in STICK if device == PORT else (device,):
            self.moves[each] = self.moves.get(each, 0) + 1

    def _numbers(self, device: str) -> str:
        if device in (PORT, self._stick.face):
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


def _ill(device: str) -> str:
    """What is ill with a device: a stick is, whatever it is called."""
    return PORT if device in FACES else device
