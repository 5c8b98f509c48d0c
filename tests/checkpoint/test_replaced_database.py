"""Another program removes, replaces or overwrites the database, its log or the lock: no lease is lost."""

import contextlib
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpoint import Ledger, LedgerUnavailable, StateLocked, Withheld
from checkpoint.database import Database
from tests.checkpoint.build import PLACED, filled, lease, opened
from tests.checkpoint.node import Node
from tests.running import running, until

NAME = "ledger.sqlite3"


async def test_deleted_database_is_rewritten_completely(tmp_path: Path) -> None:
    ledger = await opened(tmp_path / "state")
    await ledger.grant([lease("a")])
    shutil.rmtree(tmp_path / "state")
    await ledger.grant([lease("c")])
    await ledger.close()
    again = await opened(tmp_path / "state")
    assert again.leases() == (lease("a"), lease("c"))
    await again.close()


@pytest.mark.parametrize("instead", [None, b"somebody's"], ids=["deleted", "replaced"])
async def test_deleted_or_replaced_log_is_rewritten(tmp_path: Path, instead: bytes | None) -> None:
    ledger = await opened(tmp_path / "state")
    await ledger.grant([lease("a")])
    log = tmp_path / "state" / f"{NAME}-wal"
    log.unlink()
    if instead is not None:
        log.write_bytes(instead)
    await ledger.grant([lease("b")])
    await ledger.end([lease("a")])
    await ledger.grant([lease("c")])
    shutil.copytree(tmp_path / "state", tmp_path / "killed")  # the files that the next daemon finds after a kill
    database = Database(tmp_path / "killed")
    assert tuple(database.load()) == (lease("b"), lease("c"))
    assert database.set_aside == []
    database.close()
    await ledger.close()


async def test_daemon_that_lost_the_lock_grants_nothing(tmp_path: Path) -> None:
    first = await opened(tmp_path)
    await first.grant([lease("a")])
    (tmp_path / "lock").unlink()  # an administrator took it for stale
    await first.grant([lease("b")])
    with pytest.raises(StateLocked):
        await opened(tmp_path)
    (tmp_path / "lock").unlink()
    second = await opened(tmp_path)
    await second.grant([lease("c")])
    with pytest.raises(LedgerUnavailable, match="another nodeplug uses this state directory"):
        await first.grant([lease("c", holder="pod/default/other/main")])
    await second.close()
    with pytest.raises(LedgerUnavailable, match="another nodeplug took over this state directory"):
        await first.grant([lease("d")])
    await first.close()
    again = await opened(tmp_path)
    assert again.leases() == (lease("a"), lease("b"), lease("c"))
    await again.close()


@pytest.mark.parametrize("place", PLACED.values(), ids=PLACED.keys())
async def test_other_file_in_place_of_the_database_is_replaced_or_refused(
    tmp_path: Path, place: Callable[[Path], object]
) -> None:
    """The target of a link is another program's file, and stays unchanged."""
    (tmp_path / "somebody").write_bytes(b"somebody's" * 1000)
    place(tmp_path / NAME)
    ledger = await opened(tmp_path)
    with contextlib.suppress(LedgerUnavailable):
        await ledger.grant([lease("a")])
    await ledger.close()
    assert (tmp_path / "somebody").read_bytes() == b"somebody's" * 1000
    path = tmp_path / NAME
    if path.is_symlink() or not path.is_file():
        path.rmdir() if path.is_dir() else path.unlink()
    again = await opened(tmp_path)
    await again.grant([lease("a")])
    assert again.leases() == (lease("a"),)
    await again.close()


async def test_sound_database_that_replaces_ours_is_set_aside(tmp_path: Path) -> None:
    ledger = await opened(tmp_path / "state")
    await ledger.grant([lease("a")])
    await filled(tmp_path / "backup", 2)
    for path in (tmp_path / "state").glob("ledger*"):
        path.unlink()
    shutil.copy(tmp_path / "backup" / NAME, tmp_path / "state" / NAME)
    await ledger.grant([lease("b")])
    (aside,) = ledger.set_aside
    assert aside.path.name.startswith(f"{NAME}.replaced-")
    with contextlib.closing(sqlite3.connect(aside.path)) as tool:
        assert tool.execute("SELECT unit FROM lease").fetchall() == [("u0",), ("u1",)]
    await ledger.close()
    again = await opened(tmp_path / "state")
    assert again.leases() == (lease("a"), lease("b"))
    await again.close()


@pytest.mark.parametrize("noticed", ["with a grant", "with a pass", "at the end"])
@pytest.mark.parametrize(("ours", "theirs"), [(3, 300), (30, 2), (300, 2)])
async def test_backup_copied_over_the_database_is_logged_and_loses_no_lease(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ours: int, theirs: int, noticed: str
) -> None:
    await filled(tmp_path / "backup", theirs)
    ledger = await opened(tmp_path / "state")
    ledger.is_complete = True
    node = Node(ledger)
    node.witnesses.list = None  # no lease ends
    await ledger.grant([lease(f"gpu-{number}") for number in range(ours)])
    for _ in range(20):  # until the log is copied into the database
        await ledger.withhold([Withheld("gpu-0", "", 100.0)])
        await ledger.readmit(["gpu-0"])
    shutil.copyfile(tmp_path / "backup" / NAME, tmp_path / "state" / NAME)
    if noticed == "with a grant":
        await ledger.grant([lease("another")])
    if noticed == "with a pass":
        async with running(node.reconciler.run()):
            await until(lambda: "another program removed or changed" in caplog.text)
    leases = ledger.leases()
    if noticed == "at the end":
        await ledger.close()
    shutil.copytree(tmp_path / "state", tmp_path / "killed")  # the files that the next daemon finds
    await ledger.close()
    again = await opened(tmp_path / "killed")
    assert (again.leases(), again.set_aside) == (leases, ())
    assert "another program removed or changed the lease database" in caplog.text
    await again.close()


async def test_directory_restored_with_its_timestamps_loses_no_lease(tmp_path: Path) -> None:
    state = tmp_path / "state"
    ledger = await opened(state)
    await ledger.grant([lease("a")])
    shutil.copytree(state, tmp_path / "backup")
    await ledger.grant([lease("b")])  # only in the log
    shutil.copytree(tmp_path / "backup", state, dirs_exist_ok=True)
    await ledger.grant([lease("c")])
    shutil.copytree(state, tmp_path / "killed")
    await ledger.close()
    again = await opened(tmp_path / "killed")
    assert again.leases() == (lease("a"), lease("b"), lease("c"))
    await again.close()


async def test_waiting_successor_is_not_taken_for_another_writer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger, waiting = await opened(tmp_path / "state"), Ledger(tmp_path / "state", "this-boot")
    await ledger.grant([lease("a")])
    await waiting.read()
    for unit in "bc":
        with pytest.raises(StateLocked):
            await waiting.take(0.0)
        await ledger.grant([lease(unit)])
    with pytest.raises(StateLocked):
        await waiting.take(0.0)
    await ledger.close()
    assert "another program removed or changed" not in caplog.text
    await waiting.take(0.0)
    assert waiting.leases() == (lease("a"), lease("b"), lease("c"))
    await waiting.close()
