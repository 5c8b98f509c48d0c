"""Whether a device is still the one that was scanned."""

from pathlib import Path

from msgspec.structs import replace

from hostdevices import Health
from hostdevices.verify import Fingerprints
from tests.deviceplugin.host import MadeUpHost


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
