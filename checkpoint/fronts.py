"""What the reconciler needs from the two fronts (the two APIs), which grant and end leases."""

from collections.abc import Iterable, Sequence, Set
from typing import Protocol

from checkpoint.holdings import ClaimName, UnitEntry
from checkpoint.lease import Lease


class UnitFront(Protocol):
    """The device plugin API: it knows what a lease of its own consists of."""

    def serves(self, resource: str) -> bool:
        """Tell whether units of this name are ours."""
        ...

    def restore_units(self, resource: str, units: Sequence[str], entry: UnitEntry | None) -> Sequence[Lease]:
        """Return the leases for units that one container holds without any; `entry` has what it was answered."""
        ...

    def republish(self, resources: Iterable[str]) -> None:
        """Send the kubelet the lists of these resources once more: then it writes its file."""
        ...


class ClaimFront(Protocol):
    """DRA: it knows what must be undone for a claim, and what a claim has."""

    async def restore_claim(self, claim: ClaimName, units: Set[str]) -> str:
        """Lease again what a claim has and was lost; return why that cannot be done yet, empty where it is done.

        One that has leases by now is left as it is. `units` are those that the witnesses name. Raises `LeaseRefused`
        where it cannot be done at all.
        """
        ...

    async def end_claim(self, claim: ClaimName, unless_answered_since: float) -> None:
        """Undo a claim and end its leases, unless somebody works for it or was answered since; log what cannot be."""
        ...
