"""USB devices and their children: ids that survive replugging and renumbering, and differ for identical devices."""

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from hostdevices import Device, Inventory, scan
from hostdevices.readers.usb import read
from tests.hostdevices.tree import Tree

CONTROLLER = "0000:00:14.0"


@pytest.fixture
def controller(tree: Tree) -> str:
    """A USB controller with root hubs for USB 2 and USB 3."""
    syspath = tree.pci(CONTROLLER, pci_class="0c0330", driver="xhci_hcd", numa_node=0)
    for bus in (1, 2):
        tree.device(
            f"{syspath}/usb{bus}", group="bus/usb/devices", idVendor="1d6b", idProduct="0002", serial=CONTROLLER
        )
    return syspath


def devices(tree: Tree) -> dict[str, Device]:
    return {device.name: device for device in read(tree.host) if isinstance(device, Device)}


def serial_port(tree: Tree, controller: str, name: str, port: str, **facts: Any) -> str:
    """Create a USB serial adapter with its tty; return the adapter's syspath."""
    adapter = tree.usb(controller, name, interfaces=("ff",), **facts)
    tree.child(f"{adapter}/{name}:1.0/{port}", f"tty/{port}", group="class/tty", node=port)
    return adapter


def test_usb_device_has_expected_attributes(tree: Tree, controller: str) -> None:
    stick = tree.usb(controller, "1-2.3", serial="FT5RX9K2", manufacturer="FTDI", interfaces=("ff", "02", "ff"))
    tree.file(f"{stick}/busnum", "1")
    tree.file(f"{stick}/devnum", "7")
    device = devices(tree)["1-2.3"]
    assert device.id.startswith("usb-1a86-7523-ft5rx9k2-")
    assert [node.path for node in device.devnodes] == ["/dev/bus/usb/001/001"]
    assert device.numa_nodes == (0,)
    assert (device.parents[0], device.parents[-1]) == ("pci-0000-00-14-0", "usb-port-0000-00-14-0-0-2-3")
    assert device.attributes == {
        "name": "1-2.3",
        "bus": "usb",
        "driver": "usb",
        "vendor": "1a86",
        "product": "7523",
        "serial": "FT5RX9K2",
        "port": "2.3",
        "byPath": "pci-0000:00:14.0-usb-0:2.3",
        "manufacturer": "FTDI",
        "class": "00",
        "interfaceClasses": "02,ff",
        "speed": 12,
        "revision": "0264",
        "busnum": 1,
        "devnum": 7,
        "usbAddress": "1:7",
        "resource.kubernetes.io/pcieRoot": "pci0000:00",
        "resource.kubernetes.io/numaNode": 0,
    }


def test_root_hubs_are_omitted(tree: Tree, controller: str) -> None:
    assert devices(tree) == {}


@pytest.mark.parametrize("serial", [None, "", "0", "0001", "00000000", "123456", "0123456789ABCDEF", "aaaaaaaa"])
def test_id_contains_port_without_a_plausible_serial(serial: str | None, tree: Tree, controller: str) -> None:
    facts: dict[str, Any] = {} if serial is None else {"serial": serial}
    tree.usb(controller, "1-2.3", **facts)
    assert devices(tree)["1-2.3"].id == "usb-1a86-7523-0000-00-14-0-0-2-3"


def test_id_with_serial_is_kept_at_another_port(tree: Tree, controller: str) -> None:
    tree.usb(controller, "1-2", devnum=4, serial="ft5rx9k2")
    before = devices(tree)["1-2"]
    shutil.rmtree(tree.path(before.syspath))
    tree.path("/sys/bus/usb/devices/1-2").unlink()
    tree.usb(controller, "1-7", devnum=5, serial="ft5rx9k2")
    assert devices(tree)["1-7"].id == before.id == "usb-1a86-7523-ft5rx9k2"


def test_id_does_not_depend_on_bus_and_device_numbers(tree: Tree) -> None:
    # The same ports; another controller came first at the next boot, or the device was plugged in again.
    ids = []
    for name, devnum in (("1-2", 4), ("3-2", 77)):
        boot = Tree(tree.root / f"boot{devnum}")
        syspath = boot.pci(CONTROLLER)
        for bus in (int(name[0]), int(name[0]) + 1):
            boot.device(f"{syspath}/usb{bus}", group="bus/usb/devices")
        boot.usb(syspath, name, devnum=devnum)
        ids.append(devices(boot)[name].id)
    assert ids[0] == ids[1] == "usb-1a86-7523-0000-00-14-0-0-2"


def test_same_port_of_two_root_hubs_gives_different_ids(tree: Tree, controller: str) -> None:
    tree.usb(controller, "1-2", product="0001")
    tree.usb(controller, "2-2", product="0001")
    assert devices(tree)["1-2"].id == "usb-1a86-0001-0000-00-14-0-0-2"
    assert devices(tree)["2-2"].id == "usb-1a86-0001-0000-00-14-0-1-2"


def test_devices_with_equal_serials_have_ids_with_ports(tree: Tree, controller: str) -> None:
    for name in ("1-1", "1-4"):
        tree.usb(controller, name, serial="ft5rx9k2")
    tree.usb(controller, "1-5", product="5523", serial="ft5rx9k2")
    ids = [device.id for device in devices(tree).values()]
    assert ids == ["usb-1a86-7523-0000-00-14-0-0-1", "usb-1a86-7523-0000-00-14-0-0-4", "usb-1a86-5523-ft5rx9k2"]


@pytest.mark.parametrize("kind", ["usb", "tty"])
def test_id_before_and_after_equal_device_are_parents_of_each_other(kind: str, tree: Tree, controller: str) -> None:
    serial_port(tree, controller, "1-1", "ttyUSB0", serial="ft5rx9k2")
    alone = _only(scan(tree.host), kind, lambda device: True)
    serial_port(tree, controller, "1-4", "ttyUSB1", serial="ft5rx9k2")
    beside = _only(scan(tree.host), kind, lambda device: "/1-1" in device.syspath)
    assert alone.id != beside.id
    assert beside.id in alone.parents
    assert alone.id in beside.parents


def _only(inventory: Inventory, kind: str, wanted: Callable[[Device], bool]) -> Device:
    (device,) = (x for x in inventory.devices.values() if x.kind == kind and wanted(x))
    return device


def test_child_id_contains_usb_interface_number(tree: Tree, controller: str) -> None:
    adapter = serial_port(tree, controller, "1-2", "ttyUSB3", serial="ft5rx9k2")
    tree.child(f"{adapter}/1-2:1.1/ttyUSB4", "tty/ttyUSB4", group="class/tty", node="ttyUSB4")
    tree.file(f"{adapter}/1-2:1.1/bInterfaceClass", "ff")
    found = {device.name: device for device in scan(tree.host).devices.values() if device.kind == "tty"}
    assert found["ttyUSB3"].id == "tty-1a86-7523-ft5rx9k2-if0"
    assert found["ttyUSB4"].id == "tty-1a86-7523-ft5rx9k2-if1"
    assert found["ttyUSB4"].parents[:2] == ("usb-1a86-7523-ft5rx9k2", "pci-0000-00-14-0")
    assert (
        found["ttyUSB4"].attributes.items() >= {"bus": "usb", "interface": 1, "serial": "ft5rx9k2", "port": "2"}.items()
    )


@pytest.mark.parametrize(
    ("above", "place"),
    [
        ("pci0000:00/0000:00:1c.0/0000:01:00.0", "pci-0000:01:00.0-usb-0:1.2:1.0"),
        ("platform/soc/3f980000.usb", "platform-3f980000.usb-usb-0:1.2:1.0"),
        (
            "platform/scb/fd500000.pcie/pci0000:00/0000:00:00.0/0000:01:00.0",
            "platform-fd500000.pcie-pci-0000:01:00.0-usb-0:1.2:1.0",
        ),
    ],
)
def test_by_path_equals_udev_id_path(tree: Tree, above: str, place: str) -> None:
    """With it, users can select one of two sticks without serial numbers, even if no udev creates links."""
    parts = above.split("/")
    for depth, part in enumerate(parts):
        if parts[0] == "platform" and depth and "pci0000:00" not in parts[: depth + 1]:
            tree.link(f"/sys/devices/{'/'.join(parts[: depth + 1])}/subsystem", "/sys/bus/platform")
        if part.startswith("0000:"):
            tree.file(f"/sys/devices/{'/'.join(parts[: depth + 1])}/vendor", "0x8086")
    serial_port(tree, f"/sys/devices/{above}", "1-1.2", "ttyUSB0")
    (found,) = (x for x in scan(tree.host).devices.values() if x.kind == "tty")
    assert found.attributes["byPath"] == place


def test_unreadable_serial_affects_only_its_own_device(tree: Tree, controller: str) -> None:
    serial_port(tree, controller, "1-1", "ttyUSB0", serial="ft5rx9k2")
    broken = serial_port(tree, controller, "1-4", "ttyUSB1")
    tree.file(f"{broken}/serial", b"\xff\xfe\x00")
    inventory = scan(tree.host)
    assert [device.name for device in inventory.devices.values() if device.kind in ("usb", "tty")] == ["ttyUSB0", "1-1"]
    assert [problem.where for problem in inventory.problems] == [broken, f"{broken}/1-4:1.0/ttyUSB1/tty/ttyUSB1"]


def test_device_texts_are_sanitised_and_truncated(tree: Tree, controller: str) -> None:
    tree.usb(controller, "1-2", manufacturer="Evil \x1b[31m\u202e Corp\n", product="0001")
    tree.file(f"{controller}/usb1/1-2/product", "ü" * 80)
    attributes = devices(tree)["1-2"].attributes
    assert attributes["manufacturer"] == "Evil [31m Corp"
    assert attributes["model"] == "ü" * 30 + "…"
    assert len(str(attributes["model"]).encode()) <= 64
