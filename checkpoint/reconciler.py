"""The reconciler: the only code that ends leases which nobody released, and that restores lost leases.

    witnesses -> Holdings -> verdicts -> leases end, get their holders, or are restored

Rules:
1. One pass at a time, for both APIs, whatever the configuration contains. `refresh` returns after a pass that began
   after the call; calls during a pass share the next one.
2. A pass does not end a lease that was in an answer less than `GRACE` seconds before it: the kubelet records the device
   after the answer. A lease whose holder no witness has ever named must be missing twice, `GRACE` seconds apart: a
   kubelet can be suspended between the answer and its record.
3. A lease that was granted again, or was in an answer, since the pass began does not end.
4. What is held without a lease is restored (lease_restorer.py), except a claim whose leases ended less than `GRACE`
   seconds before the pass: the kubelet forgets the claim after the answer. If the ledger was lost, nothing is granted
   until all of it is restored.
5. An administrator can end a lease about which the witnesses do not answer (`release`): after a pass, and only by force
   if a witness reports that it is held. The next pass restores the lease of a pod that still runs. A lease that was
   granted, or was in an answer, since the administrator's request does not end.
6. Each pass finds the units of pods that still run although the kubelet has forgotten them (unlisted.py).
7. A witness that does not answer in time counts as silent. A defect of this program ends one pass or check, and never
   all.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from checkpoint.errors import LeaseRefused, LedgerUnavailable, ReleaseRefused, StateLocked
from checkpoint.holdings import ClaimEntry, ClaimName, DeviceFile, Holdings, Listed, Verdict, claim_of
from checkpoint.lease import Change, Lease, LeaseKey
from checkpoint.lease_restorer import LeaseRestorer
from checkpoint.ledger import Ledger
from checkpoint.plugin_apis import DevicePluginApi, DraApi
from checkpoint.unlisted import ListedPods, is_of_same_pod, is_protected, running_pods_refusal

if TYPE_CHECKING:
    from checkpoint.statements import Statement

log = logging.getLogger("nodeplug.leases")

INTERVAL = 30.0  # seconds between passes while something might be held
_MIN_PAUSE_FACTOR = 20  # minimum pause before an early pass, as a multiple of the last pass's duration
GRACE = 5.0  # seconds that the kubelet can need to record an answer before its silence counts
_REWRITE_TIMEOUT = 1.0  # seconds for the kubelet to write its file after a list
_REWRITE_STEP = 0.02
_RUNNING_STEP = 0.1  # seconds between two checks whether a pod that should have ended still has processes
_UNLISTED_STEP = 0.5  # seconds between two checks whether the pods of unlisted units have ended
_NO_PODS = "the kubelet does not know its pods yet"


class Witnesses(Protocol):
    """The sources that know who holds what. Each answers within a few seconds, or with None if it cannot."""

    async def listed(self) -> Listed | None:
        """Return what the kubelet's pod-resources API lists."""
        ...

    async def device_file(self) -> DeviceFile | None:
        """Return the file of the kubelet's device manager.

        `is_fresh` if it was written since `listed` was asked.
        """
        ...

    async def claim_file(self) -> Mapping[str, ClaimEntry] | None:
        """Return the file of the kubelet's DRA manager."""
        ...

    async def pods(self) -> frozenset[str] | None:
        """Return the uids of the pods that have cgroups."""
        ...

    async def running(self, pods: Set[str]) -> frozenset[str] | None:
        """Return which of these pods have processes."""
        ...

    async def wanted(self, claims: Sequence[ClaimName]) -> Mapping[str, bool] | None:
        """Return by uid whether the API server wants claims prepared; claims without an answer are left out."""
        ...

    def is_absent(self) -> bool:
        """Return whether no kubelet can name anything, because it has no pod-resources socket."""
        ...


class _Pass(Struct):
    """One pass: its beginning by the loop's clock, what was leased then, and its findings."""

    began: float
    leased: frozenset[LeaseKey]
    claims: frozenset[ClaimName]
    holdings: Holdings
    verdicts: dict[LeaseKey, Verdict]


class Reconciler:
    """Ends and restores leases on the evidence of the witnesses. `run` belongs in the daemon's task group."""

    def __init__(
        self,
        ledger: Ledger,
        witnesses: Witnesses,
        *,
        interval: float = INTERVAL,
        grace: float = GRACE,
        max_wait: float = 3.0,
    ) -> None:
        """Manage `ledger`. `max_wait` is how long a grant or a refusal waits for a pass; all times are in seconds."""
        self.units: DevicePluginApi | None = None
        self.claims: DraApi | None = None
        self.problem = "the kubelet was not asked yet"  # why it is not known who holds what; empty when it is
        self.defect = ""  # of ours, that ended the last pass
        self.awaits_first_pod = False  # no file of the kubelet names a device of nodeplug
        self._ledger = ledger
        self._witnesses = witnesses
        self._interval = interval
        self._grace = grace
        self._max_wait = max_wait
        self._seen_pods: set[str] = set()  # pods of leases that have cgroups
        self._ended: set[str] = set()  # and those whose cgroups are gone
        self._missing_since: dict[LeaseKey, float] = {}  # since when a lease without a known holder has been missing
        self._listed_pods = ListedPods()
        self._recently_ended: dict[ClaimName, float] = {}  # when the leases of a claim ended
        self._restorer = LeaseRestorer(ledger)
        self._is_idle = False  # there is nothing to manage
        self._files_name_any = True  # whether the kubelet's files name any device of nodeplug, as far as is known
        self._pass_waiters: list[asyncio.Future[_Pass | None]] = []
        self._has_ended = False  # there will be no further pass
        self._wake = asyncio.Event()
        self._pause: asyncio.Timeout | None = None  # until the next pass
        self._last_duration = 0.0  # seconds, of the last pass
        ledger.guard = self
        ledger.observe(self._leases_changed)
        ledger.observe_renewals(self._leases_changed)
        ledger.observe_commits(self._note_ended)

    async def run(self) -> None:
        """Reconcile now, on request, and every `interval` while something might be held; follow unlisted units."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._run_passes(), name="passes")
            group.create_task(self._follow_unlisted(), name="unlisted units")

    async def _run_passes(self) -> None:
        asked: list[asyncio.Future[_Pass | None]] = []
        try:
            while True:
                self._wake.clear()
                asked, self._pass_waiters = self._pass_waiters, []
                found, began = None, asyncio.get_running_loop().time()
                try:
                    found = await self._reconcile()
                    self.defect = ""
                except Exception as error:  # a bug: the next pass might succeed, and stopping all passes would be worse
                    log.exception("checking which devices pods have failed")
                    self.problem = "nodeplug failed; see its log"
                    self.defect = f"{type(error).__name__}: {error}"
                _answer(asked, found)
                del found
                self._last_duration = asyncio.get_running_loop().time() - began
                seconds = self._until_next()
                self._is_idle = seconds is None
                with contextlib.suppress(TimeoutError):
                    await self._wait_for_wake(seconds)
        finally:
            self._has_ended = True
            _answer([*asked, *self._pass_waiters], None)

    async def _wait_for_wake(self, seconds: float | None) -> None:
        """Wait for a wake-up. Raises TimeoutError after so many seconds; `_pause` can change that."""
        try:
            async with asyncio.timeout(seconds) as self._pause:
                await self._wake.wait()
        finally:
            self._pause = None

    async def refresh(self) -> None:
        """Wait for a pass that began after this moment; return at once if there will be none."""
        await self._fresh_pass()

    async def statements(self, lease: Lease) -> "tuple[Statement, ...]":
        """Return what the witnesses report of a lease now; empty if it ends meanwhile, or they cannot be asked."""
        from checkpoint.statements import statements  # on first use: most daemons never need it

        found = await self._fresh_pass()
        now = self._ledger.get(lease.key)
        return statements(await self._holdings_for(found, now), now) if found is not None and now is not None else ()

    async def release(self, lease: Lease, *, force: bool = False) -> tuple[Lease, ...]:
        """End a lease by hand, a claim's together with its other ones; return those that ended, in the pass or now.

        A pod that is granted the unit after this call keeps it, even with `force`. Raises `ReleaseRefused` if a witness
        reports that it is held, if the kubelet might not have recorded it yet, and if the witnesses cannot be asked;
        with `force` only for the last reason. Raises `LedgerUnavailable`.
        """
        asked = asyncio.get_running_loop().time()
        leases = self._ledger.of_owner(lease.owner) if lease.api == "dra" else (lease,)
        found = await self._fresh_pass()
        if found is None:
            raise ReleaseRefused("no witness could say whether a pod still has it; see the log")
        known = (self._ledger.get(x.key) for x in leases)
        left = tuple(now for now in known if now is not None and now.owner == lease.owner)
        if not left:
            return leases
        if not force:
            holdings = await self._holdings_for(found, left[0])
            for each in left:
                self._check_release(each, holdings, found.began)
        if lease.api != "dra":
            ended = await self._ledger.end(left, unless_answered_since=asked)
        else:
            if self.claims is not None:
                await self.claims.end_claim(claim_of(left[0]), asked)
            there = {x.key for x in self._ledger.of_owner(lease.owner)}
            ended = tuple(x for x in leases if x.key not in there)
        if ended:
            extra = {"resource": lease.resource, "device": lease.unit, "holder": lease.holder}
            log.warning("lease is released by hand%s", ", by force" if force else "", extra=extra)
        return ended

    async def _holdings_for(self, found: _Pass, lease: Lease) -> Holdings:
        """Return a pass's holdings, for a claim with the API server's answer: a pass does not always ask for it."""
        claim = claim_of(lease) if lease.api == "dra" else None
        if claim is None or (found.holdings.claims is not None and claim.uid in found.holdings.claims):
            return found.holdings
        return replace(found.holdings, claims=await self._witnesses.wanted((claim,)))

    def _check_release(self, lease: Lease, holdings: Holdings, began: float) -> None:
        """Raise `ReleaseRefused` if the lease is held or recent."""
        from checkpoint.statements import statements

        if held := [x for x in statements(holdings, lease) if x.holds]:
            evidence = "; ".join(f"{x.witness}: {x.text}" for x in held)
            raise ReleaseRefused(f"{lease}, which a pod still has ({evidence}); delete the pod instead")
        if self._is_recent(lease, began):
            raise ReleaseRefused(
                f"{lease} less than {self._grace:g} s ago; the kubelet may not have recorded it yet; try again"
            )

    async def _fresh_pass(self) -> _Pass | None:
        """Return a pass that began after this moment; None if it failed, or if there will be none."""
        if self._has_ended:
            return None
        future: asyncio.Future[_Pass | None] = asyncio.get_running_loop().create_future()
        self._pass_waiters.append(future)
        self._wake.set()
        return await future

    async def before_refusing(self) -> None:
        """End leases whose holders are gone, as far as a pass finds that in time (`Guard`)."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._max_wait):
                await self.refresh()

    async def before_renewing(self, leases: Sequence[Lease]) -> None:
        """Wait until the pods that have these units have ended (`Guard`). Raises `LeaseRefused` if one does not.

        A pod runs while its cgroup has processes: the empty cgroup can stay for a while. Nothing is refused if the
        kernel does not show processes. Neither are the devices of a static pod: if its manifest changes, the kubelet
        requests them for the new pod while the old one ends, and starts the new one after that. It does not try again
        after a refusal.

        The ledger asks about units whose pods are known. If no witness has named the pod of a unit yet, the kubelet has
        not recorded the last answer, and requests the unit again.
        """
        leases = [lease for lease in leases if is_protected(lease)]
        deadline = asyncio.get_running_loop().time() + self._max_wait
        while leases and (running := await self.of_running_pods(leases)):
            if asyncio.get_running_loop().time() >= deadline:
                self._pass_soon()
                raise LeaseRefused(running_pods_refusal(running), running[0].unit)
            await asyncio.sleep(_RUNNING_STEP)

    async def of_running_pods(self, leases: Sequence[Lease]) -> tuple[Lease, ...]:
        """Return those of these leases whose pods are known to have processes (`Guard`)."""
        return await self._of_running_pods(leases) or ()

    async def _of_running_pods(self, leases: Sequence[Lease]) -> tuple[Lease, ...] | None:
        """Return those of these leases whose pods have processes; None if that is unknown."""
        running = await self._witnesses.running(frozenset[str]().union(*(lease.pods for lease in leases)))
        return None if running is None else tuple(x for x in leases if not x.pods.isdisjoint(running))

    async def before_granting(self) -> None:
        """Wait until the ledger is complete (`Guard`). Raises `LedgerUnavailable`."""
        await self.before_refusing()
        if not self._ledger.is_complete:
            raise LedgerUnavailable(
                f"the lease database is new or was lost, and the devices of running pods are not known yet:"
                f" {self.problem}; nothing is allocated until they are"
            )

    # one pass

    async def _reconcile(self) -> _Pass | None:
        try:
            await self._ledger.load()
        except (LedgerUnavailable, StateLocked):
            return None  # each request reports that
        self._ledger.check_file()
        found = await self._ask_witnesses()
        for do in (self._record_holders, self._end, self._find_unlisted, self._restore):
            await asyncio.sleep(0)  # with thousands of leases each step takes some time
            await do(found)
        return found

    async def _ask_witnesses(self) -> _Pass:
        """Ask all witnesses, and some again if their answers were not sufficient."""
        began, before = asyncio.get_running_loop().time(), self._ledger.leases()
        self._recently_ended = {
            claim: since for claim, since in self._recently_ended.items() if since > began - self._grace
        }
        listed = await self._witnesses.listed()
        holdings = Holdings(
            listed=listed,
            device_file=await self._witnesses.device_file(),
            claim_file=await self._witnesses.claim_file(),
            pods=await self._witnesses.pods(),
        )
        holdings = replace(holdings, ended_pods=self._follow_pods(holdings))
        verdicts = self._verdicts(holdings)
        old = {key[0] for key, verdict in verdicts.items() if verdict is Verdict.FILE_TOO_OLD}
        if old and self.units is not None:
            self.units.republish(old)
            holdings = replace(holdings, device_file=await self._rewritten())
            verdicts = self._verdicts(holdings)
        asked = {key: lease for key, lease in self._leases() if verdicts[key] is Verdict.ASK_SERVER}
        if asked:
            claims = {claim.uid: claim for claim in map(claim_of, asked.values())}
            holdings = replace(holdings, claims=await self._witnesses.wanted(tuple(claims.values())))
            verdicts = self._verdicts(holdings)
        leased = frozenset(lease.key for lease in before)
        leased_claims = frozenset(claim_of(lease) for lease in before if lease.api == "dra")
        return _Pass(began, leased, leased_claims, holdings, verdicts)

    def _verdicts(self, holdings: Holdings) -> dict[LeaseKey, Verdict]:
        return {key: holdings.verdict(lease) for key, lease in self._leases()}

    def _follow_pods(self, holdings: Holdings) -> frozenset[str]:
        """Return the pods of leases whose cgroups were seen and are gone."""
        leased_pods = frozenset[str]().union(*(holdings.pods_of(lease) for _, lease in self._leases()))
        if holdings.pods is not None:
            self._ended = (self._ended | (self._seen_pods - holdings.pods)) & leased_pods
            self._ended -= holdings.pods
            self._seen_pods = set(leased_pods & holdings.pods)
        return frozenset(self._ended)

    async def _rewritten(self) -> DeviceFile | None:
        """Return the kubelet's file after it was written again, or the old one if that takes too long."""
        deadline = asyncio.get_running_loop().time() + _REWRITE_TIMEOUT
        while True:
            found = await self._witnesses.device_file()
            if found is None or found.is_fresh or asyncio.get_running_loop().time() >= deadline:
                return found
            await asyncio.sleep(_REWRITE_STEP)

    async def _record_holders(self, found: _Pass) -> None:
        """Record the holders that the witnesses name, for leases that are older than their answers."""
        updated: list[Lease] = []
        for key, lease in self._leases():
            if found.verdicts.get(key) is not Verdict.HELD or self._is_recent(lease, found.began):
                continue
            holder = found.holdings.holder_of(lease)
            entry = found.holdings.entry_of(lease)
            pods = frozenset({entry.pod}) if holder and entry else found.holdings.pods_of(lease)
            holder = holder or found.holdings.claim_holder_of(lease) or lease.holder
            if (holder, pods) != (lease.holder, lease.pods):
                updated.append(replace(lease, holder=holder, pods=pods))
        with contextlib.suppress(LedgerUnavailable):  # the next pass tries again
            await self._ledger.update(updated)

    async def _end(self, found: _Pass) -> None:
        ended = [lease for key, lease in self._leases() if self._is_ended(key, lease, found)]
        units = [lease for lease in ended if lease.api == "device-plugin"]
        claims = {claim.uid: claim for claim in map(claim_of, (x for x in ended if x.api == "dra"))}
        if units:
            with contextlib.suppress(LedgerUnavailable):
                for lease in await self._ledger.end(units, unless_answered_since=found.began - self._grace):
                    extra = {"resource": lease.resource, "device": lease.unit, "holder": lease.holder}
                    log.info("lease ended: its pod is gone", extra=extra)
        if self.claims is not None:
            since = found.began - self._grace
            ends = (self.claims.end_claim(claim, since) for claim in claims.values())
            failed = await asyncio.gather(*ends, return_exceptions=True)  # so that none of them overlaps the next pass
            for error in filter(None, failed):
                raise error
        known = {key for key, _ in self._leases()}
        self._missing_since = {key: since for key, since in self._missing_since.items() if key in known}

    def _is_ended(self, key: LeaseKey, lease: Lease, found: _Pass) -> bool:
        if found.verdicts.get(key) is not Verdict.ENDED:
            # an unknown verdict does not reset the wait
            if found.verdicts.get(key) in (Verdict.HELD, Verdict.FILE_TOO_OLD):
                self._missing_since.pop(key, None)
            return False
        if self._is_recent(lease, found.began):
            return False
        if lease.holder:
            return True
        return found.began - self._missing_since.setdefault(key, found.began) >= self._grace

    async def _find_unlisted(self, found: _Pass) -> None:
        """Find the units of pods that still run although the kubelet has forgotten them (unlisted.py)."""
        unlisted, holdings = self._ledger.unlisted, found.holdings
        unlisted.remove(lease for lease in unlisted.leases() if holdings.names(lease))
        units = self._listed_pods.forgotten_units(self._ledger.leases(), holdings)
        forgotten = [x for x in units if not self._is_recent(x, found.began)]
        if forgotten:
            running = await self.of_running_pods(forgotten)
            unlisted.add(x for x in running if is_of_same_pod(self._ledger.get(x.key), x))

    async def _follow_unlisted(self) -> None:
        """Offer unlisted units again soon after their pods have ended."""
        unlisted = self._ledger.unlisted
        while True:
            await unlisted.wait_any()
            await asyncio.sleep(_UNLISTED_STEP)
            try:
                known = unlisted.leases()
                running = await self._of_running_pods(known)
                kept = {x.key for x in (known if running is None else running)}
                unlisted.remove(x for x in known if x.key not in kept or not is_of_same_pod(self._ledger.get(x.key), x))
            except Exception:  # a bug, as in a pass
                log.exception("checking whether the pods of unlisted units have ended has failed")
                await asyncio.sleep(self._interval)

    async def _restore(self, found: _Pass) -> None:
        """Lease again what is held without a lease, and was when the pass began."""
        self._restorer.begin_pass()
        await self._restorer.restore_units(found.holdings, found.leased, self.units)
        await self._restorer.restore_claims(found.holdings, found.claims | self._recently_ended.keys(), self.claims)
        self._files_name_any = found.holdings.files_name_any
        self.problem = self._restorer.end_pass() or self._unknown_holders_reason(found.holdings)
        listed = found.holdings.listed
        self.awaits_first_pod = bool(listed) and self.problem == _NO_PODS and not self._files_name_any
        if not self._ledger.is_complete and not self.problem:
            if self._ledger.leases():
                log.warning("the lease database was empty or lost; the devices of all pods have a lease again")
            else:
                log.info("the lease database is new, and no pod holds anything")
            self._ledger.complete()

    def _unknown_holders_reason(self, holdings: Holdings) -> str:
        if self._witnesses.is_absent():
            return (
                "the kubelet does not run, and its files name devices that nodeplug allocated"
                if holdings.files_name_any
                else ""
            )
        if holdings.listed is None:
            return "pod-resources does not answer"
        if not holdings.listed.knows_its_pods:
            return _NO_PODS
        return ""

    # when

    def _leases(self) -> Sequence[tuple[LeaseKey, Lease]]:
        return [(lease.key, lease) for lease in self._ledger.leases()]

    def _is_recent(self, lease: Lease, began: float) -> bool:
        now = asyncio.get_running_loop().time()
        return now - self._ledger.age(lease) >= began - self._grace

    def _until_next(self) -> float | None:
        """Return the seconds until the next pass; None while there is nothing to manage.

        Leases can end while the kubelet is away, and a kubelet that returns lets its pods use their devices without
        asking.
        """
        leases = self._ledger.leases()
        may_be_held = self.problem or self._files_name_any
        if not (leases or self._recently_ended or may_be_held) and self._ledger.is_complete and self._ledger.is_loaded:
            return None
        waiting = any(not lease.holder for lease in leases)
        return self._early_interval() if waiting or self._missing_since else self._interval

    def _early_interval(self) -> float:
        """Return the seconds until a pass that should come earlier than the regular one."""
        return min(self._interval, max(self._grace, _REWRITE_STEP, _MIN_PAUSE_FACTOR * self._last_duration))

    def _note_ended(self, changes: Sequence[Change]) -> None:
        ended = (lease for change in changes for lease in change.ended if lease.api == "dra")
        self._recently_ended.update(dict.fromkeys(map(claim_of, ended), asyncio.get_running_loop().time()))

    def _leases_changed(self, leases: Sequence[Lease] | None) -> None:
        """Start the passes after a first lease; after a later one make a pass once the kubelet can have recorded it.

        What was found out about a lease does not apply to the one that replaces or renews it.
        """
        for lease in leases or ():
            self._missing_since.pop(lease.key, None)
        if self._is_idle:
            self._wake.set()
        elif any(not lease.holder for lease in leases or ()):
            self._pass_soon()

    def _pass_soon(self) -> None:
        """Make the next pass earlier than the regular one, if it is not about to begin."""
        if self._pause is None or self._pause.expired():
            return
        due = asyncio.get_running_loop().time() + self._early_interval()
        if due < (self._pause.when() or 0.0):
            self._pause.reschedule(due)


def _answer(asked: Iterable["asyncio.Future[_Pass | None]"], found: _Pass | None) -> None:
    for future in asked:
        if not future.done():
            future.set_result(found)
