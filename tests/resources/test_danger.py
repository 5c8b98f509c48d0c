"""A dangerous device is dangerous under every name: a node's path, a link's target, a path to another device's node."""

from pathlib import Path

import pytest

from hostdevices import scan
from hostdevices.readers import READERS, paths_reader
from resources.assignment import Assignment, assign
from resources.resource import Resource
from resources.selector import Kinds, Paths
from tests.hostdevices.machine import interface
from tests.hostdevices.made import ids, unassigned_reason
from tests.hostdevices.tree import Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A serial console, another port, and a watchdog with a device number of its own."""
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


def test_console_is_refused_by_path_and_by_kind(tree: Tree) -> None:
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


def test_link_to_the_console_is_refused(tree: Tree) -> None:
    tree.link("/dev/gps", "/dev/ttyS0")
    tree.link("/dev/gnss", "/dev/ttyS0")
    assert ids(assigned(tree, "/dev/gps", "/dev/gnss"), "example.com/x") == []


def test_link_is_dangerous_by_its_target(tree: Tree) -> None:
    tree.link("/dev/char/248:0", "/dev/watchdog0")
    tree.path("/sys/class/watchdog/watchdog0").unlink()  # now no device has the node
    found = assigned(tree, "/dev/char/*")
    assert ids(found, "example.com/x") == []
    (refused,) = (x for x in found.rest if x.device.kind == "path")
    assert "/dev/char/248:0 can reset or power off the node" in refused.reason


def test_renamed_node_is_dangerous_by_its_device(tree: Tree) -> None:
    tree.node("/dev/timer", "248:0")
    found = assigned(tree, "/dev/timer")
    assert ids(found, "example.com/x") == []
    reason = next(x.reason for x in found.rest if x.device.name == "timer")
    assert "it is a node of watchdog-0000-00-1f-4: /dev/watchdog0 can reset or power off the node" in reason


@pytest.mark.parametrize(
    ("node", "numbers"), [("mtd0", "90:0"), ("firmware", "90:3"), ("raw/raw1", "162:1"), ("ubi0_1", "248:2")]
)
def test_raw_storage_is_dangerous_by_name_or_number(tree: Tree, node: str, numbers: str) -> None:
    tree.node(f"/dev/{node}", numbers)
    (refused,) = (x for x in assigned(tree, f"/dev/{node}").rest if x.device.kind == "path")
    assert f"/dev/{node} gives access to storage below its file systems" in refused.reason


@pytest.mark.parametrize(
    ("node", "numbers", "unassigned_reason"),
    [
        ("pts/3", "136:3", "gives the terminal of a session"),
        ("nvidia-caps/nvidia-cap1", "509:1", "can reconfigure all of the node's GPUs"),
        ("nvidia-caps/nvidia-cap12", "509:12", ""),
        ("nvidia-nvswitchctl", "239:255", ""),  # cannot reconfigure anything without nvidia-cap0
        ("tpmrm0", "253:65536", "can clear the node's TPM"),
        ("vcio", "100:0", "gives access to the kernel's memory"),
        ("gpiomem", "240:0", ""),
        ("nst0", "9:128", ""),
    ],
)
def test_unknown_node_is_dangerous_by_name_or_number(
    tree: Tree, node: str, numbers: str, unassigned_reason: str
) -> None:
    tree.node(f"/dev/{node}", numbers)
    refused = [x.reason for x in assigned(tree, f"/dev/{node}").rest if x.device.kind == "path"]
    assert [unassigned_reason in x for x in refused] == [True] * bool(unassigned_reason)


def test_power_button_and_board_bus_are_refused(tree: Tree) -> None:
    """With names that drivers/acpi/button.c, drivers/i2c/busses and drivers/hid/hid-cp2112.c create."""
    for number, phys in enumerate(("LNXPWRBN/button/input0", "usb-0000:00:14.0-1/input0")):
        parent = tree.device(
            f"/sys/devices/{'LNXPWRBN:00' if number == 0 else 'scanner'}/input/input{number}", phys=phys
        )
        tree.child(parent, f"event{number}", group="class/input", node=f"input/event{number}")
    for number, name in enumerate(("SMBus I801 adapter at efa0", "CP2112 SMBus Bridge on hidraw0")):
        parent = tree.pci(f"0000:00:1f.{number + 5}")
        tree.child(
            f"{parent}/i2c-{number}", f"i2c-dev/i2c-{number}", group="class/i2c-dev", node=f"i2c-{number}", name=name
        )
    kinds = Resource("example.com/x", Kinds(("input", "i2c")))
    by_kind, by_path = assign(scan(tree.host), [kinds]), assigned(tree, "/dev/i2c-*", "/dev/input/*")
    offered = [[x.name for x in found.devices["example.com/x"]] for found in (by_kind, by_path)]
    assert offered == [["i2c-1", "event1"], ["i2c-1", "event1"]]
    assert "it is the board's own bus" in unassigned_reason(by_kind, "i2c-0000-00-1f-5")
    assert any("it is the power button or its like, and can reset or power" in x.reason for x in by_kind.rest)


def test_member_of_a_bond_is_refused(tree: Tree) -> None:
    """For example, a bond for storage, without a default route."""
    for number in (0, 1):
        slave = interface(
            tree, tree.pci(f"0000:3b:00.{number}", pci_class="020000"), f"ens{number}", mac="02:00:00:00:00:01"
        )
        if number == 0:
            bond = tree.device("/sys/devices/virtual/net/bond1", group="class/net", type=1)
            tree.link(f"{slave}/master", bond)
            tree.link(f"{bond}/lower_ens0", slave)
    interface(tree, tree.pci("0000:00:1f.6"), "eno1", mac="02:00:00:00:00:02")
    tree.file("/proc/net/route", "Iface\tDestination\neno1\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000")
    for kind in ("nic", "pci"):
        found = assign(scan(tree.host), [Resource("example.com/x", Kinds((kind,)))])
        assert f"{kind}-0000-3b-00-1" in ids(found, "example.com/x")
        assert "it is a part of bond1" in unassigned_reason(found, f"{kind}-0000-3b-00-0")


@pytest.mark.parametrize(("group", "maps", "offered"), [("", 1, 0), ("identity", 1, 0), ("DMA-FQ", 1, 1), ("", 0, 1)])
def test_function_with_uio_maps_and_without_iommu_is_dangerous(tree: Tree, group: str, maps: int, offered: int) -> None:
    """igb_uio maps the registers; uio_pci_generic maps none (ABI: /sys/class/uio/uioX/maps)."""
    function = tree.pci("0000:03:00.0", pci_class="020000", driver="igb_uio")
    uio = tree.child(function, "uio/uio0", group="class/uio", node="uio0", name="igb_uio")
    if group:
        tree.iommu_group(5, function)
        tree.file("/sys/kernel/iommu_groups/5/type", group)
    if maps:
        tree.file(f"{uio}/maps/map0/size", "0x20000")
    found = assign(scan(tree.host), [Resource("example.com/x", Kinds(("pci",)))])
    assert ("pci-0000-03-00-0" in ids(found, "example.com/x")) == bool(offered)
    if not offered:
        assert "its part uio-0000-03-00-0 is dangerous: its DMA can write" in unassigned_reason(
            found, "pci-0000-03-00-0"
        )


def test_control_node_of_sound_card_is_offered_alone(tree: Tree) -> None:
    card = tree.child(tree.pci("0000:00:1f.3"), "sound/card0", group="class/sound", id="PCH")
    for name in ("controlC0", "pcmC0D0p"):
        tree.device(f"{card}/{name}", group="class/sound", node=f"snd/{name}")
    assert len(ids(assigned(tree, "/dev/snd/control*"), "example.com/x")) == 1
    assert unassigned_reason(assigned(tree, "/dev/snd/control*"), "sound-0000-00-1f-3")
