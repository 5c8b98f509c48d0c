"""IOMMU groups, vfio cdevs, mediated devices."""

import pytest

from hostdevices import Device, Inventory
from hostdevices.readers.vfio import read_mdev, read_vfio
from tests.hostdevices.machine import MDEV_UUID
from tests.hostdevices.tree import Tree


@pytest.fixture
def group(tree: Tree) -> list[str]:
    """A group with a bridge and two functions that vfio-pci is bound to; returns the functions."""
    bridge = tree.pci("0000:40:01.0", root="pci0000:40", pci_class="060400", driver="pcieport")
    functions = [tree.pci(f"0000:41:00.{n}", root="pci0000:40", driver="vfio-pci", numa_node=n) for n in (0, 1)]
    tree.iommu_group(7, bridge, *functions)
    tree.device("/sys/devices/virtual/vfio/7", group="class/vfio", node="vfio/7")
    tree.node("/dev/vfio/vfio", "10:196")
    return functions


def devices(tree: Tree) -> list[Device]:
    return [device for device in read_vfio(tree.host) if isinstance(device, Device)]


def test_iommu_group_is_one_device_with_all_functions_as_parents(group: list[str], tree: Tree) -> None:
    (device,) = devices(tree)
    assert device.id == "vfio-0000-41-00-0"
    assert [node.path for node in device.devnodes] == ["/dev/vfio/7", "/dev/vfio/vfio"]
    assert device.parents == ("pci-0000-41-00-0", "pci-0000-41-00-1")
    assert device.numa_nodes == (0, 1)
    assert (
        device.attributes.items()
        >= {
            "driver": "vfio-pci",
            "iommuGroup": 7,
            "functions": 2,
            "viable": True,
            "noiommu": False,
            "iommufd": False,
            "resource.kubernetes.io/pciBusID": "0000:41:00.0",
        }.items()
    )


def test_group_is_not_viable_when_another_driver_holds_a_member(group: list[str], tree: Tree) -> None:
    tree.path(f"{group[1]}/driver").unlink()
    tree.link(f"{group[1]}/driver", "/sys/bus/pci/drivers/snd_hda_intel")
    (device,) = devices(tree)
    assert device.attributes["viable"] is False


def test_id_does_not_depend_on_group_number(group: list[str], tree: Tree) -> None:
    tree.path("/sys/class/vfio/7").rename(tree.path("/sys/class/vfio/19"))
    tree.path("/sys/kernel/iommu_groups/7").rename(tree.path("/sys/kernel/iommu_groups/19"))
    (device,) = devices(tree)
    assert (device.id, device.attributes["iommuGroup"]) == ("vfio-0000-41-00-0", 19)


def test_group_without_iommu_has_noiommu_attribute(tree: Tree) -> None:
    tree.iommu_group(0, tree.pci("0000:00:05.0", driver="vfio-pci"))
    tree.device("/sys/devices/virtual/vfio/noiommu-0", group="class/vfio", node="vfio/noiommu-0")
    (device,) = devices(tree)
    assert device.attributes["noiommu"] is True
    assert device.devnodes[0].path == "/dev/vfio/noiommu-0"


def test_cdev_is_found_with_and_without_its_group(group: list[str], tree: Tree) -> None:
    alone = tree.pci("0000:42:00.0", driver="vfio-pci")
    for number, function in ((0, group[0]), (1, alone)):
        tree.child(function, f"vfio-dev/vfio{number}", group="class/vfio-dev", node=f"vfio/devices/vfio{number}")
    tree.node("/dev/iommu", "10:127")
    found = {device.id: device for device in devices(tree)}
    assert [x.path for x in found["vfio-0000-41-00-0"].devnodes][2:] == ["/dev/vfio/devices/vfio0", "/dev/iommu"]
    assert [x.path for x in found["vfio-0000-42-00-0"].devnodes] == ["/dev/vfio/devices/vfio1", "/dev/iommu"]
    assert all(device.attributes["iommufd"] is True for device in found.values())


def test_cdevs_of_one_group_are_one_device_without_group_node(group: list[str], tree: Tree) -> None:
    tree.path("/sys/class/vfio/7").unlink()
    for number, function in enumerate(group):
        tree.child(function, f"vfio-dev/vfio{number}", group="class/vfio-dev", node=f"vfio/devices/vfio{number}")
    (device,) = devices(tree)
    assert device.id == "vfio-0000-41-00-0"
    assert [node.path for node in device.devnodes] == ["/dev/vfio/devices/vfio0", "/dev/vfio/devices/vfio1"]
    assert device.attributes.items() >= {"iommuGroup": 7, "functions": 2, "iommufd": True}.items()


def test_mediated_device_id_contains_its_uuid(inventory: Inventory) -> None:
    device = inventory.devices[f"mdev-{MDEV_UUID}"]
    assert [node.path for node in device.devnodes] == ["/dev/vfio/52", "/dev/vfio/vfio"]
    assert device.parents == ("pci-0000-65-00-0",)
    assert (
        device.attributes.items()
        >= {
            "uuid": MDEV_UUID,
            "mdevUUID": MDEV_UUID,
            "parent": "0000:65:00.0",
            "type": "nvidia-222",
            "model": "GRID T4-1B",
            "iommuGroup": 52,
            "vendor": "10de",
        }.items()
    )
    assert device.pci_functions == ()  # the parent's address would mean the whole parent
    assert not [x for x in inventory.devices.values() if x.kind == "vfio" and x.attributes["iommuGroup"] == 52]


def test_mediated_device_has_iommufd_nodes(tree: Tree) -> None:
    parent = tree.pci("0000:65:00.0", vendor="10de")
    mdev = tree.device(f"{parent}/{MDEV_UUID}", group="bus/mdev/devices")
    tree.child(mdev, "vfio-dev/vfio3", group="class/vfio-dev", node="vfio/devices/vfio3")
    tree.node("/dev/iommu", "10:127")
    (device,) = (x for x in read_mdev(tree.host) if isinstance(x, Device))
    assert [node.path for node in device.devnodes] == ["/dev/vfio/devices/vfio3", "/dev/iommu"]
