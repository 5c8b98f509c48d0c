"""Errors of the ledger, by cause: the request, the disk, or a second daemon."""


class CheckpointError(Exception):
    """Root of this folder's errors."""


class LeaseRefused(CheckpointError):
    """The request cannot be granted: names the device, its holder, the rule and what to do. `device` is its id."""

    def __init__(self, message: str, device: str) -> None:
        """Store the refused device's id besides the text."""
        super().__init__(message)
        self.device = device


class ReleaseRefused(CheckpointError):
    """A lease is not ended by hand, because a witness reports that it is held; the text names the witness."""


class WithholdRefused(CheckpointError):
    """No more devices can be withheld; the text states how many are, and what to do."""


class LedgerUnavailable(CheckpointError):
    """The disk accepts no record now (full, read-only, broken): nothing was granted, the next request tries again."""


class StateLocked(CheckpointError):
    """Another daemon uses the state directory."""
