"""Whether a device is still the one that was scanned."""

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from hostdevices import Device, Health, scan
from hostdevices.presence import Presence
from hostdevices.verify import Fingerprints
from resources.assignment import assign
from resources.groups import Functions
from resources.resource import Resource
from resources.selector import Kinds
from tests.deviceplugin.host import MadeUpHost
from tests.hostdevices.tree import Tree


def test_change_since_the_scan_is_reported(tmp_path: Path) -> None:
    made_up = MadeUpHost(tmp_path, "fuse", "kvm")
    fuse, kvm = made_up.devices()["misc-fuse"], made_up.devices()["misc-kvm"]
    fingerprints = Fingerprints(made_up.host)
    fingerprints.update([fuse, kvm])
    assert fingerprints.change_since_scan(fuse) == ""
    assert fingerprints.change_since_scan(replace(fuse, health=Health(False, "too hot"))) == ""
    made_up.renumber("fuse", 77)
    assert "/dev/fuse is c 10:77 now" in fingerprints.change_since_scan(fuse)
    fingerprints.update([fuse, kvm])  # the same device: the state of its scan stays valid
    assert fingerprints.change_since_scan(fuse) != ""
    (node,) = fuse.devnodes
    scanned_again = replace(fuse, devnodes=(replace(node, minor=77),))
    fingerprints.update([scanned_again])
    assert fingerprints.change_since_scan(scanned_again) == ""
    assert fingerprints.change_since_scan(kvm) == "it was scanned again"


def test_current_devnodes_exclude_a_node_of_another_device(tmp_path: Path) -> None:
    made_up = MadeUpHost(tmp_path, "fuse", "kvm")
    fuse = made_up.devices()["misc-fuse"]
    fingerprints = Fingerprints(made_up.host)
    fingerprints.update([fuse])
    assert fingerprints.devnodes("misc-fuse") == fuse.devnodes
    assert fingerprints.devnodes("misc-kvm") == ()
    made_up.renumber("fuse", 77)  # another device has the node now
    assert fingerprints.devnodes("misc-fuse") == ()
    again = made_up.devices().get("misc-fuse")
    assert again is None  # the kernel's numbers differ from the node's
    fingerprints.update([])
    assert fingerprints.devnodes("misc-fuse") == ()


def test_unreadable_devnum_is_reported_as_a_change(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    stick = tree.usb("/sys/devices/pci0000:00/0000:00:14.0", "1-2", serial="K1K2K3")
    tree.file(f"{stick}/devnum", "5")
    (device,) = scan(tree.host).devices.values()
    fingerprints = Fingerprints(tree.host)
    fingerprints.update([device])
    tree.file(f"{stick}/devnum", "x" * 5000)
    assert "is unreadable" in fingerprints.change_since_scan(device)


@pytest.mark.parametrize("is_grouped", [False, True])
def test_replugged_device_is_a_change_until_scanned_again(tmp_path: Path, is_grouped: bool) -> None:
    tree = Tree(tmp_path)
    stick = tree.usb("/sys/devices/pci0000:00/0000:00:14.0", "1-2", devnum=4, interfaces=("03",), serial="K1")
    tree.file(f"{stick}/devnum", "4")
    tree.device(f"{stick}/1-2:1.0/0003:1A86:7523.0001/hidraw/hidraw0", group="class/hidraw", node="hidraw0")
    group = Functions() if is_grouped else None
    resource = Resource("example.com/key", Kinds(("hidraw",)), group=group, dangerous=True)
    fingerprints = Fingerprints(tree.host)

    def scanned() -> Device:
        ((found,),) = assign(scan(tree.host), [resource]).devices.values()
        return found

    before = scanned()
    fingerprints.update([before])
    assert fingerprints.change_since_scan(before) == ""
    tree.file(f"{stick}/devnum", "5")
    assert "is USB device 5 now, it was USB device 4" in fingerprints.change_since_scan(before)
    after = scanned()
    assert after != before
    fingerprints.update([after])
    assert fingerprints.change_since_scan(after) == ""


def test_device_replaced_between_scan_and_update_is_reported(tmp_path: Path) -> None:
    tree = Tree(tmp_path)

    def plug_in(port: str, devnum: int) -> None:
        stick = tree.usb("/sys/devices/pci0000:00/0000:00:14.0", port, devnum=devnum, interfaces=("03",))
        tree.file(f"{stick}/devnum", str(devnum))
        tree.device(f"{stick}/{port}:1.0/0003:1A86:7523.0001/hidraw/hidraw0", group="class/hidraw", node="hidraw0")

    def scanned() -> Device:
        return next(x for x in scan(tree.host).devices.values() if x.kind == "hidraw")

    plug_in("1-2", 4)
    first = scanned()
    shutil.rmtree(tmp_path / "sys")
    plug_in("1-3", 5)
    fingerprints = Fingerprints(tree.host)
    fingerprints.update([first])
    assert fingerprints.change_since_scan(first)
    second = scanned()
    assert second.devnodes[0].path == first.devnodes[0].path
    fingerprints.update([second])
    assert fingerprints.change_since_scan(second) == ""


def test_node_renumbered_between_scan_and_update_is_reported(tmp_path: Path) -> None:
    made_up = MadeUpHost(tmp_path, "fuse")
    fuse = made_up.devices()["misc-fuse"]
    made_up.renumber("fuse", 77)
    fingerprints = Fingerprints(made_up.host)
    fingerprints.update([fuse])
    assert "/dev/fuse is c 10:77 now, it was c 10:0" in fingerprints.change_since_scan(fuse)


def test_group_is_found_with_only_its_allocated_members(tmp_path: Path) -> None:
    made_up = MadeUpHost(tmp_path, "fuse", "kvm")
    devices = made_up.devices()
    fuse, kvm = devices["misc-fuse"], devices["misc-kvm"]
    whole = Device(
        "pair", "group", "pair", devnodes=(*fuse.devnodes, *kvm.devnodes), children=("misc-fuse", "misc-kvm")
    )
    less = replace(whole, devnodes=fuse.devnodes, children=("misc-fuse",))
    presence = Presence(made_up.host)
    presence.update(devices, [less])
    seen = presence.seen(less)
    presence.update(devices, [whole])
    assert presence.find(presence.seen(whole)) == whole
    assert presence.find(seen) == seen.device
    assert seen.device.devnodes == fuse.devnodes
    presence.update(devices, [less])
    assert presence.find(seen) == less
