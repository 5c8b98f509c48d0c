"""The reconciler with witnesses that say what a test has them say: what ends, what stays, what comes back."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path

import pytest

from checkpoint import Lease, LeaseRefused, Ledger, LedgerUnavailable, ReleaseRefused
from checkpoint.holdings import ClaimEntry, ClaimName, DeviceFile, Listed, UnitEntry
from checkpoint.reconciler import Reconciler
from tests.checkpoint.build import Asked, claimed, lease, opened
from tests.running import running, until

UNIT = ("example.com/gpu", "gpu-0")
OTHER = ("example.com/gpu", "gpu-9")


class Scripted:
    """Says what it was given last."""

    def __init__(self) -> None:
        self.list: Listed | None = Listed(knows_its_pods=True)
        self.file: DeviceFile | None = DeviceFile()
        self.claims: Mapping[str, ClaimEntry] | None = {}
        self.cgroups: frozenset[str] | None = None
        self.server: Mapping[str, bool] | None = {}
        self.absent = False
        self.lists = 0
        self.asked: list[str] = []
        self.meanwhile: Callable[[], object] = lambda: None  # happens while pod-resources is asked
        self.hold = asyncio.Event()
        self.hold.set()

    def is_absent(self) -> bool:
        return self.absent

    async def listed(self) -> Listed | None:
        self.lists += 1
        found = self.list
        result = self.meanwhile()
        if asyncio.iscoroutine(result):
            await result
        await self.hold.wait()
        return found

    async def device_file(self) -> DeviceFile | None:
        return self.file

    async def claim_file(self) -> Mapping[str, ClaimEntry] | None:
        return self.claims

    async def pods(self) -> frozenset[str] | None:
        return self.cgroups

    async def wanted(self, claims: Iterable[ClaimName]) -> Mapping[str, bool] | None:
        self.asked += [claim.uid for claim in claims]
        return self.server


class Front:
    """Restores plain units and claims, and ends claims by ending their leases."""

    def __init__(self, ledger: Ledger, witnesses: Scripted) -> None:
        self.ledger = ledger
        self.witnesses = witnesses
        self.why_not = self.why_never = ""
        self.republished: list[str] = []
        self.rewrites: DeviceFile | None = None  # what the kubelet's file says once it is written again

    def serves(self, resource: str) -> bool:
        return resource.startswith("example.com/")

    def restore_unit(self, resource: str, unit: str, entry: UnitEntry | None) -> Lease:
        return lease(unit, resource)

    async def restore_claim(self, claim: ClaimName, units: Set[str]) -> str:
        if self.why_never:
            raise LeaseRefused(self.why_never, "")
        if not self.why_not:
            await self.ledger.grant([claimed("gpu-0", claim.uid or "found", name=claim.name)], guarded=False)
        return self.why_not

    async def end_claim(self, claim: ClaimName, unless_answered_since: float) -> None:
        await self.ledger.end(self.ledger.of_owner(f"claim/{claim.uid}"), unless_answered_since=unless_answered_since)

    def republish(self, resources: Iterable[str]) -> None:
        self.republished += resources
        if self.rewrites is not None:
            self.witnesses.file = self.rewrites


class Node:
    """A ledger, who looks after it, and what it can learn."""

    def __init__(self, ledger: Ledger, grace: float = 0.0, patience: float = 10.0) -> None:
        self.ledger = ledger
        self.witnesses = Scripted()
        self.front = Front(ledger, self.witnesses)
        self.reconciler = Reconciler(ledger, self.witnesses, interval=3600.0, grace=grace, patience=patience)
        self.reconciler.units = self.reconciler.claims = self.front

    @property
    def units(self) -> list[str]:
        return [x.unit for x in self.ledger.leases()]

    async def passes(self, count: int = 1) -> None:
        for _ in range(count):
            await self.reconciler.refresh()


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    ledger = await opened(tmp_path)
    ledger.is_complete = True
    node = Node(ledger)
    running = asyncio.ensure_future(node.reconciler.run())
    yield node
    running.cancel()
    await asyncio.wait([running])
    await ledger.close()


async def test_who_asks_for_a_pass_while_the_reconciler_ends_does_not_wait_for_ever(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    node = Node(ledger)
    running = asyncio.ensure_future(node.reconciler.run())
    early = asyncio.ensure_future(node.reconciler.refresh())
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    async with asyncio.timeout(30):
        await early
        await node.reconciler.refresh()
    await ledger.close()


async def test_a_lease_of_a_pod_that_the_kubelet_has_ended_ends(node: Node) -> None:
    await node.ledger.grant([lease("gpu-0", holder="pod/x/y/z"), lease("gpu-1", holder="pod/x/y/z")])
    node.witnesses.list = Listed({("example.com/gpu", "gpu-1"): "pod/x/y/z"}, knows_its_pods=True)
    await node.passes()
    assert node.units == ["gpu-1"]


async def test_a_kubelet_that_has_just_started_ends_nothing_and_neither_does_one_that_is_gone(node: Node) -> None:
    await node.ledger.grant([lease("gpu-0", holder="pod/x/y/z"), claimed("gpu-1", "1")])
    node.witnesses.server = {"1": False}
    for said in (Listed(), None):
        node.witnesses.list = said
        await node.passes(3)
    assert node.units == ["gpu-0", "gpu-1"]


async def test_whatever_the_configuration_names_leases_are_looked_after(node: Node) -> None:
    await node.ledger.grant([lease("gpu-0", "gone.com/resource", holder="pod/x/y/z")])
    await node.passes()
    assert not node.units


async def test_a_lease_on_which_the_witnesses_are_silent_is_released_by_hand(node: Node) -> None:
    unit, claim = lease("gpu-0", holder="pod/x/y/z"), claimed("gpu-1", "1")
    await node.ledger.grant([unit, claim, claimed("gpu-2", "1")])
    node.witnesses.list = node.witnesses.server = None
    assert await node.reconciler.release(unit) == (unit,)
    assert [x.unit for x in await node.reconciler.release(claim)] == ["gpu-1", "gpu-2"]
    assert not node.units


async def test_a_lease_that_a_witness_names_is_released_by_force_alone(node: Node) -> None:
    unit, claim = lease("gpu-0", pods="u1"), claimed("gpu-1", "1")
    await node.ledger.grant([unit, claim])
    node.witnesses.list = None
    for said, words in (
        ((None, DeviceFile({UNIT: UnitEntry("u1", "z")})), "kubelet's file: names it for z of pod u1"),
        ((frozenset({"u1"}), DeviceFile()), "kernel: has a cgroup of pod u1"),
    ):
        node.witnesses.cgroups, node.witnesses.file = said
        with pytest.raises(ReleaseRefused, match=words):
            await node.reconciler.release(unit)
    node.witnesses.server = {"1": True}  # a pass does not ask it where pod-resources is silent; a release does
    with pytest.raises(ReleaseRefused, match="API server: wants it prepared"):
        await node.reconciler.release(claim)
    assert node.units == ["gpu-0", "gpu-1"]
    await node.reconciler.release(unit, force=True)
    await node.reconciler.release(claim, force=True)
    assert not node.units


async def test_what_ends_with_the_pass_is_released_and_a_young_lease_is_not(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    ledger.is_complete = True
    node = Node(ledger, grace=60.0)
    running = asyncio.ensure_future(node.reconciler.run())
    young, over = lease("gpu-0"), lease("gpu-1", pods="u1")
    await ledger.grant([young, over])
    node.witnesses.list = None
    with pytest.raises(ReleaseRefused, match="less than 60 s ago"):
        await node.reconciler.release(young)
    assert [x.says for x in await node.reconciler.statements(young)] == [
        "does not answer",
        "does not name it",
        "cannot say, for its pod is not known",
    ]
    assert await node.reconciler.release(young, force=True) == (young,)
    assert await node.reconciler.statements(young) == ()
    running.cancel()
    await asyncio.wait([running])
    with pytest.raises(ReleaseRefused, match="nobody could be asked"):
        await node.reconciler.release(over)
    await ledger.close()


async def test_holders_and_pods_are_learnt(node: Node) -> None:
    await node.ledger.grant([lease("gpu-0"), claimed("gpu-1", "1")])
    node.witnesses.list = Listed({UNIT: "pod/x/y/z"}, {("default", "1"): frozenset({"gpu-1"})}, knows_its_pods=True)
    node.witnesses.file = DeviceFile({UNIT: UnitEntry("uid-1", "z")})
    node.witnesses.claims = {"1": ClaimEntry("default", "1", frozenset({"uid-2", "uid-3"}))}
    await node.passes()
    unit, claim = node.ledger.leases()
    assert (unit.holder, set(unit.pods)) == ("pod/x/y/z", {"uid-1"})
    assert claim.pods == {"uid-2", "uid-3"}


async def test_a_unit_that_nobody_has_named_yet_must_be_missed_twice(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    ledger.is_complete = True
    node = Node(ledger, grace=0.05)
    async with asyncio.timeout(30):
        await ledger.grant([lease("gpu-0")])
        passes = asyncio.ensure_future(node.reconciler.run())
        began = asyncio.get_running_loop().time()
        while node.units:
            await node.passes()
        assert asyncio.get_running_loop().time() - began >= 0.1  # too young, then missed for the first time
    passes.cancel()
    await asyncio.wait([passes])
    await ledger.close()


@pytest.mark.parametrize("before", ["named", "missed"])
async def test_what_takes_the_place_of_a_lease_must_be_missed_twice_itself(tmp_path: Path, before: str) -> None:
    """The kubelet gives a unit out again: whatever was found out before, this pod is not recorded yet."""
    ledger = await opened(tmp_path)
    ledger.is_complete = True
    witnesses = Scripted()
    reconciler = Asked(ledger, witnesses, grace=0.02)
    listed = Listed({UNIT: "pod/x/y/z"} if before == "named" else {}, knows_its_pods=True)
    async with asyncio.timeout(30), running(reconciler.run()):
        for witnesses.list in (listed, Listed(knows_its_pods=True)):
            await ledger.grant([lease("gpu-0")])
            await until(lambda: all(ledger.age(x) > 0.02 for x in ledger.leases()))
            await reconciler.refresh()
        assert ledger.leases()
    await ledger.close()


async def test_the_cgroup_of_its_pod_keeps_a_lease_until_it_is_gone(node: Node) -> None:
    await node.ledger.grant([lease("gpu-0", holder="pod/x/y/z", pods="uid-1")])
    node.witnesses.cgroups = frozenset({"uid-1", "uid-2"})
    await node.passes(2)
    assert node.units
    node.witnesses.list = None  # the kubelet says nothing any more
    node.witnesses.cgroups = frozenset({"uid-2"})
    await node.passes()
    assert not node.units


async def test_cgroups_that_cannot_be_seen_any_more_are_no_end(node: Node) -> None:
    await node.ledger.grant([lease("gpu-0", holder="pod/x/y/z", pods="uid-1")])
    node.witnesses.list = None
    for seen in (frozenset({"uid-1"}), None, frozenset({"uid-1"})):
        node.witnesses.cgroups = seen
        await node.passes()
    assert node.units


async def test_a_file_that_may_be_older_is_written_again_before_it_counts(node: Node) -> None:
    old = DeviceFile({UNIT: UnitEntry("uid-1", "init")}, is_fresh=False)
    await node.ledger.grant([lease("gpu-0", holder="pod/x/y/z")])
    node.witnesses.file, node.front.rewrites = old, DeviceFile({UNIT: UnitEntry("uid-1", "init")})
    await node.passes()
    assert node.units
    assert node.front.republished == ["example.com/gpu"]
    node.witnesses.file, node.front.rewrites = old, DeviceFile()
    await node.passes()
    assert not node.units


async def test_a_kubelet_that_does_not_write_its_file_again_ends_nothing(node: Node) -> None:
    await node.ledger.grant([lease("gpu-0", holder="pod/x/y/z")])
    node.witnesses.file = DeviceFile({UNIT: UnitEntry("uid-1", "init")}, is_fresh=False)
    await node.passes()
    assert node.units


async def test_the_api_server_is_asked_about_claims_that_nobody_on_the_node_names(node: Node) -> None:
    await node.ledger.grant([claimed("gpu-0", "1"), claimed("gpu-1", "2"), claimed("gpu-2", "3")])
    node.witnesses.list = Listed(claims={("default", "1"): frozenset({"gpu-0"})}, knows_its_pods=True)
    node.witnesses.server = {"2": False}
    await node.passes()
    assert set(node.witnesses.asked) == {"2", "3"}
    assert node.units == ["gpu-0", "gpu-2"]  # nobody answered for the third


async def test_what_was_granted_again_while_the_witnesses_were_asked_stays(node: Node) -> None:
    await node.ledger.grant([lease("gpu-0", holder="pod/x/y/z"), lease("gpu-1", holder="pod/x/y/z"), claimed("c", "1")])
    node.witnesses.server = {"1": False}

    async def meanwhile() -> None:
        await node.ledger.grant([lease("gpu-0", holder="pod/x/y/z")])
        node.ledger.answered([claimed("c", "1")])

    node.witnesses.meanwhile = meanwhile
    await node.passes()
    assert node.units == ["gpu-0", "c"]


async def test_those_who_ask_during_a_pass_share_the_next(node: Node) -> None:
    node.witnesses.hold.clear()
    first = asyncio.ensure_future(node.passes())
    while node.witnesses.lists < 2:  # the one at the start, and ours
        node.witnesses.hold.set()
        await asyncio.sleep(0)
        node.witnesses.hold.clear()
    later = [asyncio.ensure_future(node.passes()) for _ in range(5)]
    await asyncio.sleep(0)
    node.witnesses.hold.set()
    await asyncio.gather(first, *later)
    assert node.witnesses.lists == 3


async def test_a_grant_is_not_refused_for_the_sake_of_a_pod_that_is_gone(node: Node) -> None:
    await node.ledger.grant([lease("gpu-0", holder="pod/x/y/z"), lease("gpu-1", holder="pod/x/y/z")])
    node.witnesses.list = Listed({("example.com/gpu", "gpu-1"): "pod/x/y/z"}, knows_its_pods=True)
    await node.ledger.grant([lease("gpu-0", "example.com/other")])
    with pytest.raises(LeaseRefused, match="pod/x/y/z"):
        await node.ledger.grant([lease("gpu-1", "example.com/other")])


async def test_witnesses_that_do_not_answer_hold_a_refusal_up_for_a_while_only(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    ledger.is_complete = True
    node = Node(ledger, patience=0.05)
    running = asyncio.ensure_future(node.reconciler.run())
    await node.passes()
    await ledger.grant([lease("gpu-0", holder="pod/x/y/z")])
    node.witnesses.hold.clear()
    async with asyncio.timeout(30):
        with pytest.raises(LeaseRefused):
            await ledger.grant([lease("gpu-0", "example.com/other")])
    running.cancel()
    await asyncio.wait([running])
    await ledger.close()


async def test_a_pass_that_fails_is_logged_and_the_next_one_works(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    await node.ledger.grant([lease("gpu-0", holder="pod/x/y/z")])
    node.witnesses.meanwhile = lambda: 1 // 0
    await node.passes()
    assert "finding out who holds what failed" in caplog.text
    assert node.units
    node.witnesses.meanwhile = lambda: None
    await node.passes()
    assert not node.units


async def test_what_pods_hold_without_a_lease_is_leased_again(node: Node) -> None:
    node.witnesses.list = Listed({UNIT: "pod/x/y/z"}, {("default", "c"): frozenset({"gpu-0"})})
    node.witnesses.file = DeviceFile(
        {OTHER: UnitEntry("uid-1", "init"), ("example.com/gpu", "dead"): UnitEntry("u", "")}
    )
    node.witnesses.cgroups = frozenset({"uid-1", "uid-2"})
    node.witnesses.claims = {"7": ClaimEntry("default", "d", frozenset({"uid-2"}), frozenset({"gpu-0"}))}
    node.front.why_not = "the API server does not answer"
    await node.passes()
    assert {(x.unit, x.holder) for x in node.ledger.leases()} == {("gpu-0", "pod/x/y/z"), ("gpu-9", "")}
    assert "the API server does not answer" in node.reconciler.problem
    node.witnesses.list, node.witnesses.file = Listed(), DeviceFile()
    await node.passes()  # or one that is under way leases again what it was told before
    await node.ledger.end(node.ledger.leases())
    node.front.why_not = ""
    await node.passes()
    assert [x.holder for x in node.ledger.leases()] == ["claim/default/d/7"]


async def test_a_claim_for_which_the_kubelet_has_no_answer_yet_is_not_held(node: Node) -> None:
    node.witnesses.cgroups = frozenset({"uid-2"})
    node.witnesses.claims = {"7": ClaimEntry("default", "d", frozenset({"uid-2"}))}
    await node.passes()
    assert not node.ledger.leases()


async def test_what_cannot_be_leased_again_is_reported_once_while_it_is_so(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    """The kubelet is asked every half minute, and names it each time."""
    await node.ledger.grant([lease("gpu-0", "example.com/other", holder="pod/a/b/c")])
    said = Listed({UNIT: "pod/x/y/z"}, {("default", "gone"): frozenset({"gpu-5"})}, knows_its_pods=True)
    node.witnesses.list, node.front.why_never = said, "claim gone not found"
    node.witnesses.cgroups, node.witnesses.file = frozenset(), None

    def reported() -> list[str]:
        return [x.message for x in caplog.records if "is held without a lease" in x.message]

    await node.passes(3)
    unit, claim = reported()
    assert unit.startswith("example.com/gpu gpu-0 is held without a lease: device gpu-0: ")
    assert claim == "claim default/gone is held without a lease: claim gone not found"
    assert node.reconciler.problem == ""  # there is nothing to wait for
    node.front.why_never = "claim gone is not allocated"
    await node.passes(2)
    assert len(reported()) == 3
    node.witnesses.list = Listed(knows_its_pods=True)
    await node.passes()
    node.witnesses.list = said
    await node.passes(2)
    assert len(reported()) == 5


async def test_what_waits_is_named_with_few_reasons(node: Node) -> None:
    """Every refusal repeats them."""
    names = [("default", f"c{i}") for i in range(50)]
    node.witnesses.list = Listed({}, {name: frozenset({"gpu-0"}) for name in names}, knows_its_pods=True)
    node.front.why_not = "the API server does not answer"
    await node.passes()
    assert node.reconciler.problem == "the API server does not answer"


async def test_what_was_leased_when_a_pass_began_is_not_brought_back_by_it(node: Node) -> None:
    await node.ledger.grant([lease("gpu-0"), claimed("gpu-1", "1")])
    node.witnesses.list = Listed({UNIT: "pod/x/y/z"}, {("default", "1"): frozenset({"gpu-1"})}, knows_its_pods=True)
    node.witnesses.claims = {"1": ClaimEntry("default", "1")}
    node.witnesses.meanwhile = lambda: node.ledger.end(node.ledger.leases())
    await node.passes()
    assert not node.units


async def test_of_two_claims_of_one_name_the_one_has_the_devices_that_was_given_them(node: Node) -> None:
    """One was deleted by force while its pod runs."""
    await node.ledger.grant([claimed("gpu-1", "1", name="d")])
    node.witnesses.list = Listed({}, {("default", "d"): frozenset({"gpu-1"})}, knows_its_pods=True)
    node.witnesses.claims = {
        "2": ClaimEntry("default", "d"),
        "1": ClaimEntry("default", "d", units=frozenset({"gpu-1"})),
    }
    await node.passes()
    assert node.units == ["gpu-1"]


async def test_names_that_are_not_ours_are_nobodys_business(node: Node) -> None:
    node.witnesses.list = Listed({("nvidia.com/gpu", "GPU-1"): "pod/x/y/z"})
    await node.passes()
    assert not node.units


async def test_a_lost_ledger_grants_nothing_until_what_pods_hold_is_leased(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    node = Node(ledger)
    node.witnesses.list = Listed({UNIT: "pod/x/y/z"})
    running = asyncio.ensure_future(node.reconciler.run())
    with pytest.raises(LedgerUnavailable, match="the kubelet does not know its pods yet"):
        await ledger.grant([lease("gpu-1", "example.com/other")])
    node.witnesses.list = Listed({UNIT: "pod/x/y/z"}, knows_its_pods=True)
    with pytest.raises(LeaseRefused, match="pod/x/y/z"):
        await ledger.grant([lease("gpu-0", "example.com/other")])
    await ledger.grant([lease("gpu-1", "example.com/other")])
    assert ledger.is_complete
    running.cancel()
    await asyncio.wait([running])
    await ledger.close()


async def test_a_new_node_without_a_kubelet_has_nothing_to_restore(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    node = Node(ledger)
    node.witnesses.list, node.witnesses.absent = None, True
    running = asyncio.ensure_future(node.reconciler.run())
    await ledger.grant([lease("gpu-0")])
    running.cancel()
    await asyncio.wait([running])
    await ledger.close()


@pytest.mark.parametrize("api", ["device plugin", "DRA"])
async def test_a_kubelet_that_is_away_and_left_its_files_is_waited_for(tmp_path: Path, api: str) -> None:
    ledger = await opened(tmp_path)
    node = Node(ledger)
    node.witnesses.list, node.witnesses.absent = None, True
    if api == "DRA":
        node.witnesses.claims = {"uid": ClaimEntry("default", "a", frozenset({"pod"}), frozenset({"gpu-0"}))}
    else:
        node.witnesses.file = DeviceFile({UNIT: UnitEntry("pod", "container")})
    running = asyncio.ensure_future(node.reconciler.run())
    with pytest.raises(LedgerUnavailable, match="there is no kubelet, and its files name devices of ours"):
        await ledger.grant([lease("gpu-0", "example.com/other")])
    node.witnesses.list, node.witnesses.absent = Listed(knows_its_pods=True), False
    await ledger.grant([lease("gpu-0", "example.com/other")])
    running.cancel()
    await asyncio.wait([running])
    await ledger.close()


async def test_a_ledger_that_becomes_readable_later_is_read_without_anybody_asking(tmp_path: Path) -> None:
    before = await opened(tmp_path / "state")
    await before.grant([lease("gpu-0", holder="pod/x/y/z")])
    await before.close()
    (tmp_path / "state").rename(tmp_path / "elsewhere")
    (tmp_path / "state").write_text("a file where the directory should be")
    ledger = await opened(tmp_path / "state")
    node = Node(ledger)
    node.witnesses.list = None
    heard: asyncio.Queue[Sequence[Lease] | None] = asyncio.Queue()
    ledger.observe(heard.put_nowait)
    running = asyncio.ensure_future(node.reconciler.run())
    await node.passes()
    assert not node.units
    (tmp_path / "state").unlink()
    (tmp_path / "elsewhere").rename(tmp_path / "state")
    await node.passes()
    assert (node.units, await heard.get()) == (["gpu-0"], None)
    running.cancel()
    await asyncio.wait([running])
    await ledger.close()


async def test_a_first_lease_wakes_who_looks_after_leases(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    ledger.is_complete = True
    node = Node(ledger)
    running = asyncio.ensure_future(node.reconciler.run())
    await node.passes()
    await asyncio.sleep(0)
    woken = asyncio.Event()
    node.witnesses.meanwhile = woken.set
    await ledger.grant([lease("gpu-0", holder="pod/x/y/z")])
    async with asyncio.timeout(30):
        await woken.wait()
    running.cancel()
    await asyncio.wait([running])
    await ledger.close()


async def test_many_that_come_back_at_once_are_a_hundred_lines_and_how_many_more(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    """A kubelet may list any number of units of a resource."""
    units = {("example.com/gpu", f"gpu-{number}"): "pod/x/y/z" for number in range(150)}
    node.witnesses.list = Listed(units, knows_its_pods=True)
    with caplog.at_level("WARNING"):
        await node.passes(2)
    assert len(node.units) == 150
    *told, last = [record.getMessage() for record in caplog.records]
    assert len(told) == 100
    assert last == "50 more were held without a lease; `nodeplug status` has all leases"
