"""Damaged files, disk errors, kills at any moment: the ledger opens, keeps acknowledged leases, reports damage."""

import asyncio
import contextlib
import fcntl
import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import structs

from checkpoint import Ledger, LedgerUnavailable, StateLocked, Withheld
from checkpoint.checksums import row_checksum
from checkpoint.database import Database
from checkpoint.migrations import APPLICATION_ID, CHECKSUMS_SINCE, LEASES_SINCE, MIGRATIONS
from tests.checkpoint.build import PLACED, lease, opened
from tests.checkpoint.flips import flip
from tests.checkpoint.node import Node
from tests.checkpoint.older import LEASED, OLDER, write_older
from tests.running import running, until

NAME = "ledger.sqlite3"


async def filled(directory: Path, count: int = 50) -> None:
    ledger = await opened(directory)
    await ledger.grant([lease(f"u{n}") for n in range(count)])
    await ledger.close()


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def tear(path: Path) -> None:
    os.truncate(path, 1000)  # inside the first page


def scribble(path: Path) -> None:
    path.write_bytes(b"\x07garbage" * 1000)


def scribble_inside(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))


def empty_beside_a_log(path: Path) -> None:
    path.write_bytes(b"")
    path.with_name(NAME + "-wal").write_bytes(b"\x37\x7f\x06\x82" + bytes(4000))


def lose_all_but_the_log(path: Path) -> None:
    empty_beside_a_log(path)
    path.unlink()


def edit(*statements: str) -> Callable[[Path], None]:
    def run(path: Path) -> None:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as tool:
            for statement in statements:
                tool.execute(statement)

    return run


def misspell(words: bytes, instead: bytes) -> Callable[[Path], None]:
    def run(path: Path) -> None:
        content = path.read_bytes()
        changed = re.sub(words, instead, content)
        assert len(changed) == len(content) != 0
        assert changed != content
        path.write_bytes(changed)

    return run


def nest(path: Path) -> None:
    """Write deeply nested JSON with valid checksums, as a program that edits rows could."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as tool:
        tool.create_function("row_checksum", -1, row_checksum)
        tool.execute("UPDATE lease SET exclusive = ? WHERE unit = 'u7'", ("[" * 100_000,))
        tool.execute(MIGRATIONS[CHECKSUMS_SINCE - 1].statements[1])


UNSOUND = {
    "truncated": (truncate, "corrupt"),
    "torn": (tear, "corrupt"),
    "garbage": (scribble, "corrupt"),
    "garbage inside": (scribble_inside, "corrupt"),
    "log without database": (lose_all_but_the_log, "corrupt"),
    "log with empty database": (empty_beside_a_log, "corrupt"),
    "nonsense in a row": (edit("UPDATE lease SET exclusive = 'x'"), "corrupt"),
    "lists in lists without end": (nest, "corrupt"),
    "text that is none": (edit("UPDATE lease SET holder = CAST(x'ff' AS TEXT)"), "corrupt"),
    "migrations not recorded": (edit("DELETE FROM migration"), "corrupt"),
    "unknown phase": (edit("UPDATE lease SET phase = 'maybe'"), "corrupt"),
    "record lost": (edit("PRAGMA foreign_keys = OFF", "DELETE FROM record"), "corrupt"),
    "table lost": (edit("DROP TABLE record"), "corrupt"),
    "another program's": (edit("PRAGMA application_id = 1"), "foreign"),
    "no program's": (edit("PRAGMA application_id = 0"), "foreign"),
    "another holder": (edit("UPDATE lease SET holder = 'pod/x/y/z' WHERE unit = 'u7'"), "corrupt"),
    "another record": (edit("UPDATE record SET body = x'00'"), "corrupt"),
    "text that is none in the schema": (misspell(b"CREATE INDEX", b"CREATE \xa0NDEX"), "corrupt"),
    "an index without a lease": (misspell(b"device-pluginu7(?!example)", b"device-pluginu_"), "corrupt"),
    "newer": (edit(f"INSERT INTO migration VALUES ({len(MIGRATIONS) + 1}, 'of the future', 0)"), "newer"),
}


@pytest.mark.parametrize(("damage", "label"), UNSOUND.values(), ids=UNSOUND.keys())
async def test_unsound_database_is_set_aside_and_replaced_by_a_new_one(
    tmp_path: Path, damage: Callable[[Path], None], label: str, caplog: pytest.LogCaptureFixture
) -> None:
    await filled(tmp_path)
    damage(tmp_path / NAME)
    before = [path.read_bytes() for path in sorted(tmp_path.iterdir()) if path.name != "lock"]
    ledger = await opened(tmp_path)
    (aside,) = ledger.set_aside
    await ledger.grant([lease("new")])
    await ledger.close()
    assert aside.path.name.startswith(f"{NAME}.{label}-")
    assert str(tmp_path / NAME) in caplog.text
    assert aside.reason in caplog.text
    assert [path.read_bytes() for path in sorted(tmp_path.iterdir()) if path.name not in (NAME, "lock")] == before
    again = await opened(tmp_path)
    assert (again.set_aside, again.leases()) == ((), (lease("new"),))
    await again.close()


async def test_altered_lease_is_named(tmp_path: Path) -> None:
    await filled(tmp_path)
    misspell(b"boot-1", b"boot-2")(tmp_path / NAME)
    with pytest.raises(
        LedgerUnavailable, match=r"the lease u\d+ of example.com/gpu \(device-plugin\) is not as it was"
    ):
        Database(tmp_path).peek()


async def test_flipped_bit_is_detected_or_changes_nothing(tmp_path: Path) -> None:
    """`python -m tests.fuzz ledger` flips more bits."""
    await filled(tmp_path / "whole", 12)
    (tmp_path / "copy").mkdir()
    source = random.Random(5)
    assert sum(flip(tmp_path / "whole", tmp_path / "copy", source) for _ in range(300)) > 20


async def test_databases_set_aside_in_one_second_have_different_names(tmp_path: Path) -> None:
    for _ in range(3):
        (tmp_path / NAME).write_bytes(b"garbage" * 1000)
        await (await opened(tmp_path)).close()
    assert len([path for path in tmp_path.iterdir() if "corrupt" in path.name]) == 3


@pytest.mark.parametrize("begun", [Path.touch, edit("PRAGMA journal_mode = WAL")], ids=["file", "header"])
async def test_interrupted_creation_is_a_new_ledger(tmp_path: Path, begun: Callable[[Path], None]) -> None:
    begun(tmp_path / NAME)
    ledger = await opened(tmp_path)
    assert ledger.set_aside == ()
    await ledger.grant([lease("a")])
    await ledger.close()


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


async def test_database_corrupted_while_in_use_is_replaced_from_memory(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    await ledger.grant([lease("a")])
    for path in tmp_path.iterdir():
        path.unlink()
    (tmp_path / NAME).write_bytes(b"garbage" * 1000)
    await ledger.grant([lease("b")])
    assert len(ledger.set_aside) == 1
    await ledger.close()
    again = await opened(tmp_path)
    assert again.leases() == (lease("a"), lease("b"))
    await again.close()


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
    tmp_path: Path,
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
    ledger = await opened(tmp_path / "state", again=0.01)
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


def test_new_database_counts_as_begun_empty_until_leases_are_restored(tmp_path: Path) -> None:
    database = Database(tmp_path)
    assert len(database.peek()) == 0
    assert len(database.load()) == 0
    assert database.began_empty
    database.close()
    database.close()
    again = Database(tmp_path)
    again.load()
    assert again.began_empty  # the first daemon died before it called note_restored
    again.note_restored()
    again.close()
    last = Database(tmp_path)
    last.load()
    assert not last.began_empty
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
