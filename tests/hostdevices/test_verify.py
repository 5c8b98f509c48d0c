"""Whether a device is still the one that was scanned."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from hostdevices import Device, Health, scan
from hostdevices.assignment import assign
from hostdevices.groups import Functions
from hostdevices.resource import Resource
from hostdevices.selector import Kinds
from hostdevices.verify import Fingerprints
from tests.deviceplugin.host import MadeUpHost
from tests.hostdevices.tree import Tree


def test_a_device_that_changed_since_the_scan_is_told(tmp_path: Path) -> None:
    made_up = MadeUpHost(tmp_path, "fuse", "kvm")
    fuse, kvm = made_up.devices()["misc-fuse"], made_up.devices()["misc-kvm"]
    fingerprints = Fingerprints(made_up.host)
    fingerprints.update([fuse, kvm])
    assert fingerprints.why_changed(fuse) == ""
    assert fingerprints.why_changed(replace(fuse, health=Health(False, "too hot"))) == ""
    made_up.renumber("fuse", 77)
    assert "/dev/fuse is c 10:77 now" in fingerprints.why_changed(fuse)
    fingerprints.update([fuse, kvm])  # the same device: what it was at the scan counts
    assert fingerprints.why_changed(fuse) != ""
    fingerprints.update([replace(fuse, name="other")])
    assert fingerprints.why_changed(replace(fuse, name="other")) == ""
    assert fingerprints.why_changed(kvm) == "it was scanned anew"


@pytest.mark.parametrize("is_grouped", [False, True])
def test_a_replug_that_one_scan_does_not_see_is_another_device_and_can_be_had(tmp_path: Path, is_grouped: bool) -> None:
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
    assert fingerprints.why_changed(before) == ""
    tree.file(f"{stick}/devnum", "5")
    assert "is USB device 5 now, it was USB device 4" in fingerprints.why_changed(before)
    after = scanned()
    assert after != before
    fingerprints.update([after])
    assert fingerprints.why_changed(after) == ""
