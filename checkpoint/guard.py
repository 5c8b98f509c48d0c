"""The interface that the ledger calls before it grants or refuses: the reconciler, which knows what pods have."""

from typing import Protocol


class Guard(Protocol):
    """What happens before a lease is granted or refused."""

    async def before_granting(self) -> None:
        """Return once nothing that pods have is without a lease. Raises `LedgerUnavailable` where nobody can say."""
        ...

    async def before_refusing(self) -> None:
        """End the leases whose holders are gone, as far as that can be found out in time."""
        ...
