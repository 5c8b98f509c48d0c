"""Scans: which readers run again after an event, and which results stay valid until the next full scan."""

import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostdevices import Device, Host, Inventory, Problem, Scanner, UnreadableFile, scan
from hostdevices.errors import HostExhausted
from hostdevices.readers import READERS, Finding, Reader, paths_reader
from hostdevices.tree import Folder, Node
from tests.descriptors import no_more_descriptors
from tests.deviceplugin.host import MadeUpHost
from tests.hostdevices.tree import Tree

PARENT = "/sys/devices/pci0000:00/0000:00:01.0"
ONE, OTHER = f"{PARENT}/0000:01:00.0", f"{PARENT}/0000:01:00.1"


def read(host: Host) -> Iterator[Finding]:
    """Yield each function with its label, its parent's label and its driver."""
    for name in host.list("/sys/bus/pci/devices"):
        syspath = host.resolve(f"/sys/bus/pci/devices/{name}")
        assert syspath is not None
        try:
            label = host.read(f"{syspath}/label") or ""
        except UnreadableFile as error:
            yield Problem(syspath, str(error))
            continue
        driver = host.link(f"{syspath}/driver") or ""
        above = host.read(f"{syspath.rpartition('/')[0]}/label") or ""
        yield Device(id=name.replace(":", "-").replace(".", "-"), kind="pci", name=f"{label} {driver} {above}")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(tmp_path)
    for function in (ONE, OTHER):
        made.device(function, group="bus/pci/devices", label="old", driver="pci/old")
    made.file(f"{PARENT}/label", "old")
    return made


@pytest.fixture
def scanner(tree: Tree) -> Scanner:
    made = Scanner(tree.host, [Reader("pci", frozenset({"pci"}), read)])
    assert names(made.scan()) == ["old old old", "old old old"]
    for path in (PARENT, ONE, OTHER):
        tree.file(f"{path}/label", "new")
    for function in (ONE, OTHER):
        tree.path(f"{function}/driver").unlink()
        tree.link(f"{function}/driver", "/sys/bus/pci/drivers/new")
    return made


def names(inventory: Inventory) -> list[str]:
    return [device.name for device in inventory.devices.values()]


def test_event_rereads_its_device_and_the_parents(scanner: Scanner) -> None:
    assert names(scanner.scan({"pci"}, {ONE})) == ["new new new", "old old new"]


def test_event_of_a_parent_rereads_all_devices_below(scanner: Scanner) -> None:
    assert names(scanner.scan({"pci"}, {PARENT})) == ["new new new", "new new new"]


def test_event_does_not_reread_device_with_a_longer_name(tree: Tree, scanner: Scanner) -> None:
    assert names(scanner.scan({"pci"}, {ONE[:-1]})) == ["old old new", "old old new"]


def test_event_without_syspaths_rereads_whole_subsystem(scanner: Scanner) -> None:
    assert names(scanner.scan({"pci"})) == ["new new new", "new new new"]
    assert names(scanner.scan()) == ["new new new", "new new new"]


def test_event_of_another_subsystem_rereads_nothing(scanner: Scanner) -> None:
    assert names(scanner.scan({"net"}, {ONE})) == ["old old old", "old old old"]


def test_new_and_removed_devices_are_found_without_their_events(tree: Tree, scanner: Scanner) -> None:
    tree.device(f"{PARENT}/0000:01:00.2", group="bus/pci/devices", label="third")
    tree.path("/sys/bus/pci/devices/0000:01:00.0").unlink()
    assert list(scanner.scan({"pci"}, ()).devices) == ["0000-01-00-1", "0000-01-00-2"]


def test_returning_device_is_read_again(tree: Tree, scanner: Scanner) -> None:
    link = tree.path("/sys/bus/pci/devices/0000:01:00.0")
    target = link.readlink()
    link.unlink()
    scanner.scan({"pci"}, {ONE})
    link.symlink_to(target)
    assert names(scanner.scan({"pci"}, {ONE})) == ["new new new", "old old new"]


def test_unreadable_file_is_a_problem_until_readable(tree: Tree, scanner: Scanner) -> None:
    tree.file(f"{ONE}/label", b"\0")
    inventory = scanner.scan({"pci"}, {ONE})
    assert names(inventory) == ["old old new"]
    assert inventory.problems == (Problem(ONE, f"{ONE}/label: binary content"),)
    tree.file(f"{ONE}/label", "new")
    assert scanner.scan({"pci"}, {ONE}).problems == ()


def test_duplicate_id_keeps_the_first_device_and_reports_both(tmp_path: Path) -> None:
    def twice(host: Host) -> Iterator[Finding]:
        yield Device(id="same", kind="misc", name="a", syspath="/sys/devices/a")
        yield Device(id="same", kind="misc", name="b", syspath="/sys/devices/b")

    inventory = scan(Tree(tmp_path).host, [Reader("misc", frozenset(), twice)])
    assert names(inventory) == ["a"]
    assert inventory.problems == (Problem("/sys/devices/b", "has the same id same as /sys/devices/a"),)


def test_unreadable_devnum_omits_only_its_own_device(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "root")
    controller = tree.pci("0000:00:14.0")
    sticks = [tree.usb(controller, f"1-{port}", serial=f"A1B2C3D{port}") for port in range(1, 5)]
    for number, stick in enumerate(sticks):
        tree.file(f"{stick}/devnum", "x" * 5000 if number == 1 else str(number + 2))
    inventory = scan(tree.host)
    assert [device.name for device in inventory.devices.values() if device.kind == "usb"] == ["1-1", "1-3", "1-4"]
    assert [problem.where for problem in inventory.problems] == [sticks[1]]


class NodeRecorder(Folder):
    """A folder that records which nodes are read."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.nodes: list[str] = []

    def node(self, path: str) -> Node | None:
        self.nodes.append(path)
        return super().node(path)


def test_event_of_a_path_rereads_only_its_node(tmp_path: Path) -> None:
    made_up = MadeUpHost(tmp_path, *(f"d{number}" for number in range(9)))
    tree = NodeRecorder(tmp_path.resolve())
    scanner = Scanner(Host(tmp_path, tree), [paths_reader(["/dev/d*"])])
    before = scanner.scan()
    made_up.renumber("d5", 77)
    tree.nodes.clear()
    after = scanner.scan({"path"}, {"/dev/d5"})
    assert set(tree.nodes) == {"/dev/d5"}
    assert [i for i, device in after.devices.items() if device is not before.devices[i]] == ["path-d5"]


def test_unchanged_devices_stay_the_same_objects(tmp_path: Path) -> None:
    made_up = MadeUpHost(tmp_path, "a", "b", "c")
    scanner = Scanner(made_up.host, (*READERS, paths_reader(["/dev/*"])))
    before = scanner.scan()
    made_up.unplug("b")
    after = scanner.scan()
    assert before.devices.keys() - after.devices.keys() == {"misc-b", "path-b"}
    assert all(device is before.devices[i] for i, device in after.devices.items() if device.kind == "misc")


_NAMES = st.sampled_from(["a", "ab", "a-1", "b", "c"])
_CHANGES = st.lists(st.tuples(st.sampled_from(["add", "remove", "renumber", "lose", "label"]), _NAMES), max_size=4)


@given(changes=st.lists(_CHANGES, max_size=6))
def test_partial_scan_equals_full_scan(
    tmp_path_factory: pytest.TempPathFactory, changes: list[list[tuple[str, str]]]
) -> None:
    made_up, minors = MadeUpHost(tmp_path_factory.mktemp("host"), "a", "b"), count(10)
    readers = (*READERS, paths_reader(["/dev/a*", "/dev/b"]))
    scanner, present = Scanner(made_up.host, readers), {"a", "b"}
    scanner.scan()
    for some in changes:
        named: set[str] = set()
        for what, name in some:
            syspath = f"/sys/devices/virtual/misc/{name}"
            if what == "add" and name not in present:
                made_up.add(name, next(minors))
                present.add(name)
            elif what == "remove" and name in present:
                (made_up.root / "dev" / name).touch()
                made_up.unplug(name)
                shutil.rmtree(made_up.root / syspath[1:])
                present.remove(name)
            elif what == "renumber" and name in present:
                made_up.renumber(name, next(minors))
            elif what == "lose" and name in present:
                (made_up.root / "dev" / name).unlink(missing_ok=True)
            elif what == "label" and name in present:
                (made_up.root / syspath[1:] / "numa_node").write_text(f"{next(minors)}\n")
            else:
                continue
            named |= {syspath, f"/dev/{name}"}
        assert scanner.scan({"misc", "path"}, named) == Scanner(made_up.host, readers).scan()


def test_scan_without_descriptors_raises_and_keeps_devices(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.pci("0000:00:14.0", pci_class="0c0330")
    tree.usb("/sys/devices/pci0000:00/0000:00:14.0", "1-2", serial="K1K2K3")
    scanner = Scanner(tree.host)
    before = scanner.scan()
    assert len(before.devices) == 2
    for subsystems in (None, ["usb"]):
        with no_more_descriptors(), pytest.raises(HostExhausted, match="Too many open files"):
            scanner.scan(subsystems)
        assert scanner.scan([]) == before
    assert scanner.scan() == before
