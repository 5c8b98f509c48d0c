"""status.devices on a real API server."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from controlplane.apiserver import Server
from hostdevices import Device
from resourceapi.client import Client
from resourceapi.client.credentials import Credentials
from resourceapi.objects import v1
from tests.dra_plugin.kubelet_end import api_client
from tests.dra_plugin.preparing.cluster import Cluster, serve_claims
from tests.dra_plugin.preparing.world import DRIVER, NODE, World, claim, resource, result


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    found = api_client(server)
    yield found
    found.close()


@pytest.fixture
async def connected(tmp_path: Path, client: Client) -> AsyncIterator[World]:
    world = World(tmp_path)
    world.resources = [resource("fuse"), resource("kvm", shares=4)]
    world.claims = client.any_version(v1.ResourceClaim)
    async with world:
        yield world


def described(found: v1.ResourceClaim) -> bool:
    return bool(found.status.devices)


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
async def test_prepared_devices_are_ready_and_described(
    connected: World, server: Server, client: Client, version: str
) -> None:
    serve_claims(server, version)
    cluster = Cluster(client, version)
    share = "8d3c3c0c-3c1e-4d6a-9d0e-0d6a9d0e0d6a"
    wanted = await cluster.allocate("mine", result("misc-fuse", "a"), result("misc-kvm", "b", share_id=share))
    await connected.prepare(wanted)
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


async def test_a_nic_says_where_it_is_on_the_network(connected: World, client: Client) -> None:
    cluster = Cluster(client)
    connected.scan(fuse=Device("misc-fuse", "nic", "eth1", attributes={"mac": "02:00:00:00:00:01"}))
    await connected.prepare(await cluster.allocate("mine", result("misc-fuse")))
    (found,) = (await cluster.until("mine", described)).status.devices
    assert found.network_data == v1.NetworkDeviceData(interface_name="eth1", hardware_address="02:00:00:00:00:01")


async def test_others_entries_stay_and_a_repeat_changes_nothing(connected: World, client: Client) -> None:
    cluster = Cluster(client)
    wanted = await cluster.allocate("mine", result("misc-fuse", "a"), result("gpu-0", "b", driver="gpu.example.com"))
    other = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "mine", "namespace": "default"},
        "status": {"devices": [{"driver": "gpu.example.com", "pool": NODE, "device": "gpu-0", "conditions": []}]},
    }
    await asyncio.to_thread(cluster.claims.apply, other, "gpu.example.com", subresource="status")
    await connected.prepare(wanted)
    first = await cluster.until("mine", lambda found: len(found.status.devices) == 2)
    await connected.prepare(wanted)
    await connected.prepare(wanted)
    await connected.end()  # gives up what is not written yet
    assert (await cluster.get("mine")).status == first.status
    await connected.begin()


async def test_what_a_crash_kept_from_being_written_is_written_by_the_next_life(
    connected: World, client: Client
) -> None:
    cluster = Cluster(client)
    connected.claims = None
    await connected.restart()
    await connected.prepare(await cluster.allocate("mine", result("misc-fuse")))
    connected.claims = client.any_version(v1.ResourceClaim)
    await connected.restart()
    await connected.reconcile()
    await cluster.until("mine", described)


async def test_deallocation_takes_the_entries_away(connected: World, client: Client) -> None:
    cluster = Cluster(client)
    await connected.prepare(await cluster.allocate("mine", result("misc-fuse")))
    await cluster.until("mine", described)
    await cluster.deallocate("mine")
    assert (await cluster.get("mine")).status.devices == ()


async def test_a_later_claim_of_the_same_name_is_not_written_to(connected: World, client: Client) -> None:
    cluster = Cluster(client)
    old = await cluster.allocate("mine", result("misc-fuse"))
    await cluster.deallocate("mine")
    await cluster.delete("mine")
    await cluster.allocate("mine", result("misc-fuse"))
    await connected.prepare(old)
    await connected.unprepare(old)
    assert (await cluster.get("mine")).status.devices == ()


async def test_a_server_that_is_away_does_not_fail_or_delay_anything(tmp_path: Path) -> None:
    away = Client(lambda: Credentials(server="http://127.0.0.1:9", token="x"), attempts=1)
    world = World(tmp_path)
    world.claims = away.any_version(v1.ResourceClaim)
    async with world:
        assert await world.prepare(claim(result("misc-fuse")))
        await world.unprepare(claim())
    away.close()
