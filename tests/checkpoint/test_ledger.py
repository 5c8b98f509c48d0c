"""The ledger on real files: what survives, what is refused, what is shared."""

import asyncio
import os
import sqlite3
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoint import Lease, LeaseKey, LeaseRefused, Ledger, LedgerUnavailable, StateLocked
from tests.checkpoint.test_lease import conflict, lease, leases


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    opened = await Ledger.open(tmp_path / "state", "boot-1")
    yield opened
    await opened.close()


async def reopened(ledger: Ledger, tmp_path: Path, boot_id: str = "boot-1") -> Ledger:
    await ledger.close()
    return await Ledger.open(tmp_path / "state", boot_id)


async def test_a_granted_lease_is_there_after_a_restart_with_all_that_it_says(ledger: Ledger, tmp_path: Path) -> None:
    full = Lease(
        resource="example.com/gpu",
        unit="gpu-0.3",
        api="dra",
        occupies=frozenset({"gpu-0", "snd-1"}),
        touches=frozenset({"pf-0"}),
        holder="claim/1",
        answer=b"\x00\xff",
        phase="intended",
        boot_id="boot-1",
        since=1234567890.123456,
    )
    assert (await ledger.grant([full])).replaced == ()
    assert ledger.leases() == (full,)
    again = await reopened(ledger, tmp_path)
    assert again.leases() == (full,)
    await again.close()


async def test_a_lease_is_on_disk_when_the_grant_returns(ledger: Ledger, tmp_path: Path) -> None:
    await ledger.grant([lease("a"), lease("b")])
    with sqlite3.connect(tmp_path / "state" / "ledger.sqlite3") as tool:
        assert tool.execute("SELECT unit FROM lease ORDER BY unit").fetchall() == [("a",), ("b",)]
    tool.close()


async def test_a_unit_given_anew_ends_the_old_lease_and_says_so(ledger: Ledger, tmp_path: Path) -> None:
    await ledger.grant([lease("a", holder="pod/x/y/z"), lease("b")])
    granted = await ledger.grant([lease("a", since=200.0)])
    assert granted.replaced == (lease("a", holder="pod/x/y/z"),)
    again = await reopened(ledger, tmp_path)
    assert set(again.leases()) == {lease("a", since=200.0), lease("b")}
    await again.close()


async def test_a_refused_request_changes_nothing_and_costs_no_disk(ledger: Ledger) -> None:
    await ledger.grant([lease("a", "other.com/a")])
    commits = ledger.commits
    with pytest.raises(LeaseRefused, match="device a"):
        await ledger.grant([lease("b"), lease("a")])
    assert ledger.leases() == (lease("a", "other.com/a"),)
    assert ledger.commits == commits


async def test_a_hundred_callers_share_commits_and_each_has_its_own_outcome(ledger: Ledger) -> None:
    await ledger.grant([lease("u7", "other.com/x")])
    commits = ledger.commits
    outcomes = await asyncio.gather(*(ledger.grant([lease(f"u{n}")]) for n in range(100)), return_exceptions=True)
    assert [n for n, outcome in enumerate(outcomes) if isinstance(outcome, BaseException)] == [7]
    assert isinstance(outcomes[7], LeaseRefused)
    assert len(ledger.leases()) == 100
    assert ledger.commits - commits <= 2


async def test_callers_of_one_batch_see_each_other(ledger: Ledger) -> None:
    first, second = await asyncio.gather(
        ledger.grant([lease("a", "a.com/r")]), ledger.grant([lease("a", "b.com/r")]), return_exceptions=True
    )
    assert not isinstance(first, BaseException)
    assert isinstance(second, LeaseRefused)


async def test_ten_thousand_units_keep_one_answer(ledger: Ledger, tmp_path: Path) -> None:
    answer = b"x" * 100_000
    wanted = [
        Lease(
            resource="example.com/x",
            unit=f"u{n}",
            api="device-plugin",
            occupies=frozenset({f"u{n}"}),
            answer=answer,
            boot_id="boot-1",
            since=float(n),
        )
        for n in range(10_000)
    ]
    await ledger.grant(wanted)
    again = await reopened(ledger, tmp_path)
    assert again.leases() == tuple(wanted)
    assert (tmp_path / "state" / "ledger.sqlite3").stat().st_size < 5_000_000
    assert len(await again.release(lambda each: True)) == 10_000
    await again.close()
    tool = sqlite3.connect(tmp_path / "state" / "ledger.sqlite3")
    assert tool.execute("SELECT count(*) FROM answer").fetchone() == (0,)
    tool.close()


async def test_release_ends_what_it_is_told_for_good(ledger: Ledger, tmp_path: Path) -> None:
    await ledger.grant([lease("a"), lease("b"), lease("c", "example.com/c")])
    assert await ledger.release(lambda each: each.resource == "example.com/gpu") == (lease("a"), lease("b"))
    assert await ledger.release(lambda each: each.unit == "unknown") == ()
    again = await reopened(ledger, tmp_path)
    assert again.leases() == (lease("c", "example.com/c"),)
    await again.close()


async def test_a_callers_own_fault_is_its_own(ledger: Ledger) -> None:
    await ledger.grant([lease("a")])
    outcomes = await asyncio.gather(
        ledger.release(lambda each: 1 // 0 > 0), ledger.grant([lease("b")]), return_exceptions=True
    )
    assert isinstance(outcomes[0], ZeroDivisionError)
    assert [each.unit for each in ledger.leases()] == ["a", "b"]


async def test_reconcile_follows_the_kubelet_and_tells_what_has_no_lease(ledger: Ledger, tmp_path: Path) -> None:
    await ledger.grant([lease("a"), lease("b"), lease("c", since=998.0), lease("d", since=1001.0)])
    await ledger.grant([lease("e", "example.com/e", api="dra", holder="claim/1")])
    held = {("example.com/gpu", "a"): "pod/x/y/z", ("example.com/gpu", "lost"): "pod/l/m/n"}
    done = await ledger.reconcile("device-plugin", held, seen_before=1000.0, grace=5.0)
    assert done.ended == (lease("b"),)  # c and d are too young for the kubelet's silence to count
    assert done.updated == (lease("a", holder="pod/x/y/z"),)
    assert done.missing == {("example.com/gpu", "lost")}
    again = await reopened(ledger, tmp_path)
    assert sorted(each.unit for each in again.leases()) == ["a", "c", "d", "e"]
    assert {each.unit: each.holder for each in again.leases()}["a"] == "pod/x/y/z"
    done = await again.reconcile("device-plugin", held, seen_before=1010.0, grace=0.0)
    assert [each.unit for each in done.ended] == ["c", "d"]
    await again.close()


async def test_a_reboot_shows_in_leases_until_the_kubelet_confirms_them(ledger: Ledger, tmp_path: Path) -> None:
    await ledger.grant([lease("a", boot_id="boot-1"), lease("b", boot_id="boot-1")])
    assert ledger.from_before_boot() == ()
    again = await reopened(ledger, tmp_path, "boot-2")
    assert len(again.from_before_boot()) == 2
    await again.reconcile("device-plugin", {("example.com/gpu", "a"): "pod/x/y/z"}, seen_before=1000.0)
    assert again.from_before_boot() == ()
    assert [each.boot_id for each in again.leases()] == ["boot-2"]
    await again.close()


async def test_nobody_is_refused_before_a_fresh_look_and_a_look_itself_does_not_look(ledger: Ledger) -> None:
    looks: list[str] = []

    async def look() -> None:
        looks.append("looked")
        await ledger.release(lambda each: each.holder == "pod/x/gone/c")
        with pytest.raises(LeaseRefused):
            await ledger.grant([lease("gpu-1", "other.com/gpu")], afresh=False)

    ledger.ask_before_refusing(look)
    await ledger.grant([lease("gpu-0", holder="pod/x/gone/c"), lease("gpu-1", holder="pod/x/here/c")])
    assert not looks
    await ledger.grant([lease("gpu-0", "other.com/gpu")])
    with pytest.raises(LeaseRefused, match="pod/x/here/c"):
        await ledger.grant([lease("gpu-1", "other.com/gpu")])
    assert looks == ["looked", "looked"]


async def test_a_look_that_fails_is_logged_and_the_others_count(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise RuntimeError("no such luck")

    async def look() -> None:
        await ledger.release(lambda each: each.holder == "pod/x/gone/c")

    ledger.ask_before_refusing(fail)
    ledger.ask_before_refusing(look)
    await ledger.grant([lease("gpu-0", holder="pod/x/gone/c"), lease("gpu-1", holder="pod/x/here/c")])
    await ledger.grant([lease("gpu-0", "other.com/gpu")])
    assert "no such luck" in caplog.text
    with pytest.raises(LeaseRefused, match="pod/x/here/c"):
        await ledger.grant([lease("gpu-1", "other.com/gpu")])


async def test_who_observes_hears_which_api_has_changed(ledger: Ledger) -> None:
    heard: asyncio.Queue[set[str]] = asyncio.Queue()
    ledger.observe(lambda apis: heard.put_nowait(set(apis)))
    await ledger.grant([lease("gpu-0"), lease("gpu-1", api="dra", holder="claim/1")])
    assert await heard.get() == {"device-plugin", "dra"}
    await ledger.release(lambda each: each.api == "dra")
    assert await heard.get() == {"dra"}
    await ledger.release(lambda each: False)
    await ledger.withhold("gpu-0", "broken")
    assert heard.empty()


async def test_a_withheld_device_is_refused_with_its_reason_until_readmitted(ledger: Ledger, tmp_path: Path) -> None:
    withheld = await ledger.withhold("pf", "reset failed: timeout")
    assert await ledger.withhold("pf", "another reason") == withheld
    again = await reopened(ledger, tmp_path)
    assert again.withheld() == (withheld,)
    for wanted in (lease("pf"), lease("vf", touches="pf"), lease("group", occupies="x pf")):
        with pytest.raises(LeaseRefused, match=r"device pf: withheld \(reset failed: timeout\).*readmit"):
            await again.grant([wanted])
    assert await again.readmit("pf")
    assert not await again.readmit("pf")
    await again.grant([lease("pf")])
    third = await reopened(again, tmp_path)
    assert (third.withheld(), third.leases()) == ((), (lease("pf"),))
    await third.close()


async def test_who_holds_a_device_that_is_withheld_keeps_it(ledger: Ledger) -> None:
    await ledger.grant([lease("a")])
    await ledger.withhold("a", "too hot")
    assert ledger.leases() == (lease("a"),)


async def test_a_second_opener_is_told_and_the_first_goes_on(ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(StateLocked, match=r"state: another nodeplug uses this state directory"):
        await Ledger.open(tmp_path / "state", "boot-1")
    await ledger.grant([lease("a")])


async def test_a_caller_that_went_away_does_not_disturb_the_others(ledger: Ledger) -> None:
    gone = asyncio.ensure_future(ledger.grant([lease("a")]))
    stays = asyncio.ensure_future(ledger.grant([lease("b")]))
    await asyncio.sleep(0)
    gone.cancel()
    await stays
    assert "b" in {each.unit for each in ledger.leases()}


async def test_close_finishes_what_waits_refuses_the_rest_and_leaves_nothing_behind(tmp_path: Path) -> None:
    def census() -> tuple[int, int]:
        return threading.active_count(), len(os.listdir("/proc/self/fd"))

    before = census()
    ledger = await Ledger.open(tmp_path, "boot-1")
    waiting = asyncio.ensure_future(ledger.grant([lease("a")]))
    await asyncio.sleep(0)
    await ledger.close()
    await ledger.close()
    await waiting
    with pytest.raises(LedgerUnavailable, match="closed"):
        await ledger.grant([lease("b")])
    assert census() == before


def has_key(key: LeaseKey, each: Lease) -> bool:
    return each.key == key


operations = st.one_of(
    st.tuples(st.just("grant"), st.lists(leases, min_size=1, max_size=2)),
    st.tuples(st.just("end"), leases),
    st.tuples(st.just("withhold"), st.sampled_from(["pf", "x"])),
    st.tuples(st.just("readmit"), st.sampled_from(["pf", "x"])),
    st.tuples(st.just("reload"), st.none()),
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=st.lists(operations, max_size=15))
def test_no_device_is_ever_handed_out_twice_and_every_reload_agrees(
    script: list[tuple[str, object]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    asyncio.run(_play(script, tmp_path_factory.mktemp("ledger")))


async def _play(script: list[tuple[str, object]], directory: Path) -> None:
    ledger = await Ledger.open(directory, "boot-1")
    for what, argument in script:
        if what == "grant":
            assert isinstance(argument, list)
            before = set(ledger.leases())
            try:
                await ledger.grant(argument)
            except LeaseRefused:
                assert set(ledger.leases()) == before
            else:
                banned = {each.device for each in ledger.withheld()}
                assert not any(banned & (each.occupies | each.touches) for each in argument)
                assert set(argument) <= set(ledger.leases())
        elif what == "end":
            assert isinstance(argument, Lease)
            await ledger.release(partial(has_key, argument.key))
        elif what == "reload":
            remembered = set(ledger.leases()), set(ledger.withheld())
            await ledger.close()
            ledger = await Ledger.open(directory, "boot-1")
            assert (set(ledger.leases()), set(ledger.withheld())) == remembered
        else:
            assert isinstance(argument, str)
            await (ledger.withhold(argument, "why") if what == "withhold" else ledger.readmit(argument))
        assert not any(conflict(a, b) for a in ledger.leases() for b in ledger.leases())
    await ledger.close()
