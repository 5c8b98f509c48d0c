"""Who is asked before the ledger grants or refuses: the reconciler, which knows what pods have (reconciler.py)."""

from collections.abc import Sequence
from typing import Protocol

from checkpoint.lease import Lease


class Guard(Protocol):
    """What happens before a lease is granted or refused."""

    async def before_granting(self) -> None:
        """Return once nothing that pods have is without a lease. Raises `LedgerUnavailable` where nobody can say."""
        ...

    async def before_renewing(self, leases: Sequence[Lease]) -> None:
        """Return once the pods that have these units are over. Raises `LeaseRefused` where one is seen to run."""
        ...

    async def before_refusing(self) -> None:
        """End the leases whose holders are gone, as far as that can be found out in time."""
        ...
