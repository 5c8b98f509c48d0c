"""The interface that the ledger calls before it grants or refuses: the reconciler, which knows what pods have."""

from typing import Protocol


class Guard(Protocol):
    """What happens before a lease is granted or refused."""

    async def before_granting(self) -> None:
        """Wait until every device that a pod holds has a lease. Raises `LedgerUnavailable` if that is unknown."""
        ...

    async def before_refusing(self) -> None:
        """End the leases whose holders are gone, as far as that can be determined in time."""
        ...
