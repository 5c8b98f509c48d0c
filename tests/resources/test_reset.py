"""Resets through sysfs: which functions, once each, and which devices a reset must not affect."""

from pathlib import Path

import pytest

from hostdevices import Device, Host, scan
from resources.assignment import Assignment, assign
from resources.groups import Functions, SameAttribute
from resources.reset import ResetFailed, reset
from resources.resource import Resource
from resources.selector import AllOf, Attribute, Kinds, Selection
from tests.hostdevices.machine import interface
from tests.hostdevices.made import ids, unassigned_reason
from tests.hostdevices.tree import Tree

BUS_ID = "resource.kubernetes.io/pciBusID"
NAME = "example.com/x"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def function(tree: Tree, address: str) -> str:
    syspath = tree.pci(address, pci_class="020000", driver="vfio-pci")
    tree.file(f"{syspath}/reset", "")
    return syspath


def resets(tree: Tree) -> list[str]:
    """The functions that have been reset."""
    files = sorted(tree.path("/sys/devices").rglob("reset"))
    return [file.parent.name for file in files if file.read_text() == "1"]


def assigned(tree: Tree, *resources: Resource) -> Assignment:
    return assign(scan(tree.host), resources)


def kind(wanted: str, **attributes: str) -> Selection:
    return AllOf((Kinds((wanted,)), *(Attribute(x, (value,)) for x, value in attributes.items())))


def test_pci_function_is_reset_or_error_has_device_id(tree: Tree) -> None:
    function(tree, "0000:00:05.0")
    reset(tree.host, [Device(id="pci-a", kind="pci", name="a", attributes={BUS_ID: "0000:00:05.0"})])
    assert resets(tree) == ["0000:00:05.0"]
    with pytest.raises(ResetFailed, match=r"pci-a: reset of 0000:00:06\.0 failed: No such file"):
        reset(tree.host, [Device(id="pci-a", kind="pci", name="a", attributes={BUS_ID: "0000:00:06.0"})])
    with pytest.raises(ResetFailed, match="misc-fuse is not on a PCI bus and cannot be reset"):
        reset(tree.host, [Device(id="misc-fuse", kind="misc", name="fuse")])


def test_every_function_of_a_group_is_reset_once(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (0, 1):
        function(tree, f"0000:3b:00.{number}")
    found = assigned(tree, Resource(NAME, kind("pci"), group=Functions(), reset=True))
    (dual,) = found.devices[NAME]
    assert dual.pci_functions == ("0000:3b:00.0", "0000:3b:00.1")
    written: list[str] = []
    monkeypatch.setattr(Host, "write", lambda self, path, text: written.append(path))
    reset(tree.host, [dual, dual])
    assert written == [f"/sys/bus/pci/devices/0000:3b:00.{number}/reset" for number in (0, 1)]


def test_every_function_of_an_iommu_group_is_reset(tree: Tree) -> None:
    tree.iommu_group(41, *(function(tree, f"0000:41:00.{number}") for number in (0, 1)))
    tree.device("/sys/devices/virtual/vfio/41", group="class/vfio", node="vfio/41")
    (group,) = assigned(tree, Resource(NAME, kind("vfio"), reset=True)).devices[NAME]
    reset(tree.host, [group])
    assert resets(tree) == ["0000:41:00.0", "0000:41:00.1"]


def test_function_with_parts_is_reset(tree: Tree) -> None:
    interface(tree, function(tree, "0000:41:00.0"), "eth0", mac="02:00:00:00:00:01")
    (whole,) = assigned(tree, Resource(NAME, kind("pci"), reset=True)).devices[NAME]
    assert whole.children == ("nic-0000-41-00-0",)
    reset(tree.host, [whole])
    assert resets(tree) == ["0000:41:00.0"]


def test_device_on_no_pci_bus_is_refused_at_assignment(tree: Tree) -> None:
    for name in ("kvm", "tun"):
        tree.device(f"/sys/devices/virtual/misc/{name}", group="class/misc", node=name)
    single = assigned(tree, Resource(NAME, kind("misc"), reset=True))
    group = assigned(tree, Resource(NAME, kind("misc"), group=SameAttribute("bus"), reset=True))
    for found in (single, group):
        assert ids(found, NAME) == []
        assert unassigned_reason(found, "misc-kvm") == "example.com/x: it is on no PCI bus and cannot be reset"
        assert "misc-kvm" not in found.owners


def with_virtual_functions(tree: Tree) -> None:
    physical = function(tree, "0000:3b:00.0")
    for number in (0, 1):
        virtual = tree.virtual_function(
            physical, f"0000:3b:00.{number + 2}", number, pci_class="020000", driver="vfio-pci"
        )
        tree.file(f"{virtual}/reset", "")


def test_resource_with_reset_gets_no_pf_whose_vfs_are_offered(tree: Tree) -> None:
    with_virtual_functions(tree)
    physical = Resource(NAME, kind("pci", name="0000:3b:00.0"), reset=True)
    virtual = Resource("example.com/vf", kind("pci", sriov="vf"), reset=True)
    found = assigned(tree, physical, virtual)
    assert ids(found, NAME) == []
    assert "a reset of it would also reset pci-0000-3b-00-2, which example.com/vf offers" in unassigned_reason(
        found, "pci-0000-3b-00-0"
    )
    assert "pci-0000-3b-00-0" not in found.owners
    reset(tree.host, found.devices["example.com/vf"])  # a virtual function can be reset alone
    assert resets(tree) == ["0000:3b:00.2", "0000:3b:00.3"]
    assert [device.offered_peers for device in found.devices["example.com/vf"]] == [(), ()]
    assert ids(assigned(tree, physical), NAME) == ["pci-0000-3b-00-0"]  # the virtual ones are not offered


def test_reset_of_a_pf_fails_while_its_vfs_are_offered(tree: Tree) -> None:
    with_virtual_functions(tree)
    found = assigned(tree, Resource(NAME, kind("pci")))
    physical, virtual, _ = found.devices[NAME]
    with pytest.raises(ResetFailed, match=r"a reset of 0000:3b:00\.0 would end its virtual functions"):
        reset(tree.host, [virtual, physical])
    assert resets(tree) == []
    reset(tree.host, [virtual])
    assert resets(tree) == ["0000:3b:00.2"]
    alone = assigned(tree, Resource(NAME, kind("pci", name="0000:3b:00.0"))).devices[NAME]
    reset(tree.host, alone)
    assert resets(tree) == ["0000:3b:00.0", "0000:3b:00.2"]


def test_only_first_device_of_a_function_can_be_offered_with_reset(tree: Tree) -> None:
    parent = function(tree, "0000:05:00.0")
    for port in (0, 1):
        interface(tree, parent, f"eth{port}", mac="02:00:00:00:00:01", dev_port=port)
    found = assigned(tree, Resource(NAME, kind("nic"), reset=True))
    assert ids(found, NAME) == ["nic-0000-05-00-0"]
    assert "a reset of it would also reset nic-0000-05-00-0" in unassigned_reason(found, "nic-0000-05-00-0-p1")
