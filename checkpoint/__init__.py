"""Leases: on disk before the kubelet is answered, and ended or restored by the reconciler.

grant -> decision on the event loop -> one transaction for all waiting requests -> answers
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
