"""Withheld devices: on disk, after restarts, in files of older programs, and on a disk that refuses writes."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import pytest

from checkpoint import Ledger, LedgerUnavailable, Withheld
from checkpoint.lease import Book
from checkpoint.migrations import MIGRATIONS, WITHHELD_SINCE, migrate
from checkpoint.withheld import MAX_WITHHELD, withheld_reason
from tests.checkpoint.build import lease, opened
from tests.checkpoint.test_database import largest_file

NAME = "ledger.sqlite3"
FAN = Withheld("gpu-0", "fan", 1.0)
USB = Withheld("usb-1", "", 2.0)


async def test_withheld_device_survives_restarts_and_keeps_its_time(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    seen: list[set[str]] = []
    ledger.observe_withheld(lambda: seen.append(set(ledger.withheld)))
    await ledger.withhold([FAN, USB])
    await ledger.withhold([Withheld("gpu-0", "noise", 9.0)])
    assert ledger.withheld["gpu-0"] == Withheld("gpu-0", "noise", 1.0)
    assert await ledger.readmit(["usb-1", "never"]) == (USB,)
    assert await ledger.readmit(["usb-1"]) == ()
    await ledger.close()
    assert seen[-1] == {"gpu-0"}
    again = Ledger(tmp_path, "boot-2")
    await again.read()
    assert again.withheld == {"gpu-0": Withheld("gpu-0", "noise", 1.0)}  # read before the ledger owns the directory
    await again.take()
    assert again.withheld == {"gpu-0": Withheld("gpu-0", "noise", 1.0)}
    await again.close()


async def test_failed_write_withholds_nothing_and_keeps_withheld_devices(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    await ledger.withhold([FAN])
    with largest_file(1024), pytest.raises(LedgerUnavailable):
        await ledger.withhold([USB])
    assert ledger.withheld == {"gpu-0": FAN}
    await ledger.withhold([USB])  # the file is written again completely
    await ledger.close()
    again = await opened(tmp_path)
    assert again.withheld == {"gpu-0": FAN, "usb-1": USB}
    await again.close()


async def test_concurrent_requests_do_not_exceed_the_limit_of_withheld_devices(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    await ledger.withhold([Withheld(f"gpu-{number}", "", 1.0) for number in range(MAX_WITHHELD - 1)])
    answers = await asyncio.gather(
        *(ledger.withhold([x]) for x in (FAN, USB, Withheld("nic", "", 1.0))), return_exceptions=True
    )
    assert [str(x) for x in answers if x] == [
        f"{MAX_WITHHELD} devices can be withheld; readmit some, or stop nodeplug on this node"
    ]
    assert ledger.withheld.keys() >= {"gpu-0", "usb-1"}
    await ledger.close()


async def test_database_without_the_withheld_table_is_read_and_migrated(tmp_path: Path) -> None:
    ledger = await opened(tmp_path)
    await ledger.grant([lease("a")])
    await ledger.close()
    with contextlib.closing(sqlite3.connect(tmp_path / NAME, isolation_level=None)) as tool:
        tool.execute("DROP TABLE withheld")
        tool.execute(f"DELETE FROM migration WHERE version = {WITHHELD_SINCE}")
    again = Ledger(tmp_path, "boot-1")
    await again.read()  # while the older program still owns the directory
    assert (again.leases(), again.withheld) == ((lease("a"),), {})
    await again.take()
    await again.withhold([FAN])
    await again.close()
    last = await opened(tmp_path)
    assert (last.leases(), last.withheld, last.set_aside) == ((lease("a"),), {"gpu-0": FAN}, ())
    await last.close()


def test_withheld_rows_of_schema_version_1_are_dropped() -> None:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection, MIGRATIONS[:1])
        connection.execute("INSERT INTO withheld VALUES ('gpu-0', 'fan', 1.0)")
        migrate(connection)
        assert connection.execute("SELECT * FROM withheld").fetchall() == []


def test_withhold_and_readmit_can_be_undone() -> None:
    book = Book((), [FAN])
    another_reason, more = book.withhold([Withheld("gpu-0", "noise", 9.0)]), book.withhold([USB])
    ended = book.readmit(["gpu-0", "usb-1", "never"])
    assert (book.withheld, bool(ended), bool(book.readmit(["gpu-0"]))) == ({}, True, False)
    for change in (ended, more, another_reason):
        book.undo(change)
    assert book.withheld == {"gpu-0": FAN}


def test_reason_names_the_withheld_device_unless_it_is_the_device_itself() -> None:
    known = {"gpu-0": FAN, "usb-1": USB}
    assert withheld_reason("gpu-0", {"usb-1"}, known) == "withheld: fan"
    assert withheld_reason("usb-1", (), known) == "withheld"
    assert withheld_reason("pair", {"gpu-0", "x"}, known) == "withheld with gpu-0: fan"
    assert withheld_reason("y", {"x"}, known) == withheld_reason("gpu-0", {"gpu-0"}, {}) == ""
