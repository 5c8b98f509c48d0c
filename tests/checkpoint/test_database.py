"""Disk errors, permissions, readers, older schemas: the ledger opens and recovers, and its errors say what to do."""

import asyncio
import contextlib
import fcntl
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from checkpoint import LedgerUnavailable
from checkpoint.database import Database
from checkpoint.migrations import APPLICATION_ID, LEASES_SINCE, MIGRATIONS
from tests.checkpoint.build import edit, filled, lease, opened
from tests.checkpoint.older import LEASED, OLDER, write_older
from tests.running import until

NAME = "ledger.sqlite3"


async def test_database_is_private_and_has_the_application_id(tmp_path: Path) -> None:
    await filled(tmp_path / "deep" / "state")
    assert (tmp_path / "deep" / "state").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "deep" / "state" / NAME).stat().st_mode & 0o777 == 0o600
    with contextlib.closing(sqlite3.connect(tmp_path / "deep" / "state" / NAME)) as tool:
        assert tool.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert tool.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_readable_database_is_made_private(tmp_path: Path) -> None:
    await filled(tmp_path)
    (tmp_path / NAME).chmod(0o644)  # as after a backup was restored
    await (await opened(tmp_path)).close()
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Limit the size of this process's files: the kernel refuses further writes, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, old)


async def test_failed_write_refuses_the_requests_and_the_next_one_succeeds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = await opened(tmp_path)
    await ledger.grant([lease("a")])
    with largest_file(1024):
        outcomes = await asyncio.gather(ledger.grant([lease("b")]), ledger.end([lease("a")]), return_exceptions=True)
    assert all(isinstance(outcome, LedgerUnavailable) for outcome in outcomes)
    assert str(outcomes[0]).startswith(f"cannot write the lease database {tmp_path / NAME}: ")
    assert str(outcomes[0]).endswith("; Allocate and NodePrepareResources are refused until this is fixed")
    assert ledger.leases() == (lease("a"),)
    await ledger.grant([lease("b")])
    assert "another program" not in caplog.text
    await ledger.close()
    again = await opened(tmp_path)
    assert again.leases() == (lease("a"), lease("b"))
    await again.close()


def remount(mount: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(mount)], check=True)


async def test_read_only_disk_refuses_grants_and_recovers(small_disk: Path) -> None:
    await filled(small_disk / "state", 1)
    remount(small_disk, "ro")
    ledger = await opened(small_disk / "state")
    assert [each.unit for each in ledger.leases()] == ["u0"]
    with pytest.raises(LedgerUnavailable, match="Read-only file system"):
        await ledger.grant([lease("a")])
    remount(small_disk, "rw")
    await ledger.grant([lease("a")])
    assert [each.unit for each in ledger.leases()] == ["u0", "a"]
    await ledger.close()


async def test_renewals_do_not_lengthen_the_log(tmp_path: Path) -> None:
    """Renewals do not lengthen the database, so only their number makes it due."""
    ledger = await opened(tmp_path)
    await ledger.grant([lease("a")])
    for number in range(200):
        await ledger.grant([lease("a", granted_at=float(number))])
    assert (tmp_path / f"{NAME}-wal").stat().st_size < 300_000  # 200 commits need 800 kB
    await ledger.close()


async def test_pages_added_by_a_grant_are_checkpointed(tmp_path: Path) -> None:
    """Others could take the space that the database needs for them."""
    ledger = await opened(tmp_path)
    before = (tmp_path / NAME).stat().st_size
    await ledger.grant([lease(f"u{number}") for number in range(500)])
    await until(lambda: (tmp_path / NAME).stat().st_size > before)
    await ledger.close()


def test_log_is_shortened_after_many_large_commits(tmp_path: Path) -> None:
    """A log that is reused keeps its length."""
    database = Database(tmp_path)
    book = database.load()
    many = [lease(f"u{number}") for number in range(200)]
    for _ in range(12):
        database.write(book, [book.grant(many)])
        database.write(book, [book.end(x.key for x in many)])
    log = tmp_path / f"{NAME}-wal"
    assert log.stat().st_size > 1_000_000
    database.compact_log()
    database.write(book, [book.grant([lease("a")])])
    assert log.stat().st_size < 600_000
    database.close()
    database.compact_log()  # does nothing after the end


def test_check_writes_all_leases_into_the_database(tmp_path: Path) -> None:
    """Others could take the space that it needs for what is only in the log."""
    database = Database(tmp_path)
    book = database.load()
    before = database.path.stat().st_size
    book.grant([lease(f"u{number}") for number in range(500)])
    database.check(book)
    assert database.path.stat().st_size > before
    database.close()


def test_database_in_place_is_not_written_again(tmp_path: Path) -> None:
    database = Database(tmp_path)
    book = database.load()
    database.write(book, [book.grant([lease("a")])])
    before = (tmp_path / f"{NAME}-wal").read_bytes()
    database.rewrite_if_replaced(book)
    assert (tmp_path / f"{NAME}-wal").read_bytes() == before
    database.close()


def test_nothing_is_left_open_when_the_database_is_opened_again(tmp_path: Path) -> None:
    def descriptors() -> int:
        links = (Path(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd"))
        return sum(os.readlink(link).startswith(str(tmp_path)) for link in links if link.is_symlink())

    database = Database(tmp_path)
    book = database.load()
    before = descriptors()
    for unit in "abc":
        for path in tmp_path.glob("ledger*"):
            path.unlink()
        database.write(book, [book.grant([lease(unit)])])
    assert descriptors() == before
    database.note_restored()
    database.note_restored()  # its file is gone
    database.close()
    assert descriptors() == 0


async def test_log_without_index_is_an_error_on_a_read_only_disk(small_disk: Path) -> None:
    """SQLite cannot read the log without an index. The database alone has fewer leases."""
    await filled(small_disk / "state", 1)
    ledger = await opened(small_disk / "state")
    await ledger.grant([lease("a")])
    killed = small_disk / "killed"
    killed.mkdir()
    for name in (NAME, f"{NAME}-wal"):
        shutil.copy(small_disk / "state" / name, killed)
    await ledger.close()
    remount(small_disk, "ro")
    with pytest.raises(LedgerUnavailable, match="cannot read the lease database"):
        Database(killed).peek()
    remount(small_disk, "rw")
    assert [each.unit for each in Database(killed).peek()] == ["u0", "a"]


async def test_requests_are_refused_until_the_directory_can_be_created(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the directory should be")
    ledger = await opened(tmp_path / "state")
    assert ledger.leases() == ()
    with pytest.raises(LedgerUnavailable, match=r"File exists \(.*state\)"):
        await ledger.grant([lease("a")])
    (tmp_path / "state").unlink()
    await ledger.grant([lease("a")])
    assert ledger.leases() == (lease("a"),)
    await ledger.close()


async def test_recovered_disk_is_noticed_without_a_request(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "state").write_text("a file where the directory should be")
    ledger = await opened(tmp_path / "state", retry_interval=0.01)
    assert "cannot open the lease database" in ledger.problem
    (error,) = caplog.records
    assert error.__dict__["is_current"]()
    (tmp_path / "state").unlink()
    await until(lambda: not ledger.problem)
    assert not error.__dict__["is_current"]()
    await ledger.grant([lease("a")])
    await ledger.close()


async def test_directory_without_write_permission_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o500)
    if os.access(tmp_path / "state", os.W_OK):
        pytest.skip("this user may write everywhere")
    ledger = await opened(tmp_path / "state")
    with pytest.raises(LedgerUnavailable, match=r"Permission denied|writable for user"):
        await ledger.grant([lease("a")])
    await ledger.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
async def test_directory_of_another_user_is_reported_with_the_required_owner(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    tmp_path.chmod(0o700)
    os.seteuid(65534)
    try:
        ledger = await opened(tmp_path / "state")
        problem = ledger.problem
        await ledger.close()
    finally:
        os.seteuid(0)
    assert "/state); it must belong to user 65534, which nodeplug runs as" in problem


async def test_database_locked_by_a_tool_refuses_grants_until_unlocked(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    tool = sqlite3.connect(tmp_path / NAME, isolation_level=None)
    tool.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerUnavailable, match="another program has locked it"):
        await ledger.grant([lease("a")])
    tool.execute("ROLLBACK")
    tool.close()
    await ledger.grant([lease("a")])
    await ledger.close()


def test_new_database_counts_as_begun_empty_until_leases_are_restored(tmp_path: Path) -> None:
    database = Database(tmp_path)
    assert len(database.peek()) == 0
    assert len(database.load()) == 0
    assert database.was_empty
    database.close()
    database.close()
    again = Database(tmp_path)
    again.load()
    assert again.was_empty  # the first daemon died before it called note_restored
    again.note_restored()
    again.close()
    last = Database(tmp_path)
    last.load()
    assert not last.was_empty
    last.close()


async def test_reader_needs_no_lock_and_does_not_disturb_the_writer(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    await ledger.grant([lease("a")])
    assert [each.unit for each in Database(tmp_path).peek()] == ["a"]
    await ledger.grant([lease("b")])
    assert [each.unit for each in Database(tmp_path).peek()] == ["a", "b"]
    await ledger.close()
    assert [each.unit for each in Database(tmp_path).peek()] == ["a", "b"]
    edit(f"INSERT INTO migration VALUES ({len(MIGRATIONS) + 1}, 'of the future', 0)")(tmp_path / NAME)
    with pytest.raises(LedgerUnavailable, match=r"cannot read the lease database.*schema version"):
        Database(tmp_path).peek()


@pytest.mark.parametrize("version", OLDER)
async def test_database_of_an_older_schema_keeps_its_leases(tmp_path: Path, version: int) -> None:
    write_older(tmp_path, version)
    if version >= LEASES_SINCE:
        assert {(each.api, each.unit) for each in Database(tmp_path).peek()} == LEASED  # while the older program runs
    for _ in range(2):
        ledger = await opened(tmp_path)
        assert {(each.api, each.unit) for each in ledger.leases()} == LEASED
        assert ledger.set_aside == ()
        await ledger.update([structs.replace(each, pods=frozenset("p")) for each in ledger.leases()])
        await ledger.close()


async def test_readable_directory_is_made_private_and_foreign_locks_are_ignored(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o755)
    squatter = os.open(state, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(squatter, fcntl.LOCK_SH)
    ledger = await opened(state)
    assert state.stat().st_mode & 0o777 == 0o700
    assert all(x.stat().st_mode & 0o077 == 0 for x in state.iterdir())
    await ledger.close()
    os.close(squatter)
