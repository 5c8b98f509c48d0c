"""The reconciler with scripted witnesses: which leases end, and which stay."""

import asyncio
from pathlib import Path

import pytest

from checkpoint import LeaseRefused, ReleaseRefused
from checkpoint.holdings import ClaimEntry, ClaimName, DeviceFile, Listed, UnitEntry
from tests.checkpoint.build import ManualReconciler, claimed, lease, opened
from tests.checkpoint.node import UNIT, Node, Scripted, StubPluginApi
from tests.running import running, until


async def test_refresh_returns_when_the_reconciler_stops(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    node = Node(ledger)
    async with running(node.reconciler.run()):
        early = asyncio.ensure_future(node.reconciler.refresh())
        await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await early
        await node.reconciler.refresh()
    await ledger.close()


async def test_lease_ends_when_the_kubelet_no_longer_lists_its_pod(node: Node) -> None:
    await node.ledger.grant([lease("gpu-0", holder="pod/x/y/z"), lease("gpu-1", holder="pod/x/y/z")])
    node.witnesses.list = Listed({("example.com/gpu", "gpu-1"): "pod/x/y/z"}, knows_its_pods=True)
    await node.passes()
    assert node.units == ["gpu-1"]


async def test_no_lease_ends_with_a_starting_or_stopped_kubelet(node: Node) -> None:
    await node.ledger.grant([lease("gpu-0", holder="pod/x/y/z"), claimed("gpu-1", "1")])
    node.witnesses.server = {"1": False}
    for listed in (Listed(), None):
        node.witnesses.list = listed
        await node.passes(3)
    assert node.units == ["gpu-0", "gpu-1"]


async def test_lease_of_an_unconfigured_resource_ends(node: Node) -> None:
    await node.ledger.grant([lease("gpu-0", "gone.com/resource", holder="pod/x/y/z")])
    await node.passes()
    assert not node.units


async def test_lease_without_evidence_can_be_released(node: Node) -> None:
    unit, claim = lease("gpu-0", holder="pod/x/y/z"), claimed("gpu-1", "1")
    await node.ledger.grant([unit, claim, claimed("gpu-2", "1")])
    node.witnesses.list = node.witnesses.server = None
    assert await node.reconciler.release(unit) == (unit,)
    assert [x.unit for x in await node.reconciler.release(claim)] == ["gpu-1", "gpu-2"]
    assert not node.units


async def test_lease_with_evidence_can_be_released_only_by_force(node: Node) -> None:
    unit, claim = lease("gpu-0", pods="u1"), claimed("gpu-1", "1")
    await node.ledger.grant([unit, claim])
    node.witnesses.list = None
    for evidence, words in (
        ((None, DeviceFile({UNIT: UnitEntry("u1", "z")})), "kubelet's file: names it for z of pod u1"),
        ((frozenset({"u1"}), DeviceFile()), "kernel: has a cgroup of pod u1"),
    ):
        node.witnesses.cgroups, node.witnesses.file = evidence
        with pytest.raises(ReleaseRefused, match=words):
            await node.reconciler.release(unit)
    node.witnesses.server = {"1": True}  # asked by a release, not by a pass without pod-resources
    with pytest.raises(ReleaseRefused, match="API server: wants it prepared"):
        await node.reconciler.release(claim)
    assert node.units == ["gpu-0", "gpu-1"]
    await node.reconciler.release(unit, force=True)
    await node.reconciler.release(claim, force=True)
    assert not node.units


@pytest.mark.parametrize("api", ["device-plugin", "dra"])
async def test_release_does_not_end_a_lease_granted_meanwhile_to_another_pod(node: Node, api: str) -> None:
    """The kubelet ended the pod that the release was for, and allocated its device to another pod."""
    is_unit = api == "device-plugin"
    old = lease("gpu-0", holder="pod/x/old/z", granted_at=1.0) if is_unit else claimed("gpu-0", "1")
    new = lease("gpu-0", granted_at=2.0) if is_unit else claimed("gpu-0", "2")
    await node.ledger.grant([old])
    node.witnesses.list = None

    async def meanwhile() -> None:
        node.witnesses.meanwhile = lambda: None
        await node.ledger.end([old])
        await node.ledger.grant([new])

    await node.passes()
    node.witnesses.meanwhile = meanwhile
    await node.reconciler.release(old, force=True)
    assert node.ledger.leases() == (new,)


async def test_release_of_a_recent_lease_needs_force(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    ledger.is_complete = True
    node = Node(ledger, grace=60.0)
    async with running(node.reconciler.run()):
        young, over = lease("gpu-0"), lease("gpu-1", pods="u1")
        await ledger.grant([young, over])
        node.witnesses.list = None
        with pytest.raises(ReleaseRefused, match="less than 60 s ago"):
            await node.reconciler.release(young)
        assert [x.text for x in await node.reconciler.statements(young)] == [
            "does not answer",
            "does not name it",
            "cannot say: the pod of the lease is not known",
        ]
        assert await node.reconciler.release(young, force=True) == (young,)
        assert await node.reconciler.statements(young) == ()
    with pytest.raises(ReleaseRefused, match="no witness could say"):
        await node.reconciler.release(over)
    await ledger.close()


async def test_pass_records_holders_and_pods_of_leases(node: Node) -> None:
    await node.ledger.grant([lease("gpu-0"), claimed("gpu-1", "1")])
    node.witnesses.list = Listed({UNIT: "pod/x/y/z"}, {("default", "1"): frozenset({"gpu-1"})}, knows_its_pods=True)
    node.witnesses.file = DeviceFile({UNIT: UnitEntry("uid-1", "z")})
    node.witnesses.claims = {"1": ClaimEntry("default", "1", frozenset({"uid-2", "uid-3"}))}
    await node.passes()
    unit, claim = node.ledger.leases()
    assert (unit.holder, set(unit.pods)) == ("pod/x/y/z", {"uid-1"})
    assert claim.pods == {"uid-2", "uid-3"}


async def test_lease_never_named_by_a_witness_ends_after_the_second_pass(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    ledger.is_complete = True
    node = Node(ledger, grace=0.05)
    began = asyncio.get_running_loop().time()  # measured before the grant, because a busy machine can pause after it
    await ledger.grant([lease("gpu-0")])
    async with asyncio.timeout(30), running(node.reconciler.run()):
        while node.units:
            await node.passes()
        assert asyncio.get_running_loop().time() - began >= 0.1  # one grace period, and one miss
    await ledger.close()


async def test_lease_with_a_recorded_pod_ends_after_one_pass(tmp_path: Path) -> None:
    """This holds after a restart of ours: if a witness has named a unit, the kubelet has it on record."""
    ledger = await opened(tmp_path)
    ledger.is_complete = True
    reconciler = ManualReconciler(ledger, Scripted(), grace=(grace := 0.02))
    async with asyncio.timeout(30), running(reconciler.run()):
        await ledger.grant([lease("gpu-0", holder="pod/x/y/z")])
        await until(lambda: all(ledger.age(x) > grace for x in ledger.leases()))
        await reconciler.refresh()
        assert not ledger.leases()
    await ledger.close()


@pytest.mark.parametrize("before", ["named", "missed"])
async def test_replaced_lease_needs_two_new_passes_to_end(tmp_path: Path, before: str) -> None:
    """The kubelet allocated the unit again. Earlier findings do not apply, because the new pod is not recorded yet."""
    ledger = await opened(tmp_path)
    ledger.is_complete = True
    witnesses = Scripted()
    reconciler = ManualReconciler(ledger, witnesses, grace=(grace := 0.3))
    listed = Listed({UNIT: "pod/x/y/z"} if before == "named" else {}, knows_its_pods=True)
    async with asyncio.timeout(30), running(reconciler.run()):
        for witnesses.list in (listed, Listed(knows_its_pods=True)):
            await ledger.grant([lease("gpu-0")])
            await until(lambda: all(ledger.age(x) > grace for x in ledger.leases()))
            await reconciler.refresh()
        assert ledger.leases()
    await ledger.close()


async def test_lease_is_kept_while_its_pod_has_a_cgroup(node: Node) -> None:
    await node.ledger.grant([lease("gpu-0", holder="pod/x/y/z", pods="uid-1")])
    node.witnesses.cgroups = frozenset({"uid-1", "uid-2"})
    await node.passes(2)
    assert node.units
    node.witnesses.list = None  # the kubelet stops answering
    node.witnesses.cgroups = frozenset({"uid-2"})
    await node.passes()
    assert not node.units


async def test_unreadable_cgroups_end_no_lease(node: Node) -> None:
    await node.ledger.grant([lease("gpu-0", holder="pod/x/y/z", pods="uid-1")])
    node.witnesses.list = None
    for seen in (frozenset({"uid-1"}), None, frozenset({"uid-1"})):
        node.witnesses.cgroups = seen
        await node.passes()
    assert node.units


async def test_stale_kubelet_file_is_rewritten_before_it_ends_a_lease(node: Node) -> None:
    old = DeviceFile({UNIT: UnitEntry("uid-1", "init")}, is_fresh=False)
    await node.ledger.grant([lease("gpu-0", holder="pod/x/y/z")])
    node.witnesses.file, node.plugin_api.rewrites = old, DeviceFile({UNIT: UnitEntry("uid-1", "init")})
    await node.passes()
    assert node.units
    assert node.plugin_api.republished == ["example.com/gpu"]
    node.witnesses.file, node.plugin_api.rewrites = old, DeviceFile()
    await node.passes()
    assert not node.units


async def test_stale_kubelet_file_that_is_not_rewritten_ends_no_lease(node: Node) -> None:
    await node.ledger.grant([lease("gpu-0", holder="pod/x/y/z")])
    node.witnesses.file = DeviceFile({UNIT: UnitEntry("uid-1", "init")}, is_fresh=False)
    await node.passes()
    assert node.units


async def test_api_server_is_asked_about_claims_not_listed_on_the_node(node: Node) -> None:
    await node.ledger.grant([claimed("gpu-0", "1"), claimed("gpu-1", "2"), claimed("gpu-2", "3")])
    node.witnesses.list = Listed(claims={("default", "1"): frozenset({"gpu-0"})}, knows_its_pods=True)
    node.witnesses.server = {"2": False}
    await node.passes()
    assert set(node.witnesses.asked) == {"2", "3"}
    assert node.units == ["gpu-0", "gpu-2"]  # the API server gave no answer for the third


async def test_lease_renewed_during_a_pass_does_not_end(node: Node) -> None:
    await node.ledger.grant([lease("gpu-0", holder="pod/x/y/z"), lease("gpu-1", holder="pod/x/y/z"), claimed("c", "1")])
    node.witnesses.server = {"1": False}

    async def meanwhile() -> None:
        await node.ledger.grant([lease("gpu-0", holder="pod/x/y/z")])
        node.ledger.answered([claimed("c", "1")])

    node.witnesses.meanwhile = meanwhile
    await node.passes()
    assert node.units == ["gpu-0", "c"]


async def test_requests_during_a_pass_share_the_next_pass(node: Node) -> None:
    node.witnesses.hold.clear()
    first = asyncio.ensure_future(node.passes())
    while node.witnesses.lists < 2:  # the list of the first pass, and that of ours
        node.witnesses.hold.set()
        await asyncio.sleep(0)
        node.witnesses.hold.clear()
    later = [asyncio.ensure_future(node.passes()) for _ in range(5)]
    await asyncio.sleep(0)
    node.witnesses.hold.set()
    await asyncio.gather(first, *later)
    assert node.witnesses.lists == 3


async def test_grant_succeeds_when_the_holding_pod_has_ended(node: Node) -> None:
    await node.ledger.grant([lease("gpu-0", holder="pod/x/y/z"), lease("gpu-1", holder="pod/x/y/z")])
    node.witnesses.list = Listed({("example.com/gpu", "gpu-1"): "pod/x/y/z"}, knows_its_pods=True)
    await node.ledger.grant([lease("gpu-0", "example.com/other")])
    with pytest.raises(LeaseRefused, match="pod/x/y/z"):
        await node.ledger.grant([lease("gpu-1", "example.com/other")])


@pytest.mark.parametrize("ends", [True, False])
async def test_reallocation_of_a_running_pods_unit_waits_for_its_end(tmp_path: Path, *, ends: bool) -> None:
    """A kubelet that lost its file considers the unit free. If the pod is just ending, the kubelet was only faster."""
    ledger = await opened(tmp_path)
    ledger.is_complete = True
    node = Node(ledger, grace=60.0, max_wait=30.0 if ends else 0.0)
    await ledger.grant([had := lease("gpu-0", holder="pod/x/y/z", pods="u1"), lease("gpu-1", pods="u2")])
    node.witnesses.busy = frozenset({"u1", "u3"})
    async with running(node.reconciler.run()):
        await ledger.grant([lease("gpu-1")])  # the kernel reports no process of its pod
        again = asyncio.ensure_future(ledger.grant([lease("gpu-0"), lease("gpu-2", granted_at=1.0)]))
        if ends:
            await asyncio.sleep(0)
            node.witnesses.busy = frozenset()
            await again
            assert [x.pods for x in ledger.leases()] == [frozenset()] * 3
        else:
            with pytest.raises(LeaseRefused, match="device gpu-0: pod x/y still runs with it"):
                await again
            assert ledger.get(had.key) == had
            assert len(ledger.leases()) == 2
    await ledger.close()


async def test_new_version_of_a_static_pod_gets_the_device_of_the_ending_one(tmp_path: Path) -> None:
    """The kubelet starts it after that; after a refusal it would not try again."""
    ledger = await opened(tmp_path)
    ledger.is_complete = True
    node = Node(ledger, grace=60.0, max_wait=0.0)
    await ledger.grant([lease("gpu-0", holder="pod/x/y-node/z", pods="0123456789abcdef" * 2)])
    node.witnesses.busy = ledger.leases()[0].pods
    async with running(node.reconciler.run()):
        await ledger.grant([again := lease("gpu-0", granted_at=1.0)])
        assert ledger.leases() == (again,)
        assert node.witnesses.counts == 0  # nothing is read for it
    await ledger.close()


async def test_unresponsive_witnesses_delay_a_refusal_only_for_a_limited_time(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    ledger.is_complete = True
    node = Node(ledger, max_wait=0.05)
    async with running(node.reconciler.run()):
        await node.passes()
        await ledger.grant([lease("gpu-0", holder="pod/x/y/z")])
        node.witnesses.hold.clear()
        async with asyncio.timeout(30):
            with pytest.raises(LeaseRefused):
                await ledger.grant([lease("gpu-0", "example.com/other")])
    await ledger.close()


async def test_failed_pass_is_logged_and_the_next_one_succeeds(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    await node.ledger.grant([lease("gpu-0", holder="pod/x/y/z")])
    node.witnesses.meanwhile = lambda: 1 // 0
    await node.passes()
    assert "checking which devices pods have failed" in caplog.text
    assert node.units
    assert node.reconciler.defect.startswith("ZeroDivisionError: ")
    node.witnesses.meanwhile = lambda: None
    await node.passes()
    assert not node.units
    assert node.reconciler.defect == ""


async def test_pass_waits_for_all_claim_ends_when_one_fails(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    ledger.is_complete = True
    node = Node(ledger)
    await ledger.grant([claimed("gpu-0", "0"), claimed("gpu-1", "1")])
    node.witnesses.server = {"0": False, "1": False}
    went_on = asyncio.Event()

    class Failing(StubPluginApi):
        async def end_claim(self, claim: ClaimName, unless_answered_since: float) -> None:
            if claim.uid == "0":
                raise ZeroDivisionError
            await went_on.wait()
            await super().end_claim(claim, unless_answered_since)

    node.reconciler.claims = Failing(ledger, node.witnesses)
    async with running(node.reconciler.run()):
        ended = asyncio.ensure_future(node.passes())
        for _ in range(100):  # iterations of the loop, in which nothing may happen
            await asyncio.sleep(0)
        assert not ended.done()
        went_on.set()
        await ended
        assert node.units == ["gpu-0"]
    await ledger.close()


async def test_first_lease_wakes_the_reconciler(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    ledger.is_complete = True
    node = Node(ledger)
    async with running(node.reconciler.run()):
        await node.passes()
        await asyncio.sleep(0)
        woken = asyncio.Event()
        node.witnesses.meanwhile = woken.set
        await ledger.grant([lease("gpu-0", holder="pod/x/y/z")])
        async with asyncio.timeout(30):
            await woken.wait()
    await ledger.close()


async def test_changes_after_the_reconciler_stopped_log_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At a stop, running calls are finished last."""
    ledger = await opened(tmp_path)
    ledger.is_complete = True
    node = Node(ledger)
    node.witnesses.list = Listed({UNIT: "pod/x/y/z"}, {}, knows_its_pods=True)
    await ledger.grant([lease("gpu-0", holder="pod/x/y/z")])
    async with running(node.reconciler.run()):
        await node.passes()
        await asyncio.sleep(0)
    await ledger.grant([lease("gpu-1")])
    await ledger.end(ledger.leases())
    for _ in range(3):
        await asyncio.sleep(0)
    assert not caplog.messages
    await ledger.close()


@pytest.mark.parametrize("left", [None, DeviceFile({UNIT: UnitEntry("uid-1", "z")})], ids=["nothing", "its file"])
async def test_lease_released_without_kubelet_is_restored_when_listed(tmp_path: Path, left: DeviceFile | None) -> None:
    """A kubelet that starts returns the recorded devices to its pods, and calls no plugin."""
    ledger = await opened(tmp_path)
    ledger.is_complete = True
    node = Node(ledger, interval=0.01)
    await ledger.grant([lease("gpu-0", holder="pod/x/y/z")])
    node.witnesses.list, node.witnesses.file = None, left
    async with running(node.reconciler.run()):
        await node.reconciler.release(ledger.leases()[0], force=True)
        await node.passes(2)
        assert not node.units
        node.witnesses.list = Listed({UNIT: "pod/x/y/z"}, {}, knows_its_pods=True)
        await until(lambda: node.units)
    await ledger.close()


@pytest.mark.parametrize("away", [False, True], ids=["none is held", "there is no kubelet"])
async def test_idle_reconciler_runs_no_further_pass(tmp_path: Path, away: bool) -> None:
    ledger = await opened(tmp_path)
    ledger.is_complete = True
    node = Node(ledger, interval=0.0)
    node.witnesses.absent = away
    node.witnesses.list = None if away else Listed(knows_its_pods=True)
    async with running(node.reconciler.run()):
        await node.passes()
        for _ in range(100):
            await asyncio.sleep(0)
        assert node.witnesses.lists == 1
    await ledger.close()


async def test_holder_of_a_new_lease_is_recorded_before_the_next_interval(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    ledger.is_complete = True
    node = Node(ledger, grace=0.01)
    await ledger.grant([lease("gpu-0", holder="pod/x/y/z")])
    node.witnesses.list = Listed({UNIT: "pod/x/y/z", (UNIT[0], "gpu-1"): "pod/x/later/z"}, {}, knows_its_pods=True)
    async with running(node.reconciler.run()):
        await node.passes()
        await ledger.grant([lease("gpu-1")])
        await until(lambda: [x.holder for x in ledger.leases()] == ["pod/x/y/z", "pod/x/later/z"])
    await ledger.close()
