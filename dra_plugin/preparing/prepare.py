"""Prepares claims: check, lease, change the host, answer; and undoes all of it.

    nothing -- grant ------------------------> done -- files -- answer
     ^    |                                      |
     |    +-- grant --> intended -- resets ------+
     |                     |                     |
     +------ files go, then the leases go -------+

Rules:
1. A claim's devices are leased on disk before the host is changed for them. One commit is enough, because the files can
   be written again from the record, at every start and with every call. A device to be reset is `intended` until the
   reset is done, because nobody could find out later whether it was. Nothing is begun that could not be undone.
2. Both calls can be repeated at any moment, after any crash: a prepared claim gets the same answer, and a partly
   prepared one is undone first. Undoing removes the files, then the leases: a lease without files is found again, but a
   file without a lease would have no owner.
3. Never another device: a device that is unknown, unhealthy, changed or held by another claim or pod is refused with
   the reason. Admin access includes unhealthy devices and those of others.
4. After a reboot, or if another device has taken over a node, a claim is prepared again. The names of its devices stay,
   so the answer is the same for the same devices; the runtime finds under these names where they are now (`describe`).
5. Every task for a claim holds its lock (claim_locks.py).
6. An interface is set up for its pod, or a driver is bound to a device, after the claim's lease has recorded the
   previous state. This is repeated with every call, because the next step follows from the present state. The lease
   ends when the previous state is restored (interface_moves.py, driver_binding.py).
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from cdi import CdiError
from checkpoint import CheckpointError, Lease, LeaseRefused, Ledger
from checkpoint.holdings import ClaimName, claim_of
from checkpoint.lease import Book, Phase, claim_owner
from checkpoint.withheld import withheld_reason
from dra_plugin.driver import API, ClaimFailed, ClaimRef, Prepared, PreparedDevice
from dra_plugin.errors import DraPluginError
from dra_plugin.preparing.claim_bindings import bindings_of
from dra_plugin.preparing.claim_files import ClaimFiles
from dra_plugin.preparing.claim_hardware import ClaimHardware, changes_hardware
from dra_plugin.preparing.claim_interfaces import moves_interface
from dra_plugin.preparing.claim_locks import ClaimLocks
from dra_plugin.preparing.claim_plan import Attributes, Bindings, Find, HeldInterfaces, Plan, Planner, ref_of
from dra_plugin.preparing.claim_record import Record, record_of
from dra_plugin.preparing.concurrency import gather_all
from dra_plugin.preparing.device_status import StatusWriter
from dra_plugin.preparing.edits import claim_spec
from dra_plugin.preparing.host_work import HostWork
from dra_plugin.preparing.lost_claims import LostClaims, uid_by_name
from dra_plugin.preparing.metadata_files import MetadataFolder
from dra_plugin.preparing.sharing import check_shares
from hostdevices import Host, HostDevicesError
from hostdevices.errors import HostExhausted
from hostdevices.presence import Presence
from resourceapi.objects import v1
from resources.reset import reset
from telemetry.trace import child_span

_NOT_READY_ERRORS = (DraPluginError, LeaseRefused)
_REFUSAL_ERRORS = (DraPluginError, CheckpointError, CdiError, HostDevicesError, OSError)

T = TypeVar("T")
log = logging.getLogger("nodeplug.dra")


class Paths(Struct, frozen=True):
    """Where files go, on this host."""

    cdi: Path
    metadata: Path | None = None  # the folder `dra-device-metadata` in the plugin's data folder; None: no metadata


class Preparer:
    """Prepares claims (`driver.Driver`). Belongs to the loop."""

    def __init__(
        self,
        driver: str,
        pool: str,
        host: Host,
        presence: Presence,
        ledger: Ledger,
        paths: Paths,
        find: Find,
        attributes: Attributes,
        claim_locks: ClaimLocks,
        *,
        statuses: StatusWriter | None = None,
        allowed_mounts: Sequence[str] = (),
        runtime: str = "",
    ) -> None:
        """Prepare. `driver` is the driver's name, `pool` its pool on this node.

        `find` returns what is offered under a name, `attributes` its attributes in slices. Mounts from device classes
        must be below one of `allowed_mounts`. `statuses` writes the status of ready devices into the claims. `runtime`
        is the setting `ociRuntime`: the runtime that moves interfaces.
        """
        self._host = host
        self._presence = presence
        self._ledger = ledger
        self._find = find
        self._planner = Planner(
            driver,
            pool,
            presence,
            find,
            attributes,
            has_metadata=paths.metadata is not None,
            allowed_mounts=allowed_mounts,
        )
        metadata = MetadataFolder(paths.metadata, driver) if paths.metadata else None
        self._claim_locks = claim_locks
        self._work = HostWork()
        self._moved = asyncio.Event()
        self.hardware = hardware = ClaimHardware(host, presence, self._work, runtime, self._moved.set)
        location, bound = hardware.interfaces.location, hardware.bindings.nodes
        self._files = ClaimFiles(
            driver, paths.cdi, metadata, lambda record: claim_spec(driver, record, presence, location, bound)
        )
        self._statuses = statuses
        self.lost = LostClaims(driver, ledger, self._planner, self.hardware, claim_locks, find, self._write)
        self._described: dict[str, object] = {}  # by claim: where its devices were when last described
        # claims whose files are removed or being removed, while they still have leases
        self._files_removed: set[str] = set()
        self._problems: list[str] = []  # of the last repair, in words
        self._hardware_problems: dict[str, str] = {}  # why the hardware of claims is not as it should be, by uid
        self._may_have_stale_files = True  # possibly: old files have not been removed yet
        self._track()

    async def run(self) -> None:
        """Update the CDI specs of prepared claims whenever devices have moved (`update`)."""
        while True:
            await self._moved.wait()
            self._moved.clear()
            for record in self._records():
                if changes_hardware(record) or self._described.get(record.claim.uid) != self._spec_inputs(record):
                    await self._describe(record)

    async def close(self) -> None:
        """Wait until no file is being written, even for cancelled callers: then another instance can own the files."""
        self.hardware.close()
        await self._work.close()

    def update(self) -> None:
        """Process a scan: devices of claims might have moved."""
        self._moved.set()

    def concerns(self, entry: str) -> bool:
        """Return whether a file of this name in the CDI directory belongs to this driver."""
        return self._files.concerns(entry)

    def claims_of_files(self, changed: Iterable[str]) -> set[str]:
        """Return the uids of claims whose CDI specs another program has changed, from the `changed` names there."""
        return self._files.modified(changed)

    def modified_files(self, uids: Collection[str] | None = None) -> tuple[bool, set[str]]:
        """Return whether others changed CDI specs of idle claims among these (None: all), and the changed busy ones."""
        leases = self._dra_leases() if uids is None else self._leases_of(uids)
        records = (x for x in _records(leases) if x.claim.uid not in self._files_removed)
        modified = [x.claim.uid for x in records if self._files.are_modified(x.claim.uid)]
        busy = {uid for uid in modified if self._claim_locks.is_busy(uid)}
        return len(busy) < len(modified), busy

    async def repair(self) -> bool:
        """Undo half-finished claims, restore files of finished ones, remove old files; return whether all succeeded.

        Runs at the start, when a lost ledger is restored, and after a disk error; one at a time. Disk errors are
        logged. While the ledger is unreadable the owners of files are unknown. Files of claims without a lease are
        removed once: later ones belong to another daemon that shares the folder.
        """
        try:
            await self._ledger.load()
        except CheckpointError as error:
            extra = {"is_current": lambda: not self._ledger.is_loaded}
            log.error("claims are repaired later: %s", error, extra=extra)
            return True  # `Ledger.observe` reports when it becomes readable
        self._track()
        is_done = True
        for uid in dict.fromkeys(claim_of(lease).uid for lease in self._dra_leases()):
            async with self._claim_locks.acquire([uid]):
                is_done = await self._repair(uid) and is_done
        problems = await self._sync()
        for problem in problems:
            if problem not in self._problems:
                extra = {"is_current": partial(self._is_problem, problem)}
                log.error("%s; nodeplug tries again", problem, extra=extra)
        self._problems = problems
        return is_done and not problems and not any(_has_substitute_uid(x) for x in self._dra_leases())

    def _is_problem(self, problem: str) -> bool:
        return problem in self._problems

    async def prepare(self, claims: Sequence[v1.ResourceClaim]) -> Mapping[str, Prepared]:
        """Make the devices of allocated claims ready; return the outcome of every claim by uid."""
        wanted = {claim.metadata.uid: claim for claim in claims}
        outcomes = await gather_all([self._prepare(claim) for claim in wanted.values()])
        return dict(zip(wanted, outcomes, strict=True))

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, ClaimFailed | None]:
        """Undo `prepare`, without the claim objects; return the outcome of every claim by uid.

        Unknown claims succeed.
        """
        wanted = {claim.uid: claim for claim in claims}
        outcomes = await gather_all([self._unprepare(claim) for claim in wanted.values()])
        return dict(zip(wanted, outcomes, strict=True))

    async def wait_restored(self) -> None:
        """Wait until lost leases are restored, or cannot be in time (`Driver.wait_restored`).

        Must not be called while a claim's lock is held: that would keep the claim from being restored.
        """
        with suppress(CheckpointError):
            await self._ledger.known()

    async def end(self, claim: ClaimName, unless_answered_since: float) -> None:
        """Unprepare a claim that is over, unless work for it is under way or it was answered after that time."""
        if self._claim_locks.is_busy(claim.uid):
            return
        async with self._claim_locks.acquire([claim.uid]):
            leases = self._ledger.of_owner(claim_owner(claim.uid))
            now = asyncio.get_running_loop().time()
            if all(now - self._ledger.age(lease) < unless_answered_since for lease in leases):
                log.info(
                    "unpreparing a stale claim: deleted or deallocated, and no pod uses it", extra={"claim": claim.uid}
                )
                await self._unprepare(ClaimRef(claim.namespace, claim.name, claim.uid))

    async def _repair(self, uid: str) -> bool:
        leases = self._ledger.of_owner(claim_owner(uid))
        record = record_of(leases[0]) if leases else None
        if any(lease.phase == "intended" for lease in leases):
            log.warning("claim was partly prepared; its preparation is undone", extra={"claim": uid})
            return await self._unprepare(_ref(leases[0])) is None
        if leases and leases[0].record and record is None:
            extra = {"is_current": lambda: bool(self._ledger.of_owner(claim_owner(uid)))}
            text = "claim %s was prepared by another version; its leases and files stay as they are"
            log.error(text, uid, extra=extra)
        elif record is not None:
            if self._statuses is not None:
                self._statuses.write_missing(record.claim, record.status)
            return not self._is_of_this_boot(leases) or await self._apply_hardware(record)
        return True

    async def _apply_hardware(self, record: Record) -> bool:
        """Bring the hardware of a prepared claim to its state again; return whether that succeeded."""
        uid = record.claim.uid
        try:
            await self.hardware.apply(record)
        except _REFUSAL_ERRORS as error:
            problem = _message(error)
            if self._hardware_problems.get(uid) != problem:
                extra = {"claim": uid, "is_current": lambda: self._hardware_problems.get(uid) == problem}
                log.error("hardware of a claim: %s; nodeplug tries again", problem, extra=extra)
            self._hardware_problems[uid] = problem
            return False
        self._hardware_problems.pop(uid, None)
        return True

    async def _sync(self) -> list[str]:
        """Write the files that leases require, and remove old ones, without any other writer; return the problems.

        Claims whose lock is held are left to its holder. Leases come before files: a claim without a lease by now has
        no file to keep.
        """
        async with self._work.exclusive():
            leases, kept = self._dra_leases(), None
            if self._may_have_stale_files and self._ledger.is_complete and not any(map(_has_other_files, leases)):
                kept = {claim_of(lease).uid for lease in leases}
            idle = self._idle_records(leases)
            try:
                problems = await self._work.in_thread(partial(self._files.sync, idle, kept))
            except HostExhausted as error:
                return [f"files of claims: {error}"]
            self._may_have_stale_files = self._may_have_stale_files and (kept is None or bool(problems))
            return problems

    async def _prepare(self, claim: v1.ResourceClaim) -> Prepared:
        ref = ref_of(claim)
        outcome = await self._outcome(ref, "prepared", self._prepare_devices(claim, ref))
        if not isinstance(outcome, ClaimFailed):
            log.info("claim is prepared", extra={"claim": str(ref), "device": ",".join(x.device for x in outcome)})
        return outcome

    async def _unprepare(self, claim: ClaimRef) -> ClaimFailed | None:
        return await self._outcome(claim, "unprepared", self._undo(claim))

    async def _outcome(self, claim: ClaimRef, done: str, work: Awaitable[T]) -> T | ClaimFailed:
        """Return the result of `work`, or its error as a ClaimFailed, which concerns only this claim."""
        try:
            return await work
        except _REFUSAL_ERRORS as error:
            reason = _message(error)
            log.warning("claim is not %s: %s", done, reason, extra={"claim": str(claim)})
            return ClaimFailed(reason, "not-ready" if isinstance(error, _NOT_READY_ERRORS) else "state-unavailable")
        except Exception as error:  # a bug: the other claims of the call must not fail with it
            log.exception("claim is not %s", done, extra={"claim": str(claim)})
            return ClaimFailed(f"nodeplug failed: {error!r}; see its log", "defect")

    async def _prepare_devices(self, claim: v1.ResourceClaim, ref: ClaimRef) -> tuple[PreparedDevice, ...]:
        """Return a claim's devices once they can be used."""
        results = self._planner.results(claim)
        before, leases = await self._prepared_before(claim, ref, results)
        unchanged: Set[str] = frozenset()
        held: HeldInterfaces = {}
        bound: Bindings | None = None
        if before is not None and self._is_of_this_boot(leases):
            await self.hardware.apply(before)
            held, bound = self.hardware.interfaces.held(before), bindings_of(before)
            unchanged = {
                x.seen.device.id
                for x in before.allocated
                if self._presence.is_same(x.seen) or held.get((x.request, x.name), (None, False))[1]
            }
            if len(unchanged) == len({x.seen.device.id for x in before.allocated}):
                await self._write(before)
                self._ledger.answered(leases)
                self._write_status(before)
                return before.devices
        moving = [x for x in results if (x.request, x.device) not in held]
        links = await self.hardware.interfaces.links(moving, self._find)
        bindings = await self.hardware.bindings.plan(results, self._find) if bound is None else bound
        plan = self._planner.plan(claim, results, time.time(), links=links, held_interfaces=held, bindings=bindings)
        if plan.devices:
            if moves_interface(plan.record):
                others = (x for x in self._dra_leases() if x.owner != claim_owner(ref.uid))
                self.hardware.interfaces.check_names(plan, others)
            await self._execute(plan, before, unchanged)
            self._write_status(plan.record)
        return plan.record.devices

    async def _prepared_before(
        self, claim: v1.ResourceClaim, ref: ClaimRef, results: Sequence[v1.DeviceRequestAllocationResult]
    ) -> tuple[Record | None, tuple[Lease, ...]]:
        """Return the valid preparation of the claim, if any; undo an outdated one first."""
        await self._ledger.load()
        leases = self._ledger.of_owner(claim_owner(ref.uid))
        if not leases:
            return None, ()
        record = record_of(leases[0])
        is_done = all(lease.phase == "done" for lease in leases)
        if record is not None and is_done and record.is_for(claim, results):
            return record, leases
        # without a record: held by pods; a failed preparation must not end these leases
        if any(lease.record for lease in leases):
            await self._undo(ref)  # half-finished, or from a previous allocation
        return None, ()

    async def _execute(self, plan: Plan, before: Record | None, in_use: Set[str]) -> None:
        """Lease and change the host. `before` is what the claim has already; its devices `in_use` are not reset."""
        claim, boot_id = plan.record.claim, self._ledger.boot_id
        check = partial(_check, record=plan.record)
        self._files.check(claim)
        # after a reboot the previous state is recorded again before it is changed again
        records_intent = before is None or (changes_hardware(plan.record) and not self._is_current(claim))
        try:
            if records_intent:
                phase: Phase = "intended" if plan.resets else "done"
                first_check = partial(check, is_new=before is None)
                await self._ledger.grant(plan.leases(phase, boot_id, time.time()), check=first_check)
            if resets := [device for device in plan.resets if device.id not in in_use]:
                with child_span("reset devices"):
                    await self._work.run_blocking(partial(reset, self._host, resets))
            await self._write(plan.record, rewrite=True)
            if before is not None or plan.resets:
                await self._ledger.grant(plan.leases("done", boot_id, time.time()), check=check)
            # the resource of a device can have changed
            leased = self._ledger.of_owner(claim_owner(claim.uid))
            if old := [x for x in leased if plan.devices.get(x.unit, ("",))[0] != x.resource]:
                await self._ledger.end(old)
        except Exception:  # whatever the error: restore the previous state; the caller reports the error
            await self._roll_back(claim, None if records_intent else before)
            raise

    async def _roll_back(self, claim: ClaimRef, before: Record | None) -> None:
        try:
            if before is None:
                await self._undo(claim)
            else:
                await self._write(before, rewrite=True)
        except _REFUSAL_ERRORS as error:
            state = {"is_current": partial(self._is_partly_prepared, claim.uid)} if before is None else {}
            text = "claim stays partly prepared until its preparation can be undone: %s"
            log.error(text, _message(error), extra={"claim": str(claim), **state})

    def _is_partly_prepared(self, uid: str) -> bool:
        leases = self._ledger.of_owner(claim_owner(uid))
        return any(lease.phase == "intended" or uid not in self._described for lease in leases)

    async def _undo(self, claim: ClaimRef) -> None:
        """Remove a claim's files, then its leases."""
        await self._ledger.load()
        if self._statuses is not None:
            self._statuses.forget(claim.uid)
        leases = self._ledger.of_owner(claim_owner(claim.uid))
        record = record_of(leases[0]) if leases else None
        self._files_removed.add(claim.uid)
        with child_span("remove CDI and metadata"):
            await self._work.write(partial(self._files.remove, claim.uid))
        self._described.pop(claim.uid, None)
        self._hardware_problems.pop(claim.uid, None)
        if record is not None and self._is_of_this_boot(leases):
            with child_span("restore hardware"):
                await self.hardware.restore(record)
        kept = self._ledger.of_owner(claim_owner(uid_by_name(claim)))
        if leases or kept:
            await self._ledger.end((*leases, *kept))
            if record is not None and changes_hardware(record):
                self._track()
            log.info("claim is unprepared", extra={"claim": str(claim)})
        self._files_removed.discard(claim.uid)

    async def _describe(self, record: Record) -> None:
        """Update a claim's CDI spec for where its devices are now."""
        uid, owner = record.claim.uid, claim_owner(record.claim.uid)
        async with self._claim_locks.acquire([uid]):
            leases = self._ledger.of_owner(owner)
            if not leases or record_of(leases[0]) != record:
                return  # it is over, or was prepared again meanwhile
            if self._is_of_this_boot(leases):
                await self._apply_hardware(record)  # describe it in any case: containers must not start without it
            try:
                where = self._spec_inputs(record)
                if self._described.get(uid) == where:
                    return
                await self._work.write(partial(self._files.describe, record))
            except _REFUSAL_ERRORS as error:
                self._described.pop(uid, None)
                state = {"is_current": lambda: uid not in self._described and bool(self._ledger.of_owner(owner))}
                extra = {"claim": str(record.claim), **state}
                log.error("cannot describe devices of a claim: %s", _message(error), extra=extra)
            else:
                self._described[uid] = where

    async def _write(self, record: Record, *, rewrite: bool = False) -> None:
        if changes_hardware(record):
            self._track(record)
            with child_span("change hardware"):
                await self.hardware.apply(record)
        where = self._spec_inputs(record)
        self._files_removed.discard(record.claim.uid)
        with child_span("write CDI and metadata"):
            await self._work.write(partial(self._files.write, record, rewrite=rewrite))
        self._described[record.claim.uid] = where

    def _write_status(self, record: Record) -> None:
        if self._statuses is not None:
            self._statuses.write(record.claim, record.status)

    def _spec_inputs(self, record: Record) -> object:
        """Return the state that the description of a claim's devices depends on."""
        found = (self._presence.find(each.seen) for each in record.allocated)
        devices = tuple((device.devnodes, device.driver_files) if device is not None else None for device in found)
        return devices, self.hardware.spec_inputs(record)

    def _track(self, *records: Record) -> None:
        """Let scans and events cover what claims of this boot have, and `records`."""
        current = [record for record in self._records() if self._is_current(record.claim)]
        self.hardware.track([*current, *records])

    def _is_current(self, claim: ClaimRef) -> bool:
        """Return whether a claim was prepared since the node's last boot."""
        return self._is_of_this_boot(self._ledger.of_owner(claim_owner(claim.uid)))

    def _is_of_this_boot(self, leases: Sequence[Lease]) -> bool:
        return all(lease.boot_id == self._ledger.boot_id for lease in leases)

    def _idle_records(self, leases: Iterable[Lease]) -> list[Record]:
        return [record for record in _records(leases) if not self._claim_locks.is_busy(record.claim.uid)]

    def _records(self) -> list[Record]:
        return _records(self._dra_leases())

    def _leases_of(self, uids: Iterable[str]) -> list[Lease]:
        return [lease for uid in uids for lease in self._ledger.of_owner(claim_owner(uid))]

    def _dra_leases(self) -> list[Lease]:
        return [lease for lease in self._ledger.leases() if lease.api == API]


def _records(leases: Iterable[Lease]) -> list[Record]:
    """Return the records of finished claims among these leases."""
    done = {lease.owner: lease for lease in leases if lease.phase == "done"}
    return [record for record in map(record_of, done.values()) if record is not None]


def _check(book: Book, record: Record, *, is_new: bool = False) -> None:
    """Raise `LeaseRefused` if a claim cannot have its devices now; the state may have changed since the planning."""
    check_shares(book, record.claim.uid, record.shared)
    for each in record.allocated if is_new else ():
        device = each.seen.device
        reason = "" if each.is_admin else withheld_reason(device.id, device.ids.union(device.parents), book.withheld)
        if reason:
            where = f"request {each.request}: device {each.name}"
            raise LeaseRefused(f"{where} is {reason}; `nodeplug readmit` ends that", device.id)


def _ref(lease: Lease) -> ClaimRef:
    """Return the claim that holds a lease."""
    record, claim = record_of(lease), claim_of(lease)
    return record.claim if record else ClaimRef(claim.namespace, claim.name, claim.uid)


def _has_substitute_uid(lease: Lease) -> bool:
    """Return whether the claim of a lease is known to the witnesses only by name."""
    claim = claim_of(lease)
    return claim.uid == uid_by_name(claim)


def _has_other_files(lease: Lease) -> bool:
    """Return whether the files of a lease's claim might have other names than this version uses."""
    return _has_substitute_uid(lease) or (bool(lease.record) and record_of(lease) is None)


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}; the claim is tried again"
    return str(error)
