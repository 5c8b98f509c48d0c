"""Disks and NVMe controllers: found, with attributes that identify them."""

from hostdevices import Inventory, scan
from resources.danger import danger_reason
from tests.hostdevices.tree import Tree


def test_disk_id_contains_its_wwid(inventory: Inventory) -> None:
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


def test_nvme_subsystem_disk_has_every_controller_as_parent(tree: Tree) -> None:
    """With native multipath, the default, disks that several controllers can share are below a subsystem."""
    subsystem = tree.device("/sys/devices/virtual/nvme-subsystem/nvme-subsys0", group="class/nvme-subsystem")
    disk = tree.device(f"{subsystem}/nvme0n1", group="class/block", node="nvme0n1", kind="b", wwid="eui.1")
    tree.device(f"{disk}/nvme0n1p1", group="class/block", node="nvme0n1p1", kind="b", partition=1)
    for number in (0, 1):
        drive = tree.pci(f"0000:0{number + 1}:00.0", driver="nvme", numa_node=0)
        controller = tree.child(drive, f"nvme/nvme{number}", group="class/nvme", node=f"nvme{number}", state="live")
        tree.device(f"{controller}/nvme0c{number}n1", group="class/block", wwid="eui.1")
        tree.link(f"{subsystem}/nvme{number}", controller)
        found = scan(tree.host).devices
        assert [i for i, x in found.items() if x.kind == "block"] == ["block-eui-1", "block-eui-1-part1"]
        parents = [i for n in range(number + 1) for i in (f"nvme-0000-0{n + 1}-00-0", f"pci-0000-0{n + 1}-00-0")]
        assert list(found["block-eui-1"].parents) == parents
        assert list(found["block-eui-1-part1"].parents) == ["block-eui-1", *parents]
        assert found["block-eui-1"].attributes["bus"] == ("pci", "virtual")[number]


def test_all_storage_is_dangerous(inventory: Inventory) -> None:
    storage = [device for device in inventory.devices.values() if device.kind in ("block", "nvme")]
    assert len(storage) == 4
    assert all(map(danger_reason, storage))


def test_disk_without_wwid_has_id_of_its_location(tree: Tree) -> None:
    drive = tree.pci("0000:00:02.0", driver="virtio-pci")
    tree.child(f"{drive}/virtio1", "block/vda", group="class/block", node="vda", kind="b", size=8)
    tree.device("/sys/devices/virtual/block/loop0", group="class/block", node="loop0", kind="b", size=0)
    assert set(scan(tree.host).devices) == {"pci-0000-00-02-0", "block-0000-00-02-0", "block-loop0"}


def test_id_of_removed_disk_is_not_reused_at_its_controller(tree: Tree) -> None:
    """Disks of virtual machines and card readers have no serial. With a counter, the next disk would get the id."""
    controller = tree.pci("0000:03:00.0", driver="vmw_pvscsi")

    def disk(target: str, name: str) -> None:
        at = f"host2/target2:{target.rpartition(':')[0]}/2:{target}"
        tree.child(f"{controller}/{at}", f"block/{name}", group="class/block", node=name, kind="b", size=8)

    for target, name in (("0:0:0", "sda"), ("0:1:0", "sdb"), ("0:2:0", "sdc")):
        disk(target, name)
    before = {x.name: i for i, x in scan(tree.host).devices.items() if x.kind == "block"}
    assert before == {
        "sda": "block-0000-03-00-0",
        "sdb": "block-0000-03-00-0-0-1-0",
        "sdc": "block-0000-03-00-0-0-2-0",
    }
    tree.path("/sys/class/block/sdb").unlink()
    tree.path("/dev/sdb").unlink()
    after = {x.name: i for i, x in scan(tree.host).devices.items() if x.kind == "block"}
    assert after == {name: i for name, i in before.items() if name != "sdb"}


def test_id_of_removed_drive_is_not_reused_at_another_sata_port(tree: Tree) -> None:
    """Optical drives report no serial, and the kernel numbers the ports of all controllers consecutively."""
    controller = tree.pci("0000:00:17.0", pci_class="010601")
    for port in (2, 4):
        ata = f"{controller}/ata{port + 6}"
        tree.file(f"{ata}/ata_port/ata{port + 6}/port_no", port)
        at = f"{ata}/host{port}/target{port}:0:0/{port}:0:0:0"
        tree.child(at, f"block/sr{port}", group="class/block", node=f"sr{port}", kind="b", numbers=f"11:{port}")

    def found() -> dict[str, str]:
        return {x.name: x.id for x in scan(tree.host).devices.values() if x.kind == "block"}

    both = found()
    assert both == {"sr2": "block-0000-00-17-0-ata2", "sr4": "block-0000-00-17-0-ata4"}
    tree.path("/sys/class/block/sr2").unlink()
    assert found() == {"sr4": both["sr4"]}


def test_nvme_controller_has_expected_attributes(inventory: Inventory) -> None:
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
