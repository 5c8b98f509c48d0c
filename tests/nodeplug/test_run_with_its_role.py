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
from tests.nodeplug.cluster import NODE, ClusterStand, using
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
        stand = ClusterStand(socket_dir, authorization="RBAC")
        for manifest in to_builtins(read_documents(SHIPPED.read_bytes())):
            stand.server.write(manifest)
        await stack.enter_async_context(stand)
        made = Machine(tmp_path, stand, MadeUpHost(tmp_path / "host", "fuse", "kvm"), socket_dir)
        stack.push_async_callback(made.end)
        yield made


def as_account(machine: Machine, of_node: str) -> None:
    """Give the daemon a token of its account that is bound to a node."""
    server = machine.stand.server
    reference = {"apiVersion": "v1", "kind": "Node", "name": of_node}
    made = server.tokens.issue("nodeplug", "nodeplug", {"spec": {"boundObjectRef": reference}})
    write_kubeconfig(machine.kubeconfig, server.url, made["status"]["token"])


async def test_its_role_is_enough_for_a_claims_life_and_for_no_more(machine: Machine) -> None:
    stand = machine.stand
    await machine.classes()
    await stand.until(lambda: stand.get("Node", NODE))  # a token can only be bound to an existing node
    as_account(machine, NODE)
    process = await machine.start(resources=RESOURCES)
    await machine.until_published()
    await stand.create(claim("c", request(deviceClassName=KVM)), using("p", ["mine"], claims={"mine": "c"}))
    await stand.until_phase("p", "Running")

    async def told() -> bool:
        devices = (await stand.get("ResourceClaim", "c")).get("status", {}).get("devices", [])
        return [each["device"] for each in devices] == ["misc-kvm"]

    await stand.until(told)
    await stand.delete("Pod", "p")
    await stand.until_gone("Pod", "p")
    await machine.until(lambda: machine.leases() == [])
    process.terminate()
    _, errors = await process.communicate()
    assert b"forbidden" not in errors.lower()


async def test_with_another_nodes_token_it_publishes_nothing_and_says_why(machine: Machine) -> None:
    await machine.stand.create(node("n2"))
    as_account(machine, "n2")
    process = await machine.start(resources=RESOURCES)
    assert process.stderr is not None
    while b"nodeplug on node n2 may only write its own slices" not in await process.stderr.readline():
        assert process.returncode is None
        await machine.stand.clock.advance(1.0)
    assert await machine.published() == {}
