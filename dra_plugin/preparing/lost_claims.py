"""Claims whose devices pods hold and whose leases were lost: leased again as they are, because they are in use.

If the API server has the claim, it is planned as if it were prepared now, and its files are written. Otherwise, or if a
device is no longer there, what is known of it is leased, so that no other holder gets it.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence, Set

from msgspec import structs

from cdi import CdiError
from checkpoint import Lease, LeaseRefused, Ledger
from checkpoint.holdings import ClaimName, claim_holder
from checkpoint.lease import claim_owner
from dra_plugin.driver import API, ClaimRef
from dra_plugin.errors import DraPluginError
from dra_plugin.preparing.claim_hardware import ClaimHardware
from dra_plugin.preparing.claim_locks import ClaimLocks
from dra_plugin.preparing.claim_plan import DeviceChanged, Find, Planner, devices_of, name_of, ref_of, unit_of
from dra_plugin.preparing.claim_record import Record
from resourceapi.objects import v1

log = logging.getLogger("nodeplug.dra")


class LostClaims:
    """Leases claims again. Belongs to the loop."""

    def __init__(
        self,
        driver: str,
        ledger: Ledger,
        planner: Planner,
        hardware: ClaimHardware,
        claim_locks: ClaimLocks,
        find: Find,
        write: Callable[[Record], Awaitable[None]],
    ) -> None:
        """Prepare. `find` returns what is offered under a name, `write` writes a claim's files."""
        self._driver = driver
        self._ledger = ledger
        self._planner = planner
        self._hardware = hardware
        self._claim_locks = claim_locks
        self._find = find
        self._write = write

    def holds_units(self, claim: v1.ResourceClaim, uid: str, units: Set[str]) -> bool:
        """Return whether this is the claim from which pods have the units; `uid` is empty if it is unknown."""
        if claim.status.allocation is None or uid not in ("", claim.metadata.uid):
            return False
        return {name_of(unit) for unit in units} <= {x.device for x in self._planner.results(claim)}

    async def restore(self, claim: v1.ResourceClaim) -> None:
        """Lease again what a claim holds, as it is; nothing is reset, because it is in use.

        Raises `DeviceChanged` until the next scan, and the errors that `prepare` reports.
        """
        ref, results = ref_of(claim), self._planner.results(claim)
        async with self._claim_locks.acquire([ref.uid]):
            if self._ledger.of_owner(claim_owner(ref.uid)):
                return
            try:
                links = await self._hardware.interfaces.links(results, self._find)
                bindings = await self._hardware.bindings.plan(results, self._find)
                plan = self._planner.plan(claim, results, time.time(), in_use=True, links=links, bindings=bindings)
            except DeviceChanged:
                raise
            except (DraPluginError, CdiError) as error:  # a device is missing, or its settings are refused today
                units = [unit_of(x, ref.uid) for x in results if not x.admin_access]
                await self._reserve(ClaimName(ref.namespace, ref.name, ref.uid), units, str(error))
                return
            await self._ledger.grant(plan.leases("done", self._ledger.boot_id, time.time()), guarded=False)
            text = "lease restored: a pod has the device, and its lease was missing"
            log.warning(text, extra={"claim": str(plan.record.claim)})
            await self._write(plan.record)

    async def reserve(self, claim: ClaimName, units: Set[str]) -> None:
        """Lease what pods hold of a claim that the API server does not have: no other holder gets it until they end.

        A claim that has leases by now is left unchanged, because they have more details. Other devices of the claim are
        unknown. Raises `LeaseRefused` and `LedgerUnavailable`.
        """
        uid = claim.uid or uid_by_name(claim)
        shared = {name_of(unit) for unit in units if "/" in unit}  # not every kubelet's file has the shares
        async with self._claim_locks.acquire([uid]):
            if not self._ledger.of_owner(claim_owner(uid)):
                unknown = "the API server does not know it"
                await self._reserve(structs.replace(claim, uid=uid), sorted(units - shared), unknown)

    async def _reserve(self, claim: ClaimName, units: Sequence[str], why: str) -> None:
        """Lease the units of a claim without a record: it cannot be prepared again as it is."""
        refusal: LeaseRefused | None = None
        # one by one: an administrator's access is not recognizable, and its refusal must not cost the claim the others
        for unit in units:
            offered = self._find(name_of(unit))
            exclusive, shared = devices_of(unit, offered)
            lease = Lease(
                resource=offered.resource.name if offered is not None else self._driver,
                unit=unit,
                api=API,
                owner=claim_owner(claim.uid),
                holder=claim_holder(claim.namespace, claim.name, claim.uid),
                exclusive=exclusive,
                shared=shared,
                boot_id=self._ledger.boot_id,
                granted_at=time.time(),
            )
            try:
                await self._ledger.grant([lease], guarded=False)
            except LeaseRefused as error:
                refusal = error
        if refusal is not None:
            raise refusal
        log.warning(
            "lease restored without its record, which was lost; pods have devices of the claim: %s",
            why,
            extra={"claim": f"{claim.namespace}/{claim.name}"},
        )


def uid_by_name(claim: ClaimName | ClaimRef) -> str:
    """Return the substitute for the uid of a claim that the witnesses know only by name (`LostClaims.reserve`)."""
    return f"{claim.namespace}.{claim.name}"
