"""Accelerator classes, QAT, DSA and IAA."""

from hostdevices import Device, Inventory, scan
from hostdevices.readers.accel import read
from hostdevices.readers.intel_io import read_dsa
from tests.hostdevices.tree import Tree


def test_gaudi_has_its_control_node(inventory: Inventory) -> None:
    device = inventory.devices["accel-0000-b3-00-0"]
    assert [node.path for node in device.devnodes] == ["/dev/accel/accel0", "/dev/accel/accel_controlD0"]
    assert device.attributes.items() >= {"type": "accel", "driver": "habanalabs", "vendor": "1da3", "module": 5}.items()


def test_every_accelerator_class_is_read(tree: Tree) -> None:
    for index, (name, node) in enumerate(
        (("habanalabs/hl0", "hl0"), ("neuron_device/neuron0", "neuron0"), ("apex/apex_0", "apex_0"))
    ):
        tree.child(tree.pci(f"0000:0{index}:00.0"), name, group=f"class/{name.partition('/')[0]}", node=node)
    found = [device for device in read(tree.host) if isinstance(device, Device)]
    assert [(x.attributes["type"], x.devnodes[0].path) for x in found] == [
        ("habanalabs", "/dev/hl0"),
        ("neuron_device", "/dev/neuron0"),
        ("apex", "/dev/apex_0"),
    ]


def test_hailo_and_tenstorrent_ids_are_pci_addresses(tree: Tree) -> None:
    """Hailo's and Tenstorrent's drivers number cards in the order in which they answer. Their ids are PCI addresses."""
    hailo = tree.pci("0000:01:00.0", vendor="1e60", device="2864", pci_class="120000", driver="hailo")
    tree.child(hailo, "hailo_chardev/hailo0", group="class/hailo_chardev", node="hailo0")
    newer = tree.pci("0000:03:00.0", vendor="1e60", device="45c4", pci_class="120000", driver="hailo1x")
    tree.child(newer, "hailo1x/h1x-0", group="class/hailo1x", node="h1x-0")
    card = tree.pci("0000:02:00.0", vendor="1e52", device="b140", pci_class="120000", driver="tenstorrent")
    tree.child(card, "tenstorrent/tenstorrent!1", group="class/tenstorrent", node="tenstorrent/1", tt_card_type="p150a")
    found = {device.id: device for device in read(tree.host) if isinstance(device, Device)}
    assert {x: [node.path for node in device.devnodes] for x, device in found.items()} == {
        "accel-0000-01-00-0": ["/dev/hailo0"],
        "accel-0000-03-00-0": ["/dev/h1x-0"],
        "accel-0000-02-00-0": ["/dev/tenstorrent/1"],
    }
    tenstorrent = found["accel-0000-02-00-0"].attributes
    assert (tenstorrent["model"], tenstorrent["index"], tenstorrent["vendor"]) == ("p150a", 1, "1e52")


def test_control_node_is_matched_to_its_card(tree: Tree) -> None:
    for index in (0, 1):
        parent = tree.pci(f"0000:0{index}:00.0")
        for name in (f"accel{index}", f"accel_controlD{index}"):
            tree.child(parent, f"accel/{name}", group="class/accel", node=f"accel/{name}")
    found = [device for device in read(tree.host) if isinstance(device, Device)]
    assert [[node.path for node in device.devnodes] for device in found] == [
        ["/dev/accel/accel0", "/dev/accel/accel_controlD0"],
        ["/dev/accel/accel1", "/dev/accel/accel_controlD1"],
    ]


def test_qat_function_on_vfio_has_its_group_as_parent(inventory: Inventory) -> None:
    device = inventory.devices["qat-0000-6b-00-1"]
    assert [node.path for node in device.devnodes] == ["/dev/vfio/30", "/dev/vfio/vfio"]
    assert device.parents == ("pci-0000-6b-00-1", "vfio-0000-6b-00-1")
    assert device.attributes.items() >= {"sriov": "vf", "pf": "0000:6b:00.0", "services": "sym;asym"}.items()
    assert device.attributes["state"] == "up"
    assert "qat-0000-6b-00-0" not in inventory.devices  # a physical function cannot be passed on: its driver uses it


def test_only_enabled_user_queues_are_listed(inventory: Inventory) -> None:
    (device,) = (x for x in inventory.devices.values() if x.kind == "dsa")
    assert device.id == "dsa-0000-6a-01-0-wq0"
    assert [node.path for node in device.devnodes] == ["/dev/dsa/wq0.0"]
    assert (
        device.attributes.items()
        >= {
            "type": "dsa",
            "mode": "shared",
            "size": 16,
            "priority": 10,
            "label": "app",
            "resource.kubernetes.io/numaNode": 0,
        }.items()
    )


def test_queue_node_is_found_by_its_character_device(tree: Tree) -> None:
    accelerator = tree.device(f"{tree.pci('0000:6a:02.0')}/iax3", group="bus/dsa/devices", state="enabled")
    queue = tree.device(f"{accelerator}/wq3.1", group="bus/dsa/devices", state="enabled", type="user", mode="dedicated")
    tree.device(f"{queue}/wq3.1", node="iax/wq3.1")
    (device,) = (x for x in read_dsa(tree.host) if isinstance(x, Device))
    assert device.attributes["type"] == "iax"
    assert [node.path for node in device.devnodes] == ["/dev/iax/wq3.1"]


def test_disabled_work_queue_is_removed(tree: Tree) -> None:
    accelerator = tree.device(f"{tree.pci('0000:6a:01.0')}/dsa0", group="bus/dsa/devices", state="enabled")
    queue = tree.device(f"{accelerator}/wq0.0", group="bus/dsa/devices", state="enabled", type="user")
    assert "dsa-0000-6a-01-0-wq0" in scan(tree.host).devices
    tree.file(f"{queue}/state", "disabled")
    assert "dsa-0000-6a-01-0-wq0" not in scan(tree.host).devices
