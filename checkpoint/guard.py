"""The interface that the ledger calls before it grants or refuses: the reconciler, which knows what pods have."""

from collections.abc import Sequence
from typing import Protocol

from checkpoint.lease import Lease


class Guard(Protocol):
    """What happens before a lease is granted or refused."""

    async def before_granting(self) -> None:
        """Wait until every device that a pod holds has a lease. Raises `LedgerUnavailable` if that is unknown."""
        ...

    async def before_renewing(self, leases: Sequence[Lease]) -> None:
        """Wait until the pods that have these units have ended. Raises `LeaseRefused` if one still runs."""
        ...

    async def of_running_pods(self, leases: Sequence[Lease]) -> tuple[Lease, ...]:
        """Return those of these leases whose pods still run, as far as the kernel reports it."""
        ...

    async def before_refusing(self) -> None:
        """End the leases whose holders are gone, as far as that can be determined in time."""
        ...
