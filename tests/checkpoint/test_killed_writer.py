"""A process is killed, or its log is cut: acknowledged leases stay."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from checkpoint.database import Database
from tests.checkpoint.build import lease, opened

NAME = "ledger.sqlite3"


WRITER = """
import asyncio, sys
from pathlib import Path
from tests.checkpoint.build import lease, opened

async def main() -> None:
    ledger = await opened(Path(sys.argv[1]))
    async def caller(name: str) -> None:
        for number in range(100_000):
            await ledger.grant([lease(f"{name}-{number}")])
            print(f"{name}-{number}", flush=True)
    await asyncio.gather(*(caller(name) for name in "abc"))

asyncio.run(main())
"""


@pytest.mark.parametrize("acknowledged", [0, 1, 2, 7, 40, 400])
def test_acknowledged_leases_survive_a_kill_at_any_moment(tmp_path: Path, acknowledged: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    ) as writer:
        assert writer.stdout is not None
        seen = [writer.stdout.readline().strip() for _ in range(acknowledged)]
        writer.kill()
        seen += writer.stdout.read().splitlines()[:-1]  # the last line can be incomplete
    database = Database(tmp_path)
    book = database.load()
    database.close()
    assert {unit for unit in seen if unit} <= {each.unit for each in book}
    assert database.set_aside == []


def test_truncated_log_index_kills_the_daemon_without_losing_leases(tmp_path: Path) -> None:
    """SQLite maps the index, and without it no other process could read leases beside a daemon (log_index.py)."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    ) as writer:
        assert writer.stdout is not None
        seen = [writer.stdout.readline().strip() for _ in range(40)]
        os.truncate(tmp_path / f"{NAME}-shm", 0)
        seen += writer.stdout.read().splitlines()
    assert writer.returncode == -signal.SIGBUS
    database = Database(tmp_path)
    book = database.load()
    database.close()
    assert set(seen) <= {each.unit for each in book}
    assert database.set_aside == []


async def test_truncated_log_keeps_all_transactions_before_the_cut(tmp_path: Path) -> None:
    ledger = await opened(tmp_path / "live")
    for number in range(10):
        await ledger.grant([lease(f"u{number}")])
    shutil.copytree(tmp_path / "live", tmp_path / "copy")
    await ledger.close()
    size = (tmp_path / "copy" / f"{NAME}-wal").stat().st_size
    found = []
    for keep in range(0, size + 1, 1777):
        torn = shutil.copytree(tmp_path / "copy", tmp_path / f"torn-{keep}")
        os.truncate(torn / f"{NAME}-wal", keep)
        (torn / f"{NAME}-shm").unlink()
        database = Database(torn)
        units = [each.unit for each in database.load()]
        database.close()
        assert units == [f"u{number}" for number in range(len(units))]
        assert database.set_aside == []
        found.append(len(units))
    assert found == sorted(found)
    assert found[-1] >= 9
