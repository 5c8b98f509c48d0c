"""Who holds what: leases on disk before the answer leaves, and what ends and restores them.

grant -> decided on the loop -> one transaction for all who wait -> the answers
witnesses -> Holdings -> Reconciler -> leases end or are restored
"""

from checkpoint.database import SetAside
from checkpoint.errors import (
    CheckpointError,
    LeaseRefused,
    LedgerUnavailable,
    ReleaseRefused,
    StateLocked,
    WithholdRefused,
)
from checkpoint.lease import Api, Lease, LeaseKey
from checkpoint.ledger import Ledger
from checkpoint.withheld import Withheld

__all__ = [
    "Api",
    "CheckpointError",
    "Lease",
    "LeaseKey",
    "LeaseRefused",
    "Ledger",
    "LedgerUnavailable",
    "ReleaseRefused",
    "SetAside",
    "StateLocked",
    "Withheld",
    "WithholdRefused",
]
