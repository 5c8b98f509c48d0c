"""A CNI plugin on a real node finds the function that the kubelet allocated: host-device, called as by Multus.

The function is made up, because there is no hardware; its interface is a veth, which the plugin really moves. The
plugin sees the made-up /sys in its own mount namespace.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeletapi.podresources.v1 import api_pb2 as podresources
from tests.e2e.conftest import DaemonProcess
from tests.e2e.realnode import HOME, RealNode, pod
from tests.hostdevices.machine import interface
from tests.hostdevices.tree import Tree
from tests.network import ip

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not (HOME / "bin/host-device").exists(), reason="host-device is not built: make node"),
]
FUNCTION, RESOURCE, LINK = "0000:3b:00.2", "e2e.example/function", "npe2ec0"
MAC = "02:00:00:00:0e:77"


@pytest.fixture
def card(tmp_path: Path) -> Iterator[Tree]:
    """A card with one virtual function, which has an interface."""
    tree = Tree(tmp_path / "host")
    physical = tree.pci("0000:3b:00.0", pci_class="020000", vendor="15b3", driver="mlx5_core", sriov_totalvfs=8)
    function = tree.virtual_function(physical, FUNCTION, 0, pci_class="020000", vendor="15b3", driver="mlx5_core")
    interface(tree, function, LINK, mac=MAC)
    (tree.root / "sys/bus/pci/drivers/mlx5_core").mkdir(parents=True)  # the plugin checks here for vfio-pci
    subprocess.run(["ip", "link", "del", LINK], check=False, capture_output=True)
    ip("link", "add", LINK, "address", MAC, "type", "veth", "peer", "name", "npe2ec1")
    yield tree
    subprocess.run(["ip", "link", "del", "npe2ec1"], check=False, capture_output=True)


@pytest.fixture
def daemon(node: RealNode, card: Tree, tmp_path: Path) -> Iterator[DaemonProcess]:
    resources: list[dict[str, Any]] = [{"name": RESOURCE, "select": "sriov-vf", "compat": "sriov"}]
    process = DaemonProcess(
        node, tmp_path, resources, root=card.root, deviceInfoDirectory=str(tmp_path / "devinfo"), rescanSeconds=1
    )
    process.start()
    try:
        node.wait_resource(RESOURCE, 1)
        yield process
    finally:
        node.delete_pod("with-cni")
        process.end()
        node.wait_resource(RESOURCE, 0)


def call(command: str, root: Path, device: str, network: str) -> dict[str, Any]:
    """Call the plugin as Multus does, with the device id from the kubelet."""
    config = {
        "cniVersion": "1.0.0", "name": "data", "type": "host-device", "deviceID": device,
        "runtimeConfig": {"deviceID": device},
    }  # fmt: skip
    about = {"CNI_COMMAND": command, "CNI_CONTAINERID": "e2e", "CNI_NETNS": network, "CNI_IFNAME": "net1"}
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", 'mount --rbind "$0" /sys && exec "$1"', root / "sys", HOME / "bin/host-device"],
        input=json.dumps(config), env=os.environ | about | {"CNI_PATH": str(HOME / "bin")}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(done.stdout or "{}"))


def test_host_device_plugin_moves_the_allocated_function(
    node: RealNode, daemon: DaemonProcess, card: Tree, tmp_path: Path
) -> None:
    node.apply(pod("with-cni", "trap 'exit 0' TERM; while true; do sleep 1 & wait; done", {RESOURCE: 1}))
    node.wait("pod/with-cni", ".status.phase", "Running")
    with node.pod_resources("List") as ask:
        listed = ask(podresources.ListPodResourcesRequest()).pod_resources
    (devices,) = [x for each in listed if each.name == "with-cni" for c in each.containers for x in c.devices]
    assert (devices.resource_name, list(devices.device_ids)) == (RESOURCE, [FUNCTION])
    environment = node.kubectl("exec", "with-cni", "--", "env")
    assert f"PCIDEVICE_E2E_EXAMPLE_FUNCTION={FUNCTION}" in environment
    (file,) = (tmp_path / "devinfo").iterdir()
    assert json.loads(file.read_text())["pci"]["pci-address"] == FUNCTION

    network = f"/proc/{node.processes('with-cni')[0]}/ns/net"
    result = call("ADD", card.root, devices.device_ids[0], network)
    assert [(x["name"], x["mac"]) for x in result["interfaces"]] == [("net1", MAC)]
    assert MAC in node.kubectl("exec", "with-cni", "--", "cat", "/sys/class/net/net1/address")
    assert LINK not in ip("-o", "link")
    call("DEL", card.root, devices.device_ids[0], network)
    assert MAC in ip("-o", "link", "show", LINK)
