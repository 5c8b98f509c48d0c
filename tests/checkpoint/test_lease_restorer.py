"""Devices that pods hold without a lease are leased again: for one pod, and after the loss of the whole ledger."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from checkpoint import Lease, LeaseRefused, LedgerUnavailable
from checkpoint.database import Database
from checkpoint.holdings import ClaimEntry, DeviceFile, Listed, UnitEntry
from checkpoint.lease import Change
from tests.checkpoint.build import claimed, lease, opened
from tests.checkpoint.node import OTHER, UNIT, Node
from tests.running import running


async def test_devices_held_without_a_lease_are_leased_again(node: Node) -> None:
    node.witnesses.list = Listed({UNIT: "pod/x/y/z"}, {("default", "c"): frozenset({"gpu-0"})})
    node.witnesses.file = DeviceFile(
        {OTHER: UnitEntry("uid-1", "init"), ("example.com/gpu", "dead"): UnitEntry("u", "")}
    )
    node.witnesses.cgroups = frozenset({"uid-1", "uid-2"})
    node.witnesses.claims = {"7": ClaimEntry("default", "d", frozenset({"uid-2"}), frozenset({"gpu-0"}))}
    node.plugin_api.not_restored_reason = "the API server does not answer"
    await node.passes()
    assert {(x.unit, x.holder) for x in node.ledger.leases()} == {("gpu-0", "pod/x/y/z"), ("gpu-9", "")}
    assert "the API server does not answer" in node.reconciler.problem
    node.witnesses.list, node.witnesses.file = Listed(), DeviceFile()
    await node.passes()  # otherwise a running pass would restore the old list
    await node.ledger.end(node.ledger.leases())
    node.plugin_api.not_restored_reason = ""
    await node.passes()
    assert [x.holder for x in node.ledger.leases()] == ["claim/default/d/7"]


async def test_units_of_one_container_are_restored_in_one_commit(node: Node) -> None:
    node.witnesses.list = Listed({("example.com/gpu", f"gpu-{n}"): "pod/x/y/z" for n in range(5)})
    await node.passes()
    assert (node.units, node.ledger.commits) == ([f"gpu-{n}" for n in range(5)], 1)


@pytest.mark.parametrize("taken", ["gpu-0", "gpu-1"])
async def test_free_units_of_a_container_are_restored_when_one_is_taken(
    node: Node, caplog: pytest.LogCaptureFixture, taken: str
) -> None:
    await node.ledger.grant([lease(taken, "example.com/other", holder="pod/a/b/c")])
    others = [unit for unit in ("gpu-0", "gpu-1", "gpu-2") if unit != taken]
    units = {("example.com/gpu", unit): "pod/x/y/z" for unit in (taken, *others)}
    node.witnesses.list = Listed({("example.com/other", taken): "pod/a/b/c"} | units)
    await node.passes()
    assert [(x.unit, x.holder) for x in node.ledger.leases() if x.resource == "example.com/gpu"] == [
        (unit, "pod/x/y/z") for unit in others
    ]
    assert [x.message.partition(":")[0] for x in caplog.records if "without a lease" in x.message] == [
        f"example.com/gpu {taken} is held without a lease"
    ]
    assert [x.device for x in caplog.records if x.message.startswith("lease restored")] == others  # type: ignore[attr-defined]


async def test_restored_leases_have_the_pods_of_the_kubelets_file(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    node = Node(ledger, grace=60.0)  # longer than the test: a pass learns nothing about younger leases
    node.witnesses.list, node.witnesses.cgroups = Listed({UNIT: "pod/x/y/z"}), frozenset({"uid-1"})
    node.witnesses.file = DeviceFile({OTHER: UnitEntry("uid-1", "init")})
    async with running(node.reconciler.run()):
        await node.passes()
    assert {x.unit: set(x.pods) for x in ledger.leases()} == {"gpu-0": set(), "gpu-9": {"uid-1"}}
    await ledger.close()


async def test_restoring_is_repeated_after_a_full_disk(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise LedgerUnavailable("the disk is full")

    await node.passes()
    with monkeypatch.context() as patch:
        patch.setattr(Database, "write", refuse)
        node.witnesses.list = Listed({UNIT: "pod/x/y/z"}, knows_its_pods=True)
        await node.passes()
    assert node.reconciler.problem == "the disk is full"
    text = "example.com/gpu gpu-0 is held without a lease: the disk is full"
    (error,) = (x for x in caplog.records if x.getMessage() == text)
    assert error.__dict__["is_current"]()
    await node.passes()
    assert not error.__dict__["is_current"]()
    assert (node.units, node.reconciler.problem) == (["gpu-0"], "")


async def test_only_claims_without_leases_are_restored(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    """By name, if the kubelet's file, which has the uids, is unreadable. Two claims can have the same name."""
    had = [claimed("gpu-1", "1", name="d"), lease("gpu-2", holder="pod/default/e/c")]
    await node.ledger.grant(had)
    node.witnesses.list = Listed({}, {("default", x): frozenset({"gpu-1"}) for x in "dm"})
    node.witnesses.meanwhile = lambda: node.ledger.grant([claimed("gpu-3", "3", name="m")])
    node.plugin_api.never_restored_reason = "restored although it has a lease"
    await node.passes()
    node.witnesses.meanwhile = lambda: None
    assert not caplog.messages
    node.plugin_api.never_restored_reason = ""
    node.witnesses.list, node.witnesses.cgroups = Listed(), frozenset({"p"})
    node.witnesses.claims = {"2": ClaimEntry("default", "d", frozenset({"p"}), frozenset({"gpu-0"}))}
    await node.passes()
    assert "claim/default/d/2" in [x.holder for x in node.ledger.leases()]
    await node.ledger.end(node.ledger.of_owner("claim/2"))
    node.witnesses.list, node.witnesses.claims = Listed({}, {("default", "e"): frozenset({"gpu-0"})}), {}
    await node.passes()
    assert "claim/default/e/found" in [x.holder for x in node.ledger.leases()]  # pod e and claim e are different
    assert not [x for x in caplog.messages if "without a lease" in x]


async def test_claim_is_not_restored_while_an_old_lease_has_no_claim_name(node: Node) -> None:
    """Its holder does not contain the claim's name."""
    await node.ledger.grant([replace(claimed("gpu-1", "1"), holder="claim/1")])
    node.witnesses.list = Listed({}, {("default", "d"): frozenset({"gpu-0"})})
    await node.passes()
    assert node.units == ["gpu-1"]


@pytest.mark.parametrize("taken", [(), ("gpu-1",)], ids=["at once", "one by one"])
async def test_unit_allocated_during_restoring_stays_with_its_new_pod(node: Node, taken: Sequence[str]) -> None:
    """The kubelet allocated the device after it listed the others."""
    await node.passes()
    await node.ledger.grant([lease(unit, "example.com/other", holder="pod/a/b/c") for unit in taken])
    allocated: list[asyncio.Task[Change]] = []

    def allocate() -> None:
        allocated.append(asyncio.create_task(node.ledger.grant([lease("gpu-2", holder="pod/new/b/c")])))

    node.plugin_api.meanwhile = allocate
    units = {("example.com/gpu", f"gpu-{number}"): "pod/x/y/z" for number in range(4)}
    node.witnesses.list = Listed(
        units | {("example.com/other", unit): "pod/a/b/c" for unit in taken}, knows_its_pods=True
    )
    await node.passes()
    await asyncio.gather(*allocated)
    assert {x.unit: x.holder for x in node.ledger.leases() if x.resource == "example.com/gpu"} == {
        **{unit: holder for (_, unit), holder in units.items() if unit not in taken},
        "gpu-2": "pod/new/b/c",
    }


async def test_resource_removed_during_restoring_is_ignored(
    node: Node,
) -> None:
    def configure() -> None:
        node.plugin_api.names = "example.com/gpu"

    node.plugin_api.meanwhile = configure
    node.witnesses.list = Listed(
        {UNIT: "pod/x/y/z", ("example.com/other", "other-0"): "pod/a/b/c"}, knows_its_pods=True
    )
    await node.passes()
    assert (node.units, node.reconciler.problem) == (["gpu-0"], "")


async def test_one_taken_unit_of_many_costs_few_commits(node: Node) -> None:
    await node.ledger.grant([lease("gpu-40", "example.com/other", holder="pod/a/b/c")])
    units = {("example.com/gpu", f"gpu-{number}"): "pod/x/y/z" for number in range(64)}
    node.witnesses.list = Listed(units | {("example.com/other", "gpu-40"): "pod/a/b/c"})
    before = node.ledger.commits
    await node.passes()
    assert len(node.units) == 64
    assert node.ledger.commits - before == 6


async def test_claim_without_units_in_the_kubelets_file_is_not_restored(node: Node) -> None:
    node.witnesses.cgroups = frozenset({"uid-2"})
    node.witnesses.claims = {"7": ClaimEntry("default", "d", frozenset({"uid-2"}))}
    await node.passes()
    assert not node.ledger.leases()


async def test_unrestorable_device_is_logged_once_per_reason(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    """The kubelet is asked every 30 seconds, and names the device each time."""
    await node.ledger.grant([lease("gpu-0", "example.com/other", holder="pod/a/b/c")])
    listed = Listed({UNIT: "pod/x/y/z"}, {("default", "gone"): frozenset({"gpu-5"})}, knows_its_pods=True)
    node.witnesses.list, node.plugin_api.never_restored_reason = listed, "claim gone not found"
    node.witnesses.cgroups, node.witnesses.file = frozenset(), None

    def reported() -> list[str]:
        return [x.message for x in caplog.records if "is held without a lease" in x.message]

    await node.passes(3)
    unit, claim = reported()
    assert unit.startswith("example.com/gpu gpu-0 is held without a lease: device gpu-0: ")
    assert claim == "claim default/gone is held without a lease: claim gone not found"
    assert node.reconciler.problem == ""  # nothing is pending
    node.plugin_api.never_restored_reason = "claim gone is not allocated"
    await node.passes(2)
    assert len(reported()) == 3
    node.witnesses.list = Listed(knows_its_pods=True)
    await node.passes()
    node.witnesses.list = listed
    await node.passes(2)
    assert len(reported()) == 5


async def test_problem_names_at_most_three_reasons(node: Node) -> None:
    """Each refusal repeats these reasons."""
    names = [("default", f"c{i}") for i in range(50)]
    node.witnesses.list = Listed({}, {name: frozenset({"gpu-0"}) for name in names}, knows_its_pods=True)
    node.plugin_api.not_restored_reason = "the API server does not answer"
    await node.passes()
    assert node.reconciler.problem == "the API server does not answer"
    node.plugin_api.not_restored_reason = "no answer for CLAIM"
    await node.passes()
    assert node.reconciler.problem == "no answer for c0; no answer for c1; no answer for c10"


async def test_lease_ended_during_a_pass_is_not_restored_by_it(node: Node) -> None:
    await node.ledger.grant([lease("gpu-0"), claimed("gpu-1", "1")])
    node.witnesses.list = Listed({UNIT: "pod/x/y/z"}, {("default", "1"): frozenset({"gpu-1"})}, knows_its_pods=True)
    node.witnesses.claims = {"1": ClaimEntry("default", "1")}
    node.witnesses.meanwhile = lambda: node.ledger.end(node.ledger.leases())
    await node.passes()
    assert not node.units


@pytest.mark.parametrize("uid", ["1", ""], ids=["by its uid", "by its name"])
async def test_just_unprepared_claim_is_not_restored_within_the_grace_period(tmp_path: Path, uid: str) -> None:
    """The kubelet removes the claim after our answer, and pod-resources lists it until then."""
    ledger = await opened(tmp_path)
    node = Node(ledger, grace=0.2)
    async with running(node.reconciler.run()):
        await node.passes()
        await ledger.grant([claimed("gpu-0", "1", name="c")])
        ended = asyncio.get_running_loop().time()
        await ledger.end(ledger.leases())
        node.witnesses.list = Listed({}, {("default", "c"): frozenset({"gpu-0"})}, knows_its_pods=True)
        node.witnesses.claims = {uid: ClaimEntry("default", "c")} if uid else {}
        await node.passes()
        was_quick = asyncio.get_running_loop().time() < ended + 0.2  # a busy machine can take longer
        assert node.units == [] or not was_quick
        async with asyncio.timeout(30):
            while node.units != ["gpu-0"]:  # a device that was released while its pod has it is leased again
                await node.passes()
    await ledger.close()


async def test_claim_without_units_is_not_restored_beside_its_namesake(node: Node) -> None:
    """One was force-deleted while its pod runs."""
    await node.ledger.grant([claimed("gpu-1", "1", name="d")])
    node.witnesses.list = Listed({}, {("default", "d"): frozenset({"gpu-1"})}, knows_its_pods=True)
    node.witnesses.claims = {
        "2": ClaimEntry("default", "d"),
        "1": ClaimEntry("default", "d", units=frozenset({"gpu-1"})),
    }
    await node.passes()
    assert node.units == ["gpu-1"]


async def test_resources_of_other_plugins_are_ignored(node: Node) -> None:
    node.witnesses.list = Listed({("nvidia.com/gpu", "GPU-1"): "pod/x/y/z"})
    await node.passes()
    assert not node.units


async def test_lost_ledger_grants_nothing_until_held_devices_are_restored(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    node = Node(ledger)
    node.witnesses.list = Listed({UNIT: "pod/x/y/z"})
    async with running(node.reconciler.run()):
        with pytest.raises(LedgerUnavailable, match="the kubelet does not know its pods yet"):
            await ledger.grant([lease("gpu-1", "example.com/other")])
        node.witnesses.list = Listed({UNIT: "pod/x/y/z"}, knows_its_pods=True)
        with pytest.raises(LeaseRefused, match="pod/x/y/z"):
            await ledger.grant([lease("gpu-0", "example.com/other")])
        await ledger.grant([lease("gpu-1", "example.com/other")])
        assert ledger.is_complete
    await ledger.close()


async def test_new_node_without_kubelet_grants_leases(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    node = Node(ledger)
    node.witnesses.list, node.witnesses.absent = None, True
    async with running(node.reconciler.run()):
        await ledger.grant([lease("gpu-0")])
    await ledger.close()


@pytest.mark.parametrize("api", ["device plugin", "DRA"])
async def test_lost_ledger_waits_for_a_stopped_kubelet_that_left_files(tmp_path: Path, api: str) -> None:
    ledger = await opened(tmp_path)
    node = Node(ledger)
    node.witnesses.list, node.witnesses.absent = None, True
    if api == "DRA":
        node.witnesses.claims = {"uid": ClaimEntry("default", "a", frozenset({"pod"}), frozenset({"gpu-0"}))}
    else:
        node.witnesses.file = DeviceFile({UNIT: UnitEntry("pod", "container")})
    async with running(node.reconciler.run()):
        with pytest.raises(
            LedgerUnavailable, match="the kubelet does not run, and its files name devices that nodeplug allocated"
        ):
            await ledger.grant([lease("gpu-0", "example.com/other")])
        node.witnesses.list, node.witnesses.absent = Listed(knows_its_pods=True), False
        await ledger.grant([lease("gpu-0", "example.com/other")])
    await ledger.close()


async def test_pass_reads_a_ledger_that_becomes_readable(tmp_path: Path) -> None:
    before = await opened(tmp_path / "state")
    await before.grant([lease("gpu-0", holder="pod/x/y/z")])
    await before.close()
    (tmp_path / "state").rename(tmp_path / "elsewhere")
    (tmp_path / "state").write_text("a file where the directory should be")
    ledger = await opened(tmp_path / "state")
    node = Node(ledger)
    node.witnesses.list = None
    notified: asyncio.Queue[Sequence[Lease] | None] = asyncio.Queue()
    ledger.observe(notified.put_nowait)
    async with running(node.reconciler.run()):
        await node.passes()
        assert not node.units
        (tmp_path / "state").unlink()
        (tmp_path / "elsewhere").rename(tmp_path / "state")
        await node.passes()
        assert (node.units, await notified.get()) == (["gpu-0"], None)
    await ledger.close()


@pytest.mark.parametrize("more", [0, 50])
async def test_restored_leases_are_logged_in_a_hundred_lines_and_a_count(
    node: Node, caplog: pytest.LogCaptureFixture, more: int
) -> None:
    """A kubelet can list any number of units of a resource."""
    units = {("example.com/gpu", f"gpu-{number}"): "pod/x/y/z" for number in range(100 + more)}
    node.witnesses.list = Listed(units, knows_its_pods=True)
    with caplog.at_level("WARNING"):
        await node.passes(2)
    assert len(node.units) == 100 + more
    messages = ["50 more were held without a lease; `nodeplug status` lists all leases"] if more else []
    assert caplog.messages[100:] == messages
