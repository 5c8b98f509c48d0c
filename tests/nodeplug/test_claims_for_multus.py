"""A virtual function that only claims can have: Multus finds it and its information, as for the device plugin API."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.controlplane.scheduler.kit import Json, device_class, request, template
from tests.deviceplugin.host import MadeUpHost
from tests.hostdevices.machine import interface, rdma
from tests.hostdevices.tree import Tree
from tests.nodeplug import multus
from tests.nodeplug.cluster import using
from tests.nodeplug.machine import Machine, in_cluster

HELD = "pci-0000-3b-00-2"
FUNCTION, PHYSICAL = "0000:3b:00.2", "0000:3b:00.0"
DATA, FUSE = "example.com/data", {"name": "example.com/fuse", "select": "fuse", "api": "dra"}
RESOURCE: Json = {"name": DATA, "select": "sriov-vf", "api": "dra", "compat": "sriov"}


@pytest.fixture
async def machine(tmp_path: Path, socket_dir: Path) -> AsyncIterator[Machine]:
    """A card with one virtual function, which has RDMA."""
    host = MadeUpHost(tmp_path / "host", "fuse")
    tree = Tree(host.root)
    physical = tree.pci(PHYSICAL, pci_class="020000", vendor="15b3", driver="mlx5_core", sriov_totalvfs=8)
    function = tree.virtual_function(physical, FUNCTION, 0, pci_class="020000", vendor="15b3", driver="mlx5_core")
    interface(tree, function, "ens1f0v0", mac="02:00:00:00:00:01")
    rdma(tree, function, "mlx5_2", 2)
    async with in_cluster(tmp_path, host, socket_dir) as made:
        yield made


async def test_multus_finds_the_function_of_a_claim(machine: Machine, tmp_path: Path) -> None:
    cluster, folder = machine.cluster, tmp_path / "devinfo"
    await machine.start(resources=[RESOURCE, FUSE], deviceInfoDirectory=str(folder))
    await cluster.create(device_class("data", f'device.attributes["nodeplug.dev"].resource == "{DATA}"'))
    await machine.until_published()
    await cluster.create(template("data", request(deviceClassName="data")))
    await cluster.create(using("p", ["net"], templates={"net": "data"}))
    pod = await cluster.advance_clock(1.0, "Pod", "p", "Running")
    found = multus.devices_of(pod, await cluster.all("ResourceClaim"), await cluster.all("ResourceSlice"))
    assert found == {DATA: [FUNCTION]}
    assert multus.device_info(folder, DATA, FUNCTION)["pci"] == {
        "pci-address": FUNCTION,
        "pf-pci-address": PHYSICAL,
        "rdma-device": "mlx5_2",
    }
    config = tmp_path / "config0.yaml"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"resources": [FUSE]}))
    await cluster.until(lambda: _is_reloaded(machine))
    assert multus.device_info(folder, DATA, FUNCTION)["pci"]["rdma-device"] == "mlx5_2"  # while the claim exists
    before = (await machine.published())[HELD]["attributes"]
    await machine.end()
    await machine.start(resources=[FUSE | {"name": "example.com/other"}], deviceInfoDirectory=str(folder))
    await cluster.until(lambda: _has_restarted(machine))
    after = (await machine.published())[HELD]["attributes"]
    assert after == before  # Multus finds the function by it for a new sandbox
    found = multus.devices_of(pod, await cluster.all("ResourceClaim"), await cluster.all("ResourceSlice"))
    assert found == {DATA: [FUNCTION]}
    assert multus.device_info(folder, DATA, FUNCTION)["pci"]["rdma-device"] == "mlx5_2"
    await cluster.delete("Pod", "p")
    await machine.until(lambda: not any(folder.iterdir()))


async def _is_reloaded(machine: Machine) -> bool:
    """Return whether the daemon has read the file that no longer offers the function."""
    (taint,) = (await machine.published())[HELD].get("taints", [{"value": ""}])
    return bool(taint["value"] == "it-is-not-offered-any-more")


async def _has_restarted(machine: Machine) -> bool:
    """Return whether the daemon with the new names has published."""
    fuse = (await machine.published()).get("misc-fuse", {}).get("attributes", {})
    return bool(fuse.get("resource") == {"string": "example.com/other"})
