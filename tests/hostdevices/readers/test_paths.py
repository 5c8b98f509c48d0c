"""Configured globs below /dev."""

import pytest

from hostdevices import Device, Scanner
from hostdevices.readers import READERS, paths_reader, read_paths
from tests.hostdevices.tree import Tree


@pytest.fixture(autouse=True)
def nodes(tree: Tree) -> None:
    """Some nodes and links."""
    for name, numbers in (
        ("ttyUSB0", "188:0"),
        ("ttyUSB1", "188:1"),
        ("custom/a/one", "240:1"),
        ("custom/b/one", "240:2"),
    ):
        tree.node(f"/dev/{name}", numbers)
    tree.link("/dev/serial/by-id/usb-FTDI-if00", "/dev/ttyUSB1")


def found(tree: Tree, *globs: str) -> dict[str, Device]:
    return {device.name: device for device in read_paths(tree.host, globs) if isinstance(device, Device)}


@pytest.mark.parametrize(
    ("glob", "names"),
    [
        ("/dev/ttyUSB*", ["ttyUSB0", "ttyUSB1"]),
        ("/dev/ttyUSB[1-9]", ["ttyUSB1"]),
        ("/dev/ttyUSB0", ["ttyUSB0"]),
        ("/dev/custom/*/one", ["custom/a/one", "custom/b/one"]),
        ("/dev/custom/**/*", ["custom/a/one", "custom/b/one"]),
        ("/dev/custom/a/**", ["custom/a/one"]),
        ("/dev/*", ["ttyUSB0", "ttyUSB1"]),
        ("/dev/**/one", ["custom/a/one", "custom/b/one"]),
        ("/dev/nothing*", []),
        ("/sys/*", []),
        ("ttyUSB0", []),
        ("/dev/../etc/*", []),
        ("/dev/./ttyUSB0", []),
    ],
)
def test_globs(glob: str, names: list[str], tree: Tree) -> None:
    assert sorted(found(tree, glob)) == names


def test_the_name_stays_the_identity_when_a_link_leads_elsewhere(tree: Tree) -> None:
    (before,) = found(tree, "/dev/serial/by-id/*").values()
    tree.path("/dev/serial/by-id/usb-FTDI-if00").unlink()
    tree.link("/dev/serial/by-id/usb-FTDI-if00", "/dev/ttyUSB0")
    (after,) = found(tree, "/dev/serial/by-id/*").values()
    assert before.id == after.id
    assert (before.devnodes[0].minor, after.devnodes[0].minor) == (1, 0)
    assert (after.devnodes[0].path, after.devnodes[0].target) == ("/dev/serial/by-id/usb-FTDI-if00", "/dev/ttyUSB0")
    assert after.attributes["path"] == "/dev/serial/by-id/usb-FTDI-if00"


def test_links_out_of_dev_are_not_followed(tree: Tree) -> None:
    tree.node("/secret", "1:1")
    tree.link("/dev/ttyUSB9", "/secret")
    tree.link("/dev/ttyUSB8", "/dev/ttyUSB8")
    tree.link("/dev/ttyUSB7", "/dev/gone")
    assert sorted(found(tree, "/dev/ttyUSB*")) == ["ttyUSB0", "ttyUSB1"]


def test_what_is_no_device_node_is_passed_over(tree: Tree) -> None:
    tree.file("/dev/ttyUSB5", "just text")
    tree.file("/dev/ttyUSB6/folder", "")
    assert sorted(found(tree, "/dev/ttyUSB*")) == ["ttyUSB0", "ttyUSB1"]


def test_a_circle_of_folders_ends(tree: Tree) -> None:
    tree.link("/dev/custom/a/again", "/dev/custom")
    assert sorted(found(tree, "/dev/custom/**/one")) == ["custom/a/one", "custom/b/one"]


def test_a_path_is_a_part_of_the_device_whose_node_it_is(tree: Tree) -> None:
    adapter = tree.usb(tree.pci("0000:00:14.0"), "1-2", serial="ft5rx9k2", interfaces=("ff",))
    tree.path("/dev/ttyUSB0").unlink()
    tree.child(f"{adapter}/1-2:1.0/ttyUSB0", "tty/ttyUSB0", group="class/tty", node="ttyUSB0", numbers="188:0")
    inventory = Scanner(tree.host, (*READERS, paths_reader(("/dev/ttyUSB*",)))).scan()
    assert inventory.devices["path-ttyusb0-" + _digest(inventory.devices, "ttyUSB0")].within[:2] == (
        "tty-1a86-7523-ft5rx9k2-if0",
        "usb-1a86-7523-ft5rx9k2",
    )
    assert inventory.devices["path-ttyusb1-" + _digest(inventory.devices, "ttyUSB1")].within == ()


def _digest(devices: object, name: str) -> str:
    assert isinstance(devices, dict)
    (identity,) = (x.id for x in devices.values() if x.kind == "path" and x.name == name)
    return str(identity).rpartition("-")[2]


def test_of_two_names_for_one_node_one_is_a_part_of_the_other(tree: Tree) -> None:
    tree.link("/dev/serial/by-path/usb-0:2:1.0", "/dev/ttyUSB1")
    tree.link("/dev/serial/by-path/usb-0:3:1.0", "/dev/ttyUSB0")
    inventory = Scanner(tree.host, (paths_reader(("/dev/serial/*/*",)),)).scan()
    first, second, other = inventory.devices.values()
    assert {first.name, second.name} == {"serial/by-id/usb-FTDI-if00", "serial/by-path/usb-0:2:1.0"}
    assert (first.within, second.within, other.within) == ((), (first.id,), ())


def test_a_node_that_many_share_belongs_to_none(tree: Tree) -> None:
    for index in (0, 1):
        tree.iommu_group(index, tree.pci(f"0000:0{index}:00.0", driver="vfio-pci"))
        tree.device(f"/sys/devices/virtual/vfio/{index}", group="class/vfio", node=f"vfio/{index}")
    tree.node("/dev/vfio/vfio", "10:196")
    inventory = Scanner(tree.host, (*READERS, paths_reader(("/dev/vfio/*",)))).scan()
    assert inventory.devices["path-vfio-vfio"].within == ()
    assert inventory.devices["path-vfio-1"].within == ("vfio-0000-01-00-0", "pci-0000-01-00-0")


def test_a_node_of_a_whole_and_its_parts_belongs_to_the_whole(machine: Tree) -> None:
    inventory = Scanner(machine.host, (*READERS, paths_reader(("/dev/nvidia[0-9]*",)))).scan()
    assert inventory.devices["path-nvidia3"].within == ("gpu-0000-81-00-0", "pci-0000-81-00-0")
