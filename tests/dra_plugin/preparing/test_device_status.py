"""status.devices on a real API server."""

from pathlib import Path

import pytest

from controlplane.apiserver import Server
from dra_plugin.preparing.device_status import StatusWriter
from hostdevices import Device
from resourceapi.client import AsyncClient, Credentials
from resourceapi.objects import v1
from tests.dra_plugin.preparing.cluster import Cluster, serve_claims
from tests.dra_plugin.preparing.node import Node
from tests.dra_plugin.preparing.world import DRIVER, NODE, World, claim, ref, result
from tests.running import running, until


def described(found: v1.ResourceClaim) -> bool:
    return bool(found.status.devices)


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
async def test_status_of_prepared_devices_is_written(
    node: Node, server: Server, client: AsyncClient, version: str
) -> None:
    serve_claims(server, version)
    cluster = Cluster(client, version)
    share = "8d3c3c0c-3c1e-4d6a-9d0e-0d6a9d0e0d6a"
    wanted = await cluster.allocate("mine", result("misc-fuse", "a"), result("misc-kvm", "b", share_id=share))
    await node.prepare(wanted)
    found = await cluster.until("mine", described)
    first, second = found.status.devices
    assert (first.driver, first.pool, first.device, first.share_id) == (DRIVER, NODE, "misc-fuse", None)
    assert [(x.type, x.status, x.reason) for x in first.conditions] == [("Ready", "True", "Prepared")]
    assert first.conditions[0].last_transition_time is not None
    assert first.data == {
        "resource": "example.com/fuse",
        "kind": "misc",
        "id": "misc-fuse",
        "name": "fuse",
        "nodes": ["/dev/fuse"],
    }
    assert (second.device, second.share_id) == ("misc-kvm", share)
    (owner,) = {entry.manager for entry in found.metadata.managed_fields if entry.operation == "Apply"}
    assert owner == DRIVER


async def test_status_of_a_nic_has_network_data(node: Node, cluster: Cluster) -> None:
    node.scan(fuse=Device("misc-fuse", "nic", "eth1", attributes={"mac": "02:00:00:00:00:01"}))
    await node.prepare(await cluster.allocate("mine", result("misc-fuse")))
    (found,) = (await cluster.until("mine", described)).status.devices
    assert found.network_data == v1.NetworkDeviceData(interface_name="eth1", hardware_address="02:00:00:00:00:01")


async def test_entries_of_other_drivers_stay_and_repeated_calls_change_nothing(node: Node, cluster: Cluster) -> None:
    wanted = await cluster.allocate("mine", result("misc-fuse", "a"), result("gpu-0", "b", driver="gpu.example.com"))
    other = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "mine", "namespace": "default"},
        "status": {"devices": [{"driver": "gpu.example.com", "pool": NODE, "device": "gpu-0", "conditions": []}]},
    }
    await cluster.claims.apply(other, "gpu.example.com", subresource="status")
    await node.prepare(wanted)
    first = await cluster.until("mine", lambda found: len(found.status.devices) == 2)
    await node.prepare(wanted)
    await node.prepare(wanted)
    await node.end()  # drops what is not written yet
    assert (await cluster.get("mine")).status == first.status
    await node.begin()


async def test_missing_status_is_written_after_a_restart(node: Node, cluster: Cluster) -> None:
    await node.prepare(await cluster.allocate("mine", result("misc-fuse")))
    await node.end()
    await cluster.claims.patch("mine", {"status": {"devices": None}}, "default", subresource="status")
    await node.begin()
    await cluster.until("mine", described)


async def test_status_of_a_later_claim_of_the_same_name_is_not_written(
    client: AsyncClient, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    old = await cluster.allocate("mine", result("misc-fuse"))
    await cluster.delete("mine")
    await cluster.allocate("mine", result("misc-fuse"))
    writer = StatusWriter(DRIVER, client.any_version(v1.ResourceClaim))
    async with running(writer.run()):
        writer.write(ref(old), [{"driver": DRIVER, "pool": NODE, "device": "misc-fuse"}])
        await until(lambda: "status.devices was not written" in caplog.text)
    assert (await cluster.get("mine")).status.devices == ()


async def test_unreachable_server_does_not_affect_preparing(tmp_path: Path) -> None:
    away = AsyncClient(lambda: Credentials(server="http://127.0.0.1:9", token="x"), attempts=1)
    world = World(tmp_path)
    world.statuses = StatusWriter(DRIVER, away.any_version(v1.ResourceClaim))
    async with world:
        assert await world.prepare(claim(result("misc-fuse")))
        await world.unprepare(claim())
    away.close()
