"""Units of running pods that the kubelet no longer lists: evidence, duration and error texts."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from checkpoint import Lease, LeaseRefused, Ledger
from checkpoint.holdings import DeviceFile, Listed, UnitEntry
from checkpoint.unlisted import MAX_NAMED, running_pods_refusal, unlisted_reason
from tests.checkpoint.build import claimed, lease, opened
from tests.checkpoint.node import OTHER, UNIT, Node
from tests.running import running, until

STATIC = "0123456789abcdef" * 2
HELD = lease("gpu-0", holder="pod/x/y/z", pods="u1")
GONE = Listed({OTHER: "pod/x/other/z"}, knows_its_pods=True, pods=frozenset({"x/other"}), kubelet=1)
THERE = replace(GONE, units={**GONE.units, UNIT: "pod/x/y/z"}, pods=frozenset({"x/other", "x/y"}))
NAMED = DeviceFile({UNIT: UnitEntry("u1", "z")})


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    found = await opened(tmp_path)
    found.is_complete = True
    yield found
    await found.close()


async def node_with_pod(ledger: Ledger, held: Lease = HELD, **options: float) -> Node:
    """A node whose pod runs and is listed; `GONE` is the list after it was deleted by force."""
    node = Node(ledger, **options)
    await ledger.grant([held], guarded=False)
    node.witnesses.list = THERE
    node.witnesses.cgroups = node.witnesses.busy = held.pods
    return node


def unlisted(ledger: Ledger) -> list[str]:
    return [x.unit for x in ledger.unlisted.leases()]


async def unlisted_after_deletion(ledger: Ledger, held: Lease = HELD, **options: float) -> list[str]:
    """The unlisted units after the kubelet has listed the pod, and no longer lists it in two passes."""
    node = await node_with_pod(ledger, held, **options)
    async with running(node.reconciler.run()):
        await node.passes()
        node.witnesses.list = GONE
        await node.passes(2)
        return unlisted(ledger)


async def test_unit_is_unlisted_when_the_kubelet_stops_listing_its_pod(ledger: Ledger) -> None:
    node = await node_with_pod(ledger)
    seen: list[list[str]] = []
    ledger.unlisted.observe(lambda leases: seen.append([x.unit for x in leases]))
    async with running(node.reconciler.run()):
        await node.passes()
        assert unlisted(ledger) == []
        node.witnesses.list = GONE
        await node.passes(2)
        assert unlisted(ledger) == ["gpu-0"]
        assert seen == [["gpu-0"]]
        ledger.unlisted.remove([HELD, lease("gpu-1")])
        assert seen == [["gpu-0"], ["gpu-0"]]


@pytest.mark.parametrize(
    "changes",
    [
        {"list": None},
        {"list": replace(GONE, knows_its_pods=False)},
        {"list": replace(GONE, kubelet=2)},
        {"list": replace(GONE, pods=THERE.pods)},
        {"list": replace(GONE, units={UNIT: "pod/x/new/z"})},
        {"file": NAMED},
        {"busy": frozenset[str]()},
        {"cgroups": None},
    ],
    ids=[
        "it does not answer",
        "it does not know its pods",
        "another kubelet",
        "it lists the pod without the unit",
        "it names the unit for another pod",
        "its file names the unit",
        "no process",
        "no cgroups",
    ],
)
async def test_unit_counts_as_listed_without_evidence_of_all_witnesses(
    ledger: Ledger, changes: dict[str, object]
) -> None:
    node = await node_with_pod(ledger)
    async with running(node.reconciler.run()):
        await node.passes()
        node.witnesses.list = GONE
        for name, value in changes.items():
            setattr(node.witnesses, name, value)
        await node.passes(2)
        assert (unlisted(ledger), node.reconciler.defect) == ([], "")


@pytest.mark.parametrize(("uid", "found"), [("u2", ["gpu-0"]), ("u1", []), ("", [])])
async def test_pod_with_the_same_name_and_another_uid_is_another_pod(
    ledger: Ledger, uid: str, found: list[str]
) -> None:
    """A StatefulSet creates the pod again. With the same uid, the kubelet has lost its file."""
    node = await node_with_pod(ledger)
    async with running(node.reconciler.run()):
        await node.passes()
        await ledger.grant([lease("gpu-1", holder="pod/x/y/z", pods=uid)], guarded=False)
        unit = ("example.com/gpu", "gpu-1")
        node.witnesses.list = replace(GONE, units={**GONE.units, unit: "pod/x/y/z"}, pods=THERE.pods)
        node.witnesses.file = DeviceFile({unit: UnitEntry(uid, "z")} if uid else {})
        await node.passes(2)
        assert unlisted(ledger) == found


async def test_earlier_list_of_the_same_kubelet_counts_as_evidence(ledger: Ledger) -> None:
    """The first pass after a deletion can lack evidence."""
    node = await node_with_pod(ledger)
    async with running(node.reconciler.run()):
        await node.passes()
        node.witnesses.list, node.witnesses.file = GONE, NAMED
        await node.passes(2)
        node.witnesses.file = DeviceFile()
        await node.passes()
        assert unlisted(ledger) == ["gpu-0"]


@pytest.mark.parametrize(
    "held",
    [
        replace(HELD, pods=frozenset({STATIC})),
        claimed("gpu-0", "u1", pods="u1"),
        replace(HELD, pods=frozenset()),
    ],
    ids=["a static pod", "a claim", "its uid is not known"],
)
async def test_unit_of_static_pod_claim_or_unknown_uid_is_not_unlisted(ledger: Ledger, held: Lease) -> None:
    assert await unlisted_after_deletion(ledger, held) == []


async def test_units_without_a_holder_are_not_of_the_same_pod(ledger: Ledger) -> None:
    node = await node_with_pod(ledger, replace(HELD, holder=""))
    await ledger.grant([lease("gpu-1", pods="u2")], guarded=False)
    node.witnesses.list = GONE
    async with running(node.reconciler.run()):
        await node.passes(2)
        assert unlisted(ledger) == []


async def test_unit_is_not_unlisted_during_the_grace_time(ledger: Ledger) -> None:
    assert await unlisted_after_deletion(ledger, grace=3600.0) == []


async def test_unlisted_unit_is_found_after_a_refusal_and_kept_until_its_pod_ends(ledger: Ledger) -> None:
    """A kubelet that starts does not change it, nor do witnesses that do not answer."""
    node = await node_with_pod(ledger, max_wait=0.0)
    async with running(node.reconciler.run()):
        await node.passes()
        node.witnesses.list = GONE
        with pytest.raises(LeaseRefused, match="device gpu-0: pod x/y still runs with it"):
            await ledger.grant([lease("gpu-0"), lease("gpu-1")])
        await until(lambda: unlisted(ledger) == ["gpu-0"])
        for later in (None, replace(GONE, kubelet=2, knows_its_pods=False), replace(GONE, kubelet=2)):
            node.witnesses.list, node.witnesses.file = later, replace(NAMED, is_fresh=False)
            await node.passes()
            assert unlisted(ledger) == ["gpu-0"]
        node.witnesses.busy = frozenset()
        await until(lambda: not unlisted(ledger))
        assert ledger.get(HELD.key) == HELD  # the lease ends with the cgroup
        with pytest.raises(TimeoutError):  # from now on nothing is read
            async with asyncio.timeout(0.01):
                await ledger.unlisted.wait_any()


@pytest.mark.parametrize(
    "changes",
    [{"list": replace(GONE, units={UNIT: "pod/x/y/z"})}, {"file": NAMED}],
    ids=["its list", "its file"],
)
async def test_unit_is_listed_again_when_the_kubelet_names_it(ledger: Ledger, changes: dict[str, object]) -> None:
    node = await node_with_pod(ledger)
    async with running(node.reconciler.run()):
        await node.passes()
        node.witnesses.list = GONE
        await node.passes()
        assert unlisted(ledger) == ["gpu-0"]
        for name, value in changes.items():
            setattr(node.witnesses, name, value)
        await node.passes()
        assert unlisted(ledger) == []


@pytest.mark.parametrize("then", ["ends", "is another pod's"])
async def test_unlisted_unit_ends_with_its_lease(ledger: Ledger, then: str) -> None:
    node = await node_with_pod(ledger)
    node.witnesses.busy = HELD.pods | {"u2"}
    async with running(node.reconciler.run()):
        await node.passes()
        node.witnesses.list = GONE
        await node.passes()
        assert unlisted(ledger) == ["gpu-0"]
        if then == "ends":
            await ledger.end([HELD])
        else:
            await ledger.grant([replace(HELD, pods=frozenset({"u2"}))], guarded=False)
            node.witnesses.list = None
        await until(lambda: not unlisted(ledger))


async def test_unit_stays_unlisted_while_processes_are_unknown(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("checkpoint.reconciler._UNLISTED_STEP", 0.01)
    node = await node_with_pod(ledger)
    async with running(node.reconciler.run()):
        await node.passes()
        node.witnesses.list = GONE
        await node.passes()
        node.witnesses.busy, before = None, node.witnesses.counts
        await until(lambda: node.witnesses.counts >= before + 3)
        assert unlisted(ledger) == ["gpu-0"]


async def test_defect_in_a_check_of_unlisted_units_ends_no_pass(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("checkpoint.reconciler._UNLISTED_STEP", 0.01)
    node = await node_with_pod(ledger)
    async with running(node.reconciler.run()):
        await node.passes()
        node.witnesses.list = GONE
        await node.passes()
        node.witnesses.meanwhile_running = fail
        text = "checking whether the pods of unlisted units have ended has failed"
        await until(lambda: text in caplog.messages)
        node.witnesses.meanwhile_running = None
        await node.passes()
        assert not node.reconciler.defect


async def test_unit_granted_to_another_pod_during_a_pass_is_not_unlisted(ledger: Ledger) -> None:
    node = await node_with_pod(ledger)
    node.witnesses.meanwhile_running = lambda: ledger.grant([lease("gpu-0")], guarded=False)
    async with running(node.reconciler.run()):
        await node.passes()
        node.witnesses.list = GONE
        await node.passes()
        assert unlisted(ledger) == []


def test_texts_name_devices_and_pods() -> None:
    unnamed = lease("gpu-1", pods="u2")
    assert unlisted_reason(HELD).startswith(
        "pod x/y still runs with gpu-0, although the kubelet does not list this pod any more: it was deleted by force;"
    )
    assert running_pods_refusal([HELD, unnamed]).startswith(
        "devices gpu-0, gpu-1: pods x/y, with the uid u2 still run with them, although the kubelet requests them again;"
    )
    one_pod = [HELD, replace(HELD, unit="gpu-2", holder="pod/x/y/other")]
    assert running_pods_refusal(one_pod).startswith("devices gpu-0, gpu-2: pod x/y still runs with them")
    five = [lease(f"gpu-{i}", holder=f"pod/x/p{i}/c") for i in range(MAX_NAMED)]
    assert "more" not in running_pods_refusal(five).partition(";")[0]
    assert "gpu-4 and 1 more: pods" in running_pods_refusal([*five, HELD])
    many = [lease(f"gpu-{i}", holder=f"pod/x/p{i}/c", pods=f"u{i}") for i in range(MAX_NAMED + 7)]
    assert "gpu-4 and 7 more: pods x/p0" in running_pods_refusal(many)
    assert "x/p4 and 7 more still run" in running_pods_refusal(many)
