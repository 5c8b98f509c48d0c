"""Files that are not sound, disks that refuse, a kill at any moment: the ledger comes up, keeps its word, says so."""

import asyncio
import contextlib
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from checkpoint import Ledger, LedgerUnavailable
from checkpoint.database import Database, State
from checkpoint.lease import Book
from checkpoint.migrations import APPLICATION_ID, MIGRATIONS
from tests.checkpoint.test_lease import lease

NAME = "ledger.sqlite3"


async def filled(directory: Path, count: int = 50) -> None:
    ledger = await Ledger.open(directory, "boot-1")
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


UNSOUND = {
    "truncated": (truncate, "corrupt"),
    "torn": (tear, "corrupt"),
    "garbage": (scribble, "corrupt"),
    "garbage inside": (scribble_inside, "corrupt"),
    "log without database": (lose_all_but_the_log, "corrupt"),
    "log with empty database": (empty_beside_a_log, "corrupt"),
    "nonsense in a row": (edit("UPDATE lease SET occupies = 'x'"), "corrupt"),
    "text that is none": (edit("UPDATE lease SET holder = CAST(x'ff' AS TEXT)"), "corrupt"),
    "migrations not recorded": (edit("DELETE FROM migration"), "corrupt"),
    "unknown phase": (edit("UPDATE lease SET phase = 'maybe'"), "corrupt"),
    "answer lost": (edit("DELETE FROM answer"), "corrupt"),
    "table lost": (edit("DROP TABLE withheld"), "corrupt"),
    "another program's": (edit("PRAGMA application_id = 1"), "foreign"),
    "no program's": (edit("PRAGMA application_id = 0"), "foreign"),
    "newer": (edit(f"INSERT INTO migration VALUES ({len(MIGRATIONS) + 1}, 'of the future', 0)"), "newer"),
}


@pytest.mark.parametrize(("damage", "label"), UNSOUND.values(), ids=UNSOUND.keys())
async def test_a_file_that_is_not_sound_is_set_aside_whole_and_a_new_one_works(
    tmp_path: Path, damage: Callable[[Path], None], label: str, caplog: pytest.LogCaptureFixture
) -> None:
    await filled(tmp_path)
    damage(tmp_path / NAME)
    before = [path.read_bytes() for path in sorted(tmp_path.iterdir())]
    ledger = await Ledger.open(tmp_path, "boot-1")
    (aside,) = ledger.set_aside
    await ledger.grant([lease("new")])
    await ledger.close()
    assert aside.path.name.startswith(f"{NAME}.{label}-")
    assert str(tmp_path / NAME) in caplog.text
    assert aside.reason in caplog.text
    assert [path.read_bytes() for path in sorted(tmp_path.iterdir()) if path.name != NAME] == before
    again = await Ledger.open(tmp_path, "boot-1")
    assert (again.set_aside, again.leases()) == ((), (lease("new"),))
    await again.close()


async def test_several_files_set_aside_in_one_second_keep_names_of_their_own(tmp_path: Path) -> None:
    for _ in range(3):
        (tmp_path / NAME).write_bytes(b"garbage" * 1000)
        await (await Ledger.open(tmp_path, "boot-1")).close()
    assert len([path for path in tmp_path.iterdir() if "corrupt" in path.name]) == 3


@pytest.mark.parametrize("begun", [Path.touch, edit("PRAGMA journal_mode = WAL")], ids=["file", "header"])
async def test_a_creation_that_was_cut_off_is_a_new_ledger(tmp_path: Path, begun: Callable[[Path], None]) -> None:
    begun(tmp_path / NAME)
    ledger = await Ledger.open(tmp_path, "boot-1")
    assert ledger.set_aside == ()
    await ledger.grant([lease("a")])
    await ledger.close()


async def test_the_file_is_ours_alone_and_says_what_it_is(tmp_path: Path) -> None:
    await filled(tmp_path / "deep" / "state")
    assert (tmp_path / "deep" / "state").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "deep" / "state" / NAME).stat().st_mode & 0o777 == 0o600
    with contextlib.closing(sqlite3.connect(tmp_path / "deep" / "state" / NAME)) as tool:
        assert tool.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert tool.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_a_database_that_was_deleted_while_in_use_is_written_again_in_full(tmp_path: Path) -> None:
    ledger = await Ledger.open(tmp_path / "state", "boot-1")
    await ledger.grant([lease("a")])
    await ledger.withhold("b", "why")
    shutil.rmtree(tmp_path / "state")
    await ledger.grant([lease("c")])
    await ledger.close()
    again = await Ledger.open(tmp_path / "state", "boot-1")
    assert again.leases() == (lease("a"), lease("c"))
    assert [each.device for each in again.withheld()] == ["b"]
    await again.close()


async def test_a_database_that_rots_while_in_use_is_replaced_from_memory(tmp_path: Path) -> None:
    ledger = await Ledger.open(tmp_path, "boot-1")
    await ledger.grant([lease("a")])
    for path in tmp_path.iterdir():
        path.unlink()
    (tmp_path / NAME).write_bytes(b"garbage" * 1000)
    await ledger.grant([lease("b")])
    assert len(ledger.set_aside) == 1
    await ledger.close()
    again = await Ledger.open(tmp_path, "boot-1")
    assert again.leases() == (lease("a"), lease("b"))
    await again.close()


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond `size` bytes: the kernel refuses the write, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, old)


async def test_a_write_that_the_kernel_refuses_is_refused_in_words_and_the_next_request_tries_again(
    tmp_path: Path,
) -> None:
    ledger = await Ledger.open(tmp_path, "boot-1")
    await ledger.grant([lease("a")])
    with largest_file((tmp_path / f"{NAME}-wal").stat().st_size):
        outcomes = await asyncio.gather(ledger.grant([lease("b")]), ledger.withhold("x", "why"), return_exceptions=True)
    assert all(isinstance(outcome, LedgerUnavailable) for outcome in outcomes)
    assert str(outcomes[0]).startswith(f"no lease can be recorded in {tmp_path / NAME}: ")
    assert str(outcomes[0]).endswith("; nothing is handed out until it can")
    assert (ledger.leases(), ledger.withheld()) == ((lease("a"),), ())
    await ledger.grant([lease("b")])
    await ledger.close()
    again = await Ledger.open(tmp_path, "boot-1")
    assert again.leases() == (lease("a"), lease("b"))
    await again.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "disk"
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(mount)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    yield mount
    subprocess.run(["umount", "--lazy", str(mount)], check=True)


def remount(mount: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(mount)], check=True)


def fill(mount: Path) -> Path:
    rest = mount / "rest"
    with rest.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(512))
    return rest


async def test_a_full_disk_refuses_before_the_answer_and_recovers(small_disk: Path) -> None:
    ledger = await Ledger.open(small_disk / "state", "boot-1")
    await ledger.grant([lease("a")])
    rest = fill(small_disk)
    with pytest.raises(LedgerUnavailable, match="disk is full, free some space"):
        await ledger.grant([lease(f"u{n}") for n in range(2000)])
    assert ledger.leases() == (lease("a"),)
    rest.unlink()
    await ledger.grant([lease("b")])
    await ledger.close()
    again = await Ledger.open(small_disk / "state", "boot-1")
    assert again.leases() == (lease("a"), lease("b"))
    await again.close()


async def test_a_start_on_a_full_disk_waits_for_space_instead_of_dying(small_disk: Path) -> None:
    await filled(small_disk / "state", 1)
    rest = fill(small_disk)
    ledger = await Ledger.open(small_disk / "state", "boot-1")
    with pytest.raises(LedgerUnavailable):
        await ledger.grant([lease(f"v{n}") for n in range(2000)])
    rest.unlink()
    await ledger.grant([lease("v")])
    assert [each.unit for each in ledger.leases()] == ["u0", "v"]
    await ledger.close()


async def test_a_disk_that_becomes_read_only_refuses_and_recovers(small_disk: Path) -> None:
    await filled(small_disk / "state", 1)
    remount(small_disk, "ro")
    ledger = await Ledger.open(small_disk / "state", "boot-1")
    with pytest.raises(LedgerUnavailable, match="make the directory and the file writable for user"):
        await ledger.grant([lease("a")])
    remount(small_disk, "rw")
    await ledger.grant([lease("a")])
    assert [each.unit for each in ledger.leases()] == ["u0", "a"]
    await ledger.close()


async def test_a_directory_that_cannot_be_made_refuses_each_request_until_it_can(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the directory should be")
    ledger = await Ledger.open(tmp_path / "state", "boot-1")
    assert (ledger.leases(), ledger.withheld()) == ((), ())
    with pytest.raises(LedgerUnavailable, match=r"File exists \(.*state\)"):
        await ledger.grant([lease("a")])
    (tmp_path / "state").unlink()
    await ledger.grant([lease("a")])
    assert ledger.leases() == (lease("a"),)
    await ledger.close()


async def test_a_directory_without_permission_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o500)
    if os.access(tmp_path / "state", os.W_OK):
        pytest.skip("this user may write everywhere")
    ledger = await Ledger.open(tmp_path / "state", "boot-1")
    with pytest.raises(LedgerUnavailable, match=r"Permission denied|writable for user"):
        await ledger.grant([lease("a")])
    await ledger.close()


async def test_a_tool_that_holds_the_file_delays_but_does_not_break(tmp_path: Path) -> None:
    ledger = await Ledger.open(tmp_path, "boot-1")
    tool = sqlite3.connect(tmp_path / NAME, isolation_level=None)
    tool.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerUnavailable, match="another program holds it"):
        await ledger.grant([lease("a")])
    tool.execute("ROLLBACK")
    tool.close()
    await ledger.grant([lease("a")])
    await ledger.close()


WRITER = """
import asyncio, sys
from pathlib import Path
from checkpoint import Ledger
from tests.checkpoint.test_lease import lease

async def main() -> None:
    ledger = await Ledger.open(Path(sys.argv[1]), "boot-1")
    async def caller(name: str) -> None:
        for number in range(100_000):
            await ledger.grant([lease(f"{name}-{number}")])
            print(f"{name}-{number}", flush=True)
    await asyncio.gather(*(caller(name) for name in "abc"))

asyncio.run(main())
"""


@pytest.mark.parametrize("acknowledged", [0, 1, 2, 7, 40, 400])
def test_killed_at_any_moment_every_acknowledged_lease_is_there(tmp_path: Path, acknowledged: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    ) as writer:
        assert writer.stdout is not None
        seen = [writer.stdout.readline().strip() for _ in range(acknowledged)]
        writer.kill()
        seen += writer.stdout.read().splitlines()[:-1]  # the last line may be torn
    database = Database(tmp_path)
    state = database.load()
    database.close()
    assert {unit for unit in seen if unit} <= {each.unit for each in state.book}
    assert database.set_aside == []


async def test_a_log_torn_at_any_place_keeps_all_transactions_before_it(tmp_path: Path) -> None:
    ledger = await Ledger.open(tmp_path / "live", "boot-1")
    for number in range(10):
        await ledger.grant([lease(f"u{number}", since=float(number))])
    shutil.copytree(tmp_path / "live", tmp_path / "copy")
    await ledger.close()
    size = (tmp_path / "copy" / f"{NAME}-wal").stat().st_size
    found = []
    for keep in range(0, size + 1, 1777):
        torn = shutil.copytree(tmp_path / "copy", tmp_path / f"torn-{keep}")
        os.truncate(torn / f"{NAME}-wal", keep)
        (torn / f"{NAME}-shm").unlink()
        database = Database(torn)
        units = [each.unit for each in database.load().book]
        database.close()
        assert units == [f"u{number}" for number in range(len(units))]
        assert database.set_aside == []
        found.append(len(units))
    assert found == sorted(found)
    assert found[-1] >= 9


def test_the_state_is_empty_at_first(tmp_path: Path) -> None:
    database = Database(tmp_path)
    assert database.load() == State(Book(), {})
    database.close()
    database.close()
