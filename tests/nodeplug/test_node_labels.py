"""`nodeSelector`: the labels of the daemon's own node, from the API server and from its state directory."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from controlplane.apiserver import write_kubeconfig
from nodeplug.node_labels import NodeLabels, remembered
from resourceapi.client import AsyncClient, Credentials
from tests.controlplane.scheduler.kit import Json, SchedulerCluster, node
from tests.nodeplug.conftest import until_logged
from tests.nodeplug.machine import Machine
from tests.running import running, until

NOWHERE = "http://127.0.0.1:9"  # no server listens there
RESOURCES: list[Json] = [
    {"name": "example.com/kvm", "select": "kvm"},
    {"name": "example.com/fuse", "select": "fuse", "shares": 7, "nodeSelector": {"pool": "busy"}},
    {"name": "example.com/fuse", "select": "fuse"},
]


@pytest.fixture
async def cluster() -> AsyncIterator[SchedulerCluster]:
    async with SchedulerCluster() as made:
        await made.create(node("n1", {"pool": "busy"}), node("n2", {"pool": "other"}))
        yield made


class ReportedLabels:
    """Records the labels that are reported."""

    def __init__(self) -> None:
        self.labels: asyncio.Queue[Mapping[str, str]] = asyncio.Queue()
        self.problems: asyncio.Queue[str] = asyncio.Queue()

    def reading(self, cluster: SchedulerCluster, state: Path, name: str = "n1") -> NodeLabels:
        known = remembered(state, name)
        client = AsyncClient(lambda: Credentials(server=cluster.server.url, token="t"), attempts=1)
        return NodeLabels(client, name, state, known, self.labels.put_nowait, self.problems.put_nowait, interval=0.01)


async def test_changed_labels_are_reported_and_stored(cluster: SchedulerCluster, tmp_path: Path) -> None:
    reported = ReportedLabels()
    async with running(reported.reading(cluster, tmp_path).run()):
        first = await reported.labels.get()
        assert first["pool"] == "busy"
        await cluster.patch("Node", "n1", {"metadata": {"labels": {"pool": None, "zone": "a"}}})
        second = await reported.labels.get()
        assert ("pool" in second, second["zone"]) == (False, "a")
    assert remembered(tmp_path, "n1") == second
    assert remembered(tmp_path, "n2") is None  # the labels of another node on a copied disk do not count
    for damaged in (b'{"node":"n1","labels":{"a":', b'{"other":' + b"[" * 100_000):
        (tmp_path / "node-labels.json").write_bytes(damaged)
        assert remembered(tmp_path, "n1") is None


async def test_labels_are_stored_later_after_a_failed_write(cluster: SchedulerCluster, tmp_path: Path) -> None:
    reported, state = ReportedLabels(), tmp_path / "state"
    state.touch()  # the folder cannot be created
    async with running(reported.reading(cluster, state).run()):
        labels = await reported.labels.get()
        state.unlink()
        await until(lambda: remembered(state, "n1") == labels)


async def test_missing_node_is_a_problem_and_changes_no_labels(cluster: SchedulerCluster, tmp_path: Path) -> None:
    reported = ReportedLabels()
    async with running(reported.reading(cluster, tmp_path, "nobody").run()):
        assert "nobody" in await reported.problems.get()
    assert reported.labels.empty()
    assert remembered(tmp_path, "nobody") is None


async def test_daemon_uses_stored_labels_while_the_server_is_down(machine: Machine) -> None:
    """First the labels are unknown, and the devices are withheld; later they are read from the state directory."""
    cluster = machine.cluster
    write_kubeconfig(machine.kubeconfig, NOWHERE, "token")
    first = await machine.start(resources=RESOURCES)
    await until_logged(first, "the labels of node n1 cannot be read")
    allocatable = cluster.node.allocatable
    await cluster.node.until(lambda: allocatable().get("example.com/kvm") == 1, 30)
    assert "example.com/fuse" not in allocatable()
    first.kill()
    await first.wait()

    write_kubeconfig(machine.kubeconfig, cluster.server.url, cluster.server.token)
    await cluster.patch("Node", "n1", {"metadata": {"labels": {"pool": "busy"}}})
    second = await machine.start(resources=RESOURCES)
    await cluster.node.until(lambda: allocatable().get("example.com/fuse") == 7, 30)
    second.kill()
    await second.wait()

    write_kubeconfig(machine.kubeconfig, NOWHERE, "token")
    await cluster.node.until(lambda: not allocatable().get("example.com/fuse"), 30)
    third = await machine.start(resources=RESOURCES)
    await until_logged(third, "they stay as they were")
    await cluster.node.until(lambda: allocatable().get("example.com/fuse") == 7, 30)
