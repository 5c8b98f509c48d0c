"""A recorded machine with four NUMA nodes: its InfiniBand card, offered to a kubelet that aligns devices."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from deviceplugin import DevicePlugins, Paths
from folderwatch import FolderWatcher
from hostdevices import Device, Host, scan
from hostdevices.presence import Presence
from kubelet import Node, container, pod
from kubelet.topology import Policy
from resources.resource import Resource
from resources.selector import Ids
from tests.checkpoint.build import opened
from tests.nodes.test_archives import FOLDER
from tests.running import running

MACHINE = FOLDER / "40intel64-2g2n4c+pcilocality.tar.bz2"
CARD, OTHER = "recorded.example/infiniband", "recorded.example/nic"


@pytest.fixture(scope="module")
def devices(unpacked: Callable[[Path], Path]) -> dict[str, Device]:
    if not MACHINE.exists():
        pytest.skip(f"no recorded machine {MACHINE}")
    return dict(scan(Host(unpacked(MACHINE))).devices)


@pytest.mark.parametrize(
    ("policy", "other_node", "phase", "reason"),
    [
        ("single-numa-node", 2, "Running", ""),
        ("single-numa-node", 0, "Failed", "TopologyAffinityError"),
        ("restricted", 0, "Failed", "TopologyAffinityError"),
        ("best-effort", 0, "Running", ""),
        ("none", 0, "Running", ""),
    ],
)
async def test_topology_policy_aligns_two_devices(
    devices: dict[str, Device],
    socket_dir: Path,
    tmp_path: Path,
    policy: Policy,
    other_node: int,
    phase: str,
    reason: str,
) -> None:
    card = devices["pci-0000-43-00-0"]
    assert card.numa_nodes == (2,)
    other = Device(id="nic-other", kind="nic", name="other", numa_nodes=(other_node,))
    paths = Paths(socket_dir / "device-plugins", socket_dir / "plugins_registry", tmp_path / "cdi")
    resources = [Resource(CARD, Ids((card.id,))), Resource(OTHER, Ids((other.id,)))]
    # the card's syspath belongs to the recorded machine, so it is offered and aligned here, and allocated as a bare ID
    bare = Device(id=card.id, kind=card.kind, name=card.name, numa_nodes=card.numa_nodes)
    host = Host()
    presence, ledger = Presence(host), await opened(tmp_path / "state")
    presence.update({}, (bare, other))
    with closing(FolderWatcher()) as watcher:
        plugins = DevicePlugins(resources, host, presence, ledger, paths, watcher)
        plugins.update({CARD: (bare,), OTHER: (other,)})
        async with (
            Node(socket_dir, numa_nodes=range(4), topology_policy=policy) as node,
            running(plugins.run()),
        ):
            await node.until(lambda: node.allocatable() == {CARD: 1, OTHER: 1})
            status = await node.admit(pod("p", container("c", {CARD: 1, OTHER: 1})))
            assert (status.phase, status.reason) == (phase, reason)
    await ledger.close()
