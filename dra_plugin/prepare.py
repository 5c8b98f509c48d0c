"""Preparing claims: check, lease (intended), change the host, lease (done), answer; and undoing it all.

Rules:
1. A claim's devices are leased on disk before the host is changed for them, and again before the answer leaves.
2. Both calls can be repeated at any moment, after any crash: what is done gives the same answer again, what is half
   done is undone first. Undoing removes the files, then the leases: a lease without files is found again, a file
   without a lease would be nobody's.
3. Never another device: what is unknown, unhealthy, withheld, changed or held by somebody else is refused with words.
   An administrator's access may look at what is unhealthy, withheld or somebody else's.
4. After a reboot, and where another device has taken a node's place, an old answer would give the wrong device: such
   claims are prepared anew. Names of devices are stable, so the answer is the same when the devices are.
5. Claims do not wait for one another. Of one claim, one call works at a time; the next waits for it. A caller that
   gives up does not stop what works for it.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from cdi import CdiError
from checkpoint import Api, CheckpointError, Lease, Ledger
from dra_plugin.claim_files import ClaimFiles
from dra_plugin.device_status import StatusWriter
from dra_plugin.driver import ClaimFailed, ClaimRef, Prepared, PreparedDevice
from dra_plugin.errors import DraPluginError
from dra_plugin.metadata import DeviceEntry, MetadataError
from dra_plugin.metadata_files import MetadataFolder
from dra_plugin.plan import Attributes, Find, Plan, Planner, holder_of
from dra_plugin.reconcile import NotKnown, look, named_claims
from dra_plugin.record import Record, Seen, record_of
from dra_plugin.sharing import Sharing, TooMany
from hostdevices import Device, Host, HostDevicesError
from hostdevices.reset import reset
from hostdevices.verify import fingerprint
from resourceapi.client import AnyVersion, ClientError
from resourceapi.objects import DecodeError, v1

API: Api = "dra"
INTERVAL = 60.0  # seconds between looks for claims that are over
PATIENCE = 15.0  # seconds for such a look; the kubelet gives a call 45
_AT_ONCE = 8  # claims whose files are written or whose devices are reset: that is mostly waiting for the disk
_REFUSALS = (DraPluginError, CheckpointError, CdiError, HostDevicesError, OSError)

T = TypeVar("T")
log = logging.getLogger("nodeplug.dra")


class Paths(Struct, frozen=True):
    """Where files go and where the kubelet answers, on this host."""

    cdi: Path
    pod_resources: Path  # the socket
    metadata: Path | None = None  # the folder `dra-device-metadata` in the plugin's data folder; None: no metadata


class Preparer:
    """Prepares claims (`driver.Driver`). Belongs to the loop."""

    def __init__(
        self,
        driver: str,
        pool: str,
        host: Host,
        ledger: Ledger,
        paths: Paths,
        find: Find,
        attributes: Attributes,
        *,
        claims: AnyVersion[v1.ResourceClaim] | None = None,
        allowed_mounts: Sequence[str] = (),
        patience: float = PATIENCE,
    ) -> None:
        """Prepare. `driver` is the driver's name, `pool` its pool on this node.

        `find` says what is offered under a name, `attributes` what slices say of it. `claims` are the API
        server's; they are asked in threads. Without them no status is written and nothing is reconciled.
        Mounts from device classes must lie below one of `allowed_mounts`. `patience` is how long it may take, in
        seconds, to be told which claims are over: calls that wait for it have a deadline.
        """
        self._driver = driver
        self._host = host
        self._ledger = ledger
        self._pod_resources = paths.pod_resources
        self._planner = Planner(
            driver,
            pool,
            host,
            find,
            attributes,
            has_metadata=paths.metadata is not None,
            allowed_mounts=allowed_mounts,
        )
        self._files = ClaimFiles(driver, paths.cdi, MetadataFolder(paths.metadata, driver) if paths.metadata else None)
        self._sharing = Sharing(ledger)
        self._host_threads = ThreadPoolExecutor(_AT_ONCE, "claim-files")
        self._api_threads = ThreadPoolExecutor(2, "claim-status")  # an API server that hangs holds up nothing else
        self._claims = claims
        self._patience = patience
        self._statuses = StatusWriter(driver, claims, self._api_threads) if claims else None
        self._working: dict[str, asyncio.Task[Any]] = {}  # the last call of each claim
        self._called: set[str] = set()  # uids of claims that were worked for since the last look began
        self._unanswered: Counter[str] = Counter()  # uids of claims in calls that prepare them
        self._look: asyncio.Task[None] | None = None
        self._periodic: asyncio.Task[None] | None = None
        self._leased = asyncio.Event()
        self._has_read = False
        self._is_complete = False  # nothing that pods have is without a lease
        self._not_recalled: list[str] = []  # why it is not, as it was told
        self._has_unreadable = False  # leases of another version of ours
        self._last_error = ""

    def update(self, assigned: Mapping[str, Sequence[Device]]) -> None:
        """Take over which devices there are, right after a scan: what they are now is what may be handed out."""
        self._planner.update([device for devices in assigned.values() for device in devices])

    async def repair(self) -> None:
        """At start, before the first call: undo what is half done, put back the files of what is done, remove others.

        A disk that refuses is logged: each claim is repaired again when it is prepared.
        """
        try:
            await self._read()
        except CheckpointError as error:
            log.error("claims cannot be repaired: %s", error)
            return
        done: list[Record] = []
        # in the order of their leases: of two claims of one name the later has the metadata
        for uid in dict.fromkeys(lease.holder.partition("/")[2] for lease in self._dra_leases()):
            leases = self._leases(uid)
            record = record_of(leases[0])
            if any(lease.phase == "intended" for lease in leases):
                ref = record.claim if record else ClaimRef("", "", uid)
                log.warning("claim was half prepared, it is undone", extra={"claim": str(ref)})
                await self._in_turn(uid, partial(self._unprepare, ref))
            elif record is None:
                log.error("claim %s was prepared by another version; its leases and files stay as they are", uid)
                self._has_unreadable = True
            else:
                self._sharing.resume(uid, record.shared)
                done.append(record)
        try:
            self._is_complete = await self._forgotten() == []
        except (NotKnown, OSError) as error:
            log.warning("files without a lease stay until it is known whose they are: %s", error)
        for problem in await self._on_host(self._files.sync, done, self._is_complete and not self._has_unreadable):
            log.error("%s; it is tried again when the claim is prepared", problem)

    async def recall(self) -> None:
        """After `repair` and `update`: lease again what pods have and our record has lost, so that nobody else gets it.

        What cannot be leased now keeps its files and is tried again at every look.
        """
        if self._is_complete or self._claims is None:
            return
        problems: list[str] = []
        try:
            async with asyncio.timeout(self._patience):
                for namespace, name in await self._forgotten():
                    try:
                        await self._recall(self._claims, namespace, name)
                    except (*_REFUSALS, ClientError, DecodeError) as error:
                        problems.append(f"claim {namespace}/{name}: {error}")
        except (NotKnown, OSError) as error:  # a TimeoutError is an OSError without words
            problems.append(str(error) or f"no answer within {self._patience:g} s")
        self._is_complete = not problems
        if self._is_complete:
            problems += await self._on_host(self._files.sync, self._records(), not self._has_unreadable)
        for problem in problems:
            level = logging.DEBUG if problem in self._not_recalled else logging.ERROR
            log.log(level, "what pods have of us may be without a lease: %s; it is tried again", problem)
        self._not_recalled = problems

    def start(self) -> None:
        """Begin to reconcile now and then, while there are leases."""
        if self._claims is not None:
            self._periodic = asyncio.ensure_future(self._repeat())

    async def stop(self) -> None:
        """End background work and wait for the calls that are working. Leases and files stay. Idempotent."""
        for task in (self._periodic, self._look):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        if self._statuses is not None:
            await self._statuses.stop()
        while self._working:
            await asyncio.wait(self._working.values())
        await asyncio.to_thread(self._host_threads.shutdown)
        self._api_threads.shutdown(wait=False, cancel_futures=True)  # a server that hangs is not waited for

    async def prepare(self, claims: Sequence[v1.ResourceClaim]) -> Mapping[str, Prepared]:
        """Make the devices of allocated claims ready; return every claim's outcome by uid."""
        wanted = {claim.metadata.uid: claim for claim in claims}
        self._unanswered.update(wanted.keys())  # the first may be done long before the call is answered
        try:
            work = (self._in_turn(uid, partial(self._prepare, x)) for uid, x in wanted.items())
            outcomes = await asyncio.gather(*work)
        finally:
            self._unanswered.subtract(wanted.keys())
        return dict(zip(wanted, outcomes, strict=True))

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, ClaimFailed | None]:
        """Undo `prepare`, without the claim objects; return every claim's outcome by uid. Unknown claims are done."""
        wanted = {claim.uid: claim for claim in claims}
        outcomes = await asyncio.gather(*(self._in_turn(uid, partial(self._unprepare, x)) for uid, x in wanted.items()))
        return dict(zip(wanted, outcomes, strict=True))

    async def reconcile(self) -> None:
        """Unprepare the claims that are over: gone, replaced or not allocated, and named by no pod any more.

        Changes nothing while the API server or the kubelet does not answer. A look that is under way began before we
        were asked: callers wait for it and share the next.
        """
        if self._look is not None and not self._look.done():
            await asyncio.shield(self._look)
        if self._look is None or self._look.done():
            self._look = asyncio.ensure_future(self._look_for_ends())
        await asyncio.shield(self._look)

    async def update_metadata(self, claim: ClaimRef, request: str, devices: Sequence[DeviceEntry]) -> None:
        """Replace what a prepared claim's metadata says of a request's devices.

        Containers that were created before keep what they see. Raises `MetadataError`.
        """
        metadata = self._files.metadata
        if metadata is None:
            raise MetadataError("device metadata is not enabled")
        await self._in_turn(claim.uid, partial(self._on_host, metadata.update, claim, request, devices))

    async def _prepare(self, claim: v1.ResourceClaim) -> Prepared:
        ref = ClaimRef(claim.metadata.namespace, claim.metadata.name, claim.metadata.uid)
        outcome = await self._said(ref, "prepared", self._ready(claim, ref))
        if not isinstance(outcome, ClaimFailed):
            log.info("claim is prepared", extra={"claim": str(ref), "device": ",".join(x.device for x in outcome)})
        return outcome

    async def _unprepare(self, claim: ClaimRef) -> ClaimFailed | None:
        return await self._said(claim, "unprepared", self._undo(claim))

    async def _said(self, claim: ClaimRef, done: str, work: Awaitable[T]) -> T | ClaimFailed:
        """Return what comes of `work`; what goes wrong is said in words, and concerns this claim alone."""
        try:
            return await work
        except _REFUSALS as error:
            reason = _in_words(error)
            log.warning("claim is not %s: %s", done, reason, extra={"claim": str(claim)})
            return ClaimFailed(reason)
        except Exception as error:  # a defect of ours: the other claims of the call must not suffer from it
            log.exception("claim is not %s", done, extra={"claim": str(claim)})
            return ClaimFailed(f"nodeplug failed: {error!r}; its log says where")

    async def _ready(self, claim: v1.ResourceClaim, ref: ClaimRef) -> tuple[PreparedDevice, ...]:
        """Return a claim's devices once they can be used."""
        results = self._planner.results(claim)
        before, leases = await self._prepared_before(claim, ref, results)
        untouched: tuple[Seen, ...] = ()
        if before is not None and all(lease.boot_id == self._ledger.boot_id for lease in leases):
            untouched = tuple(seen for seen in before.seen if not self._is_another(seen))
            if untouched == before.seen:
                await self._on_host(self._files.write, before)
                self._tell(before)
                return before.devices
        if before is None and not self._is_complete:
            await self.reconcile()  # what it asks for may be what a pod has
        plan = self._planner.plan(claim, results, time.time())
        if plan.given:
            await self._carry_out(plan, before, {seen.device.id for seen in untouched})
            self._leased.set()
            self._tell(plan.record)
        return plan.record.devices

    async def _prepared_before(
        self, claim: v1.ResourceClaim, ref: ClaimRef, results: Sequence[v1.DeviceRequestAllocationResult]
    ) -> tuple[Record | None, tuple[Lease, ...]]:
        """Return what is done for the claim already, once everything else of it is undone."""
        await self._read()
        leases = self._leases(ref.uid)
        if not leases:
            return None, ()
        record = record_of(leases[0])
        is_done = all(lease.phase == "done" for lease in leases)
        if record is not None and is_done and record.answers(claim, results):
            return record, leases
        await self._undo(ref)  # half done, or what the claim had before it was allocated anew
        return None, ()

    async def _carry_out(self, plan: Plan, before: Record | None, in_use: Set[str]) -> None:
        """Lease and change the host. `before` is what the claim has already; its devices `in_use` are not reset."""
        boot_id = self._ledger.boot_id
        await self._enter(plan.record)
        try:
            if before is None:
                await self._ledger.grant(plan.leases("intended", boot_id, time.time()))
            resets = [device for device in plan.resets if device.id not in in_use]
            await self._on_host(self._change_host, resets, plan.record)
            done = plan.leases("done", boot_id, time.time())
            await self._ledger.grant(done)
            if before is not None:  # a device may belong to another resource now
                mine, kept = holder_of(plan.record.claim.uid), {lease.key for lease in done}
                await self._ledger.release(lambda x: x.api == API and x.holder == mine and x.key not in kept)
        except Exception:  # whatever it was: what was there before is put back, and it is said by whoever called
            await self._put_back(plan.record.claim, before)
            raise

    async def _enter(self, record: Record) -> None:
        """Let the claim share devices with others."""
        try:
            self._sharing.enter(record.claim.uid, record.shared)
        except TooMany:
            await self.reconcile()  # the others may be over
            self._sharing.enter(record.claim.uid, record.shared)

    def _change_host(self, resets: Sequence[Device], record: Record) -> None:
        """Do what containers will see. Blocks."""
        reset(self._host, resets)
        self._files.write(record, anew=True)

    async def _put_back(self, claim: ClaimRef, before: Record | None) -> None:
        try:
            if before is None:
                await self._undo(claim)
            else:
                self._sharing.resume(claim.uid, before.shared)
                await self._on_host(partial(self._files.write, before, anew=True))
        except _REFUSALS as error:
            reason = _in_words(error)
            log.error("claim is half prepared until it can be undone: %s", reason, extra={"claim": str(claim)})

    async def _undo(self, claim: ClaimRef) -> None:
        """Remove what a claim has: files, then leases."""
        await self._read()
        if self._statuses is not None:
            self._statuses.forget(claim.uid)
        leases = self._leases(claim.uid)
        record = record_of(leases[0]) if leases else None
        await self._on_host(self._files.remove, record.claim if record else claim)
        if leases:
            await self._ledger.release(lambda lease: lease.api == API and lease.holder == holder_of(claim.uid))
            log.info("claim is unprepared", extra={"claim": str(claim)})
        self._sharing.leave(claim.uid)

    async def _forgotten(self) -> list[tuple[str, str]]:
        """Return namespace and name of the claims that pods have devices from and that have no lease."""
        known = {(record.claim.namespace, record.claim.name) for record in self._records()}
        return sorted(await named_claims(self._driver, self._pod_resources) - known)

    async def _recall(self, claims: AnyVersion[v1.ResourceClaim], namespace: str, name: str) -> None:
        loop = asyncio.get_running_loop()
        claim = await loop.run_in_executor(self._api_threads, claims.get, name, namespace)
        if claim.metadata.uid in self._working:  # maybe waiting for this very look
            raise DraPluginError("a call works for it now")
        await self._in_turn(claim.metadata.uid, partial(self._lease_again, claim))

    async def _lease_again(self, claim: v1.ResourceClaim) -> None:
        """Lease what a claim has, as it is: it is in use, so nothing is reset."""
        if self._leases(claim.metadata.uid):
            return
        plan = self._planner.plan(claim, self._planner.results(claim), time.time())
        await self._ledger.grant(plan.leases("done", self._ledger.boot_id, time.time()), afresh=False)
        self._sharing.resume(claim.metadata.uid, plan.record.shared)
        self._leased.set()
        log.warning(
            "lease made anew: a pod has the device, our record was lost", extra={"claim": str(plan.record.claim)}
        )
        await self._on_host(self._files.write, plan.record)

    def _records(self) -> list[Record]:
        """Return what is done."""
        done = {lease.holder: lease for lease in self._dra_leases() if lease.phase == "done"}
        return [record for record in map(record_of, done.values()) if record is not None]

    async def _repeat(self) -> None:
        while True:
            try:
                await self.reconcile()
            except Exception:  # a defect of ours: the next look may do better, and no look at all would be worse
                log.exception("the look for claims that are over failed")
            if self._is_complete and not self._dra_leases():
                self._leased.clear()
                await self._leased.wait()
            await asyncio.sleep(INTERVAL)

    async def _look_for_ends(self) -> None:
        if self._claims is None:
            return
        await self.recall()
        self._unanswered = +self._unanswered
        self._called = {*self._working, *self._unanswered}
        # half prepared ones, too: what could not be undone for want of a disk would be nobody's for ever
        known = filter(None, map(record_of, {lease.holder: lease for lease in self._dra_leases()}.values()))
        idle = [record for record in known if record.claim.uid not in self._called]
        try:
            async with asyncio.timeout(self._patience):
                found = await look(self._driver, idle, self._claims, self._api_threads, self._pod_resources)
        except (NotKnown, OSError) as error:  # a TimeoutError is an OSError without words
            reason = str(error) or f"no answer within {self._patience:g} s"
            if reason != self._last_error:
                log.warning("which claims are over cannot be told: %s", reason)
            self._last_error = reason
            return
        self._last_error = ""
        done = {record.claim.uid for record in self._records()}
        for record in found.untold:
            if self._statuses is not None and record.claim.uid in done - self._called:
                self._statuses.write_missing(record.claim, record.status)
        await asyncio.gather(*map(self._end, found.over))

    async def _end(self, claim: ClaimRef) -> None:
        """Unprepare a claim, unless it was worked for since the look began.

        What we were told may be older then; and a call that works for it now may be waiting for this very look.
        """
        if claim.uid not in self._called:
            log.info("claim is over, nobody unprepared it", extra={"claim": str(claim)})
            await self._in_turn(claim.uid, partial(self._unprepare, claim))

    def _tell(self, record: Record) -> None:
        if self._statuses is not None:
            self._statuses.write(record.claim, record.status)

    def _is_another(self, seen: Seen) -> bool:
        """Tell whether something else has taken the place of a device; that it is gone is another matter."""
        now = fingerprint(self._host, seen.device)
        return any(new and old != new for (_, old), (_, new) in zip(seen.fingerprint, now, strict=True))

    def _dra_leases(self) -> list[Lease]:
        return [lease for lease in self._ledger.leases() if lease.api == API]

    def _leases(self, uid: str) -> tuple[Lease, ...]:
        holder = holder_of(uid)
        return tuple(lease for lease in self._ledger.leases() if lease.api == API and lease.holder == holder)

    async def _read(self) -> None:
        """Make certain that the leases are known: a disk that could not be read at start is asked again."""
        if not self._has_read:
            await self._ledger.release(lambda _: False)
            self._has_read = True

    async def _on_host(self, call: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._host_threads, call, *arguments)

    async def _in_turn(self, uid: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do `work` after what is done for the claim already."""
        before = self._working.get(uid)
        self._called.add(uid)

        async def turn() -> T:
            if before is not None:
                await asyncio.wait([before])
            return await work()

        task = self._working[uid] = asyncio.ensure_future(turn())
        task.add_done_callback(partial(self._has_worked, uid))
        return await asyncio.shield(task)

    def _has_worked(self, uid: str, task: "asyncio.Task[Any]") -> None:
        if self._working.get(uid) is task:
            del self._working[uid]


def _in_words(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}; the claim is tried again"
    return str(error)
