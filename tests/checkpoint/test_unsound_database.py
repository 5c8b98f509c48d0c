"""Damaged, foreign and newer databases are set aside, never deleted, and replaced by a new one."""

import contextlib
import os
import random
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpoint import LedgerUnavailable
from checkpoint.checksums import row_checksum
from checkpoint.database import Database
from checkpoint.migrations import CHECKSUMS_SINCE, MIGRATIONS
from tests.checkpoint.build import edit, filled, lease, opened
from tests.checkpoint.flips import flip

NAME = "ledger.sqlite3"


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def truncate_page(path: Path) -> None:
    os.truncate(path, 1000)  # inside the first page


def corrupt_header(path: Path) -> None:
    path.write_bytes(b"\x07garbage" * 1000)


def corrupt_middle(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))


def empty_beside_a_log(path: Path) -> None:
    path.write_bytes(b"")
    path.with_name(NAME + "-wal").write_bytes(b"\x37\x7f\x06\x82" + bytes(4000))


def remove_all_but_the_log(path: Path) -> None:
    empty_beside_a_log(path)
    path.unlink()


def replace_bytes(words: bytes, instead: bytes) -> Callable[[Path], None]:
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
    "torn": (truncate_page, "corrupt"),
    "garbage": (corrupt_header, "corrupt"),
    "garbage inside": (corrupt_middle, "corrupt"),
    "log without database": (remove_all_but_the_log, "corrupt"),
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
    "text that is none in the schema": (replace_bytes(b"CREATE INDEX", b"CREATE \xa0NDEX"), "corrupt"),
    "an index without a lease": (replace_bytes(b"device-pluginu7(?!example)", b"device-pluginu_"), "corrupt"),
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
    replace_bytes(b"boot-1", b"boot-2")(tmp_path / NAME)
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
