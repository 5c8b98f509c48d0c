"""The ledger: all leases and withheld devices, in memory to read and on disk before a promise is made.

The loop owns the state. Requests that come while a transaction runs wait; then each is decided on the loop, in order,
against the state that the ones before it leave, and one transaction makes them all durable (group commit). Only then do
callers get their answers and readers the new state. If the disk refuses, all of them are refused and nothing changed.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, TypeVar

from msgspec import Struct

from checkpoint.database import Database, SetAside, State, Writes
from checkpoint.errors import LeaseRefused, LedgerUnavailable, StateLocked
from checkpoint.lease import Api, Change, Lease, Obstacles
from checkpoint.quarantine import Withheld, refuse_withheld

log = logging.getLogger(__name__)

ANSWER_GRACE = 5.0  # seconds that the kubelet may need to record our answer before its silence counts

T = TypeVar("T")


class Granted(Struct, frozen=True):
    """What a grant did: `replaced` are the leases that it ended, for the log."""

    replaced: tuple[Lease, ...] = ()


class Reconciled(Struct, frozen=True):
    """What the kubelet's word changed. `missing` are (resource, unit) that it holds without a lease of ours."""

    ended: tuple[Lease, ...] = ()
    updated: tuple[Lease, ...] = ()
    missing: frozenset[tuple[str, str]] = frozenset()


class _Decision(Struct, Generic[T], frozen=True):
    state: State
    writes: Writes
    outcome: T


class _Request(Struct):
    decide: Callable[[State], _Decision[Any]]
    answer: "asyncio.Future[Any]"


class Ledger:
    """One node's leases. Made by `Ledger.open`; belongs to the event loop that opened it."""

    def __init__(self, database: Database, boot_id: str) -> None:
        """Use `Ledger.open`, which also reads the file."""
        self.boot_id = boot_id
        self._database = database
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        self._state: State | None = None  # None until the file could be read
        self._waiting: list[_Request] = []
        self._draining: asyncio.Task[None] | None = None
        self._observers: list[Callable[[Set[Api]], None]] = []
        self._looks: list[Callable[[], Awaitable[None]]] = []
        self._closed = False

    @classmethod
    async def open(cls, directory: Path, boot_id: str) -> "Ledger":
        """Open the ledger in `directory`, which is created if missing. `boot_id` is this boot's.

        A file that is not sound is set aside (`Ledger.set_aside`). A disk that cannot be read or written is no error
        here: it is logged, and each request tries again. Raises `StateLocked` where another process has the directory.
        """
        ledger = cls(Database(directory), boot_id)
        try:
            ledger._state = await ledger._in_thread(ledger._database.load)
        except LedgerUnavailable as error:
            log.error("%s", error)
        except BaseException:
            await ledger.close()
            raise
        before = ledger.from_before_boot()
        if before:
            log.info("the node was restarted: %d leases date from before", len(before))
        return ledger

    @property
    def commits(self) -> int:
        """Count the transactions that reached the disk since the ledger was opened."""
        return self._database.commits

    @property
    def set_aside(self) -> tuple[SetAside, ...]:
        """The files that were renamed because they were not sound."""
        return tuple(self._database.set_aside)

    def leases(self) -> tuple[Lease, ...]:
        """Return all leases, from memory."""
        return tuple(self._state.book) if self._state else ()

    def obstacles(self, api: Api) -> Obstacles:
        """Return what the other API than `api` has handed out, from memory."""
        return self._state.book.obstacles(api) if self._state else Obstacles()

    def observe(self, changed: Callable[[Set[Api]], None]) -> None:
        """Have `changed` called, on the loop, after each commit that granted or ended leases, with their APIs."""
        self._observers.append(changed)

    def ask_before_refusing(self, look: Callable[[], Awaitable[None]]) -> None:
        """Have `look` end the leases whose holders are gone, before a device is refused because of a lease."""
        self._looks.append(look)

    def from_before_boot(self) -> tuple[Lease, ...]:
        """Return the leases that date from an earlier boot and that the kubelet has not confirmed since."""
        return tuple(lease for lease in self.leases() if lease.boot_id != self.boot_id)

    def withheld(self) -> tuple[Withheld, ...]:
        """Return the devices that must not be handed out, from memory."""
        return tuple(self._state.withheld.values()) if self._state else ()

    async def grant(self, wanted: Sequence[Lease], *, afresh: bool = True) -> Granted:
        """Put all of `wanted` on disk, or none: when this returns, the answer may leave.

        Raises `LeaseRefused` where a device is somebody else's or withheld, `LedgerUnavailable` where the disk refuses.
        With `afresh` nobody is refused before a fresh look at who still holds what (see `ask_before_refusing`).
        """

        def decide(state: State) -> _Decision[Granted]:
            refuse_withheld(state.withheld, wanted)
            change = state.book.grant(wanted)
            return _changed(state, change, Granted(change.ended))

        try:
            return await self._request(decide)
        except LeaseRefused:
            if not afresh or not self._looks:
                raise
        for outcome in await asyncio.gather(*(look() for look in self._looks), return_exceptions=True):
            if isinstance(outcome, Exception):  # a defect of one API's look is no reason to fail the other's grant
                log.error("a look at who holds what failed", exc_info=outcome)
        return await self._request(decide)

    async def release(self, which: Callable[[Lease], bool]) -> tuple[Lease, ...]:
        """End the leases for which `which` is true and return them. Raises `LedgerUnavailable`."""

        def decide(state: State) -> _Decision[tuple[Lease, ...]]:
            change = state.book.end(which)
            return _changed(state, change, change.ended)

        return await self._request(decide)

    async def reconcile(
        self, api: Api, held: Mapping[tuple[str, str], str], seen_before: float, grace: float = ANSWER_GRACE
    ) -> Reconciled:
        """Follow the kubelet's records: `held` maps (resource, unit) to its holder, for all resources of `api`.

        Leases that it does not know end, holders are filled in. `seen_before` is when the look at the kubelet began
        (Unix clock): it records a unit only after our answer, so leases younger than `grace` seconds at that moment
        do not end, and those granted later are left alone. Raises `LedgerUnavailable`.
        """

        def decide(state: State) -> _Decision[Reconciled]:
            change = state.book.reconcile(api, held, seen_before, seen_before - grace, self.boot_id)
            known = {(lease.resource, lease.unit) for lease in state.book if lease.api == api}
            changed = {lease.key for lease in change.begun}
            ended = tuple(lease for lease in change.ended if lease.key not in changed)
            return _changed(state, change, Reconciled(ended, change.begun, frozenset(held.keys() - known)))

        return await self._request(decide)

    async def withhold(self, device: str, reason: str) -> Withheld:
        """Keep `device` from being handed out. Who holds it keeps it; repeating keeps the first reason and time.

        Raises `LedgerUnavailable`.
        """

        def decide(state: State) -> _Decision[Withheld]:
            known = state.withheld.get(device)
            if known is not None:
                return _Decision(state, Writes(), known)
            each = Withheld(device, reason, time.time())
            return _Decision(State(state.book, {**state.withheld, device: each}), Writes(withheld=(each,)), each)

        return await self._request(decide)

    async def readmit(self, device: str) -> bool:
        """Let `device` be handed out again; tell whether it was withheld. Raises `LedgerUnavailable`."""

        def decide(state: State) -> _Decision[bool]:
            if device not in state.withheld:
                return _Decision(state, Writes(), False)
            rest = {name: each for name, each in state.withheld.items() if name != device}
            return _Decision(State(state.book, rest), Writes(readmitted=(device,)), True)

        return await self._request(decide)

    async def close(self) -> None:
        """Finish what waits, close the file, give the directory back. Idempotent; later requests are refused."""
        self._closed = True
        if self._draining is not None:
            await asyncio.shield(self._draining)
        try:
            await self._in_thread(self._database.close)
        except RuntimeError:  # the thread has ended: closed before
            return
        self._thread.shutdown()

    async def _request(self, decide: Callable[[State], _Decision[T]]) -> T:
        if self._closed:
            raise LedgerUnavailable(f"the ledger {self._database.path} is closed: nodeplug is stopping")
        loop = asyncio.get_running_loop()
        request = _Request(decide, loop.create_future())
        self._waiting.append(request)
        if self._draining is None:
            self._draining = loop.create_task(self._drain())
        outcome: T = await request.answer
        return outcome

    async def _drain(self) -> None:
        batch: list[_Request] = []
        try:
            while self._waiting:
                batch = [request for request in self._waiting if not request.answer.done()]  # done: the caller is gone
                self._waiting = []
                try:
                    outcomes = await self._commit(batch)
                except (LedgerUnavailable, StateLocked) as error:
                    outcomes = [LedgerUnavailable(str(error)) for _ in batch]
                except Exception as error:  # a defect of ours: who waits must hear of it rather than wait for ever
                    outcomes = [error] * len(batch)
                for request, outcome in zip(batch, outcomes, strict=True):
                    if request.answer.done():
                        continue
                    if isinstance(outcome, Exception):
                        request.answer.set_exception(outcome)
                    else:
                        request.answer.set_result(outcome)
        finally:
            self._draining = None
            for request in (*batch, *self._waiting):  # some only where the loop ends: nobody else would wake them
                request.answer.cancel()

    async def _commit(self, batch: Sequence[_Request]) -> list[Any]:
        """Decide each request, make the result durable, adopt it. Return outcomes and refusals in order."""
        if self._state is None:
            self._state = await self._in_thread(self._database.load)
        before = state = self._state
        writes: list[Writes] = []
        outcomes: list[Any] = []
        for request in batch:
            try:
                decision = request.decide(state)
            except Exception as error:  # a refusal, or a caller's own predicate: either way the caller's, nobody else's
                outcomes.append(error)
                continue
            state = decision.state
            outcomes.append(decision.outcome)
            if decision.writes:
                writes.append(decision.writes)
        if writes:
            await self._in_thread(self._database.write, before, writes)
            self._state = state
            apis = {lease.api for each in writes for lease in (*each.ended, *each.begun)}
            for changed in self._observers if apis else ():
                asyncio.get_running_loop().call_soon(changed, apis)
        return outcomes

    async def _in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)


def _changed(state: State, change: Change, outcome: T) -> _Decision[T]:
    writes = Writes(ended=change.ended, begun=change.begun)
    return _Decision(State(change.book, state.withheld), writes, outcome)
