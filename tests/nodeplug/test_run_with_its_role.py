"""`nodeplug run` with its shipped roles, policies and account, on an API server that enforces them."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from msgspec import to_builtins

from controlplane.apiserver import write_kubeconfig
from resourceapi.manifests import read_documents
from tests.controlplane.scheduler.kit import Json, claim, node, request
from tests.deviceplugin.host import MadeUpHost
from tests.nodeplug.cluster import NODE, NodeCluster, using
from tests.nodeplug.machine import Machine

SHIPPED = Path(__file__).resolve().parents[2] / "deploy" / "daemonset.yaml"
KVM = "kvm.example.com"
RESOURCES: list[Json] = [
    {"name": "example.com/fuse", "select": "fuse", "api": "dra"},
    {"name": "example.com/kvm", "select": "kvm", "api": "dra"},
]


@pytest.fixture
async def machine(tmp_path: Path, socket_dir: Path) -> AsyncIterator[Machine]:
    async with AsyncExitStack() as stack:
        cluster = NodeCluster(socket_dir, authorization="RBAC")
        for manifest in to_builtins(read_documents(SHIPPED.read_bytes())):
            cluster.server.write(manifest)
        await stack.enter_async_context(cluster)
        made = Machine(tmp_path, cluster, MadeUpHost(tmp_path / "host", "fuse", "kvm"), socket_dir)
        stack.push_async_callback(made.end)
        yield made


def use_node_token(machine: Machine, node_name: str) -> None:
    """Give the daemon a token of its account that is bound to a node."""
    server = machine.cluster.server
    reference = {"apiVersion": "v1", "kind": "Node", "name": node_name}
    made = server.tokens.issue("nodeplug", "nodeplug", {"spec": {"boundObjectRef": reference}})
    write_kubeconfig(machine.kubeconfig, server.url, made["status"]["token"])


async def test_shipped_role_suffices_for_a_claim(machine: Machine) -> None:
    cluster = machine.cluster
    await machine.classes()
    await cluster.until(lambda: cluster.get("Node", NODE))  # a token can only be bound to an existing node
    use_node_token(machine, NODE)
    process = await machine.start(resources=RESOURCES)
    await machine.until_published()
    await cluster.create(claim("c", request(deviceClassName=KVM)), using("p", ["mine"], claims={"mine": "c"}))
    await cluster.until_phase("p", "Running")

    async def is_reported() -> bool:
        devices = (await cluster.get("ResourceClaim", "c")).get("status", {}).get("devices", [])
        return [each["device"] for each in devices] == ["misc-kvm"]

    await cluster.until(is_reported)
    await cluster.delete("Pod", "p")
    await cluster.until_gone("Pod", "p")
    await machine.until(lambda: machine.leases() == [])
    process.terminate()
    _, errors = await process.communicate()
    assert b"forbidden" not in errors.lower()


async def test_token_of_another_node_publishes_nothing_and_logs_the_reason(machine: Machine) -> None:
    await machine.cluster.create(node("n2"))
    use_node_token(machine, "n2")
    process = await machine.start(resources=RESOURCES)
    assert process.stderr is not None
    while b"nodeplug on node n2 may only write its own slices" not in await process.stderr.readline():
        assert process.returncode is None
        await machine.cluster.clock.advance(1.0)
    assert await machine.published() == {}
