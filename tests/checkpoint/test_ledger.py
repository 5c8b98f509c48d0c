"""The ledger with real files: what survives a restart, what is refused, what shares a commit."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from checkpoint import Lease, LeaseRefused, Ledger, LedgerUnavailable, StateLocked
from checkpoint.database import Database
from checkpoint.lease import Book
from tests.checkpoint.build import claimed, lease, opened
from tests.checkpoint.test_lease import conflict, leases
from tests.leaks import LeakCheck
from tests.threads import no_more_threads

IN_LOOP, IN_THREAD = float("inf"), -1.0


@pytest.fixture(params=[IN_LOOP, IN_THREAD], ids=["in the loop", "in a thread"])
async def ledger(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Ledger]:
    found = await opened(tmp_path / "state", fast_write=request.param)
    found.complete()
    yield found
    await found.close()


async def reopened(ledger: Ledger, tmp_path: Path, boot_id: str = "boot-1") -> Ledger:
    await ledger.close()
    return await opened(tmp_path / "state", boot_id)


async def test_granted_lease_survives_a_restart_with_all_fields(ledger: Ledger, tmp_path: Path) -> None:
    full = Lease(
        resource="example.com/gpu",
        unit="gpu-0.3",
        api="dra",
        owner="claim/1",
        exclusive=frozenset({"gpu-0", "snd-1"}),
        shared=frozenset({"pf-0"}),
        holder="claim/default/train/1",
        pods=frozenset({"uid-1", "uid-2"}),
        record=b"\x00\xff",
        phase="intended",
        boot_id="boot-1",
        granted_at=1234567890.123456,
    )
    assert (await ledger.grant([full])).ended == ()
    assert ledger.leases() == (full,)
    again = await reopened(ledger, tmp_path)
    assert again.leases() == (full,)
    assert again.is_complete
    await again.close()


async def test_lease_is_on_disk_when_the_grant_returns(ledger: Ledger, tmp_path: Path) -> None:
    await ledger.grant([lease("a"), lease("b")])
    with closing(sqlite3.connect(tmp_path / "state" / "ledger.sqlite3")) as tool:
        assert tool.execute("SELECT unit FROM lease ORDER BY unit").fetchall() == [("a",), ("b",)]


async def test_reallocated_unit_replaces_and_returns_the_old_lease(ledger: Ledger, tmp_path: Path) -> None:
    await ledger.grant([lease("a", holder="pod/x/y/z"), lease("b")])
    granted = await ledger.grant([lease("a", granted_at=200.0)])
    assert granted.replaced == (lease("a", holder="pod/x/y/z"),)
    again = await reopened(ledger, tmp_path)
    assert again.leases() == (lease("a", granted_at=200.0), lease("b"))
    await again.close()


async def test_unit_reallocated_with_other_devices_moves_to_the_end(ledger: Ledger, tmp_path: Path) -> None:
    await ledger.grant([lease("a"), lease("b"), lease("c", shared="pf")])
    await ledger.grant([lease("a", exclusive="a d"), lease("c")])
    latest = (lease("b"), lease("a", exclusive="a d"), lease("c"))
    assert ledger.leases() == latest
    again = await reopened(ledger, tmp_path)
    assert again.leases() == latest
    await again.close()


async def test_record_is_kept_while_any_lease_refers_to_it(ledger: Ledger, tmp_path: Path) -> None:
    def answered(unit: str, record: bytes) -> Lease:
        return structs.replace(lease(unit), record=record)

    def records() -> list[bytes]:
        with contextlib.closing(sqlite3.connect(tmp_path / "state" / "ledger.sqlite3")) as tool:
            return [body for (body,) in tool.execute("SELECT body FROM record ORDER BY body").fetchall()]

    await ledger.grant([answered("a", b"1"), answered("b", b"1")])
    await ledger.grant([answered("a", b"1")])
    assert records() == [b"1"]
    await ledger.grant([answered("a", b"2")])
    assert records() == [b"1", b"2"]
    await asyncio.gather(ledger.grant([answered("b", b"3")]), ledger.grant([answered("b", b"2")]))
    assert records() == [b"2"]
    again = await reopened(ledger, tmp_path)
    assert again.leases() == (answered("a", b"2"), answered("b", b"2"))
    await again.close()


async def test_updated_holder_survives_a_restart_in_the_order_of_grants(ledger: Ledger, tmp_path: Path) -> None:
    await ledger.grant([lease("a")])
    await ledger.grant([lease("b")])
    await ledger.update([lease("a", holder="pod/x/y/z", pods="uid-1"), lease("never", holder="pod/l/m/n")])
    again = await reopened(ledger, tmp_path)
    assert again.leases() == (lease("a", holder="pod/x/y/z", pods="uid-1"), lease("b"))
    await again.close()


async def test_refused_request_changes_nothing_and_writes_nothing(ledger: Ledger) -> None:
    await ledger.grant([lease("a", "other.com/a")])
    commits = ledger.commits
    with pytest.raises(LeaseRefused, match="device a"):
        await ledger.grant([lease("b"), lease("a")])
    assert ledger.leases() == (lease("a", "other.com/a"),)
    assert ledger.commits == commits


async def test_check_of_a_request_sees_the_requests_before_it(ledger: Ledger) -> None:
    def at_most(count: int) -> Callable[[Book], None]:
        def check(book: Book) -> None:
            if len(book) >= count:
                raise LeaseRefused("too many", "u")

        return check

    outcomes = await asyncio.gather(
        *(ledger.grant([lease(f"u{n}")], check=at_most(3)) for n in range(10)), return_exceptions=True
    )
    assert [isinstance(x, LeaseRefused) for x in outcomes] == [False] * 3 + [True] * 7


async def test_concurrent_grants_share_commits_and_have_separate_outcomes(ledger: Ledger) -> None:
    await ledger.grant([lease("u7", "other.com/x")])
    commits = ledger.commits
    outcomes = await asyncio.gather(*(ledger.grant([lease(f"u{n}")]) for n in range(100)), return_exceptions=True)
    assert [n for n, outcome in enumerate(outcomes) if isinstance(outcome, BaseException)] == [7]
    assert isinstance(outcomes[7], LeaseRefused)
    assert len(ledger.leases()) == 100
    assert ledger.commits - commits <= 2


async def test_second_of_two_conflicting_concurrent_grants_is_refused(ledger: Ledger) -> None:
    first, second = await asyncio.gather(
        ledger.grant([lease("a", "a.com/r")]), ledger.grant([lease("a", "b.com/r")]), return_exceptions=True
    )
    assert not isinstance(first, BaseException)
    assert isinstance(second, LeaseRefused)


async def test_ten_thousand_units_share_one_record(ledger: Ledger, tmp_path: Path) -> None:
    record = b"x" * 100_000
    wanted = [
        Lease(
            resource="example.com/x",
            unit=f"u{n}",
            api="device-plugin",
            owner=f"u{n}",
            exclusive=frozenset({f"u{n}"}),
            record=record,
            boot_id="boot-1",
        )
        for n in range(10_000)
    ]
    await ledger.grant(wanted)
    again = await reopened(ledger, tmp_path)
    assert again.leases() == tuple(wanted)
    assert (tmp_path / "state" / "ledger.sqlite3").stat().st_size < 5_000_000
    assert len(await again.end(again.leases())) == 10_000
    await again.close()
    tool = sqlite3.connect(tmp_path / "state" / "ledger.sqlite3")
    assert tool.execute("SELECT count(*) FROM record").fetchone() == (0,)
    tool.close()


async def test_ended_leases_stay_ended_after_a_restart(ledger: Ledger, tmp_path: Path) -> None:
    await ledger.grant([lease("a"), lease("b"), lease("c", "example.com/c")])
    assert await ledger.end([lease("a"), lease("b"), lease("unknown")]) == (lease("a"), lease("b"))
    again = await reopened(ledger, tmp_path)
    assert again.leases() == (lease("c", "example.com/c"),)
    await again.close()


async def test_lease_granted_or_answered_since_the_judgement_does_not_end(ledger: Ledger) -> None:
    await ledger.grant([lease("a"), lease("b"), lease("c")])
    judged, now = ledger.leases(), asyncio.get_running_loop().time()
    await ledger.grant([lease("a", granted_at=200.0)])
    ledger.answered([lease("b")])
    assert await ledger.end(judged, unless_answered_since=now) == (lease("c"),)
    assert ledger.age(lease("b")) < asyncio.get_running_loop().time() - now + 1e-9


async def test_database_that_becomes_readable_is_read_once(tmp_path: Path) -> None:
    """A second read would forget leases that were granted after the first."""
    (tmp_path / "state").write_text("in the way")
    ledger = Ledger(tmp_path / "state", "boot-1")
    await ledger.take()
    notified: asyncio.Queue[Sequence[Lease] | None] = asyncio.Queue()
    ledger.observe(notified.put_nowait)
    (tmp_path / "state").unlink()
    await asyncio.gather(ledger.load(), ledger.load(), ledger.grant([lease("a")]))
    assert [await notified.get(), await notified.get()] == [None, [lease("a")]]
    await ledger.close()
    assert notified.empty()
    assert ledger.leases() == (lease("a"),)


async def test_failing_check_affects_only_its_request(ledger: Ledger) -> None:
    def fail(_: Book) -> None:
        raise ZeroDivisionError

    outcomes = await asyncio.gather(
        ledger.grant([lease("a")], check=fail), ledger.grant([lease("b")]), return_exceptions=True
    )
    assert isinstance(outcomes[0], ZeroDivisionError)
    assert [each.unit for each in ledger.leases()] == ["b"]


async def test_defect_while_reading_is_reported_to_the_waiting_grant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Database) -> None:
        raise ZeroDivisionError

    (tmp_path / "state").symlink_to(tmp_path / "missing" / "state")  # a disk that is mounted later
    ledger = await opened(tmp_path / "state")
    monkeypatch.setattr(Database, "load", fail)
    with pytest.raises(LedgerUnavailable, match="ZeroDivisionError"):
        await ledger.grant([lease("a")])
    await ledger.close()


class StubGuard:
    """Ends the leases of pods called gone before a refusal; the ledger is complete from the second time on."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.asked: list[str] = []

    async def before_granting(self) -> None:
        self.asked.append("granting")
        if self.asked.count("granting") == 1:
            raise LedgerUnavailable("not known yet")
        self.ledger.is_complete = True

    async def of_running_pods(self, leases: Sequence[Lease]) -> tuple[Lease, ...]:
        return ()

    async def before_renewing(self, leases: Sequence[Lease]) -> None:
        self.asked.append("renewing")

    async def before_refusing(self) -> None:
        self.asked.append("refusing")
        await self.ledger.end([x for x in self.ledger.leases() if "gone" in x.holder])


async def test_guard_ends_finished_leases_before_a_refusal(ledger: Ledger) -> None:
    ledger.guard = guard = StubGuard(ledger)
    await ledger.grant([lease("gpu-0", holder="pod/x/gone/c"), lease("gpu-1", holder="pod/x/here/c")])
    assert not guard.asked
    await ledger.grant([lease("gpu-0", "other.com/gpu")])
    with pytest.raises(LeaseRefused, match="pod/x/here/c"):
        await ledger.grant([lease("gpu-1", "other.com/gpu")])
    assert guard.asked == ["refusing", "refusing"]
    with pytest.raises(LeaseRefused):
        await ledger.grant([lease("gpu-1", "other.com/gpu")], guarded=False)
    assert guard.asked == ["refusing", "refusing"]


async def test_lost_ledger_grants_nothing_before_it_is_complete(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    assert not ledger.is_complete
    ledger.guard = guard = StubGuard(ledger)
    with pytest.raises(LedgerUnavailable, match="not known yet"):
        await ledger.grant([lease("a")])
    await ledger.grant([lease("b")], guarded=False)
    await ledger.grant([lease("a")])
    await ledger.grant([lease("c")])
    assert guard.asked == ["granting", "granting"]
    await ledger.close()


async def test_ledger_lost_after_a_failed_read_grants_nothing_before_complete(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    state.write_text("a disk that is not mounted")
    ledger = await opened(state)
    ledger.guard = guard = StubGuard(ledger)
    with pytest.raises(LedgerUnavailable, match=str(state)):
        await ledger.grant([lease("a")])
    state.unlink()
    with pytest.raises(LedgerUnavailable, match="not known yet"):
        await ledger.grant([lease("a")])
    await ledger.grant([lease("a")])
    assert guard.asked == ["granting", "granting"]
    await ledger.close()


async def test_observer_gets_begun_and_ended_leases(ledger: Ledger) -> None:
    notified: asyncio.Queue[Sequence[Lease] | None] = asyncio.Queue()
    ledger.observe(notified.put_nowait)
    await ledger.grant([lease("gpu-0", shared="pf"), claimed("gpu-1", "1")])
    assert await notified.get() == [lease("gpu-0", shared="pf"), claimed("gpu-1", "1")]
    await ledger.end([claimed("gpu-1", "1")])
    assert await notified.get() == [claimed("gpu-1", "1")]
    await ledger.end([lease("unknown")])
    await ledger.update([lease("gpu-0", shared="pf", holder="pod/x/y/z")])
    assert notified.empty()


async def test_renewed_lease_is_a_change_only_with_another_record(ledger: Ledger) -> None:
    moved: asyncio.Queue[Sequence[Lease] | None] = asyncio.Queue()
    renewed: asyncio.Queue[Sequence[Lease]] = asyncio.Queue()
    ledger.observe(moved.put_nowait)
    ledger.observe_renewals(renewed.put_nowait)
    await ledger.grant([lease("gpu-0", record=b"one")])
    assert await moved.get() == [lease("gpu-0", record=b"one")]
    await ledger.grant([lease("gpu-0", record=b"one", granted_at=200.0)])
    assert await renewed.get() == [lease("gpu-0", record=b"one", granted_at=200.0)]
    assert moved.empty()
    await ledger.grant([lease("gpu-0", record=b"two")])
    assert await renewed.get() == [lease("gpu-0", record=b"two")]
    assert await moved.get() == [lease("gpu-0", record=b"two")]


async def test_grants_that_arrive_during_a_commit_share_the_next(tmp_path: Path) -> None:
    ledger = await opened(tmp_path / "fast", fast_write=1e9)
    await ledger.grant([lease("a")])
    loop = asyncio.get_running_loop()
    for _ in range(3):  # iterations of the loop, after which no task waits
        await asyncio.sleep(0)
    commits = ledger.commits
    meanwhile: asyncio.Queue[asyncio.Future[object]] = asyncio.Queue()

    def request_more() -> None:
        for n in range(5):
            meanwhile.put_nowait(asyncio.ensure_future(ledger.grant([lease(f"u{n}")])))

    loop.call_soon(request_more)
    await ledger.grant([lease("b")])
    assert ledger.commits - commits == 1
    assert meanwhile.empty()
    await asyncio.gather(*[await meanwhile.get() for _ in range(5)])
    assert ledger.commits - commits == 2
    await ledger.close()


async def test_observers_are_called_after_the_grant_returns(ledger: Ledger) -> None:
    notified: asyncio.Queue[object] = asyncio.Queue()
    ledger.observe(notified.put_nowait)
    ledger.observe_commits(notified.put_nowait)
    await ledger.grant([lease("gpu-0")])
    assert notified.empty()
    assert await notified.get() == [lease("gpu-0")]
    assert await notified.get()


async def test_second_daemon_is_refused_and_the_first_continues(ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(StateLocked, match=r"state: another nodeplug uses this state directory"):
        await opened(tmp_path / "state")
    await ledger.grant([lease("a")])


async def test_successor_reads_leases_and_its_grants_wait_for_the_lock(ledger: Ledger, tmp_path: Path) -> None:
    await ledger.grant([lease("a")])
    successor = Ledger(tmp_path / "state", "boot-1")
    await successor.read()
    assert successor.leases() == (lease("a"),)
    asked = asyncio.ensure_future(successor.grant([lease("c")]))
    taking = asyncio.ensure_future(successor.take(max_wait=30.0))
    await ledger.grant([lease("b")])
    assert not asked.done()
    await ledger.close()
    await taking
    await asked
    assert successor.leases() == (lease("a"), lease("b"), lease("c"))
    await successor.close()


async def test_successor_that_waits_too_long_is_refused_and_logs_the_wait(
    ledger: Ledger, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    successor = Ledger(tmp_path / "state", "boot-1")
    caplog.set_level("INFO", "nodeplug.leases")
    with pytest.raises(StateLocked):
        await successor.take(max_wait=0.001)  # less than the first attempt takes on a busy machine
    (line,) = (each for each in caplog.messages if "lockWaitSeconds" in each)  # one line, before the wait ends
    assert "another nodeplug uses this state directory; stop it" in line
    assert "waiting up to 0.001 s for it" in line
    await successor.close()


async def test_cancelled_grant_does_not_affect_others(ledger: Ledger) -> None:
    gone = asyncio.ensure_future(ledger.grant([lease("a")]))
    stays = asyncio.ensure_future(ledger.grant([lease("b")]))
    await asyncio.sleep(0)
    gone.cancel()
    await stays
    assert "b" in {each.unit for each in ledger.leases()}


@pytest.mark.parametrize("fast_write", [IN_LOOP, IN_THREAD])
async def test_close_finishes_waiting_grants_and_leaves_no_threads_or_descriptors(
    tmp_path: Path, fast_write: float
) -> None:
    since = LeakCheck()
    ledger = await opened(tmp_path, fast_write=fast_write)
    waiting = asyncio.ensure_future(ledger.grant([lease("a")]))
    await asyncio.sleep(0)
    await ledger.close()
    await ledger.close()
    await waiting
    with pytest.raises(LedgerUnavailable, match="closed"):
        await ledger.grant([lease("b")])
    for thread in since.threads():
        thread.join()
    assert since.descriptors() == []


async def test_ledger_without_a_free_thread_is_read_once_there_is_one(tmp_path: Path) -> None:
    """At the thread limit of a node or a cgroup the daemon stays up, and grants leases once it can record them."""
    before = await opened(tmp_path)
    await before.grant([lease("a")])
    await before.close()
    refused, never = Ledger(tmp_path, "boot-1"), Ledger(tmp_path, "boot-1")
    with no_more_threads():
        await never.read()
        await never.close()
        await refused.read()
        await refused.take()
        with pytest.raises(LedgerUnavailable, match="no thread is left: can't start new thread; Allocate and"):
            await refused.grant([lease("b")])
        assert "can't start new thread" in refused.problem
    granted = await refused.grant([lease("b")])
    assert (granted.replaced, refused.problem) == ((), "")
    assert refused.leases() == (lease("a"), lease("b"))
    await refused.close()


operations = st.one_of(
    st.tuples(st.just("grant"), st.lists(leases, min_size=1, max_size=2)),
    st.tuples(st.just("end"), leases),
    st.tuples(st.just("reload"), st.none()),
)


@settings(max_examples=settings().max_examples // 2)
@given(script=st.lists(operations, max_size=15), fast_write=st.sampled_from([IN_LOOP, IN_THREAD]))
def test_leases_never_conflict_and_every_reload_agrees(
    script: list[tuple[str, object]], fast_write: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    asyncio.run(_play(script, fast_write, tmp_path_factory.mktemp("ledger")))


async def _play(script: list[tuple[str, object]], fast_write: float, directory: Path) -> None:
    ledger = await opened(directory, fast_write=fast_write)
    for what, argument in script:
        if what == "grant":
            assert isinstance(argument, list)
            before = set(ledger.leases())
            try:
                await ledger.grant(argument)
            except LeaseRefused:
                assert set(ledger.leases()) == before
            else:
                assert set(argument) <= set(ledger.leases())
        elif what == "end":
            assert isinstance(argument, Lease)
            await ledger.end([argument])
        else:
            remembered = set(ledger.leases())
            await ledger.close()
            ledger = await opened(directory, fast_write=fast_write)
            assert set(ledger.leases()) == remembered
        assert not any(conflict(a, b) for a in ledger.leases() for b in ledger.leases())
    await ledger.close()
