"""Leases, ledgers and reconcilers for tests."""

import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from checkpoint import Lease, Ledger
from checkpoint.lease import claim_owner, shares_owner, unit_owner
from checkpoint.reconciler import Reconciler

PLACED: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a link to somebody's file": lambda path: path.symlink_to("somebody"),
    "a link to itself": lambda path: path.symlink_to(path.name),
}
"""What another program can put in the place of a file."""


def lease(
    unit: str,
    resource: str = "example.com/gpu",
    *,
    exclusive: str = "",
    shared: str = "",
    holder: str = "",
    pods: str = "",
    shares: int = 1,
    record: bytes = b"",
    boot_id: str = "boot-1",
    granted_at: float = 100.0,
) -> Lease:
    """A lease of the device plugin API; `exclusive`, `shared` and `pods` are separated by spaces."""
    device = unit.partition(".")[0]
    return Lease(
        resource=resource,
        unit=unit,
        api="device-plugin",
        owner=shares_owner(resource, device, shares) if shares > 1 else unit_owner(resource, unit),
        exclusive=frozenset(exclusive.split() or [device]),
        shared=frozenset(shared.split()),
        holder=holder,
        pods=frozenset(pods.split()),
        record=record,
        boot_id=boot_id,
        granted_at=granted_at,
    )


def claimed(
    unit: str,
    claim: str,
    resource: str = "example.com/gpu",
    *,
    exclusive: str | None = None,
    shared: str = "",
    name: str = "",
    pods: str = "",
) -> Lease:
    """A lease of DRA; `claim` is the claim's uid, its name is the same in the namespace default."""
    return Lease(
        resource=resource,
        unit=unit,
        api="dra",
        owner=claim_owner(claim),
        exclusive=frozenset((unit if exclusive is None else exclusive).split()),
        shared=frozenset(shared.split()),
        holder=f"claim/default/{name or claim}/{claim}",
        pods=frozenset(pods.split()),
        boot_id="boot-1",
    )


async def opened(directory: Path, boot_id: str = "boot-1", **options: Any) -> Ledger:
    """The ledger in `directory`, read and owned."""
    ledger = Ledger(directory, boot_id, **options)
    await ledger.read()
    try:
        await ledger.take()
    except BaseException:
        await ledger.close()
        raise
    return ledger


class ManualReconciler(Reconciler):
    """Runs a pass only when a test requests one."""

    def _until_next(self) -> float | None:
        return 1e9


async def filled(directory: Path, count: int = 50) -> None:
    """Write a ledger with so many leases, `u0` and so on."""
    ledger = await opened(directory)
    await ledger.grant([lease(f"u{n}") for n in range(count)])
    await ledger.close()


def edit(*statements: str) -> Callable[[Path], None]:
    """Return a function that executes statements on a database, as another program could."""

    def run(path: Path) -> None:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as tool:
            for statement in statements:
                tool.execute(statement)

    return run
