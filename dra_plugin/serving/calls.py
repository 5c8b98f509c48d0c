"""The kubelet's calls, apart from the wire: their order, their deadlines, and the outcome of each claim.

Rules:
1. Every claim of a call gets exactly one outcome. A claim that cannot be fetched or prepared fails alone: the others
   are prepared and recorded. The kubelet's event names the one that failed, and its next call repeats all of them.
2. Calls for one claim take turns, in the order of arrival; calls for different claims do not wait for each other.
3. Until the driver works on a call, a call that the kubelet abandons is dropped. From then on the work continues
   without the caller and keeps its turn until it is done: a repeated call finds it finished, never half-finished.
4. A call that waits for the driver holds no claim's turn: the driver takes these turns to repair claims before it is
   ready.

Source: DRA specification, sections 1.7 and 2.6.
"""

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

from dra_plugin.driver import ClaimFailed, ClaimRef, Driver, Prepared
from dra_plugin.errors import NotAnsweredInTime
from dra_plugin.preparing.claim_locks import ClaimLock, ClaimLocks
from dra_plugin.preparing.concurrency import gather_all
from dra_plugin.serving.claims import ClaimSource, Fetched, reference_problem
from resourceapi.objects import v1
from telemetry.trace import CLAIMS, PODS, child_span, current

log = logging.getLogger("nodeplug.dra")
T = TypeVar("T")
_STOPPING = "the driver is stopping; its next instance will answer"


class Call:
    """One call under way: what it waits for, and whether the driver works on it."""

    def __init__(self, limit: float | None, calls: "set[Call]") -> None:
        """Begin with `async with`, which ends the call after `limit` seconds; meanwhile it is in `calls`."""
        self.waits_for = "an earlier call for the same claim"
        self.is_running = False
        self.is_ending = False
        self._calls = calls
        self._timer = asyncio.timeout(limit)

    async def __aenter__(self) -> Self:
        """Begin."""
        await self._timer.__aenter__()
        self._calls.add(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End. Raises NotAnsweredInTime after the time limit; the driver's errors pass through."""
        self._calls.discard(self)
        try:
            await self._timer.__aexit__(kind, error, traceback)
        except TimeoutError:
            if self.is_ending:
                raise NotAnsweredInTime(_STOPPING) from None
            raise NotAnsweredInTime(f"still waiting for {self.waits_for}; the next call continues") from None

    def end(self) -> None:
        """End the call now if it only waits."""
        if self.is_running:
            return
        self.is_ending = True
        if not self._timer.expired():
            self._timer.reschedule(asyncio.get_running_loop().time())


class ClaimCalls:
    """Prepares and unprepares claims for the kubelet's calls."""

    def __init__(
        self, driver: Driver | asyncio.Future[Driver], claims: ClaimSource, claim_locks: ClaimLocks | None = None
    ) -> None:
        """Call `driver`, which can be a future, with claims from `claims`.

        `claim_locks` are shared by all that work on claims.
        """
        self._driver = driver
        self._claims = claims
        self._claim_locks = claim_locks or ClaimLocks()
        self._calls: set[Call] = set()
        self._work: set[asyncio.Task[None]] = set()
        self._closing = False

    async def prepare(self, refs: Sequence[ClaimRef], limit: float | None = None) -> Mapping[str, Prepared]:
        """Return the outcome of every claim by uid within `limit` seconds.

        Raises NotAnsweredInTime, and whatever the driver raises for the call as a whole.
        """
        wanted, refused = _validated(refs)
        outcomes: dict[str, Prepared] = {**refused}
        if not wanted:
            return outcomes
        async with self._call(limit) as call:
            driver = await self._wait_for_driver(call)
            call.waits_for = "the devices of running pods, whose leases were lost"
            await driver.wait_restored()
            call.waits_for = "an earlier call for the same claim"
            async with self._claim_locks.acquire(wanted) as lock:
                call.waits_for = "the API server"
                fetched = await gather_all([self._fetch(ref) for ref in wanted.values()])
                claims: list[v1.ResourceClaim] = []
                for ref, claim in zip(wanted.values(), fetched, strict=True):
                    if isinstance(claim, ClaimFailed):
                        outcomes[ref.uid] = claim
                        _log_refusal(ref, claim)
                    else:
                        claims.append(claim)
                if claims:
                    _trace_pods(claims)
                    self._start_work(call)
                    done = await self._run_shielded(lock, driver.prepare(claims))
                    outcomes |= _complete([claim.metadata.uid for claim in claims], done)
        return outcomes

    async def unprepare(self, refs: Sequence[ClaimRef], limit: float | None = None) -> Mapping[str, ClaimFailed | None]:
        """Like `prepare`, without the claim objects; unknown claims succeed."""
        wanted, refused = _validated(refs)
        outcomes: dict[str, ClaimFailed | None] = {**refused}
        if not wanted:
            return outcomes
        async with self._call(limit) as call:
            driver = await self._wait_for_driver(call)
            call.waits_for = "an earlier call for the same claim"
            async with self._claim_locks.acquire(wanted) as lock:
                self._start_work(call)
                done = await self._run_shielded(lock, driver.unprepare(tuple(wanted.values())))
            outcomes |= _complete(wanted, done)
        return outcomes

    async def _fetch(self, ref: ClaimRef) -> Fetched:
        with child_span("read claim") as span:
            span.set(CLAIMS, f"{ref.namespace}/{ref.name}")
            claim = await self._claims.fetch(ref)
            if isinstance(claim, ClaimFailed):
                span.fail(claim.reason)
            return claim

    def close(self) -> None:
        """End the calls that only wait; refuse new ones."""
        self._closing = True
        for call in self._calls:
            call.end()

    async def finish(self, grace: float) -> None:
        """Wait until the driver's work for calls is done; cancel what takes longer than `grace` seconds."""
        if not self._work:
            return
        _, late = await asyncio.wait(self._work, timeout=grace)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    def _call(self, limit: float | None) -> Call:
        if self._closing:
            raise NotAnsweredInTime(_STOPPING)
        return Call(limit, self._calls)

    async def _wait_for_driver(self, call: Call) -> Driver:
        if not isinstance(self._driver, asyncio.Future):
            return self._driver
        if self._driver.done():
            return self._driver.result()
        call.waits_for = "this node's state, which another instance of the driver still owns"
        return await asyncio.shield(self._driver)

    def _start_work(self, call: Call) -> None:
        """Record that the driver works from now on. Raises NotAnsweredInTime if the calls were closed meanwhile."""
        if self._closing:
            raise NotAnsweredInTime(_STOPPING)
        call.is_running, call.waits_for = True, "the driver"

    async def _run_shielded(self, lock: ClaimLock, work: Awaitable[T]) -> T:
        """Let the driver work even if the caller goes away; the lock is held until the work ends."""
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(_work(lock.transfer(), work, result))
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return await result


async def _work(lock: ClaimLock, work: Awaitable[T], result: asyncio.Future[T]) -> None:
    """Put the outcome of `work` into `result`, unless the caller has gone."""
    async with lock:
        try:
            outcome = await work
        except Exception as error:
            # a bug in the driver: the caller gets the error, and if it has gone this is the only report
            log.exception("the driver failed")
            if not result.done():
                result.set_exception(error)
        except BaseException:
            result.cancel()
            raise
        else:
            if not result.done():
                result.set_result(outcome)


def _validated(refs: Iterable[ClaimRef]) -> tuple[dict[str, ClaimRef], dict[str, ClaimFailed]]:
    """Return the valid claims, and the refused ones with their reasons, both by uid."""
    wanted: dict[str, ClaimRef] = {}
    refused: dict[str, ClaimFailed] = {}
    for ref in refs:
        reason = reference_problem(ref)
        if not reason and wanted.get(ref.uid, ref) != ref:
            reason = f"claim uid {ref.uid} is named twice, with different names"
        if reason:
            refused[ref.uid] = ClaimFailed(reason, "invalid-request")
            _log_refusal(ref, refused[ref.uid])
        else:
            wanted[ref.uid] = ref
    return {uid: ref for uid, ref in wanted.items() if uid not in refused}, refused


def _trace_pods(claims: Sequence[v1.ResourceClaim]) -> None:
    """Add the names of the claims' pods to the call's span."""
    span = current()
    if span.is_recorded:
        users = ((claim.metadata.namespace, x.name) for claim in claims for x in claim.status.reserved_for)
        span.set(PODS, [f"{namespace}/{name}" for namespace, name in users])


def _log_refusal(ref: ClaimRef, failed: ClaimFailed) -> None:
    """Log a claim that does not reach the driver; the driver logs its own refusals."""
    log.warning("claim is refused: %s", failed.reason, extra={"claim": str(ref)})


def _complete(uids: Iterable[str], outcomes: Mapping[str, T]) -> dict[str, T | ClaimFailed]:
    """Return an outcome for exactly these `uids`: the kubelet takes any other one for a failed call."""
    missing = ClaimFailed("the driver did not answer for this claim", "defect")
    return {uid: outcomes.get(uid, missing) for uid in uids}
