"""The ledger: all leases, in memory for reading and on disk before an answer is sent.

    request -> decided on the loop, in order -> one transaction for all that wait -> answers, then observers

The loop owns the state. Requests that arrive during a transaction wait; then each is decided on the basis of the
previous ones, and one transaction makes them all durable (group commit). If the disk refuses, all of them are refused
and every change is undone. A fast disk is written to on the loop: a thread would cost more than the write. Then a
request that arrives alone is committed at once; if several arrive together, the next ones wait for each other.

Another process may own the directory at the start (an update). Until `take` gets it, leases can be read as they were
found, and requests wait.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from checkpoint.database import Database, SetAside
from checkpoint.disk_problem import RETRY_INTERVAL, DiskProblem
from checkpoint.errors import LeaseRefused, LedgerUnavailable, StateLocked
from checkpoint.guard import Guard
from checkpoint.lease import Api, Book, Change, Lease, LeaseKey
from checkpoint.ledger_thread import LedgerThread
from checkpoint.observers import CommitObserver, Observer, Observers, RenewalObserver, WithheldObserver
from checkpoint.requests import Request, answer
from checkpoint.unlisted import Unlisted
from checkpoint.withheld import Withheld
from telemetry import Histogram
from telemetry.trace import child_span

log = logging.getLogger("nodeplug.leases")

T = TypeVar("T")
Check: TypeAlias = Callable[[Book], None]

FAST_WRITE = 0.004  # seconds; above this moving average (over about `_AVERAGED_WRITES` transactions) a thread writes
"""Using a thread costs more the busier the machine is, which is also when a fast disk seems slow."""
_AVERAGED_WRITES = 8
_RETRY = 0.05  # seconds between attempts to take the state directory


class Ledger:
    """The leases of one node. Belongs to the event loop in which it is used first."""

    def __init__(
        self,
        directory: Path,
        boot_id: str,
        *,
        fast_write: float = FAST_WRITE,
        retry_interval: float = RETRY_INTERVAL,
        commit_seconds: Histogram | None = None,
    ) -> None:
        """Prepare; no file is touched yet. `boot_id` is this boot's.

        `fast_write` (see `FAST_WRITE`) and `retry_interval` are in seconds. The duration of each transaction that
        reached the disk is added to `commit_seconds`.
        """
        self.boot_id = boot_id
        self.guard: Guard | None = None
        self.unlisted = Unlisted()
        self.is_complete = True  # False while pods might hold devices that a lost ledger does not have
        self._database = Database(directory)
        self._thread = LedgerThread(self._database.path)
        self._fast_write = fast_write
        self._average_seconds = 0.0  # moving average of a transaction's duration
        self._book = Book()
        self._disk_problem = DiskProblem(self._check, retry_interval)
        self._answered: dict[LeaseKey, float] = {}  # when each lease was last in an answer, by the loop's clock
        self._is_loaded = False
        self._loading = asyncio.Lock()
        self._is_owned = asyncio.Event()
        self._waiting: list[Request] = []
        self._busy: asyncio.Task[None] | None = None  # work in the thread
        self._is_scheduled = False  # `_flush` will be called: requests that arrive until then form one transaction
        self._was_single = True  # the latest transaction had one request
        self._observers = Observers()
        self._commit_seconds = commit_seconds
        self._is_closed = False

    async def read(self) -> None:
        """Read what is recorded, whichever process owns it. An unreadable file stays unknown until `take`."""
        with contextlib.suppress(LedgerUnavailable):
            self._book = await self._thread.run(self._database.peek)

    async def take(self, max_wait: float = 0.0) -> None:
        """Own the directory from now on; another process may need `max_wait` seconds to release it.

        A file that is not sound is set aside (`set_aside`). A disk that cannot be read or written is not an error here:
        it is logged, and each request tries again. Raises `StateLocked` if the other process keeps the directory.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + max_wait
        is_waiting = False
        while True:
            try:
                await self.load()
                break
            except StateLocked as error:
                if max_wait and not is_waiting:
                    log.info("%s; waiting up to %g s for it (settings.lockWaitSeconds)", error, max_wait)
                    is_waiting = True
                if loop.time() >= deadline:
                    raise
            except LedgerUnavailable as error:
                self._disk_problem.report(str(error))
                break
            await asyncio.sleep(_RETRY)
        self._is_owned.set()

    @property
    def problem(self) -> str:
        """Return why the last read or write of leases failed; empty if it succeeded."""
        return self._disk_problem.text

    @property
    def is_owned(self) -> bool:
        """Return whether this process owns the directory (`take`)."""
        return self._is_owned.is_set()

    async def owned(self) -> None:
        """Wait until this process owns the directory (`take`)."""
        await self._is_owned.wait()

    async def load(self) -> None:
        """Read the file if that was not possible before. Raises `LedgerUnavailable` or `StateLocked`."""
        if self._is_loaded:
            return
        async with self._loading:  # a second load would discard what was granted since the first
            if not self._is_loaded:
                self._loaded(await self._thread.run(self._database.load))

    @property
    def is_loaded(self) -> bool:
        """Return whether the file was read; before that its content is unknown."""
        return self._is_loaded

    def complete(self) -> None:
        """Record that every device that a pod holds has a lease."""
        self.is_complete = True
        self._database.note_restored()
        self._observers.notify_all()

    @property
    def commits(self) -> int:
        """Return the number of transactions that reached the disk since the ledger was opened."""
        return self._database.commits

    @property
    def set_aside(self) -> tuple[SetAside, ...]:
        """Return the files that were renamed because they were not sound."""
        return tuple(self._database.set_aside)

    def leases(self) -> tuple[Lease, ...]:
        """Return all leases, in the order of their grants."""
        return tuple(self._book)

    def devices(self) -> frozenset[str]:
        """Return every device of which anything is leased."""
        return frozenset(device for lease in self._book for device in lease.devices)

    def get(self, key: LeaseKey) -> Lease | None:
        """Return the lease of a unit; None if it has none."""
        return self._book.get(key)

    def of_owner(self, owner: str) -> tuple[Lease, ...]:
        """Return the leases of an owner (see lease.py)."""
        return self._book.of_owner(owner)

    def of_resource(self, resource: str, api: Api) -> tuple[Lease, ...]:
        """Return the leases of a resource's units through one API."""
        return self._book.of_resource(resource, api)

    def of_device(self, device: str) -> Iterator[Lease]:
        """Yield the leases that have a device, exclusively or shared."""
        return self._book.of_device(device)

    def resources(self, api: Api) -> frozenset[str]:
        """Return the resources of which any unit is leased through an API."""
        return self._book.resources(api)

    def conflicts(
        self, owner: str, exclusive: Iterable[str], shared: Iterable[str] = ()
    ) -> Iterator[tuple[str, Lease]]:
        """Yield the leases that keep `owner` from having these devices (see `Book.conflicts`)."""
        return self._book.conflicts(owner, exclusive, shared)

    def age(self, lease: Lease) -> float:
        """Return the seconds since a lease was last in an answer, or since the start of this process."""
        now = asyncio.get_running_loop().time()
        return now - self._answered.get(lease.key, now)

    def answered(self, leases: Iterable[Lease]) -> None:
        """Record that an answer contains existing leases: their age starts at 0 again."""
        now = asyncio.get_running_loop().time()
        self._answered.update((lease.key, now) for lease in leases if self._book.get(lease.key) is not None)

    def observe(self, changed: Observer) -> None:
        """Call `changed` on the loop after each commit with the leases that ended or began; None: any can have changed.

        Renewed leases are included only if their record has changed: their devices stay the same.
        """
        self._observers.of_leases.append(changed)

    def observe_renewals(self, renewed: RenewalObserver) -> None:
        """Call `renewed` on the loop after each commit with the leases that were renewed, in their new state."""
        self._observers.of_renewals.append(renewed)

    def observe_commits(self, committed: CommitObserver) -> None:
        """Call `committed` on the loop with the changes of each transaction that reached the disk."""
        self._observers.of_commits.append(committed)

    def observe_withheld(self, changed: WithheldObserver) -> None:
        """Call `changed` on the loop whenever the withheld devices might have changed."""
        self._observers.of_withheld.append(changed)

    @property
    def withheld(self) -> Mapping[str, Withheld]:
        """Return the devices that an administrator withholds from new holders."""
        return self._book.withheld

    async def known(self) -> None:
        """Return at once, or after lost leases are restored. Raises `LedgerUnavailable`.

        Whether any were lost is known once the file can be read; until then this raises, too.
        """
        if self.guard is None or (self._is_owned.is_set() and self._is_loaded and self.is_complete):
            return
        await self._is_owned.wait()
        try:
            await self.load()
        except StateLocked as error:
            raise LedgerUnavailable(str(error)) from error
        if not self.is_complete:
            await self.guard.before_granting()

    async def grant(self, wanted: Sequence[Lease], *, check: Check | None = None, guarded: bool = True) -> Change:
        """Write all of `wanted` to disk, or none: after that the answer can leave. Returns what changed.

        `check` can refuse, too; it is called at the moment of the decision. `guarded`: before a refusal the holders are
        checked again, nothing is granted while pods might hold devices that are not recorded, and no unit of a pod that
        still runs is granted (`Guard`). Raises `LeaseRefused` if a device belongs to another owner, `LedgerUnavailable`
        if the disk refuses.
        """

        def decide(book: Book) -> tuple[Change, Change]:
            if check is not None:
                check(book)
            change = book.grant(wanted)
            return change, change

        guard = self.guard if guarded else None
        if guard is not None:
            await self.known()
            known = (self._book.get(x.key) for x in wanted if x.api == "device-plugin")
            if had := [x for x in known if x is not None and x.pods]:
                await guard.before_renewing(had)
        try:
            return await self._request(decide)
        except LeaseRefused:
            if guard is None:
                raise
        await guard.before_refusing()
        return await self._request(decide)

    async def of_running_pods(self, resource: str, units: Iterable[str]) -> frozenset[str]:
        """Return which units of a resource of the device plugin API `grant` would refuse, because their pods still run.

        Without such leases, which is usual, nothing is read.
        """
        had = [x for x in self.of_resource(resource, "device-plugin") if x.pods]
        asked = frozenset(units if had else ())
        if self.guard is None or not (had := [x for x in had if x.unit in asked]):
            return frozenset()
        return frozenset(x.unit for x in await self.guard.of_running_pods(had))

    async def end(self, leases: Iterable[Lease], *, unless_answered_since: float | None = None) -> tuple[Lease, ...]:
        """End leases and return those that ended. Raises `LedgerUnavailable`.

        A lease that was granted again meanwhile stays, and so does one that was in an answer since the time
        `unless_answered_since` of the loop's clock.
        """
        wanted = tuple(leases)

        def decide(book: Book) -> tuple[Change, tuple[Lease, ...]]:
            latest = unless_answered_since
            keys = (
                x.key
                for x in wanted
                if latest is None or (book.get(x.key) == x and self._answered.get(x.key, 0.0) < latest)
            )
            change = book.end(keys)
            return change, change.ended

        return await self._request(decide)

    async def update(self, leases: Iterable[Lease]) -> None:
        """Record newly known facts of leases: their holders and pods. Raises `LedgerUnavailable`."""
        wanted = tuple(leases)
        if wanted:
            await self._request(lambda book: (book.update(wanted), None))

    async def withhold(self, devices: Sequence[Withheld]) -> None:
        """Withhold these devices from new holders, or change the recorded reason.

        Raises `LedgerUnavailable`, and `WithholdRefused` if they would be too many.
        """

        def decide(book: Book) -> tuple[Change, None]:
            return book.withhold(devices), None

        await self._request(decide)

    async def readmit(self, devices: Iterable[str]) -> tuple[Withheld, ...]:
        """Stop withholding these devices; return those that were. Raises `LedgerUnavailable`."""
        wanted = tuple(devices)

        def decide(book: Book) -> tuple[Change, tuple[Withheld, ...]]:
            change = book.readmit(wanted)
            return change, change.readmitted

        return await self._request(decide)

    def check_file(self) -> None:
        """Write all leases again if another file has replaced the one in use, such as a backup."""
        if self._is_loaded and self._busy is None:
            self._begin(self._rewrite_in_thread())

    async def close(self) -> None:
        """Finish waiting requests, close the file, release the directory. Idempotent; later requests are refused."""
        if self._thread.has_ended:
            return
        self._is_closed = True
        self._disk_problem.close()
        self._is_owned.set()
        while self._waiting or self._busy is not None:
            if self._busy is not None:
                await asyncio.wait([self._busy])
            self._flush()
        if self._is_loaded:
            await self._rewrite_in_thread()
        with contextlib.suppress(LedgerUnavailable):  # fails only if there was never a thread, and then nothing is open
            await self._thread.run(self._database.close)
        self._thread.end()

    async def _request(self, decide: Callable[[Book], tuple[Change, T]]) -> T:
        if not self._is_owned.is_set():
            await self._is_owned.wait()
        if self._is_closed:
            raise LedgerUnavailable(f"the lease database {self._database.path} is closed: nodeplug is stopping")
        loop = asyncio.get_running_loop()
        request = Request(decide, loop.create_future())
        with child_span("commit leases"):
            is_next = self._busy is None and not self._is_scheduled
            self._is_scheduled |= is_next
            if is_next and self._was_single and self._is_disk_fast:
                loop.call_soon(loop.call_soon, self._flush)  # later arrivals came while this one was written
                self._commit([request])
            else:
                self._waiting.append(request)
                if is_next:
                    loop.call_soon(self._flush)
            outcome: T = await request.answer
        return outcome

    @property
    def _is_disk_fast(self) -> bool:
        """Return whether the loop can write: the disk is fast, apart from a few slow transactions."""
        return self._is_loaded and self._average_seconds <= self._fast_write

    def _flush(self) -> None:
        """Decide all waiting requests, and write their changes; while the disk is slow, in the thread."""
        self._is_scheduled = False
        if self._busy is not None:
            return
        batch = [request for request in self._waiting if not request.answer.done()]  # done: the caller is gone
        self._waiting = []
        if not batch:
            return
        self._was_single = len(batch) == 1
        if self._is_disk_fast:
            self._commit(batch)
        else:
            self._begin(self._flush_in_thread(batch))

    def _commit(self, batch: Sequence[Request]) -> None:
        """Decide and write on the loop."""
        outcomes, changes = self._decide(batch)
        refusal, seconds = self._write(changes) if changes else (None, 0.0)
        self._finish(batch, outcomes, changes, refusal, seconds)
        if self._database.needs_compaction:
            self._begin(self._compact_log())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._busy = asyncio.get_running_loop().create_task(work)
        self._busy.add_done_callback(self._ended)

    def _ended(self, _: asyncio.Task[None]) -> None:
        """Continue with waiting requests, however the work has ended: a failure must not block later requests."""
        self._busy = None
        self._flush()

    async def _flush_in_thread(self, batch: Sequence[Request]) -> None:
        try:
            await self.load()
            outcomes, changes = self._decide(batch)
            refusal, seconds = await self._thread.run(self._write, changes) if changes else (None, 0.0)
            self._finish(batch, outcomes, changes, refusal, seconds)
        except (LedgerUnavailable, StateLocked) as error:
            self._disk_problem.report(str(error))
            answer(batch, [LedgerUnavailable(str(error))] * len(batch))
        except Exception as error:
            answer(batch, [_defect(error)] * len(batch))
        finally:  # if the loop ends, the callers get no other answer
            answer(batch, [asyncio.CancelledError()] * len(batch))
        await self._compact_log()

    async def _compact_log(self) -> None:
        if self._database.needs_compaction:
            await self._thread.run(self._database.compact_log)

    def _check(self) -> None:
        if self._busy is None:
            self._begin(self._check_in_thread())
        else:
            self._disk_problem.report(self.problem)  # unless the work under way finds the result

    async def _check_in_thread(self) -> None:
        try:
            await self.load()
            await self._thread.run(self._database.check, self._book)
        except (LedgerUnavailable, StateLocked) as error:
            self._disk_problem.report(str(error))
        else:
            self._disk_problem.report("")

    async def _rewrite_in_thread(self) -> None:
        try:
            await self._thread.run(self._database.rewrite_if_replaced, self._book)
        except (LedgerUnavailable, StateLocked) as error:
            self._disk_problem.report(str(error))

    def _decide(self, batch: Sequence[Request]) -> tuple[list[Any], list[Change]]:
        outcomes: list[Any] = []
        changes: list[Change] = []
        for request in batch:
            try:
                change, outcome = request.decide(self._book)
            except Exception as error:  # a refusal or an error in the caller's check: it concerns only this caller
                outcomes.append(error)
                continue
            outcomes.append(outcome)
            if change:
                changes.append(change)
        return outcomes, changes

    def _write(self, changes: Sequence[Change]) -> tuple[LedgerUnavailable | None, float]:
        """Write; return the error, if any, and the duration in seconds. Blocks."""
        began = time.perf_counter()
        try:
            self._database.write(self._book, changes)
        except (LedgerUnavailable, StateLocked) as error:
            return LedgerUnavailable(str(error)), time.perf_counter() - began
        except Exception as error:
            return _defect(error), time.perf_counter() - began
        return None, time.perf_counter() - began

    def _finish(
        self,
        batch: Sequence[Request],
        outcomes: Sequence[Any],
        changes: Sequence[Change],
        refusal: LedgerUnavailable | None,
        seconds: float,
    ) -> None:
        """Answer after a transaction of this duration, then notify the observers; undo refused changes."""
        if not changes:
            answer(batch, outcomes)
            return
        self._average_seconds += (seconds - self._average_seconds) / _AVERAGED_WRITES
        if refusal is not None:
            self._disk_problem.report(str(refusal))
        elif any(change.begun or change.withheld for change in changes):  # an end is no evidence of space for a grant
            self._disk_problem.report("")
        if refusal is not None:
            for change in reversed(changes):
                self._book.undo(change)
            outcomes = [x if isinstance(x, Exception) else refusal for x in outcomes]
        else:
            self._note(changes, seconds)
        answer(batch, outcomes)
        # after the answers have left: Allocate's in this iteration of the loop or the next, a claim's in the one after
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, partial(self._observers.notify, changes, are_on_disk=refusal is None))

    def _note(self, changes: Sequence[Change], seconds: float) -> None:
        now = asyncio.get_running_loop().time()
        if self._commit_seconds is not None:
            self._commit_seconds.observe(seconds)
        for change in changes:
            for lease in change.ended:
                self._answered.pop(lease.key, None)
            for lease in change.granted:
                self._answered[lease.key] = now

    def _loaded(self, book: Book) -> None:
        now = asyncio.get_running_loop().time()
        self._book, self._is_loaded = book, True
        self._answered = {lease.key: now for lease in book}
        self.is_complete = not self._database.was_empty
        self._observers.notify_all()


def _defect(error: Exception) -> LedgerUnavailable:
    """Log a bug and return it as the error for the waiting callers: they must not wait for ever or end."""
    log.error("reading or writing leases failed", exc_info=error)
    return LedgerUnavailable(f"nodeplug failed: {error!r}; see its log")
