"""Claims that are never unprepared end once all witnesses that could contradict have answered (holdings.py)."""

import asyncio

import pytest
from msgspec.structs import replace

from checkpoint.holdings import ClaimName
from controlplane.apiserver import Server
from dra_plugin.driver import ClaimFailed, PreparedDevice
from resourceapi.client import AsyncClient
from resourceapi.objects import v1
from tests.dra_plugin.preparing.cluster import ApiProxy, Cluster, serve_claims
from tests.dra_plugin.preparing.node import Node
from tests.dra_plugin.preparing.world import ref, resource, result
from tests.running import until

SHARES = [f"8d3c3c0c-3c1e-4d6a-9d0e-0d6a9d0e0d6{n}" for n in range(4)]


@pytest.fixture
async def deleted_claim(node: Node, cluster: Cluster) -> v1.ResourceClaim:
    """A prepared claim of the fuse device that was force-deleted, and that no witness names."""
    found = await cluster.allocate("mine", result("misc-fuse"))
    await node.prepare(found)
    await node.reconcile()  # the pass that the first lease triggered
    await cluster.delete("mine")
    return found


async def is_kept(node: Node) -> bool:
    """Run a pass; return whether the fuse device's claim still has its lease. Its files go with the lease."""
    await node.reconcile()
    assert bool(node.files()) == (node.units() == ["misc-fuse"])
    return node.units() == ["misc-fuse"]


def devices_of(claim: v1.ResourceClaim) -> list[PreparedDevice]:
    assert claim.status.allocation is not None
    results = claim.status.allocation.devices.results
    return [PreparedDevice((x.request,), x.pool, x.device, share_id=x.share_id) for x in results]


# The rows of the table, in its order.


async def test_claim_named_by_pod_resources_is_kept(node: Node, deleted_claim: v1.ResourceClaim) -> None:
    node.kubelet.show("pod", "mine", devices_of(deleted_claim))
    assert await is_kept(node)
    node.kubelet.hide("pod")
    assert not await is_kept(node)


async def test_claim_whose_pod_has_a_cgroup_is_kept(node: Node, deleted_claim: v1.ResourceClaim) -> None:
    """The pod was force-deleted: the kubelet has forgotten it, but its container runs."""
    node.kubelet.run("pod", deleted_claim, devices_of(deleted_claim))
    assert await is_kept(node)
    node.kubelet.hide("pod")
    node.kubelet.forget(deleted_claim)
    assert await is_kept(node)
    node.kubelet.remove_cgroup("pod")
    assert not await is_kept(node)


@pytest.mark.parametrize("kubelet", ["away", "started"])
async def test_claim_is_kept_while_the_kubelet_does_not_know_its_pods(
    node: Node, deleted_claim: v1.ResourceClaim, kubelet: str
) -> None:
    await node.kubelet.stop()
    if kubelet == "started":
        await node.kubelet.start()  # starts with an empty list, and then lists the pods of its files
        assert await is_kept(node)
        node.kubelet.show("etcd-worker-1")
    assert await is_kept(node)
    if kubelet == "away":
        await node.kubelet.start()
    node.kubelet.show("coredns")
    assert not await is_kept(node)


async def test_claim_in_the_kubelet_state_file_is_kept(node: Node, deleted_claim: v1.ResourceClaim) -> None:
    node.kubelet.record(deleted_claim, "pod")
    assert await is_kept(node)
    node.kubelet.forget(deleted_claim)
    assert not await is_kept(node)


async def test_only_missing_cgroups_end_a_claim_with_an_unreadable_state_file(
    node: Node, deleted_claim: v1.ResourceClaim
) -> None:
    node.kubelet.file.write_bytes(b"{")
    assert await is_kept(node)
    node.kubelet.run("pod", deleted_claim, devices_of(deleted_claim))
    assert await is_kept(node)  # its pods are known from now on
    node.kubelet.end("pod", deleted_claim)
    node.kubelet.file.write_bytes(b"{ ")
    assert not await is_kept(node)


async def test_claim_wanted_by_the_api_server_is_kept(node: Node, cluster: Cluster) -> None:
    await node.prepare(await cluster.allocate("mine", result("misc-fuse")))
    assert await is_kept(node)


@pytest.mark.parametrize("how", ["deleted", "replaced", "deallocated", "allocated to another node"])
async def test_claim_deleted_or_reallocated_on_the_server_is_unprepared(node: Node, cluster: Cluster, how: str) -> None:
    mine = await cluster.allocate("mine", result("misc-fuse"))
    await node.prepare(mine)
    if how in ("deleted", "replaced"):
        await cluster.delete("mine")
    else:
        await cluster.deallocate("mine")
    if how == "allocated to another node":
        there = await cluster.allocate("there", result("misc-fuse", pool="worker-2"))
        await cluster.allocate_again(replace(mine, status=there.status))
    if how == "replaced":
        await cluster.allocate("mine", result("misc-fuse"))
    assert not await is_kept(node)


async def test_claim_is_kept_while_the_api_server_does_not_answer(
    node: Node, deleted_claim: v1.ResourceClaim, proxy: ApiProxy, server: Server
) -> None:
    await proxy.cut()
    assert await is_kept(node)
    await proxy.open()
    kinds = [kind for kind in server.registry if kind.plural == "resourceclaims"]
    serve_claims(server)
    assert await is_kept(node)  # a server without the API does not say that claims are gone
    for kind in kinds:
        server.registry.add(kind)
    assert not await is_kept(node)


# Which claim is meant.


async def test_pod_with_other_devices_does_not_keep_a_claim_of_the_same_name(
    node: Node, cluster: Cluster, deleted_claim: v1.ResourceClaim
) -> None:
    later = await node.prepare(await cluster.allocate("mine", result("misc-kvm", share_id=SHARES[0])))
    node.kubelet.show("pod", "mine", later)
    await node.reconcile()
    assert node.units() == [f"misc-kvm/{SHARES[0]}"]


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
async def test_every_api_version_of_the_server_is_supported(
    node: Node, server: Server, client: AsyncClient, version: str
) -> None:
    serve_claims(server, version)
    cluster = Cluster(client, version)
    await node.prepare(await cluster.allocate("mine", result("misc-fuse")))
    assert await is_kept(node)
    await cluster.deallocate("mine")
    assert not await is_kept(node)


async def test_claim_with_the_longest_name_ends(node: Node, cluster: Cluster) -> None:
    """A claim that can be prepared can be unprepared."""
    name = ".".join(["a" * 62] * 4)
    await node.prepare(await cluster.allocate(name, result("misc-fuse")))
    await cluster.delete(name)
    assert not await is_kept(node)


async def test_claim_of_a_removed_resource_is_kept_until_it_is_deleted(node: Node, cluster: Cluster) -> None:
    wanted = await cluster.allocate("mine", result("misc-fuse"))
    answer = await node.prepare(wanted)
    node.resources = [resource("kvm")]
    await node.restart()
    assert await is_kept(node)
    assert list(node.container(answer).nodes) == ["/dev/fuse"]
    await cluster.delete("mine")
    assert not await is_kept(node)


async def test_half_prepared_claim_is_undone_when_it_is_deleted(node: Node, cluster: Cluster) -> None:
    """As after a disk error during the undo; the kubelet was never told that the claim is prepared."""
    await node.prepare(await cluster.allocate("mine", result("misc-fuse")))
    await node.ledger.grant([replace(lease, phase="intended") for lease in node.ledger.leases()])
    assert await is_kept(node)  # the API server wants it, and the kubelet will try again
    await cluster.delete("mine")
    assert not await is_kept(node)


async def test_lease_of_the_first_version_is_kept_until_it_is_unprepared(node: Node, cluster: Cluster) -> None:
    """Its leases do not name their claims, and its records are unreadable."""
    mine = await cluster.allocate("mine", result("misc-fuse"))
    answer = await node.prepare(mine)
    await node.ledger.grant([replace(x, holder=x.owner, record=b"\x00") for x in node.ledger.leases()])
    files = node.files()
    await node.restart()
    assert await is_kept(node)
    assert node.files() == files
    assert await node.prepare(mine) == answer
    assert await is_kept(node)
    await node.ledger.grant([replace(x, holder=x.owner, record=b"\x00") for x in node.ledger.leases()])
    await cluster.delete("mine")
    assert await is_kept(node)  # without a name the server cannot be asked; the kubelet can still unprepare the claim
    await node.unprepare(mine)
    assert (node.units(), node.files()) == ([], [])


async def test_lease_of_the_first_version_ends_after_the_state_file_named_it(node: Node, cluster: Cluster) -> None:
    mine = await cluster.allocate("mine", result("misc-fuse"))
    await node.prepare(mine)
    await node.ledger.grant([replace(x, holder=x.owner, record=b"\x00") for x in node.ledger.leases()])
    node.kubelet.record(mine, "pod")
    assert await is_kept(node)
    node.kubelet.forget(mine)
    assert await is_kept(node)  # the server wants it
    await cluster.delete("mine")
    assert not await is_kept(node)


# Concurrent calls.


async def test_new_claim_gets_the_device_of_a_deallocated_claim(node: Node, cluster: Cluster) -> None:
    await node.prepare(await cluster.allocate("old", result("misc-fuse")))
    new = await cluster.allocate("new", result("misc-fuse"))
    assert "wait until that claim is unprepared" in await node.refusal(new)
    await cluster.deallocate("old")
    await node.prepare(new)
    assert [lease.owner for lease in node.ledger.leases()] == [f"claim/{new.metadata.uid}"]


async def test_concurrent_calls_for_devices_of_ended_claims_do_not_deadlock(node: Node, cluster: Cluster) -> None:
    """Each of them triggers a pass, and each pass unprepares claims that other calls are preparing."""
    old = [await cluster.allocate(f"old-{n}", result("misc-kvm", share_id=share)) for n, share in enumerate(SHARES)]
    for each in old:
        await node.prepare(each)
        await cluster.deallocate(each.metadata.name)
    new = [await cluster.allocate(f"new-{n}", result("misc-kvm", share_id=share)) for n, share in enumerate(SHARES)]
    await asyncio.gather(*(node.outcomes(x) for x in (*new, *old)))
    for each in new:
        await node.prepare(each)  # some calls can have been refused temporarily
    assert len(node.units()) == len(SHARES)


async def test_claim_answered_during_a_pass_is_kept(node: Node, deleted_claim: v1.ResourceClaim) -> None:
    node.kubelet.gate.clear()
    node.kubelet.is_asked.clear()
    refreshing = asyncio.create_task(node.reconcile())
    await asyncio.wait_for(node.kubelet.is_asked.wait(), 30)
    [lease] = node.ledger.leases()
    node.ledger.answered([lease])  # like a call from before the claim's deletion
    node.kubelet.gate.set()
    await refreshing
    assert node.units() == ["misc-fuse"]
    assert not await is_kept(node)


async def test_claim_of_an_unanswered_call_is_kept(node: Node, cluster: Cluster) -> None:
    """No pod has the claim before the answer. The call's other claim triggers a pass, because its device is held."""
    earlier = await cluster.allocate("earlier", result("misc-fuse"))
    node.kubelet.run("pod", earlier, await node.prepare(earlier))
    mine = await cluster.allocate("mine", result("misc-kvm", share_id=SHARES[0]))
    other = await cluster.allocate("other", result("misc-fuse"))
    outcomes = await node.outcomes(mine, other)
    assert isinstance(outcomes[other.metadata.uid], ClaimFailed)
    assert not isinstance(outcomes[mine.metadata.uid], ClaimFailed)
    assert node.units() == ["misc-fuse", f"misc-kvm/{SHARES[0]}"]


# A lost ledger.


async def test_lost_ledger_is_restored_from_running_pods(node: Node, cluster: Cluster) -> None:
    running = await cluster.allocate("running", result("misc-fuse"))
    devices = await node.prepare(running)
    node.kubelet.run("pod", running, devices)
    files = node.files()
    await node.prepare(await cluster.allocate("ended", result("misc-kvm", share_id=SHARES[0])))
    await node.lose_ledger()
    await node.reconcile()
    assert [lease.holder for lease in node.ledger.leases()] == [f"claim/default/running/{running.metadata.uid}"]
    await until(lambda: node.files() == files)
    assert await node.prepare(running) == devices
    assert "wait until that claim is unprepared" in await node.refusal(
        await cluster.allocate("new", result("misc-fuse"))
    )


@pytest.mark.parametrize("first", ["running", "new"])
async def test_claims_are_refused_until_a_lost_ledger_is_restored(node: Node, cluster: Cluster, first: str) -> None:
    running, new = [await cluster.allocate(name, result("misc-fuse")) for name in ("running", "new")]
    devices = await node.prepare(running)
    node.kubelet.run("pod", running, devices)
    await node.kubelet.stop()
    await node.kubelet.start()
    node.kubelet.remove_cgroup("pod")  # as if cgroups could not be seen
    await node.lose_ledger()
    for wanted in (running, new):
        assert "the devices of running pods are not known yet" in await node.refusal(wanted)
    assert node.units() == []
    node.kubelet.show("pod", "running", devices)
    if first == "running":
        assert await node.prepare(running) == devices  # waits until the claim is restored
    assert "wait until that claim is unprepared" in await node.refusal(new)
    assert await node.prepare(running) == devices
    assert node.units() == ["misc-fuse"]


async def test_restore_keeps_the_record_of_a_claim_prepared_meanwhile(
    node: Node, deleted_claim: v1.ResourceClaim
) -> None:
    """Otherwise it would be leased again without a record, because the API server does not have the claim any more."""
    before = node.ledger.leases()
    missed = ClaimName("default", "mine", deleted_claim.metadata.uid)
    assert await node.plugin.restorer.restore_claim(missed, {"misc-fuse"}) == ""
    assert node.ledger.leases() == before


async def test_lost_ledger_is_not_restored_without_the_api_server(
    node: Node, cluster: Cluster, proxy: ApiProxy
) -> None:
    running = await cluster.allocate("running", result("misc-fuse"))
    devices = await node.prepare(running)
    node.kubelet.run("pod", running, devices)
    files = node.files()
    await proxy.cut()
    await node.lose_ledger()
    await node.reconcile()
    assert (node.units(), node.files()) == ([], files)
    assert not node.ledger.is_complete
    await proxy.open()
    await node.reconcile()
    assert (node.units(), node.files()) == (["misc-fuse"], files)
    assert await node.prepare(running) == devices


async def test_changed_device_of_a_lost_claim_is_restored_after_the_next_scan(node: Node, cluster: Cluster) -> None:
    running = await cluster.allocate("running", result("misc-fuse"))
    devices = await node.prepare(running)
    await node.kubelet.stop()
    await node.kubelet.start()
    await node.lose_ledger()
    node.made_up.renumber("fuse", 77)  # no scan has seen it yet
    node.kubelet.show("pod", "running", devices)
    new = await cluster.allocate("new", result("misc-kvm", share_id=SHARES[0]))
    assert "the devices of running pods are not known yet" in await node.refusal(new)
    node.made_up.renumber("fuse", 0)
    node.scan()
    await node.prepare(new)
    assert node.units() == ["misc-fuse", f"misc-kvm/{SHARES[0]}"]
    assert await node.prepare(running) == devices


async def test_lost_claim_keeps_its_devices_when_one_is_gone(node: Node, cluster: Cluster) -> None:
    running = await cluster.allocate(
        "running", result("misc-fuse", "one"), result("misc-kvm", "two", share_id=SHARES[0])
    )
    devices = await node.prepare(running)
    node.kubelet.run("pod", running, devices)
    node.made_up.remove_node("fuse")
    node.resources = [resource("fuse"), resource("kvm")]
    await node.lose_ledger()
    await node.reconcile()
    assert node.units() == ["misc-fuse", f"misc-kvm/{SHARES[0]}"]
    assert "not offered on this node any more" in await node.refusal(running)  # the lease stays
    assert "whole or in parts" in await node.refusal(await cluster.allocate("other", result("misc-kvm")))
    node.made_up.renumber("fuse", 0)
    node.scan()
    assert "has allocated misc-fuse to claim/default/running" in await node.refusal(
        await cluster.allocate("new", result("misc-fuse"))
    )
    assert await node.prepare(running) == devices
    assert node.units() == ["misc-fuse", f"misc-kvm/{SHARES[0]}"]
    await node.unprepare(running)
    assert (node.units(), node.files()) == ([], [])


async def test_lost_claim_keeps_its_share_of_a_gone_device(node: Node, cluster: Cluster) -> None:
    one, other = [await cluster.allocate(x, result("misc-kvm", share_id=y)) for x, y in zip("ab", SHARES, strict=False)]
    devices = [await node.prepare(claim) for claim in (one, other)]
    node.kubelet.run("a", one, devices[0])
    await node.lose_ledger()
    await node.reconcile()
    assert node.units() == [f"misc-kvm/{SHARES[0]}"]
    node.made_up.unplug("kvm")
    node.scan()
    node.kubelet.run("b", other, devices[1])
    await node.reconcile()
    assert node.units() == sorted(f"misc-kvm/{share}" for share in SHARES[:2])
    assert "is unhealthy: it is gone" in await node.refusal(other)


@pytest.mark.parametrize("how", ["deleted", "replaced", "deallocated", "allocated to another node"])
@pytest.mark.parametrize("seen", [True, False])
async def test_device_of_a_running_pod_stays_leased_after_its_claim_has_ended(
    node: Node, cluster: Cluster, how: str, seen: bool
) -> None:
    running = await cluster.allocate("running", result("misc-fuse"))
    devices = await node.prepare(running)
    node.kubelet.run("pod", running, devices)
    if not seen:  # as if only the kubelet could read its file
        node.kubelet.file.unlink()
    await cluster.deallocate("running") if how == "deallocated" else await cluster.delete("running")
    if how == "replaced":
        await cluster.allocate("running")
    await node.lose_ledger()
    await node.reconcile()
    assert node.units() == ["misc-fuse"]
    new = await cluster.allocate("new", result("misc-fuse"))
    assert "wait until that claim is unprepared" in await node.refusal(new)
    if seen:
        node.kubelet.end("pod", running)
        await node.reconcile()
    else:
        await node.unprepare(running)
    assert node.units() == []
    await node.prepare(new)


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_shares_are_restored_when_the_device_is_now_offered_whole(
    node: Node, cluster: Cluster, is_deleted: bool
) -> None:
    running = [await cluster.allocate(f"c{n}", result("misc-kvm", share_id=SHARES[n])) for n in range(2)]
    for number, each in enumerate(running):
        node.kubelet.run(f"pod-{number}", each, await node.prepare(each))
    if is_deleted:
        await cluster.delete("c1")
    node.resources = [resource("fuse"), resource("kvm")]
    await node.lose_ledger()
    await node.reconcile()
    assert node.units() == [f"misc-kvm/{share}" for share in SHARES[:2]]
    assert "whole or in parts" in await node.refusal(await cluster.allocate("whole", result("misc-kvm")))
    third = await cluster.allocate("third", result("misc-kvm", share_id=SHARES[2]))
    assert "of 1 shares" in await node.refusal(third)  # from now on there is one holder at a time


async def test_admin_access_does_not_affect_other_devices_of_a_lost_claim(node: Node, cluster: Cluster) -> None:
    """Pod-resources does not distinguish admin access."""
    mine = await cluster.allocate("mine", result("misc-kvm"))
    assert mine.status.allocation is not None
    node.kubelet.run("pod", mine, await node.prepare(mine))
    other = await cluster.allocate("other", result("misc-fuse"))
    seen = PreparedDevice(("look",), mine.status.allocation.devices.results[0].pool, "misc-kvm")
    node.kubelet.run("other", other, [*await node.prepare(other), seen])
    await cluster.delete("other")
    await node.lose_ledger()
    await node.reconcile()
    assert "has allocated misc-fuse to claim/default/other" in await node.refusal(
        await cluster.allocate("new", result("misc-fuse"))
    )


async def test_unprepare_with_a_lost_ledger_leaves_no_files(node: Node, cluster: Cluster) -> None:
    mine = await cluster.allocate("mine", result("misc-fuse"))
    await node.prepare(mine)
    await node.kubelet.stop()
    await node.lose_ledger()
    assert await node.failures(ref(mine)) == {mine.metadata.uid: None}
    assert node.files() == []
    await node.kubelet.start()
