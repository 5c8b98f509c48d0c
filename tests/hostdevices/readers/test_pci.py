"""PCI functions: facts, places, SR-IOV."""

import pytest

from hostdevices import Device, Scanner, scan
from hostdevices.health import signals
from hostdevices.readers import Finding
from hostdevices.readers.pci import read
from tests.hostdevices.machine import interface
from tests.hostdevices.tree import Tree

NUMA = "resource.kubernetes.io/numaNode"
ROOT = "resource.kubernetes.io/pcieRoot"


def functions(tree: Tree) -> dict[str, Device]:
    found: list[Finding] = list(read(tree.host))
    return {device.name: device for device in found if isinstance(device, Device)}


def test_function_has_expected_attributes(tree: Tree) -> None:
    syspath = tree.pci(
        "0000:3b:00.0",
        root="pci0000:3a",
        vendor="15b3",
        device="101d",
        pci_class="020000",
        driver="mlx5_core",
        numa_node=1,
    )
    tree.iommu_group(17, syspath)
    device = functions(tree)["0000:3b:00.0"]
    assert device.id == "pci-0000-3b-00-0"
    assert device.numa_nodes == (1,)
    assert device.attributes == {
        "name": "0000:3b:00.0",
        "bus": "pci",
        "vendor": "15b3",
        "device": "101d",
        "class": "020000",
        "subsystemVendor": "1028",
        "subsystemDevice": "0001",
        "revision": "01",
        "driver": "mlx5_core",
        "iommuGroup": 17,
        "resource.kubernetes.io/pciBusID": "0000:3b:00.0",
        ROOT: "pci0000:3a",
        NUMA: 1,
    }


def test_pci_domain_can_exceed_16_bits(tree: Tree) -> None:
    tree.pci("10000:01:00.0", root="pci10000:00")
    device = functions(tree)["10000:01:00.0"]
    assert device.id == "pci-10000-01-00-0"
    assert device.attributes[ROOT] == "pci10000:00"


def test_numa_node_minus_one_is_omitted(tree: Tree) -> None:
    tree.pci("0000:00:02.0", numa_node=-1)
    device = functions(tree)["0000:00:02.0"]
    assert device.numa_nodes == ()
    assert NUMA not in device.attributes


def test_numa_node_is_inherited_from_bridge(tree: Tree) -> None:
    tree.pci("0000:40:01.0", root="pci0000:40", numa_node=2)
    tree.pci("0000:41:00.0", root="pci0000:40", bridges=("0000:40:01.0",), numa_node=-1)
    assert functions(tree)["0000:41:00.0"].numa_nodes == (2,)


def test_root_complex_below_platform_device_is_found(tree: Tree) -> None:
    tree.pci("0002:01:00.0", root="platform/soc/3f000000.pcie/pci0002:00", bridges=("0002:00:00.0",))
    assert functions(tree)["0002:01:00.0"].attributes[ROOT] == "pci0002:00"


def test_virtual_function_has_pf_attribute_and_no_parent(tree: Tree) -> None:
    physical = tree.pci("0000:3b:00.0", sriov_totalvfs=8)
    tree.virtual_function(physical, "0000:3b:01.2", 10)
    tree.virtual_function(physical, "0000:3b:00.2", 0)
    found = functions(tree)
    assert found["0000:3b:00.0"].attributes.items() >= {"sriov": "pf", "totalVFs": 8, "numVFs": 2}.items()
    virtual = found["0000:3b:01.2"]
    assert virtual.attributes.items() >= {"sriov": "vf", "pf": "0000:3b:00.0", "vfIndex": 10}.items()
    assert virtual.parents == ()


def test_function_of_uplink_has_uplink_attribute(tree: Tree) -> None:
    for address, name in (("0000:00:03.0", "eth0"), ("0000:00:04.0", "eth1")):
        parent = tree.pci(address, pci_class="020000")
        interface(tree, f"{parent}/virtio2", name, mac="02:00:00:00:00:01")
    tree.file("/proc/net/route", "Iface Destination\neth0 00000000 0100A8C0 0003 0 0 0 00000000 0 0 0")
    found = functions(tree)
    assert found["0000:00:03.0"].attributes["uplink"] is True
    assert "uplink" not in found["0000:00:04.0"].attributes


def test_unbound_function_has_no_driver(tree: Tree) -> None:
    tree.pci("0000:00:02.0")
    assert "driver" not in functions(tree)["0000:00:02.0"].attributes


@pytest.mark.parametrize("name", ["vendor", "class", "numa_node"])
def test_malformed_attribute_is_a_problem_with_its_path(name: str, tree: Tree) -> None:
    syspath = tree.pci("0000:00:02.0")
    tree.pci("0000:00:03.0")
    tree.file(f"{syspath}/{name}", "zz top")
    inventory = scan(tree.host)
    assert list(inventory.devices) == ["pci-0000-00-03-0"]
    (problem,) = inventory.problems
    assert problem.where == syspath
    assert f"{syspath}/{name}" in problem.reason


@pytest.mark.parametrize("number", [1024, 99999999999999999999])
def test_out_of_range_numa_node_is_omitted(number: int, tree: Tree) -> None:
    tree.pci("0000:00:02.0", numa_node=number)
    assert functions(tree)["0000:00:02.0"].numa_nodes == ()


def test_numbers_beyond_64_bits_are_omitted(tree: Tree) -> None:
    tree.pci("0000:00:02.0", sriov_totalvfs=99999999999999999999)
    assert "totalVFs" not in functions(tree)["0000:00:02.0"].attributes


def test_network_function_has_selection_attributes(tree: Tree) -> None:
    physical = tree.pci("0000:3b:00.0", pci_class="020000", sriov_totalvfs=4, acpi_index=3)
    interface(tree, physical, "ens1", mac="02:00:00:00:00:01")
    virtual = tree.virtual_function(physical, "0000:3b:00.1", 0, pci_class="020700")
    tree.child(virtual, "infiniband/mlx5_1", group="class/infiniband", ports__1__pkeys__0="0x8001")
    tree.device(f"{virtual}/blue", group="bus/vdpa/devices", driver="vdpa/vhost_vdpa")  # its name is chosen at creation
    tree.device(f"{physical}/mlx5_core.sf.4/vdpa0", group="bus/vdpa/devices", driver="vdpa/vhost_vdpa")
    tree.pci("0000:00:1f.0", pci_class="060100", acpi_index=4)
    found = functions(tree)
    of_card, of_function = (found[f"0000:3b:00.{n}"].attributes for n in (0, 1))
    assert (of_card["acpiIndex"], of_card["linkType"]) == (3, "ethernet")
    assert (of_function["pKey"], of_function["vdpaType"], of_function["vdpa"]) == ("8001", "vhost", "blue")
    assert "vdpaType" not in of_card  # only its sub-function has one
    assert of_function["linkType"] == "ethernet"  # known without its own interface, which can be in a pod
    assert "acpiIndex" not in found["0000:00:1f.0"].attributes


@pytest.mark.parametrize(
    ("flags", "carrier", "is_healthy"), [("0x1003", 0, False), ("0x1003", 1, True), ("0x1002", 0, True)]
)
def test_virtual_function_has_fault_if_physical_link_has_no_carrier(
    tree: Tree, flags: str, carrier: int, *, is_healthy: bool
) -> None:
    physical = tree.pci("0000:3b:00.0", pci_class="020000")
    tree.child(physical, "net/ens1", group="class/net", flags=flags, carrier=carrier)
    tree.virtual_function(physical, "0000:3b:00.1", 0, pci_class="020000", driver="vfio-pci")
    faults = signals(tree.host, functions(tree)["0000:3b:00.1"]).faults
    words = {} if is_healthy else {"physical link": "its physical function's interface ens1 has no carrier"}
    assert faults == words


def test_pf_name_is_the_uplink_interface_and_no_representor(tree: Tree) -> None:
    """In switchdev mode the driver creates an interface for each function, in addition to the card's own."""
    physical = tree.pci("0000:3b:00.0", pci_class="020000")
    others = {"a0": "pf0vf0", "a1": "c1pf0sf7", "a2": "pf0", "a3": "p0pf0vf1"}
    for name, port in (*others.items(), ("ens1f0np0", "p0")):
        link = interface(tree, physical, name, mac="02:00:00:00:00:01", phys_port_name=port)
        tree.file(f"{link}/carrier", port == "p0")
    tree.virtual_function(physical, "0000:3b:00.1", 0, pci_class="020000")
    device = functions(tree)["0000:3b:00.1"]
    assert (device.attributes["pfName"], device.attributes["linkType"]) == ("ens1f0np0", "ethernet")
    assert signals(tree.host, device).faults == {}
    tree.file(f"{physical}/mlx5_core.sf.4/sfnum", 7)
    interface(tree, f"{physical}/mlx5_core.sf.4", "enp59s0f0s7", mac="02:00:00:00:00:02")
    (subfunction,) = (x for x in scan(tree.host).devices.values() if x.name == "enp59s0f0s7")
    assert subfunction.attributes["pfName"] == "ens1f0np0"
    for name in ("ens1f0np0", "a1", "a2"):  # moved to another network namespace; one stays
        tree.path(f"{physical}/net/{name}").rename(tree.path(f"/sys/{name}"))
    assert "pfName" not in functions(tree)["0000:3b:00.1"].attributes


def test_vhost_vdpa_device_has_its_function_as_parent(tree: Tree) -> None:
    function = tree.pci("0000:3b:00.1", pci_class="020000")
    vdpa = tree.device(f"{function}/vdpa0", group="bus/vdpa/devices", driver="vdpa/vhost_vdpa")
    tree.device(f"{vdpa}/vhost-vdpa-0", node="vhost-vdpa-0")
    other = tree.pci("0000:3b:00.2", pci_class="020000")
    tree.device(f"{other}/vdpa1", group="bus/vdpa/devices", driver="vdpa/virtio_vdpa")
    (device,) = (x for x in scan(tree.host).devices.values() if x.kind == "vdpa")
    assert (device.id, device.parents) == ("vdpa-0000-3b-00-1-vdpa0", ("pci-0000-3b-00-1",))
    assert [node.path for node in device.devnodes] == ["/dev/vhost-vdpa-0"]
    assert (device.attributes["driver"], device.attributes["name"]) == ("vhost_vdpa", "vdpa0")


def test_event_of_new_vdpa_device_updates_its_function(tree: Tree) -> None:
    """The kernel sends no event for the function itself."""
    function = tree.pci("0000:3b:00.1", pci_class="020000")
    scanner = Scanner(tree.host)
    assert "vdpaType" not in scanner.scan().devices["pci-0000-3b-00-1"].attributes
    made = tree.device(f"{function}/vdpa0", group="bus/vdpa/devices", driver="vdpa/virtio_vdpa")
    assert scanner.scan({"vdpa"}, [made]).devices["pci-0000-3b-00-1"].attributes["vdpaType"] == "virtio"


def test_vdpa_device_keeps_its_id_when_another_is_removed(tree: Tree) -> None:
    function = tree.pci("0000:3b:00.1", pci_class="020000")
    for number, name in enumerate(("blue", "green")):
        vdpa = tree.device(f"{function}/{name}", group="bus/vdpa/devices", driver="vdpa/vhost_vdpa")
        tree.device(f"{vdpa}/vhost-vdpa-{number}", node=f"vhost-vdpa-{number}")
    before = {x.name: x.id for x in scan(tree.host).devices.values() if x.kind == "vdpa"}
    tree.path("/sys/bus/vdpa/devices/blue").unlink()
    after = {x.name: x.id for x in scan(tree.host).devices.values() if x.kind == "vdpa"}
    assert (len(set(before.values())), after) == (2, {"green": before["green"]})
