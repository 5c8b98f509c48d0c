"""Observers of the ledger: each is called on the loop for the changes that it subscribed to.

If one fails, the failure is logged, and the others are called all the same.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from checkpoint.lease import Change, Lease

log = logging.getLogger("nodeplug.leases")

Observer: TypeAlias = Callable[[Sequence[Lease] | None], None]
RenewalObserver: TypeAlias = Callable[[Sequence[Lease]], None]
CommitObserver: TypeAlias = Callable[[Sequence[Change]], None]
WithheldObserver: TypeAlias = Callable[[], None]


class Observers:
    """The observers of one ledger (see `Ledger.observe` and its like)."""

    def __init__(self) -> None:
        """Start empty."""
        self.of_leases: list[Observer] = []
        self.of_renewals: list[RenewalObserver] = []
        self.of_commits: list[CommitObserver] = []
        self.of_withheld: list[WithheldObserver] = []

    def notify(self, changes: Sequence[Change], *, are_on_disk: bool) -> None:
        """Report the changes of requests; or that they are undone, if the disk refused them."""
        moved = [lease for change in changes for lease in (*change.ended, *change.begun)]
        moved += [lease for change in changes for lease in change.rerecorded]
        if moved:
            _call(self.of_leases, moved)
        if renewed := [new for change in changes for _, new in change.renewed]:
            _call(self.of_renewals, renewed)
        if any(change.withheld or change.readmitted for change in changes):
            _call(self.of_withheld)
        if are_on_disk:
            _call(self.of_commits, changes)

    def notify_all(self) -> None:
        """Let all observers check everything again, in the next iteration of the loop."""
        loop = asyncio.get_running_loop()
        loop.call_soon(_call, self.of_leases, None)
        loop.call_soon(_call, self.of_withheld)


def _call(observers: Iterable[Callable[..., None]], *arguments: object) -> None:
    for observer in observers:
        try:
            observer(*arguments)
        except Exception:  # a bug: the other observers must still be called
            log.exception("an observer of leases failed")
