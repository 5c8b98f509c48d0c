"""docs/virtual-machines.md: its configurations on made-up machines, and how KubeVirt and DPDK find the devices."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_plugin.driver import PreparedDevice
from dra_plugin.publishing.device_class import device_class
from hostdevices import scan
from hostdevices.health import signals
from nodeplug.config import loads
from resources.assignment import assign
from resources.resource import Resource
from tests.dra_plugin.offering import offering
from tests.dra_plugin.preparing.test_bindings import BEFORE, Machine
from tests.dra_plugin.preparing.world import claim, result
from tests.hostdevices.machine import MDEV_UUID
from tests.hostdevices.pci_kernel import VFIO
from tests.hostdevices.tree import Tree
from tests.nodeplug import kubevirt
from tests.nodeplug.allocations import plugins_of

PAGE = (Path(__file__).parents[2] / "docs/virtual-machines.md").read_text()
BLOCKS = [list(yaml.safe_load_all(each.partition("```")[0])) for each in PAGE.split("```yaml\n")[1:]]


def resource(name: str, number: int = 0) -> Resource:
    """A resource of the page; `number` selects one of several with the same name."""
    found = [x for x in BLOCKS if "resources" in x[0] and x[0]["resources"][0]["name"] == f"example.com/{name}"]
    (read,) = loads(json.dumps(found[number][0]).encode()).resources
    return read


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Two cards in an IOMMU group each, the first with its audio function; a vGPU; two identical dongles."""
    tree = Tree(tmp_path / "host")
    for group, functions in ((7, ("0000:41:00.0", "0000:41:00.1")), (8, ("0000:42:00.0",))):
        members = [tree.pci(x, vendor="10de", pci_class="030000", driver=VFIO) for x in functions]
        tree.iommu_group(group, *members)
        tree.device(f"/sys/devices/virtual/vfio/{group}", group="class/vfio", node=f"vfio/{group}")
        for member in members:
            cdev = f"vfio{group}{member[-1]}"
            tree.child(member, f"vfio-dev/{cdev}", group="class/vfio-dev", node=f"vfio/devices/{cdev}")
    parent = tree.pci("0000:65:00.0", vendor="10de", driver="nvidia")
    mdev = tree.device(f"{parent}/{MDEV_UUID}", group="bus/mdev/devices")
    tree.file(f"{parent}/mdev_supported_types/nvidia-222/name", "GRID T4-1B")
    tree.link(f"{mdev}/mdev_type", f"{parent}/mdev_supported_types/nvidia-222")
    tree.iommu_group(52, mdev)
    for path, numbers in (("/dev/vfio/vfio", "10:196"), ("/dev/vfio/52", "240:52"), ("/dev/iommu", "10:127")):
        tree.node(path, numbers)
    controller = tree.pci("0000:00:14.0", pci_class="0c0330", driver="xhci_hcd")
    for port, number in (("1-2", 7), ("1-3", 9)):
        dongle = tree.usb(controller, port, vendor="0529", product="0001", devnum=number, busnum=1)
        tree.file(f"{dongle}/devnum", number)
    return tree


async def environment(tree: Tree, wanted: Resource, count: int, folder: Path, sockets: Path) -> tuple[Any, list[str]]:
    """Allocate this many units to a container; return its variables and its nodes."""
    async with plugins_of(tree.host, [wanted], folder, sockets) as offering:
        container = await offering.allocate("virt-launcher", wanted.name, count)
    return container.env, container.nodes


async def test_kubevirt_finds_cards_bound_to_vfio(tree: Tree, tmp_path: Path, socket_dir: Path) -> None:
    wanted = resource("card")
    env, nodes = await environment(tree, wanted, 2, tmp_path, socket_dir)
    assert kubevirt.addresses(env, kubevirt.PCI, wanted.name) == ["0000:41:00.0", "0000:42:00.0"]
    assert {"/dev/vfio/7", "/dev/vfio/8", "/dev/vfio/vfio"} <= set(nodes)
    permitted = next(x[0] for x in BLOCKS if x[0].get("kind") == "KubeVirt")["spec"]["configuration"]
    names = {x["resourceName"] for kind in permitted["permittedHostDevices"].values() for x in kind}
    assert names == {"example.com/card", "example.com/vgpu", "example.com/dongle"}


def test_cards_with_iommufd_have_only_cdev_nodes(tree: Tree) -> None:
    wanted = resource("card", 1)
    cards = assign(scan(tree.host), [wanted]).devices[wanted.name]
    assert [[node.path for node in card.devnodes] for card in cards] == [
        ["/dev/iommu", "/dev/vfio/devices/vfio70", "/dev/vfio/devices/vfio71"],
        ["/dev/iommu", "/dev/vfio/devices/vfio80"],
    ]


async def test_kubevirt_finds_mediated_vgpus(tree: Tree, tmp_path: Path, socket_dir: Path) -> None:
    wanted = resource("vgpu")
    env, nodes = await environment(tree, wanted, 1, tmp_path, socket_dir)
    assert kubevirt.addresses(env, kubevirt.MDEV, wanted.name) == [MDEV_UUID]
    assert set(nodes) == {"/dev/vfio/52", "/dev/vfio/vfio"}
    assert not any("0000:65:00.0" in value for value in env.values())  # the address of its parent


async def test_kubevirt_finds_vgpus_on_virtual_functions(tree: Tree, tmp_path: Path, socket_dir: Path) -> None:
    wanted = resource("vgpu", 1)
    for number, chosen in ((4, 0), (5, 1117)):
        address = f"0000:65:00.{number}"
        physical = "/sys/devices/pci0000:00/0000:65:00.0"
        function = tree.virtual_function(physical, address, number, vendor="10de", driver="nvidia")
        tree.iommu_group(60 + number, function)
        tree.device(f"/sys/devices/virtual/vfio/{60 + number}", group="class/vfio", node=f"vfio/{60 + number}")
        tree.path(f"{function}/vfio-dev").mkdir()
        tree.file(f"{function}/nvidia/current_vgpu_type", chosen)
    env, nodes = await environment(tree, wanted, 1, tmp_path, socket_dir)
    assert kubevirt.addresses(env, kubevirt.PCI, wanted.name) == ["0000:65:00.5"]
    assert set(nodes) == {"/dev/vfio/65", "/dev/vfio/vfio"}
    (idle,) = (x for x in scan(tree.host).devices.values() if (x.kind, x.name) == ("vfio", "0000:65:00.4"))
    assert signals(tree.host, idle).faults == {"vgpu": "no type of vGPU is chosen for it (nvidia/current_vgpu_type)"}


async def test_kubevirt_finds_usb_devices(tree: Tree, tmp_path: Path, socket_dir: Path) -> None:
    wanted = resource("dongle")
    env, nodes = await environment(tree, wanted, 2, tmp_path, socket_dir)
    found = kubevirt.addresses(env, kubevirt.USB, wanted.name)
    assert sorted(map(kubevirt.usb, found)) == [(1, 7), (1, 9)]
    assert set(nodes) == {"/dev/bus/usb/001/007", "/dev/bus/usb/001/009"}


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    made = Machine(tmp_path)
    made.resources = [resource("gpu")]
    async with made:
        yield made


def metadata(world: Machine, prepared: tuple[PreparedDevice, ...]) -> list[Any]:
    """The metadata of its devices in a container."""
    inside = world.container(prepared)
    (path,) = (x for x in inside.mounts if "dra-device-attributes" in x)
    return inside.metadata(path)


async def test_kubevirt_finds_the_card_of_a_claim(machine: Machine) -> None:
    template, user = next(x for x in BLOCKS if x[0].get("kind") == "ResourceClaimTemplate")
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["deviceClassName"] == device_class(resource("gpu"), "nodeplug.dev").metadata.name
    (wanted,) = user["spec"]["domain"]["devices"]["hostDevices"]
    assert wanted["requestName"] == request["name"]
    mine = claim(result("pci-0000-41-00-0", request["name"]))
    prepared = await machine.prepare(mine)
    assert kubevirt.from_metadata(metadata(machine, prepared), request["name"]) == (
        "pciBusID",
        "0000:41:00.0",
    )
    inside = machine.container(prepared)
    assert [(x.path, x.uid, x.gid) for x in inside.nodes.values()] == [
        ("/dev/vfio/7", 107, 107),
        ("/dev/vfio/vfio", 107, 107),
    ]
    await machine.unprepare(mine)
    assert machine.kernel.drivers() == BEFORE


async def test_kubevirt_does_not_find_a_card_of_an_alternative(machine: Machine) -> None:
    """The page warns about this: the metadata contain the alternative's name, the virtual machine the request's."""
    mine = claim(result("pci-0000-41-00-0", "card/first"))
    content = metadata(machine, await machine.prepare(mine))
    with pytest.raises(LookupError, match=r"available requests: \['card/first'\]"):
        kubevirt.from_metadata(content, "card")
    await machine.unprepare(mine)


def test_kubevirt_finds_the_vgpu_of_a_claim(tree: Tree) -> None:
    wanted = resource("vgpu")
    offers = offering([wanted], {wanted.name: assign(scan(tree.host), [wanted]).devices[wanted.name]})
    (vgpu,) = offers
    device = {"attributes": {name: {"string": x.string_value} for name, x in offers.attributes(vgpu).items()}}
    content = {"apiVersion": kubevirt.VERSION, "requests": [{"name": "vgpu", "devices": [device]}]}
    assert kubevirt.from_metadata([content], "vgpu") == ("mdevUUID", MDEV_UUID)


async def test_dpdk_container_has_its_function_and_nodes(tmp_path: Path) -> None:
    made = Machine(tmp_path)
    kernel = made.kernel
    kernel.made.link("/sys/devices/pci0000:00/0000:42:00.0/physfn", "/sys/devices/pci0000:00/0000:43:00.0")
    physical = kernel.function("0000:43:00.0", 9, "ixgbe", pci_class="020000", sriov_totalvfs=4)
    kernel.made.link(f"{physical}/virtfn0", "/sys/devices/pci0000:00/0000:42:00.0")
    kernel.made.child(physical, "net/ens1f0", group="class/net", flags="0x1003")
    for path in ("/dev/vhost-net", "/dev/net/tun"):
        kernel.made.node(path, "10:200")
    made.resources = [resource("dpdk")]
    async with made:
        mine = claim(result("pci-0000-42-00-0"))
        inside = made.container(await made.prepare(mine))
        assert inside.env["PCIDEVICE_EXAMPLE_COM_DPDK"] == "0000:42:00.0"
        assert set(inside.nodes) == {"/dev/vfio/8", "/dev/vfio/vfio", "/dev/vhost-net", "/dev/net/tun"}
        await made.unprepare(mine)
        assert kernel.drivers() == {**BEFORE, "0000:43:00.0": ("ixgbe", "")}
