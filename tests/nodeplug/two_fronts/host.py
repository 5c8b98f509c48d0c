"""The host of a life: devices of every sort that the guard between the two fronts knows, which come, go and move.

misc-one, misc-two    unshared, one resource, both APIs
misc-three            unshared, device plugin API only
misc-four             unshared, DRA only
misc-many             three shares, both APIs
misc-card             a whole through the device plugin API, two halves through DRA
pci-...-0, -1, -2     a physical function and its two virtual ones; either is offered through both APIs
"""

import random
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from hostdevices import Device, Health, Host, Scanner
from hostdevices.assignment import assign
from hostdevices.readers.misc import MISC
from hostdevices.readers.pci import PCI
from hostdevices.resource import Api, DraOptions, Partition, Resource
from hostdevices.selector import Ids
from tests.deviceplugin.host import MadeUpHost

MISC_NAMES = ("one", "two", "three", "four", "many", "card")
PHYSICAL, *VIRTUAL = (f"pci-0000-3b-00-{i}" for i in range(3))
SHARES = 3
_HALVES = DraOptions(
    counters={"memory": "80Gi"}, partitions=(Partition("half", {"memory": "40Gi"}, count=2),), taint="NoExecute"
)
_DEVICES = Path("sys/devices/pci0000:00")


class Takes(Struct, frozen=True):
    """What a holder has of the host, by the laws of the hardware: things as a whole, and things in part."""

    whole: frozenset[str] = frozenset()
    part: frozenset[str] = frozenset()

    def excludes(self, other: "Takes") -> bool:
        """Whether nobody may have both."""
        return bool(self.whole & (other.whole | other.part) or other.whole & self.part)


def device_of(name: str) -> str:
    """The device that a unit's or a published device's name is of."""
    return name.partition("@")[0].partition("/")[0].partition(".")[0].partition("-half")[0]


def takes(name: str, api: str) -> Takes:
    """What there is to a unit of the device plugin API, or to a device, partition or share in DRA."""
    if "@" in name:
        return Takes()
    device = device_of(name)
    if device == PHYSICAL:
        return Takes(frozenset((PHYSICAL, *VIRTUAL)))
    if device in VIRTUAL:
        return Takes(frozenset({device}), frozenset({PHYSICAL}))
    if device == "misc-many" and api == "dra":
        return Takes(part=frozenset({device}))
    if name != device and device == "misc-card":
        return Takes(frozenset({name}), frozenset({device}))
    return Takes(frozenset({device}))


def resources(rng: random.Random) -> list[Resource]:
    """The configuration of a life."""

    def resource(name: str, *devices: str, api: Api = "both", **options: Any) -> Resource:
        return Resource(f"example.com/{name}", Ids(devices), api=api, cdi=rng.random() < 0.5, **options)

    # of two device plugin resources each may own a function: only DRA keeps them apart, and what goes across
    choices: tuple[tuple[Api, Api], ...] = (("both", "dra"), ("dra", "both"))
    physical, virtual = rng.choice(choices)
    return [
        resource("plain", "misc-one", "misc-two"),
        resource("plugin", "misc-three", api="device-plugin"),
        resource("claimed", "misc-four", api="dra"),
        resource("shared", "misc-many", shares=SHARES),
        resource("card", "misc-card", dra=_HALVES),
        resource("physical", PHYSICAL, api=physical),
        resource("virtual", *VIRTUAL, api=virtual),
    ]


class LivingHost:
    """The host's tree, and what is wrong with its devices."""

    def __init__(self, root: Path, resources: Sequence[Resource]) -> None:
        self._resources = resources
        self._made_up = MadeUpHost(root, *MISC_NAMES)
        self._root = root
        self._minor = 300  # minors of before have meanings
        self.host = Host(root)
        self.plugged = {f"misc-{name}" for name in MISC_NAMES}
        self.ill: set[str] = set()
        self.moves: dict[str, int] = {}  # how often a device's node became another one
        self._scanner = Scanner(self.host, (MISC, PCI))
        (root / "sys/bus/pci/devices").mkdir(parents=True)
        self.plug(PHYSICAL)

    def unplug(self, device: str) -> None:
        """Take a device away; a physical function takes its virtual ones with it."""
        if device in VIRTUAL:
            return
        self.plugged.discard(device)
        if device != PHYSICAL:
            self._made_up.remove_node(device.removeprefix("misc-"))
            return
        for i, each in enumerate((PHYSICAL, *VIRTUAL)):
            self.plugged.discard(each)
            address = f"0000:3b:00.{i}"
            (self._root / "sys/bus/pci/devices" / address).unlink()
            shutil.rmtree(self._root / _DEVICES / address)

    def plug(self, device: str) -> None:
        """Bring a device back, under another number."""
        self.plugged.add(device)
        if device != PHYSICAL:
            self._minor += 1
            name = device.removeprefix("misc-")
            (self._root / f"sys/devices/virtual/misc/{name}/dev").write_text(f"10:{self._minor}\n")
            self._made_up.renumber(name, self._minor)
            self.moves[device] = self.moves.get(device, 0) + 1
            return
        self.plugged.update(VIRTUAL)
        for i in range(3):
            self._add_function(f"0000:3b:00.{i}", {"physfn": "../0000:3b:00.0"} if i else {})

    def state(self) -> object:
        """What a scan would find, to compare."""
        return frozenset(self.plugged), frozenset(self.ill), tuple(sorted(self.moves.items()))

    def assigned(self) -> Mapping[str, tuple[Device, ...]]:
        """What a scan finds now."""
        inventory = self._scanner.scan()
        devices = {i: self._judged(x) for i, x in inventory.devices.items()}
        return assign(replace(inventory, devices=devices), self._resources).devices

    def _judged(self, device: Device) -> Device:
        return replace(device, health=Health(False, "it is ill")) if device.id in self.ill else device

    def _add_function(self, address: str, links: Mapping[str, str]) -> None:
        folder = self._root / _DEVICES / address
        folder.mkdir(parents=True)
        for name, text in {"vendor": "0x8086", "device": "0x1572", "class": "0x020000"}.items():
            (folder / name).write_text(f"{text}\n")
        for name, target in links.items():
            (folder / name).symlink_to(target)
        if "physfn" not in links:
            (folder / "sriov_totalvfs").write_text("2\n")
        (self._root / "sys/bus/pci/devices" / address).symlink_to(f"../../../../{_DEVICES}/{address}")
