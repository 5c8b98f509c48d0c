"""A file system that stops under load as at a power cut: each acknowledged lease is there after the next mount.

The kernel simulates it: ext4 drops what its journal has not written (EXT4_IOC_SHUTDOWN with
EXT4_GOING_FLAGS_NOLOGFLUSH).
Source: Linux, fs/ext4/ext4.h and ioctl.c.
"""

import asyncio
import fcntl
import os
import struct
import subprocess
from pathlib import Path

import pytest

from checkpoint import LedgerUnavailable
from tests.checkpoint.build import lease, opened
from tests.running import until
from tests.small_disk import mounted_ext4

_SHUTDOWN, _NO_LOG_FLUSH = 0x8004587D, 2


@pytest.mark.parametrize("granted", [1, 7, 60])
async def test_acknowledged_leases_survive_a_power_cut(tmp_path: Path, granted: int) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    with mounted_ext4(folder, 16):
        ledger = await opened(folder / "state")
        acknowledged: set[str] = set()

        async def grant(who: str) -> None:
            for number in range(100):
                unit = f"{who}{number}"
                await ledger.grant([lease(unit)], guarded=False)
                acknowledged.add(unit)
                if len(acknowledged) == granted:
                    _shut_down(folder)

        refusals = await asyncio.gather(*map(grant, "abc"), return_exceptions=True)
        assert [type(x) for x in refusals] == [LedgerUnavailable] * 3
        await ledger.close()
        _run("umount", str(folder))
        await until(lambda: not _run("losetup", "--associated", str(tmp_path / "disk.image")))
        _run("mount", "-o", "loop", str(tmp_path / "disk.image"), str(folder))
        again = await opened(folder / "state")
        assert {x.unit for x in again.leases()} >= acknowledged
        assert not again.set_aside
        await again.close()


def _shut_down(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
    finally:
        os.close(descriptor)


def _run(*command: str) -> bytes:
    return subprocess.run(command, check=True, capture_output=True).stdout
