"""Errors of the ledger, by cause: the request, the disk, or a second daemon."""


class CheckpointError(Exception):
    """Root of this folder's errors."""


class LeaseRefused(CheckpointError):
    """The request cannot be granted: says which device, who holds it, which rule, what to do. `device` is its id."""

    def __init__(self, message: str, device: str) -> None:
        """Keep the refused device's id beside the words."""
        super().__init__(message)
        self.device = device


class ReleaseRefused(CheckpointError):
    """A lease is not ended by hand, because somebody says that it is held; the words say who."""


class WithholdRefused(CheckpointError):
    """No more devices can be withheld; the words say how many are, and what to do."""


class LedgerUnavailable(CheckpointError):
    """The disk takes no record now (full, read-only, broken): nothing was granted, the next request tries again."""


class StateLocked(CheckpointError):
    """Another daemon uses the state directory."""
