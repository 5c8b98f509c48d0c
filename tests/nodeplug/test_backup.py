"""Restoring a backup of the ledger while the daemon is stopped, according to docs/operating.md."""

import asyncio
import shutil
import sqlite3
from asyncio.subprocess import Process
from contextlib import closing
from pathlib import Path

import pytest

from kubelet.node import Node
from tests.nodeplug.conftest import StartDaemon, ended, pod
from tests.running import until

UNITS = ["misc-fuse.0", "misc-fuse.1"]


async def stopped(process: Process) -> str:
    """Stop a daemon; return its log."""
    process.terminate()
    async with asyncio.timeout(30):
        code, log = await ended(process)
    assert code == 0, log
    return log


@pytest.mark.parametrize("has_mark", [True, False], ids=["with mark", "without mark"])
async def test_leases_granted_after_the_backup_are_restored_from_the_kubelet(
    start: StartDaemon, socket_dir: Path, tmp_path: Path, has_mark: bool
) -> None:
    ledger, backup, mark = tmp_path / "state/ledger.sqlite3", tmp_path / "backup", tmp_path / "state/unrestored"

    def leased() -> list[str]:
        with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as reader:
            return [unit for (unit,) in reader.execute("select unit from lease order by unit")]

    async with Node(socket_dir) as node:
        daemon = await start()
        for name in "ab":
            await node.until(lambda: node.allocatable().get("example.com/fuse") == 2, 30)
            assert (await node.admit(pod(name))).phase == "Running"
            await stopped(daemon)
            if name == "a":
                shutil.copy(ledger, backup)
                assert leased() == UNITS[:1]
                daemon = await start()
        shutil.copy(backup, ledger)
        if has_mark:
            mark.touch()
        daemon = await start()
        await until(lambda: leased() == UNITS)
        await until(lambda: not mark.exists())
        log = await stopped(daemon)
        assert "lease restored: the kubelet allocated the device, and its lease was missing" in log
        assert ("the lease database was empty or lost; the devices of all pods have a lease again" in log) == has_mark
