"""Disks and NVMe controllers: listed, and known by what they are."""

from hostdevices import Inventory, scan
from resources.danger import why_dangerous
from tests.hostdevices.tree import Tree


def test_a_disk_is_known_by_its_worldwide_name(inventory: Inventory) -> None:
    disk = inventory.devices["block-eui-36344730"]
    assert (
        disk.attributes.items()
        >= {
            "size": 3750748848 * 512,
            "readOnly": False,
            "removable": False,
            "model": "SAMSUNG MZQL2",
            "wwid": "eui.36344730",
        }.items()
    )
    partition = inventory.devices["block-eui-36344730-part1"]
    assert partition.attributes["partition"] == 1
    assert disk.parents == ("nvme-0000-5e-00-0", "pci-0000-5e-00-0")
    assert partition.parents == (disk.id, *disk.parents)


def test_all_storage_is_dangerous(inventory: Inventory) -> None:
    storage = [device for device in inventory.devices.values() if device.kind in ("block", "nvme")]
    assert len(storage) == 4
    assert all(map(why_dangerous, storage))


def test_disks_without_a_name_are_known_by_their_place(tree: Tree) -> None:
    drive = tree.pci("0000:00:02.0", driver="virtio-pci")
    tree.child(f"{drive}/virtio1", "block/vda", group="class/block", node="vda", kind="b", size=8)
    tree.device("/sys/devices/virtual/block/loop0", group="class/block", node="loop0", kind="b", size=0)
    assert set(scan(tree.host).devices) == {"pci-0000-00-02-0", "block-0000-00-02-0", "block-loop0"}


def test_an_nvme_controller_says_what_it_is(inventory: Inventory) -> None:
    assert (
        inventory.devices["nvme-0000-5e-00-0"].attributes.items()
        >= {
            "model": "SAMSUNG MZQL2",
            "serial": "S64GNE0R",
            "firmwareRevision": "GDC5602Q",
            "transport": "pcie",
            "state": "live",
        }.items()
    )
