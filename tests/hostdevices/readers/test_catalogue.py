"""Rules for every reader: names and limits of DRA, ids, and that a broken file affects only its own device."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from msgspec import structs

from hostdevices import Device, Host, Inventory, Problem, Version, is_device_id, scan
from hostdevices.readers import BY_KIND, READERS, Finding, Reader, can_be_renumbered, readers_of
from hostdevices.readers import page as catalogue_page
from hostdevices.readers.location import EVERYWHERE, ON_PCI, ON_USB
from tests.hostdevices.machine import build_machine
from tests.hostdevices.tree import Tree

NAME = re.compile(r"(resource\.kubernetes\.io/)?[A-Za-z_][A-Za-z0-9_]{0,31}")
ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9]|/[0-9]-[0-9]")
TYPES: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "hexadecimal": (str,),
    "integer": (int,),
    "boolean": (bool,),
    "version": (Version, str),  # an invalid version is a string
}
READER_IDS = [reader.kind for reader in READERS]
DAMAGES = {
    "gone": None,
    "garbage": b"\x1b[31m!? zz\n",
    "binary": b"\x00\xff\xfe\x80",
    "huge": b"7" * 9000,
    "empty": b"",
}


def test_every_kind_is_found_on_the_machine_without_problems(inventory: Inventory) -> None:
    assert {device.kind for device in inventory.devices.values()} == set(READER_IDS)
    assert inventory.problems == ()


def test_every_id_is_valid_and_starts_with_the_kind(inventory: Inventory) -> None:
    for identity, device in inventory.devices.items():
        assert is_device_id(identity)
        assert identity.startswith(device.kind.replace("_", "-"))


def test_every_attribute_obeys_the_limits_of_dra(inventory: Inventory) -> None:
    for device in inventory.devices.values():
        assert len(device.attributes) <= 32
        for name, value in device.attributes.items():
            assert NAME.fullmatch(name), name
            assert isinstance(value, bool | int | str | Version)
            assert not isinstance(value, str | Version) or 0 < len(str(value).encode()) <= 64, (device.id, name)
        assert device.attributes["name"]
        assert device.attributes["bus"] in ("pci", "usb", "platform", "virtual", "mdev")


def test_every_kind_has_one_reader_and_every_preset_one_declaration() -> None:
    assert len(set(READER_IDS)) == len(READERS)
    names = [name for reader in READERS for name in reader.presets]
    assert sorted(names) == sorted(set(names))


def test_every_attribute_has_the_same_type_in_all_tables() -> None:
    tables = (EVERYWHERE, ON_PCI, ON_USB, *(reader.attributes for reader in BY_KIND.values()))
    types: dict[str, set[str]] = {}
    for table in tables:
        for name, attribute in table.items():
            types.setdefault(name, set()).add(attribute.type)
    assert {name: found for name, found in types.items() if len(found) > 1} == {}


@pytest.mark.parametrize("live", [False, True])
def test_every_attribute_of_a_device_is_declared_by_its_reader(inventory: Inventory, live: bool) -> None:
    for device in (scan(Host()) if live else inventory).devices.values():
        declared = {**EVERYWHERE, **BY_KIND[device.kind].attributes}
        declared |= {"pci": ON_PCI, "usb": ON_USB, "mdev": ON_PCI}.get(str(device.attributes["bus"]), {})
        for name, value in device.attributes.items():
            assert name in declared, f"{name} of {device.id}"
            assert type(value) in TYPES[declared[name].type], f"{name} of {device.id}: {value!r}"


def test_every_preset_compares_declared_attributes() -> None:
    for reader in READERS:
        declared = {**EVERYWHERE, **ON_PCI, **ON_USB, **reader.attributes}
        for name, facts in reader.presets.items():
            assert {*facts.having, *facts.lacking} <= declared.keys(), name


def test_documentation_page_is_up_to_date() -> None:
    page = Path(__file__).parents[3] / "docs/device-classes.md"
    assert page.read_text() == catalogue_page.page(), "run: python -m hostdevices.readers.page docs/device-classes.md"


def test_only_misc_and_dma_heap_nodes_cannot_be_renumbered(inventory: Inventory) -> None:
    fixed = {device.kind for device in inventory.devices.values() if not can_be_renumbered(device)}
    assert fixed == {"misc", "dma_heap"}
    pair = Device(id="pair", kind="group", name="pair", children=("misc-kvm", "dma-heap-system"))
    assert readers_of(pair) == (BY_KIND["misc"], BY_KIND["dma_heap"])
    assert not can_be_renumbered(pair)
    assert can_be_renumbered(structs.replace(pair, children=("misc-kvm", "tty-ttys0")))
    assert can_be_renumbered(structs.replace(pair, kind="tomorrow", children=()))


def test_numa_attribute_equals_numa_nodes(inventory: Inventory) -> None:
    for device in inventory.devices.values():
        published = device.attributes.get("resource.kubernetes.io/numaNode")
        assert device.numa_nodes == (() if published is None else (published,))


def test_every_parent_is_a_device_or_a_second_id(inventory: Inventory) -> None:
    for device in inventory.devices.values():
        for whole in device.parents:
            assert whole in inventory.devices or "-0000-00-14-0-0-" in whole, (device.id, whole)
        assert device.id not in device.parents


@pytest.mark.parametrize("reader", READERS, ids=READER_IDS)
def test_empty_host_has_no_devices(reader: Reader, tree: Tree) -> None:
    assert list(reader.read(tree.host)) == []


class ReadRecorder(Host):
    """A host that records which files are read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.files: set[str] = set()

    def read_bytes(self, path: str, limit: int = 4096) -> bytes | None:
        self.files.add(path)
        return super().read_bytes(path, limit)


@pytest.fixture(scope="module")
def damaged_tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """A second copy of the machine, whose files are damaged one at a time."""
    return build_machine(tmp_path_factory.mktemp("fragile") / "root")


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("reader", READERS, ids=READER_IDS)
def test_damaged_file_affects_only_its_own_hardware(reader: Reader, damage: str, damaged_tree: Tree) -> None:
    recorder = ReadRecorder(damaged_tree.root)
    before = _devices(reader.read(recorder))
    present = _two_of_each_name(path for path in sorted(recorder.files) if damaged_tree.path(path).is_file())
    assert present
    for path in present:
        real = damaged_tree.host.resolve(path) or path
        with _Damaged(damaged_tree.path(path), DAMAGES[damage]):
            found = list(reader.read(damaged_tree.host))
        after = _devices(found)
        for identity in before.keys() | after.keys():
            if before.get(identity) != after.get(identity):
                device = before.get(identity) or after[identity]
                assert _describes(device, path) or _describes(device, real), f"{path} changed {identity}"
        for problem in (x for x in found if isinstance(x, Problem)):
            assert problem.reason
            assert damage not in ("gone", "empty"), problem


def _two_of_each_name(paths: Iterable[str]) -> list[str]:
    """Choose the files to damage: at most two of each name, because eighteen PCI functions have the same files."""
    by_name: dict[str, list[str]] = {}
    for path in paths:
        by_name.setdefault(path.rpartition("/")[2], []).append(path)
    return [path for found in by_name.values() for path in dict.fromkeys((found[0], found[-1]))]


LINKS = ("device", "driver", "iommu_group", "master", "mdev_type", "physfn", "subsystem", "virtfn0")


@pytest.mark.parametrize("target", [None, "/nowhere", "..", "../../../../../../../../../../etc"])
@pytest.mark.parametrize("name", LINKS)
def test_missing_or_wrong_links_cause_no_errors_or_duplicate_ids(
    name: str, target: str | None, damaged_tree: Tree
) -> None:
    links = [path for path in damaged_tree.path("/sys").rglob("*") if path.name == name and path.is_symlink()]
    kept = [(link, link.readlink()) for link in links]
    assert kept
    for link, _ in kept:
        link.unlink()
        if target is not None:
            link.symlink_to(target)
    try:
        for reader in READERS:
            found = list(reader.read(damaged_tree.host))
            assert len(_devices(found)) == sum(isinstance(x, Device) for x in found), "two devices with one id"
    finally:
        for link, original in kept:
            link.unlink(missing_ok=True)
            link.symlink_to(original)


class _Damaged:
    def __init__(self, path: Path, content: bytes | None) -> None:
        self._path = path.resolve()
        self._content = content

    def __enter__(self) -> None:
        self._original = self._path.read_bytes()
        if self._content is None:
            self._path.unlink()
        else:
            self._path.write_bytes(self._content)

    def __exit__(self, *_: object) -> None:
        self._path.write_bytes(self._original)


def _devices(findings: Iterator[Finding] | list[Finding]) -> dict[str, Device]:
    return {finding.id: finding for finding in findings if isinstance(finding, Device)}


def _describes(device: Device, path: str) -> bool:
    """Return whether a file describes the hardware of a device, or of one of its parents."""
    folder = path.rpartition("/")[0]
    if device.syspath.startswith(folder) or folder.startswith(device.syspath):
        return True
    if folder.startswith(("/proc/driver/nvidia", "/sys/class/kfd", "/proc/net")):
        return device.kind == "gpu" or "uplink" in device.attributes
    if folder == f"/sys/class/vfio/{device.attributes.get('iommuGroup')}":
        return True
    places = {*ADDRESS.findall(device.syspath), device.attributes.get("pf")}
    named = set(ADDRESS.findall(path))
    return bool(places & named) or any(re.sub("[:.]", "-", f"pci-{address}") in device.parents for address in named)


def _siblings(tree: Tree) -> dict[str, list[str]]:
    """Create two devices at one place for several classes; return their syspaths by class."""
    card = tree.pci("0000:05:00.0")
    keyboard = "/sys/devices/platform/i8042/serio0/input"
    return {
        "tty": [tree.child(card, f"tty/ttyS{n}", group="class/tty", node=f"ttyS{n}", type=4) for n in (4, 5)],
        "nic": [
            tree.child(card, f"net/eth{n}", group="class/net", type=1, address="02:00:00:00:00:01", mtu=1500)
            for n in (0, 1)
        ],
        "block": [
            tree.child(card, f"host0/block/{name}", group="class/block", node=name, kind="b", size=8, ro=0)
            for name in ("sda", "sdb")
        ],
        "input": [
            tree.child(
                tree.device(f"{keyboard}/input{n}", name="keys"),
                f"event{n}",
                group="class/input",
                node=f"input/event{n}",
            )
            for n in (0, 1)
        ],
    }


@pytest.mark.parametrize("kind", ["tty", "nic", "block", "input"])
def test_id_of_unreadable_device_is_not_reused(kind: str, tree: Tree) -> None:
    first, second = _siblings(tree)[kind]
    (reader,) = (x for x in READERS if x.kind == kind)
    before = {device.syspath: device for device in _devices(reader.read(tree.host)).values()}
    assert before[second].id == f"{before[first].id}-1"
    for path in tree.path(first).iterdir():
        if path.is_file():
            with _Damaged(path, b"\x00"):
                after = {device.syspath: device for device in _devices(reader.read(tree.host)).values()}
            assert after[second] == before[second], path
