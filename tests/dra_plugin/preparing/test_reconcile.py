"""Claims that nobody unprepares: they end when the cluster and the kubelet agree that they are over, and not before."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from controlplane.apiserver import Server
from dra_plugin.driver import ClaimFailed
from resourceapi.client import Client
from resourceapi.client.credentials import Credentials
from resourceapi.objects import v1
from tests.dra_plugin.kubelet_end import api_client
from tests.dra_plugin.preparing.cluster import Cluster, PodResources, serve_claims, serving
from tests.dra_plugin.preparing.world import World, claim, resource, result, uid
from tests.dra_plugin.scripted import Scripted


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    found = api_client(server, attempts=1)
    yield found
    found.close()


@pytest.fixture
def cluster(client: Client) -> Cluster:
    return Cluster(client)


SHARE = "8d3c3c0c-3c1e-4d6a-9d0e-0d6a9d0e0d6a"


@pytest.fixture
async def pods(socket_dir: Path) -> AsyncIterator[PodResources]:
    found = PodResources()
    async with serving(found, socket_dir / "kubelet.sock"):
        yield found


@pytest.fixture
async def connected(tmp_path: Path, socket_dir: Path, client: Client, pods: PodResources) -> AsyncIterator[World]:
    world = World(tmp_path)
    world.resources = [resource("fuse"), resource("kvm", shares=4)]
    world.pod_resources = socket_dir / "kubelet.sock"
    world.claims = client.any_version(v1.ResourceClaim)
    async with world:
        yield world


@pytest.mark.parametrize("how", ["deleted", "replaced", "deallocated"])
async def test_a_claim_that_is_over_is_unprepared(
    connected: World, cluster: Cluster, pods: PodResources, how: str
) -> None:
    devices = await connected.prepare(await cluster.allocate("mine", result("misc-fuse")))
    pods.run("pod", "mine", devices)
    asked = pods.asked
    await connected.reconcile()
    assert (connected.units(), pods.asked) == (
        ["misc-fuse"],
        asked,
    )  # it is wanted: there is nothing to ask the kubelet
    await cluster.deallocate("mine")
    if how != "deallocated":
        await cluster.delete("mine")
    if how == "replaced":
        await cluster.allocate("mine", result("misc-fuse"))
    await connected.reconcile()
    assert connected.units() == ["misc-fuse"]  # deleted by force, and its container runs
    pods.end("pod")
    await connected.reconcile()
    assert (connected.units(), connected.files()) == ([], [])


async def test_a_pod_with_other_devices_of_a_claim_of_that_name_keeps_nothing(
    connected: World, cluster: Cluster, pods: PodResources
) -> None:
    await connected.prepare(await cluster.allocate("mine", result("misc-fuse")))
    await cluster.deallocate("mine")
    await cluster.delete("mine")
    later = await connected.prepare(await cluster.allocate("mine", result("misc-kvm", share_id=SHARE)))
    pods.run("pod", "mine", later)
    await connected.reconcile()
    assert connected.units() == [f"misc-kvm/{SHARE}"]


async def test_a_new_claim_has_the_device_of_one_that_nobody_unprepared(connected: World, cluster: Cluster) -> None:
    await connected.prepare(await cluster.allocate("old", result("misc-fuse")))
    new = await cluster.allocate("new", result("misc-fuse"))
    assert "unprepare that claim first" in await connected.refusal(new)
    await cluster.deallocate("old")
    await connected.prepare(new)
    assert [lease.holder for lease in connected.ledger.leases()] == [f"claim/{new.metadata.uid}"]


async def test_many_that_want_the_devices_of_dead_claims_do_not_wait_for_one_another_for_ever(
    connected: World, cluster: Cluster
) -> None:
    """Each of them looks, and each look unprepares what others are preparing just now."""
    shares = [f"8d3c3c0c-3c1e-4d6a-9d0e-0d6a9d0e0d6{n}" for n in range(4)]
    old = [await cluster.allocate(f"old-{n}", result("misc-kvm", share_id=share)) for n, share in enumerate(shares)]
    for each in old:
        await connected.prepare(each)
        await cluster.deallocate(each.metadata.name)
    new = [await cluster.allocate(f"new-{n}", result("misc-kvm", share_id=share)) for n, share in enumerate(shares)]
    async with asyncio.timeout(30):
        await asyncio.gather(*(connected.preparer.prepare([x]) for x in (*new, *old)))
        for each in new:
            await connected.prepare(each)  # some may have been told to come back
    assert len(connected.units()) == 4


async def test_while_the_kubelet_does_not_answer_nothing_is_over(
    connected: World, cluster: Cluster, socket_dir: Path
) -> None:
    await connected.prepare(await cluster.allocate("mine", result("misc-fuse")))
    await cluster.deallocate("mine")
    connected.pod_resources = socket_dir / "nobody.sock"
    await connected.restart()
    await connected.reconcile()
    (socket_dir / "nobody.sock").write_text("")
    await connected.reconcile()
    connected.pod_resources = socket_dir / ("longer-than-names-can-be" * 20)
    await connected.restart()
    await connected.reconcile()
    assert connected.units() == ["misc-fuse"]


async def test_while_the_server_does_not_answer_nothing_is_over(
    connected: World, cluster: Cluster, pods: PodResources
) -> None:
    await connected.prepare(await cluster.allocate("mine", result("misc-fuse")))
    await cluster.deallocate("mine")
    away = Client(lambda: Credentials(server="http://127.0.0.1:9", token="x"), attempts=1)
    connected.claims = away.any_version(v1.ResourceClaim)
    await connected.restart()
    asked = pods.asked
    await connected.reconcile()
    assert (connected.units(), pods.asked) == (["misc-fuse"], asked)
    away.close()


async def test_a_claim_that_is_called_for_during_the_look_is_left_to_the_next_one(
    connected: World, cluster: Cluster, pods: PodResources
) -> None:
    wanted = await cluster.allocate("mine", result("misc-fuse"))
    await connected.prepare(wanted)
    await cluster.deallocate("mine")
    pods.gate.clear()
    looking = asyncio.create_task(connected.reconcile())
    await asyncio.wait_for(pods.is_asked.wait(), 30)
    await connected.prepare(wanted)
    pods.gate.set()
    await looking
    assert connected.units() == ["misc-fuse"]
    await connected.reconcile()
    assert connected.units() == []


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
async def test_servers_of_every_age_are_understood_from_the_start(
    connected: World, server: Server, client: Client, version: str
) -> None:
    serve_claims(server, version)
    cluster = Cluster(client, version)
    await connected.prepare(await cluster.allocate("mine", result("misc-fuse")))
    await cluster.deallocate("mine")
    connected.claims = client.any_version(v1.ResourceClaim)
    await connected.restart()
    await connected.reconcile()
    assert connected.units() == []


async def test_a_server_that_hangs_keeps_nobody_waiting(world: World) -> None:
    with Scripted({}) as scripted:
        scripted.gate.clear()
        client = Client(lambda: Credentials(server=scripted.url), attempts=1)
        world.claims, world.patience = client.any_version(v1.ResourceClaim), 0.01
        await world.restart()
        await world.prepare(claim(result("misc-fuse"), name="first", uid=uid(1)))
        assert f"claim/{uid(1)}" in await world.refusal(claim(result("misc-fuse")))
        await world.unprepare(claim(name="first", uid=uid(1)))
        await world.prepare(claim(result("misc-fuse")))
        client.close()


async def test_a_server_without_the_api_is_no_word_that_claims_are_gone(connected: World, cluster: Cluster) -> None:
    await connected.prepare(await cluster.allocate("mine", result("misc-fuse")))
    with Scripted({}) as scripted:
        other = Client(lambda: Credentials(server=scripted.url), attempts=1)
        connected.claims = other.any_version(v1.ResourceClaim)
        await connected.restart()
        await connected.reconcile()
        assert (connected.units(), len(scripted.asked)) == (["misc-fuse"], 3)
        other.close()


async def test_it_looks_by_itself_after_the_start(connected: World, cluster: Cluster) -> None:
    await connected.prepare(await cluster.allocate("mine", result("misc-fuse")))
    await cluster.deallocate("mine")
    ended = asyncio.Event()
    connected.ledger.observe(lambda _: ended.set())
    connected.preparer.start()
    await asyncio.wait_for(ended.wait(), 30)
    assert connected.units() == []


async def test_what_pods_have_is_leased_again_when_the_record_was_lost(
    connected: World, cluster: Cluster, pods: PodResources
) -> None:
    running = await cluster.allocate("running", result("misc-fuse"))
    devices = await connected.prepare(running)
    pods.run("pod", "running", devices)
    files = connected.files()
    await connected.prepare(await cluster.allocate("over", result("misc-kvm", share_id=SHARE)))
    await connected.lose()
    assert connected.files() == files  # and those of the claim that no pod names are gone
    assert [(lease.unit, lease.holder) for lease in connected.ledger.leases()] == [
        ("misc-fuse", f"claim/{running.metadata.uid}")
    ]
    assert await connected.prepare(running) == devices
    assert "unprepare that claim first" in await connected.refusal(await cluster.allocate("new", result("misc-fuse")))


async def test_files_stay_until_it_is_known_whose_they_are(
    connected: World, cluster: Cluster, pods: PodResources
) -> None:
    running = await cluster.allocate("running", result("misc-fuse"))
    pods.run("pod", "running", await connected.prepare(running))
    files, known = connected.files(), connected.claims
    away = Client(lambda: Credentials(server="http://127.0.0.1:9", token="x"), attempts=1)
    connected.claims = away.any_version(v1.ResourceClaim)
    await connected.lose()
    assert (connected.files(), connected.units()) == (files, [])
    connected.claims = known
    await connected.restart()
    assert (connected.files(), connected.units()) == (files, ["misc-fuse"])
    away.close()


async def test_a_lost_record_is_made_good_at_the_first_look_that_the_server_answers(
    connected: World, cluster: Cluster, pods: PodResources
) -> None:
    running = await cluster.allocate("running", result("misc-fuse"))
    pods.run("pod", "running", await connected.prepare(running))
    await cluster.deallocate("running")
    await connected.lose()
    assert connected.units() == []
    assert connected.files() != []
    pods.end("pod")
    await connected.reconcile()
    assert (connected.units(), connected.files()) == ([], [])


@pytest.mark.parametrize("first", ["new", "running"])
async def test_nobody_gets_what_a_lost_record_had_while_it_is_not_made_good(
    connected: World, cluster: Cluster, pods: PodResources, first: str
) -> None:
    running = await cluster.allocate("running", result("misc-fuse"))
    devices = await connected.prepare(running)
    pods.run("pod", "running", devices)
    await cluster.deallocate("running")
    await connected.lose()
    assert connected.units() == []
    await cluster.allocate_again(running)
    new = await cluster.allocate("new", result("misc-fuse"))
    async with asyncio.timeout(10):  # a call that waits for the look is not waited for by it
        if first == "running":
            assert await connected.prepare(running) == devices
        assert "unprepare that claim first" in await connected.refusal(new)
    assert connected.units() == ["misc-fuse"]
    assert await connected.prepare(running) == devices


async def test_a_half_prepared_claim_that_is_over_is_undone(connected: World, cluster: Cluster) -> None:
    """As a disk leaves it that refuses to have it undone; the kubelet has never heard that it was prepared."""
    await connected.prepare(await cluster.allocate("mine", result("misc-fuse")))
    await connected.ledger.grant([replace(lease, phase="intended") for lease in connected.ledger.leases()])
    await connected.reconcile()
    assert connected.units() == ["misc-fuse"]  # it is wanted, and will be tried again
    await cluster.delete("mine")
    await connected.reconcile()
    assert (connected.units(), connected.files()) == ([], [])


async def test_a_claim_whose_call_is_not_answered_yet_is_not_over(
    connected: World, cluster: Cluster, pods: PodResources
) -> None:
    """No pod has it before the answer. The other claim of the call has the look made: its device is somebody else's."""
    pods.run("pod", "earlier", await connected.prepare(await cluster.allocate("earlier", result("misc-fuse"))))
    mine = await cluster.allocate("mine", result("misc-kvm"))
    other = await cluster.allocate("other", result("misc-fuse"))
    await cluster.deallocate("mine")
    outcomes = await connected.preparer.prepare([mine, other])
    assert isinstance(outcomes[other.metadata.uid], ClaimFailed)
    assert not isinstance(outcomes[mine.metadata.uid], ClaimFailed)
    assert connected.units() == ["misc-fuse", "misc-kvm"]
    await connected.reconcile()
    assert connected.units() == ["misc-fuse"]
