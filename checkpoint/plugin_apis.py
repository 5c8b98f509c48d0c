"""What the reconciler needs from the two plugin APIs, which grant and end leases."""

from collections.abc import Iterable, Sequence, Set
from typing import Protocol

from checkpoint.holdings import ClaimName, UnitEntry
from checkpoint.lease import Lease


class DevicePluginApi(Protocol):
    """The device plugin API: it defines the content of its leases."""

    def serves(self, resource: str) -> bool:
        """Return whether units of this name belong to this API."""
        ...

    def restore_units(self, resource: str, units: Sequence[str], entry: UnitEntry | None) -> Sequence[Lease]:
        """Return leases for units that one container holds without a lease; `entry` has the answer that it got."""
        ...

    def republish(self, resources: Iterable[str]) -> None:
        """Send the lists of these resources to the kubelet once more, which makes it write its file."""
        ...


class DraApi(Protocol):
    """DRA: it defines what a claim has, and what must be undone for it."""

    async def restore_claim(self, claim: ClaimName, units: Set[str]) -> str:
        """Restore the lost leases of a claim; return why that is not possible yet, or an empty text on success.

        A claim that has leases by now stays unchanged. `units` are those that the witnesses name. Raises `LeaseRefused`
        if the leases can never be restored.
        """
        ...

    async def end_claim(self, claim: ClaimName, unless_answered_since: float) -> None:
        """Undo a claim and end its leases, unless work for it is under way or it was answered since; log failures."""
        ...
