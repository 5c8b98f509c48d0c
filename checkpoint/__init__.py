"""What was handed out: leases and withheld devices, on disk before the answer leaves.

grant -> decided on the loop -> one transaction for all who wait -> the answers
"""

from checkpoint.database import SetAside
from checkpoint.errors import CheckpointError, LeaseRefused, LedgerUnavailable, StateLocked
from checkpoint.lease import Api, Lease, LeaseKey, Obstacles
from checkpoint.ledger import Granted, Ledger, Reconciled
from checkpoint.quarantine import Withheld

__all__ = [
    "Api",
    "CheckpointError",
    "Granted",
    "Lease",
    "LeaseKey",
    "LeaseRefused",
    "Ledger",
    "LedgerUnavailable",
    "Obstacles",
    "Reconciled",
    "SetAside",
    "StateLocked",
    "Withheld",
]
