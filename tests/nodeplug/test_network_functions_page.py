"""docs/network-functions.md: its configurations on a made-up card, with the stand-in kubelet and Multus' lookup."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from deviceplugin import DevicePlugins, Paths
from dra_plugin.preparing.device_config import read
from dra_plugin.preparing.interface_config import check_allowed
from dra_plugin.publishing.device_class import device_class
from folderwatch import FolderWatcher
from hostdevices import Device, scan
from hostdevices.presence import Presence
from kubelet.node import Node
from nodeplug.config import loads
from resources.assignment import assign
from resources.resource import Resource
from tests.checkpoint.build import opened
from tests.deviceplugin.node import offered, pod
from tests.hostdevices.machine import interface
from tests.hostdevices.tree import Tree
from tests.nodeplug.allocations import plugins_of
from tests.running import running

PAGE = (Path(__file__).parents[2] / "docs/network-functions.md").read_text()
FUNCTION = "0000:3b:00.2"


def blocks() -> list[list[dict[str, Any]]]:
    return [list(yaml.safe_load_all(each.partition("```")[0])) for each in PAGE.split("```yaml\n")[1:]]


def resource(block: list[dict[str, Any]]) -> Resource:
    (found,) = loads(json.dumps(block[0]).encode()).resources
    return found


@pytest.fixture
def card(tmp_path: Path) -> Tree:
    """A card with one virtual function, which has a network driver and RDMA; and the node's uplink."""
    tree = Tree(tmp_path / "host")
    physical = tree.pci("0000:3b:00.0", pci_class="020000", vendor="15b3", driver="mlx5_core", sriov_totalvfs=8)
    interface(tree, physical, "ens1f0", mac="b8:ce:f6:00:00:01")
    function = tree.virtual_function(physical, FUNCTION, 0, pci_class="020000", vendor="15b3", driver="mlx5_core")
    interface(tree, function, "ens1f0v0", mac="02:00:00:00:00:01")
    tree.child(function, "infiniband/mlx5_2", group="class/infiniband", node_type="1: CA")
    tree.child(
        function, "infiniband_verbs/uverbs2", group="class/infiniband_verbs", node="infiniband/uverbs2",
        numbers="231:194", ibdev="mlx5_2",
    )  # fmt: skip
    return tree


def assigned(card: Tree, wanted: Resource) -> tuple[Device, ...]:
    return assign(scan(card.host), [wanted]).devices[wanted.name]


async def test_page_function_has_device_info_for_multus(card: Tree, socket_dir: Path, tmp_path: Path) -> None:
    wanted, (network, user) = resource(blocks()[0]), blocks()[1]
    presence, devices = Presence(card.host), assigned(card, wanted)
    presence.update(scan(card.host).devices, devices)
    devinfo = tmp_path / "devinfo"
    paths = Paths(
        device_plugins=socket_dir / "device-plugins",
        plugins_registry=socket_dir / "plugins_registry",
        cdi=tmp_path / "cdi",
        device_info=devinfo,
    )
    for folder in (paths.device_plugins, paths.plugins_registry):
        folder.mkdir()
    ledger, watcher = await opened(tmp_path / "state", "boot"), FolderWatcher()
    ledger.is_complete = True
    plugins = DevicePlugins([wanted], card.host, presence, ledger, paths, watcher)
    plugins.update({wanted.name: devices})
    async with Node(socket_dir) as node, running(plugins.run()):
        (asked,) = user["spec"]["containers"][0]["resources"]["limits"]
        assert network["metadata"]["annotations"]["k8s.v1.cni.cncf.io/resourceName"] == asked == wanted.name
        await offered(node, asked)
        await node.admit(pod("with-multus", asked))
        ((device_id,),) = node.allocations("with-multus", "c").values()  # the id that Multus gets from the kubelet
        file = devinfo / f"{asked.replace('/', '-')}-{device_id}-device.json"
        assert json.loads(file.read_text()) == {
            "type": "pci",
            "version": "1.1.0",
            "pci": {"pci-address": FUNCTION, "pf-pci-address": "0000:3b:00.0", "rdma-device": "mlx5_2"},
        }
        options = await node.run_container_options("with-multus", "c")
        env = {each.name: each.value for each in options.envs}
        assert env["PCIDEVICE_EXAMPLE_COM_ENS1F0"] == FUNCTION
        rdma = {"rdma_dev": "mlx5_2", "uverbs": "/dev/infiniband/uverbs2"}
        assert json.loads(env["PCIDEVICE_EXAMPLE_COM_ENS1F0_INFO"]) == {
            FUNCTION: {"generic": {"deviceID": FUNCTION}, "rdma": rdma}
        }
    watcher.close()
    await ledger.close()


async def test_page_subfunctions_have_auxiliary_ids(card: Tree, socket_dir: Path, tmp_path: Path) -> None:
    physical = card.host.resolve("/sys/bus/pci/devices/0000:3b:00.0")
    for number in (4, 5):
        card.file(f"{physical}/mlx5_core.sf.{number}/sfnum", 80 + number)
        interface(card, f"{physical}/mlx5_core.sf.{number}", f"ens1f0s{number}", mac="02:00:00:00:00:04")
    wanted = resource(blocks()[2])
    async with plugins_of(card.host, [wanted], tmp_path, socket_dir) as offering:
        container = await offering.allocate("with-multus", wanted.name, 2)
    assert sorted(container.ids) == ["mlx5_core.sf.4", "mlx5_core.sf.5"]
    assert set(container.env["PCIDEVICE_EXAMPLE_COM_SF"].split(",")) == set(container.ids)
    assert json.loads(container.env["PCIDEVICE_EXAMPLE_COM_SF_INFO"]).keys() == set(container.ids)
    assert list((tmp_path / "devinfo").glob("*.json")) == []  # a file could only describe the card


def test_page_dpdk_function_includes_its_vfio_group(card: Tree) -> None:
    """A function that vfio-pci is bound to includes its group."""
    wanted = resource(blocks()[5])
    assert (wanted.vhost_net, wanted.ids) == (True, "pciBusID")
    bound = card.virtual_function(
        card.host.resolve("/sys/bus/pci/devices/0000:3b:00.0") or "", "0000:3b:00.3", 1, pci_class="020000",
        driver="vfio-pci",
    )  # fmt: skip
    card.iommu_group(42, bound)
    card.device("/sys/devices/virtual/vfio/42", group="class/vfio", node="vfio/42", numbers="240:0")
    card.device("/sys/devices/virtual/misc/vfio", group="class/misc", node="vfio/vfio", numbers="10:196")
    (function,) = assigned(card, wanted)
    assert {node.path for node in function.devnodes} == {"/dev/vfio/42", "/dev/vfio/vfio"}


def test_page_claim_names_existing_class_and_valid_interface(card: Tree) -> None:
    wanted, (template, user) = resource(blocks()[3]), blocks()[4]
    (function,) = assigned(card, wanted)
    assert "nic-0000-3b-00-2" in function.ids
    assert device_class(wanted, "nodeplug.dev").metadata.name == "data.example.com"
    devices = template["spec"]["spec"]["devices"]
    assert devices["requests"][0]["exactly"]["deviceClassName"] == "data.example.com"
    config = read(devices["config"][0]["opaque"]["parameters"], from_class=False)
    check_allowed(config.interface, wanted.dra.interface, "the page's claim")
    assert user["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] == template["metadata"]["name"]
