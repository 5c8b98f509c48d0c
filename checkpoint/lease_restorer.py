"""Restores leases of what pods and claims hold without one: the ledger was lost, or a backup of it was put back.

Rules:
1. The plugin API knows what its leases consist of. An existing lease stays. The other holder then holds the device
   without a lease, which is logged, and nobody else gets the device.
2. A device that is held without a lease is logged once for each reason.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import partial
from itertools import chain
from typing import Final, TypeAlias

from msgspec.structs import replace

from checkpoint.errors import LeaseRefused, LedgerUnavailable
from checkpoint.holdings import ClaimName, Holdings, UnitEntry, claim_of, held_claims, held_units
from checkpoint.lease import Book, Lease, LeaseKey
from checkpoint.ledger import Ledger
from checkpoint.plugin_apis import DevicePluginApi, DraApi

log = logging.getLogger("nodeplug.leases")

_Key: TypeAlias = str | tuple[str, str]  # of a claim: its uid, or its namespace and name
_Container: TypeAlias = tuple[str, str, UnitEntry | None]  # resource, holder, and the entry in the kubelet's file

_MAX_LINES: Final = 100  # of one pass: a lost ledger can have had 40,000 leases
_MAX_REASONS: Final = 3  # that every refusal repeats


class LeaseRestorer:
    """The reconciler's part of each pass, between `begin_pass` and `end_pass`."""

    def __init__(self, ledger: Ledger) -> None:
        """Restore leases of `ledger`."""
        self._ledger = ledger
        self._unleased: dict[str, str] = {}  # what is held without a lease, and why, as found in this pass
        self._known_unleased: dict[str, str] = {}  # after the previous pass
        self._unrestored: dict[str, None] = {}  # reasons why leases are not restored yet
        self._lines = 0  # logged in this pass, or left out because of the limit

    def begin_pass(self) -> None:
        """Begin a pass."""
        self._unleased, self._unrestored, self._lines = {}, {}, 0

    async def restore_units(
        self, holdings: Holdings, leased: Set[LeaseKey], plugin_api: DevicePluginApi | None
    ) -> None:
        """Restore the leases of held units that were not `leased` when the witnesses were asked."""
        if plugin_api is None:
            return
        held = held_units(holdings)
        containers: dict[_Container, list[str]] = {}
        for resource, unit in sorted(x for x in held if (x[0], "device-plugin", x[1]) not in leased):
            containers.setdefault((resource, *held[resource, unit]), []).append(unit)
        for (resource, holder, entry), units in containers.items():
            lost = [x for x in units if self._ledger.get((resource, "device-plugin", x)) is None]
            if lost and plugin_api.serves(resource):  # the configuration can have changed meanwhile
                pods = frozenset({entry.pod} if entry else ())
                leases = plugin_api.restore_units(resource, lost, entry)
                await self._restore_leases([replace(x, holder=holder, pods=pods) for x in leases])

    async def restore_claims(self, holdings: Holdings, known: Set[ClaimName], plugin_api: DraApi | None) -> None:
        """Restore the leases of held claims that were not `known` when the witnesses were asked."""
        leased = map(claim_of, (lease for lease in self._ledger.leases() if lease.api == "dra"))
        known_keys = _keys(chain(known, leased))  # the DRA side finds claims that are prepared meanwhile
        for claim, units in sorted(held_claims(holdings).items(), key=lambda x: (x[0].namespace, x[0].name)):
            if plugin_api is not None and not _is_among(claim, known_keys):
                await self._restore_claim(claim, units, plugin_api)

    def end_pass(self) -> str:
        """Return why not all leases are restored; empty if they are, or never can be."""
        self._known_unleased = self._unleased
        if self._lines > _MAX_LINES:
            more = self._lines - _MAX_LINES
            log.warning("%d more were held without a lease; `nodeplug status` lists all leases", more)
        return "; ".join(list(self._unrestored)[:_MAX_REASONS])

    async def _restore_leases(self, leases: Sequence[Lease]) -> None:
        """Grant what a container has: all of it at once, or as much as possible, in halves."""
        why = ""
        try:
            await self._ledger.grant(leases, check=partial(_check_unleased, leases), guarded=False)
        except LeaseRefused as refusal:  # the existing lease stays, and the device is not allocated to others
            if half := len(leases) // 2:
                await self._restore_leases(leases[:half])
                await self._restore_leases(leases[half:])
                return
            if self._ledger.get(leases[0].key) is not None:
                return
            why = str(refusal)
        except LedgerUnavailable as error:
            why = str(error)
            self._unrestored[why] = None
        for each in leases:
            extra = {"resource": each.resource, "device": each.unit, "holder": each.holder}
            if why:
                self._report(f"{each.resource} {each.unit}", why, extra)
            else:
                message = "lease restored: the kubelet allocated the device, and its lease was missing"
                self._log(logging.WARNING, message, extra)

    async def _restore_claim(self, claim: ClaimName, units: Set[str], plugin_api: DraApi) -> None:
        try:
            if not (why := await plugin_api.restore_claim(claim, units)):
                return
            self._unrestored[why] = None
        except LeaseRefused as refusal:
            why = str(refusal)
        name = f"{claim.namespace}/{claim.name}"
        self._report(f"claim {name}", why, {"claim": name})

    def _report(self, what: str, why: str, extra: Mapping[str, str]) -> None:
        """Log that something is held without a lease, once for each reason."""
        if self._known_unleased.get(what) != why:
            state = {"is_current": lambda: why in (self._known_unleased.get(what), self._unleased.get(what))}
            self._log(logging.ERROR, f"{what} is held without a lease: {why}", {**extra, **state})
        self._unleased[what] = why

    def _log(self, level: int, message: str, extra: Mapping[str, object]) -> None:
        self._lines += 1
        if self._lines <= _MAX_LINES:
            log.log(level, "%s", message, extra=extra)


def _check_unleased(leases: Iterable[Lease], book: Book) -> None:
    """Raise `LeaseRefused` if a unit has a lease by now: the kubelet has allocated it since it was listed."""
    for lease in leases:
        if book.get(lease.key) is not None:
            raise LeaseRefused(f"device {lease.unit}: {lease.resource} has allocated it in the meantime", lease.unit)


def _keys(claims: Iterable[ClaimName]) -> Set[_Key]:
    return {key for each in claims for key in (each.uid, (each.namespace, each.name))}


def _is_among(claim: ClaimName, keys: Set[_Key]) -> bool:
    """Return whether a claim is among those with these keys; its uid can be missing, and their names."""
    return claim.uid in keys if claim.uid else ("", "") in keys or (claim.namespace, claim.name) in keys
