"""Disks that become full at any moment: leases can still end, and no lease ends without a reason."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import structs

from checkpoint import Lease, LedgerUnavailable
from checkpoint.database import Database
from tests.checkpoint.build import claimed, lease, opened
from tests.small_disk import fill, mounted, mounted_ext4, take_all_names


async def test_full_disk_refuses_grants_and_recovers(small_disk: Path) -> None:
    ledger = await opened(small_disk / "state")
    await ledger.grant([lease("a")])
    rest = fill(small_disk)
    with pytest.raises(LedgerUnavailable, match="disk is full; free some space"):
        await ledger.grant([lease(f"u{n}") for n in range(2000)])
    assert ledger.leases() == (lease("a"),)
    rest.unlink()
    await ledger.grant([lease("b")])
    await ledger.close()
    again = await opened(small_disk / "state")
    assert again.leases() == (lease("a"), lease("b"))
    await again.close()


async def test_ledger_opens_on_a_full_disk_and_grants_once_there_is_space(small_disk: Path) -> None:
    ledger = await opened(small_disk / "state")
    await ledger.grant([lease("u0")])
    await ledger.close()
    rest = fill(small_disk)
    ledger = await opened(small_disk / "state")
    with pytest.raises(LedgerUnavailable):
        await ledger.grant([lease(f"v{n}") for n in range(2000)])
    rest.unlink()
    await ledger.grant([lease("v")])
    assert [each.unit for each in ledger.leases()] == ["u0", "v"]
    await ledger.close()


async def test_end_of_a_lease_does_not_clear_the_full_disk_problem(small_disk: Path) -> None:
    ledger = await opened(small_disk / "state")
    await ledger.grant([lease("a")])
    rest = fill(small_disk)
    (small_disk / "state" / "reserve").unlink()
    fill(small_disk)
    with pytest.raises(LedgerUnavailable, match="disk is full; free some space"):
        await ledger.grant([lease("b")])
    rest.unlink()
    (small_disk / "others").write_bytes(bytes(1100 * 1024))
    await ledger.end([lease("a")])
    assert "the disk is full; free some space" in ledger.problem
    await ledger.close()


@pytest.mark.parametrize("leases", [1, 3, 15, 40])
async def test_leases_end_on_a_small_full_disk(small_disk: Path, leases: int) -> None:
    ledger = await opened(small_disk / "state")
    for number in range(leases):
        await ledger.grant([claimed(f"u{number}", str(number))])
    rest = fill(small_disk)
    for number in range(leases):
        await ledger.end(ledger.of_owner(f"claim/{number}"))
    assert ledger.leases() == ()
    rest.unlink()
    await ledger.close()


@pytest.mark.parametrize("many", [200, 5000], ids=["granted", "refused"])
@pytest.mark.parametrize("restarts", [False, True], ids=["at once", "after a restart"])
async def test_leases_end_on_a_full_disk_after_a_large_grant(small_disk: Path, many: int, restarts: bool) -> None:
    ledger = await opened(small_disk / "state")
    for number in range(10):
        await ledger.grant([claimed(f"u{number}", str(number))])
    fill(small_disk)
    with contextlib.suppress(LedgerUnavailable) if many == 5000 else contextlib.nullcontext():
        await ledger.grant([lease(f"v{number}") for number in range(many)])
    fill(small_disk)  # the space that the refused grant freed
    if restarts:
        await ledger.close()
        fill(small_disk)
        ledger = await opened(small_disk / "state")
    for each in ledger.leases():
        await ledger.end([each])
    await ledger.close()
    again = await opened(small_disk / "state")
    assert (again.leases(), again.set_aside) == ((), ())
    await again.close()


@pytest.mark.parametrize("many", [1, 5000], ids=["no reserve", "no room"])
async def test_refused_grant_leaves_the_blocks_of_the_log(small_disk: Path, many: int) -> None:
    ledger = await opened(small_disk / "state")
    for number in range(10):
        await ledger.grant([lease(f"u{number}")])
    fill(small_disk)
    if many == 1:
        (small_disk / "state" / "reserve").unlink()  # as the end of another lease does
        fill(small_disk)
    with pytest.raises(LedgerUnavailable, match="the disk is full; free some space"):
        await ledger.grant([lease(f"v{number}") for number in range(many)])
    (small_disk / "state" / "reserve").unlink(missing_ok=True)
    fill(small_disk)
    for each in ledger.leases():
        await ledger.end([each])
    await ledger.close()
    again = await opened(small_disk / "state")
    assert again.leases() == ()
    await again.close()


def test_full_disk_problem_stays_while_only_the_reserve_is_free(small_disk: Path) -> None:
    database = Database(small_disk / "state")
    book = database.load()
    for first in range(0, 500, 50):
        database.write(book, [book.grant([lease(f"u{number}") for number in range(first, first + 50)])])
        database.compact_log()
    rest = fill(small_disk)
    with pytest.raises(LedgerUnavailable, match="the disk is full; free some space"):
        database.write(book, [change := book.grant([lease(f"v{number}") for number in range(5000)])])
    book.undo(change)
    with pytest.raises(LedgerUnavailable, match="the disk is full; free some space"):
        database.check(book)
    rest.unlink()
    database.check(book)
    database.close()
    assert tuple(Database(small_disk / "state").peek()) == tuple(book)


async def test_update_of_leases_does_not_use_the_reserve_for_their_ends(small_disk: Path) -> None:
    ledger = await opened(small_disk / "state")
    leases = [lease(f"u{number}") for number in range(1500)]
    await ledger.grant(leases)
    await ledger.grant([lease("a")])
    fill(small_disk)
    with pytest.raises(LedgerUnavailable, match="the disk is full; free some space"):
        await ledger.update([structs.replace(each, holder="pod/default/one/main" * 10) for each in leases])
    assert (small_disk / "state" / "reserve").is_file()
    await ledger.end(leases)
    await ledger.close()


async def test_lease_is_refused_without_space_for_its_end(small_disk: Path) -> None:
    (small_disk / "somebody").write_bytes(bytes(1500 * 1024))
    ledger = await opened(small_disk / "state")
    with pytest.raises(LedgerUnavailable, match="the disk is full; free some space"):
        await ledger.grant([lease("a")])
    (small_disk / "somebody").unlink()
    await ledger.grant([lease("a")])
    assert ledger.leases() == (lease("a"),)
    await ledger.close()


async def test_renewed_lease_needs_the_reserve_like_a_new_one(small_disk: Path) -> None:
    ledger = await opened(small_disk / "state")
    await ledger.grant([lease("a")])
    reserve = small_disk / "state" / "reserve"
    reserve.unlink()
    rest = fill(small_disk)
    with pytest.raises(LedgerUnavailable):
        await ledger.grant([again := lease("a", granted_at=200.0)])
    assert ledger.leases() == (lease("a"),)
    rest.unlink()
    await ledger.grant([again])
    assert ledger.leases() == (again,)
    assert reserve.is_file()
    await ledger.close()


async def test_database_deleted_on_a_full_disk_is_never_rewritten_partially(small_disk: Path) -> None:
    ledger = await opened(small_disk / "state")
    kept = [lease(f"u{number}") for number in range(500)]
    await ledger.grant(kept)
    for path in (small_disk / "state").glob("ledger*"):
        path.unlink()
    fill(small_disk)
    with contextlib.suppress(LedgerUnavailable):
        await ledger.grant([lease("a")])
    (small_disk / "rest").unlink()
    await ledger.grant([lease("b")])
    await ledger.close()
    again = await opened(small_disk / "state")
    assert {each.unit for each in again.leases()} >= {each.unit for each in (*kept, lease("b"))}
    await again.close()


class FullDisk:
    """A disk that other programs fill before and after each write of the ledger."""

    def __init__(self, disk: Path) -> None:
        self._disk = disk
        self.database = Database(disk / "state")
        self.book = self.database.load()

    def grant(self, leases: Sequence[Lease]) -> None:
        self.database.write(self.book, [self.book.grant(leases)])
        self._compact_log()

    def end(self, leases: Sequence[Lease]) -> None:
        fill(self._disk)
        self.database.write(self.book, [self.book.end([each.key for each in leases])])
        fill(self._disk)
        self._compact_log()

    def learn(self, holder: str) -> None:
        fill(self._disk)
        change = self.book.update([structs.replace(each, holder=holder) for each in self.book])
        try:
            self.database.write(self.book, [change])
        except LedgerUnavailable:
            self.book.undo(change)

    def restart(self) -> None:
        fill(self._disk)
        self.database.close()
        fill(self._disk)
        self.database = Database(self._disk / "state")
        self.book = self.database.load()

    def _compact_log(self) -> None:
        if self.database.needs_compaction:
            self.database.compact_log()


@pytest.mark.parametrize("restarts", [False, True], ids=["at once", "with restarts"])
@pytest.mark.parametrize("kind", ["tmpfs", "ext4", "ext4 with small blocks"])
def test_thousands_of_leases_end_while_the_disk_is_kept_full(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, restarts: bool
) -> None:
    answer = bytes(50_000)
    containers = [
        [lease(f"gpu-{number}-{container}", record=answer) for number in range(1000)] for container in range(4)
    ]
    block = 1024 if "small" in kind else 4096
    with mounted(tmp_path, "size=24m") if kind == "tmpfs" else mounted_ext4(tmp_path, 24, block) as disk:
        crowded = FullDisk(disk)
        for container in containers:
            crowded.grant(container)
        first, *others = containers
        for ended in (first[:1], first[1:100], first[100:], [x for each in others for x in each]):
            crowded.end(ended)
            crowded.learn("pod/default/one/main" * len(ended))
            if restarts:
                crowded.restart()
        crowded.restart()
        assert (tuple(crowded.book), crowded.database.set_aside) == ((), [])
        crowded.database.close()
    assert not caplog.text  # such as a warning that another program changed the database


def test_grant_is_refused_when_the_reserve_cannot_grow_with_the_ledger(tmp_path: Path) -> None:
    with mounted(tmp_path, "size=5m") as disk:
        database = Database(disk / "state")
        book = database.load()
        reserve, ledger = disk / "state" / "reserve", disk / "state" / "ledger.sqlite3"
        refusal = ""
        for number in range(20):
            kept = reserve.stat().st_size
            change = book.grant([lease(f"gpu-{number}-{each}") for each in range(500)])
            try:
                database.write(book, [change])
            except LedgerUnavailable as error:
                book.undo(change)
                refusal = str(error)
                break
            database.compact_log()
            assert reserve.stat().st_blocks * 512 > 2 * ledger.stat().st_size
        assert "the disk is full; free some space" in refusal
        assert reserve.stat().st_size == kept > 1 << 20
        database.close()
        assert tuple(Database(disk / "state").peek()) == tuple(book)


def test_partial_checkpoint_is_not_taken_for_another_writer(small_disk: Path) -> None:
    database = Database(small_disk / "state")
    book = database.load()
    database.write(book, [book.grant([lease(f"gpu-{number}") for number in range(300)])])
    before = database.path.stat()
    fill(small_disk)
    database.compact_log()  # writes what it has, but the disk has no room for the rest
    after = database.path.stat()
    assert (after.st_size, after.st_ctime_ns > before.st_ctime_ns) == (before.st_size, True)
    database.write(book, [book.update([structs.replace(next(iter(book)), holder="pod/default/one/main")])])
    database.close()
    assert tuple(Database(small_disk / "state").peek()) == tuple(book)


_ENDS_ONE = """
import sys
from pathlib import Path
from checkpoint.database import Database
database = Database(Path(sys.argv[1]))
database.peek()
book = database.load()
database.write(book, [book.end([next(iter(book)).key])])
database.close()
"""


@pytest.mark.parametrize("block", [1024, 2048])
def test_process_survives_small_blocks_and_little_space(tmp_path: Path, block: int) -> None:
    with mounted_ext4(tmp_path, 24, block) as disk:
        database = Database(disk / "state")
        book = database.load()
        database.write(book, [book.grant([lease(f"gpu-{number}") for number in range(20)])])
        database.close()
        free = (8, 24, 32, 40)
        for kibibytes in free:
            rest = fill(disk)
            os.truncate(rest, rest.stat().st_size - kibibytes * 1024)
            os.sync()
            done = subprocess.run(
                [sys.executable, "-c", _ENDS_ONE, disk / "state"], capture_output=True, text=True, check=False
            )
            assert (done.returncode, done.stderr) == (0, ""), f"{kibibytes} KiB free"
            rest.unlink()
        assert len(Database(disk / "state").peek()) == 20 - len(free)


async def test_log_index_with_small_blocks_has_no_holes(tmp_path: Path) -> None:
    with mounted_ext4(tmp_path, 24, 1024) as disk:
        for _ in range(2):
            ledger = await opened(disk / "state")
            index = (disk / "state" / "ledger.sqlite3-shm").stat()
            assert index.st_blocks * 512 == index.st_size
            await ledger.close()


async def test_leases_end_after_a_restart_without_free_inodes(tmp_path: Path) -> None:
    with mounted(tmp_path, "size=4m,nr_inodes=30") as disk:
        ledger = await opened(disk / "state")
        await ledger.grant([lease("a"), lease("b"), lease("c")])
        for unit in "ab":
            take_all_names(disk)
            await ledger.close()
            take_all_names(disk)
            ledger = await opened(disk / "state")
            take_all_names(disk)
            await ledger.end([lease(unit)])
            with pytest.raises(
                LedgerUnavailable, match="the file system has no room for another file; remove some files"
            ):
                await ledger.grant([lease("d")])
        for path in disk.glob("filler*"):
            path.unlink()
        await ledger.grant([lease("d")])
        assert (ledger.leases(), ledger.set_aside) == ((lease("c"), lease("d")), ())
        await ledger.close()
