"""Concurrent calls: of one claim, of different claims, cancelled, waiting for a driver, and during a stop."""

import asyncio
import random
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.apiserver import Server
from dra_plugin.driver import ClaimFailed, ClaimRef, Driver, Prepared
from dra_plugin.errors import NotAnsweredInTime
from dra_plugin.preparing.claim_locks import ClaimLocks
from dra_plugin.serving.calls import ClaimCalls
from grpcunix import RpcError, Status
from resourceapi.objects import ObjectMeta, v1
from tests.dra_plugin.conftest import StartPlugin
from tests.dra_plugin.kubelet_end import (
    TIMEOUT,
    KubeletEnd,
    NoClaims,
    ScriptedDriver,
    device_of,
    kubelet_end,
    make_claim,
)
from tests.dra_scenarios import scenario

SHORT = 0.2  # seconds that a kubelet waits for an answer that never comes


async def assert_unanswered(call: "asyncio.Task[object]") -> None:
    """Wait until a call fails because it cannot be answered in time."""
    with pytest.raises(RpcError) as failed:
        await call
    assert failed.value.code in (Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED)


def assert_serialized(journal: Sequence[str]) -> None:
    """Check that each piece of work ends before the next one begins."""
    for begun, done in zip(journal[::2], journal[1::2], strict=True):
        assert done.split() == [begun.split()[0] + "d", *begun.split()[1:]]


async def test_calls_for_different_claims_run_concurrently(
    server: Server, kubelet: KubeletEnd, driver: ScriptedDriver
) -> None:
    slow, quick = await make_claim(server, "slow"), await make_claim(server, "quick")
    gate = driver.block(slow.uid)
    waiting = asyncio.create_task(kubelet.prepare(slow))
    await driver.wait_for(f"prepare {slow.uid}")
    for version in ("v1", "v1beta1"):
        assert (await kubelet.prepare(quick, version=version))[quick.uid].error == ""
    assert await kubelet.unprepare(quick) == {quick.uid: ""}
    gate.set()
    assert (await waiting)[slow.uid].error == ""


async def test_calls_for_one_claim_are_serialized(server: Server, kubelet: KubeletEnd, driver: ScriptedDriver) -> None:
    claim, other = await make_claim(server, "one"), await make_claim(server, "other")
    gate = driver.block(claim.uid)
    calls: list[asyncio.Task[object]] = [asyncio.create_task(kubelet.prepare(claim))]
    await driver.wait_for(f"prepare {claim.uid}")
    calls += [
        asyncio.create_task(kubelet.prepare(other, claim)),
        asyncio.create_task(kubelet.prepare(claim, other, version="v1beta1")),
        asyncio.create_task(kubelet.unprepare(claim)),
    ]
    gate.set()
    await asyncio.gather(*calls)
    assert len(driver.journal) == 8
    assert_serialized(driver.journal)


@scenario(163)
async def test_timed_out_call_can_be_repeated(server: Server, kubelet: KubeletEnd, driver: ScriptedDriver) -> None:
    claim = await make_claim(server, "one")
    gate = driver.block(claim.uid)
    await assert_unanswered(asyncio.create_task(kubelet.prepare(claim, limit=SHORT)))
    again = asyncio.create_task(kubelet.prepare(claim))
    gate.set()
    assert (await again)[claim.uid].devices[0].device_name == device_of(claim.uid).device
    assert_serialized(driver.journal)


async def test_next_call_waits_for_the_work_of_a_cancelled_call(
    server: Server, kubelet: KubeletEnd, driver: ScriptedDriver
) -> None:
    claim = await make_claim(server, "one")
    gate = driver.block(claim.uid)
    call = asyncio.create_task(kubelet.prepare(claim))
    await driver.wait_for(f"prepare {claim.uid}")
    call.cancel()
    undo = asyncio.create_task(kubelet.unprepare(claim))
    await asyncio.wait([call])
    gate.set()
    assert await undo == {claim.uid: ""}
    assert driver.journal == [f"{verb} {claim.uid}" for verb in ("prepare", "prepared", "unprepare", "unprepared")]


@pytest.mark.parametrize(("promised", "waits_for"), [(False, "the driver"), (True, "this node's state")])
async def test_timeout_error_names_what_the_call_waits_for(
    promised: bool, waits_for: str, driver: ScriptedDriver
) -> None:
    claim = ClaimRef("default", "one", "uid-1")
    gate = driver.block(claim.uid)
    promise: asyncio.Future[Driver] = asyncio.get_running_loop().create_future()
    calls = ClaimCalls(promise if promised else driver, NoClaims())
    with pytest.raises(NotAnsweredInTime, match=f"still waiting for {waits_for}.*; the next call continues"):
        await calls.unprepare([claim], 0)
    gate.set()
    await calls.finish(TIMEOUT)


async def test_driver_work_completes_after_its_call_is_cancelled(
    server: Server, kubelet: KubeletEnd, driver: ScriptedDriver
) -> None:
    claim = await make_claim(server, "one")
    gate = driver.block(claim.uid)
    call = asyncio.create_task(kubelet.prepare(claim))
    await driver.wait_for(f"prepare {claim.uid}")
    call.cancel()
    await asyncio.wait([call])
    gate.set()
    await driver.wait_for(f"prepared {claim.uid}")


async def test_failure_after_a_cancelled_call_is_logged(
    server: Server, kubelet: KubeletEnd, driver: ScriptedDriver, caplog: pytest.LogCaptureFixture
) -> None:
    claim = await make_claim(server, "one")
    gate = driver.block(claim.uid)
    call = asyncio.create_task(kubelet.prepare(claim))
    await driver.wait_for(f"prepare {claim.uid}")
    call.cancel()
    await asyncio.wait([call])
    driver.failure = OSError("disk is full")
    gate.set()
    with pytest.raises(RpcError, match="disk is full"):
        await kubelet.prepare(claim)
    assert caplog.messages.count("the driver failed") == 2


async def test_call_waiting_for_the_driver_holds_no_claim_lock(
    driver: ScriptedDriver,
) -> None:
    claim = ClaimRef("default", "one", "uid-1")
    promise: asyncio.Future[Driver] = asyncio.get_running_loop().create_future()
    claim_locks = ClaimLocks()
    call = asyncio.create_task(ClaimCalls(promise, NoClaims(), claim_locks).unprepare([claim]))
    await asyncio.wait([call], timeout=0)  # it goes as far as it can
    async with asyncio.timeout(TIMEOUT), claim_locks.acquire([claim.uid]):
        promise.set_result(driver)
    assert await call == {claim.uid: None}


async def test_calls_wait_until_the_driver_is_ready(server: Server, start: StartPlugin, driver: ScriptedDriver) -> None:
    first, second = await make_claim(server, "first"), await make_claim(server, "second")
    promise: asyncio.Future[Driver] = asyncio.get_running_loop().create_future()
    plugin = await start(driver=promise)
    async with kubelet_end(plugin.endpoint) as kubelet:
        await assert_unanswered(asyncio.create_task(kubelet.prepare(first, limit=SHORT)))
        calls = [asyncio.create_task(kubelet.prepare(claim)) for claim in (first, second)]
        undo = asyncio.create_task(kubelet.unprepare(ClaimRef("default", "gone", "uid-of-gone")))
        promise.set_result(driver)
        for claim, call in zip((first, second), calls, strict=True):
            assert (await call)[claim.uid].error == ""
        assert await undo == {"uid-of-gone": ""}
    assert {f"prepare {first.uid}", f"prepare {second.uid}", "unprepare uid-of-gone"} <= set(driver.journal)


async def test_stop_answers_running_and_waiting_calls(
    server: Server, start: StartPlugin, driver: ScriptedDriver
) -> None:
    running = await make_claim(server, "running")
    plugin = await start()
    gate = driver.block(running.uid)
    async with kubelet_end(plugin.endpoint) as kubelet:
        works = asyncio.create_task(kubelet.prepare(running))
        await driver.wait_for(f"prepare {running.uid}")
        waits = asyncio.create_task(kubelet.prepare(running))
        stopping = asyncio.create_task(plugin.stop())
        await asyncio.wait([stopping], timeout=0)
        gate.set()
        assert (await works)[running.uid].error == ""
        await asyncio.gather(waits, return_exceptions=True)  # either answered or refused
        await asyncio.wait_for(stopping, TIMEOUT)
    assert_serialized(driver.journal)


async def test_waiting_calls_are_refused_when_the_driver_stops(driver: ScriptedDriver) -> None:
    claim = ClaimRef("default", "one", "uid-1")
    gate = driver.block(claim.uid)
    calls = ClaimCalls(driver, NoClaims())
    works, waits = (asyncio.create_task(calls.unprepare([claim])) for _ in range(2))
    await driver.wait_for("unprepare uid-1")
    calls.close()
    for late in (waits, asyncio.create_task(calls.unprepare([claim]))):
        with pytest.raises(NotAnsweredInTime, match="the driver is stopping; its next instance will answer"):
            await late
    gate.set()
    assert await works == {"uid-1": None}


async def test_endless_work_is_cancelled_after_the_grace_period(driver: ScriptedDriver) -> None:
    claim = ClaimRef("default", "one", "uid-1")
    driver.block(claim.uid)
    calls = ClaimCalls(driver, NoClaims())
    works = asyncio.create_task(calls.unprepare([claim]))
    await driver.wait_for("unprepare uid-1")
    await calls.finish(SHORT)
    with pytest.raises(asyncio.CancelledError):
        await works
    assert driver.journal == ["unprepare uid-1"]


async def test_stop_ends_calls_that_wait_for_the_driver(server: Server, start: StartPlugin) -> None:
    claim = await make_claim(server, "one")
    plugin = await start(driver=asyncio.get_running_loop().create_future())
    async with kubelet_end(plugin.endpoint) as kubelet:
        waits = asyncio.create_task(kubelet.prepare(claim))
        assert await kubelet.prepare() == {}  # so the waiting call has arrived as well
        await plugin.stop()
        await assert_unanswered(waits)


class PausingDriver:
    """Pauses randomly, and records whether it ever works concurrently for one claim."""

    def __init__(self, pauses: random.Random) -> None:
        self.pauses = pauses
        self.busy: set[str] = set()
        self.has_overlapped = False
        self.interrupted = 0

    async def pause(self) -> None:
        for _ in range(self.pauses.randrange(4)):
            await asyncio.sleep(0)

    async def fetch(self, ref: ClaimRef) -> v1.ResourceClaim | ClaimFailed:
        await self.pause()
        if ref.name == "missing":
            return ClaimFailed("missing")
        return v1.ResourceClaim(metadata=ObjectMeta(uid=ref.uid))

    async def prepare(self, claims: Sequence[v1.ResourceClaim]) -> Mapping[str, Prepared]:
        await self.work([claim.metadata.uid for claim in claims])
        return {claim.metadata.uid: () for claim in claims}

    async def wait_restored(self) -> None:
        pass

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, ClaimFailed | None]:
        await self.work([claim.uid for claim in claims])
        return {claim.uid: None for claim in claims}

    async def work(self, uids: Sequence[str]) -> None:
        self.has_overlapped |= bool(self.busy & set(uids))
        self.busy |= set(uids)
        try:
            await self.pause()
        except asyncio.CancelledError:
            self.interrupted += 1
            raise
        finally:
            self.busy -= set(uids)


@given(
    st.lists(
        st.tuples(
            st.booleans(),
            st.sets(st.sampled_from(["a", "b", "c", "missing"]), min_size=1),
            st.none() | st.integers(0, 12),  # iterations of the loop before the caller cancels
        ),
        max_size=10,
    ),
    st.integers(0, 2**32),
)
def test_concurrent_calls_are_answered_once_and_never_overlap(
    calls: list[tuple[bool, set[str], int | None]], seed: int
) -> None:
    async def run() -> None:
        driver = PausingDriver(random.Random(seed))
        under_test = ClaimCalls(driver, driver)
        tasks = []
        for prepares, names, _ in calls:
            refs = [ClaimRef("default", name, f"uid-of-{name}") for name in names]
            call = under_test.prepare(refs) if prepares else under_test.unprepare(refs)
            task: asyncio.Task[Mapping[str, object]] = asyncio.create_task(call)
            tasks.append((task, {ref.uid for ref in refs}))
            await driver.pause()
        for turn in range(13):
            for (task, _), (_, _, gone_after) in zip(tasks, calls, strict=True):
                if gone_after == turn:
                    task.cancel()
            await asyncio.sleep(0)
        await asyncio.wait_for(asyncio.gather(*(task for task, _ in tasks), return_exceptions=True), TIMEOUT)
        await under_test.finish(TIMEOUT)
        assert all(task.cancelled() or task.result().keys() == uids for task, uids in tasks)
        assert not any(
            task.cancelled() for (task, _), (_, _, gone_after) in zip(tasks, calls, strict=True) if gone_after is None
        )
        assert (driver.has_overlapped, driver.interrupted, driver.busy) == (False, 0, set())

    asyncio.run(run())
