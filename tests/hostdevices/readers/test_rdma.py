"""RDMA devices, their nodes, and their network interface."""

from hostdevices import Device, Inventory, Version
from hostdevices.readers.rdma import read
from tests.hostdevices.machine import interface, rdma
from tests.hostdevices.tree import Tree


def devices(tree: Tree) -> dict[str, Device]:
    return {device.name: device for device in read(tree.host) if isinstance(device, Device)}


def test_rdma_device_has_nodes_and_attributes(inventory: Inventory) -> None:
    device = inventory.devices["rdma-0000-3b-00-0"]
    assert {node.path for node in device.devnodes} == {
        "/dev/infiniband/uverbs0",
        "/dev/infiniband/umad0",
        "/dev/infiniband/issm0",
        "/dev/infiniband/rdma_cm",
    }
    assert device.numa_nodes == (0,)
    assert device.parents == ("pci-0000-3b-00-0",)
    assert (
        device.attributes.items()
        >= {
            "nodeType": "CA",
            "nodeGUID": "b8ce:f603:0000:0001",
            "firmware": Version("22.35.2000"),
            "ports": 1,
            "linkLayer": "Ethernet",
            "state": "ACTIVE",
            "physState": "LinkUp",
            "rate": "100 Gb/sec (4X EDR)",
            "netdev": "ens1f0np0",
        }.items()
    )


def test_verbs_nodes_are_matched_to_their_own_device(tree: Tree) -> None:
    for index in (0, 1):
        parent = tree.pci(f"0000:3b:00.{index}", driver="mlx5_core")
        rdma(tree, parent, f"mlx5_{index}", 1 - index)
    found = devices(tree)
    assert found["mlx5_0"].devnodes[0].path == "/dev/infiniband/uverbs1"
    assert found["mlx5_1"].devnodes[0].path == "/dev/infiniband/uverbs0"


def test_attributes_come_from_the_active_port(tree: Tree) -> None:
    syspath = rdma(tree, tree.pci("0000:05:00.0"), "mlx4_0", 0)
    tree.file(f"{syspath}/ports/1/state", "1: DOWN")
    tree.file(f"{syspath}/ports/2/state", "4: ACTIVE")
    tree.file(f"{syspath}/ports/2/link_layer", "InfiniBand")
    attributes = devices(tree)["mlx4_0"].attributes
    assert attributes.items() >= {"ports": 2, "state": "ACTIVE", "linkLayer": "InfiniBand"}.items()


def test_netdev_is_omitted_while_interface_is_ambiguous(tree: Tree) -> None:
    parent = tree.pci("0000:05:00.0")
    syspath = rdma(tree, parent, "mlx4_0", 0)
    for name in ("eth4", "eth5"):
        interface(tree, parent, name, mac="b8:ce:f6:00:00:01")
    assert "netdev" not in devices(tree)["mlx4_0"].attributes
    tree.file(f"{syspath}/ports/1/gid_attrs/ndevs/0", "eth5")
    assert devices(tree)["mlx4_0"].attributes["netdev"] == "eth5"


def test_software_rdma_id_contains_its_name(tree: Tree) -> None:
    tree.device("/sys/devices/virtual/infiniband/rxe0", group="class/infiniband", node_type="1: CA")
    tree.device(
        "/sys/devices/virtual/infiniband_verbs/uverbs0",
        group="class/infiniband_verbs",
        node="infiniband/uverbs0",
        ibdev="rxe0",
    )
    device = devices(tree)["rxe0"]
    assert device.id == "rdma-rxe0"
    assert [node.path for node in device.devnodes] == ["/dev/infiniband/uverbs0"]
