"""What is dangerous is so under every name: a node's path, a link's target, the device that a path is a node of."""

from pathlib import Path

import pytest

from hostdevices import scan
from hostdevices.readers import READERS, paths_reader
from resources.assignment import Assignment, assign
from resources.resource import Resource
from resources.selector import Kinds, Paths
from tests.hostdevices.made import ids, why
from tests.hostdevices.tree import Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A serial console and another port, and a watchdog with a number of its own."""
    tree = Tree(tmp_path)
    for number in (0, 1):
        port = f"/sys/devices/platform/serial8250/tty/ttyS{number}"
        tree.device(port, group="class/tty", node=f"ttyS{number}", numbers=f"4:{64 + number}", type=4)
    tree.device("/sys/devices/virtual/tty/console", group="class/tty", active="tty0 ttyS0")
    watchdog = tree.pci("0000:00:1f.4")
    tree.child(watchdog, "watchdog/watchdog0", group="class/watchdog", node="watchdog0", numbers="248:0")
    return tree


def assigned(tree: Tree, *globs: str, dangerous: bool = False) -> Assignment:
    inventory = scan(tree.host, (*READERS, paths_reader(globs)))
    return assign(inventory, [Resource("example.com/x", Paths(globs), dangerous=dangerous)])


def test_the_console_is_refused_by_its_path_as_by_its_kind(tree: Tree) -> None:
    by_kind = assign(scan(tree.host), [Resource("example.com/x", Kinds(("tty",)))])
    assert ids(by_kind, "example.com/x") == ["tty-ttys1"]
    by_path = assigned(tree, "/dev/ttyS*")
    assert ids(by_path, "example.com/x") == ["tty-ttys1"]
    (refused,) = (x for x in by_path.rest if x.device.name == "ttyS0" and x.device.kind == "path")
    assert (
        "it is a node of tty-ttys0: it gives access to the node's console; only a resource with `dangerous:"
        in refused.reason
    )
    assert ids(assigned(tree, "/dev/ttyS*", dangerous=True), "example.com/x") == ["tty-ttys0", "tty-ttys1"]


def test_a_second_name_of_the_console_is_the_console(tree: Tree) -> None:
    tree.link("/dev/gps", "/dev/ttyS0")
    tree.link("/dev/gnss", "/dev/ttyS0")
    assert ids(assigned(tree, "/dev/gps", "/dev/gnss"), "example.com/x") == []


def test_a_link_is_judged_by_where_it_leads(tree: Tree) -> None:
    tree.link("/dev/char/248:0", "/dev/watchdog0")
    tree.path("/sys/class/watchdog/watchdog0").unlink()  # no device that knows the node
    found = assigned(tree, "/dev/char/*")
    assert ids(found, "example.com/x") == []
    (refused,) = (x for x in found.rest if x.device.kind == "path")
    assert "/dev/char/248:0 can reset or power off the node" in refused.reason


def test_a_node_with_another_name_is_judged_by_the_device_behind_it(tree: Tree) -> None:
    tree.node("/dev/timer", "248:0")
    found = assigned(tree, "/dev/timer")
    assert ids(found, "example.com/x") == []
    reason = next(x.reason for x in found.rest if x.device.name == "timer")
    assert "it is a node of watchdog-0000-00-1f-4: /dev/watchdog0 can reset or power off the node" in reason


@pytest.mark.parametrize(
    ("node", "numbers"), [("mtd0", "90:0"), ("firmware", "90:3"), ("raw/raw1", "162:1"), ("ubi0_1", "248:2")]
)
def test_raw_storage_is_dangerous_whatever_its_name(tree: Tree, node: str, numbers: str) -> None:
    tree.node(f"/dev/{node}", numbers)
    (refused,) = (x for x in assigned(tree, f"/dev/{node}").rest if x.device.kind == "path")
    assert f"/dev/{node} gives access to storage below its file systems" in refused.reason


def test_a_harmless_node_of_a_device_with_a_dangerous_one_is_harmless(tree: Tree) -> None:
    card = tree.child(tree.pci("0000:00:1f.3"), "sound/card0", group="class/sound", id="PCH")
    for name in ("controlC0", "pcmC0D0p"):
        tree.device(f"{card}/{name}", group="class/sound", node=f"snd/{name}")
    assert len(ids(assigned(tree, "/dev/snd/control*"), "example.com/x")) == 1
    assert why(assigned(tree, "/dev/snd/control*"), "sound-0000-00-1f-3")
