"""Units of pods that were deleted by force stay unlisted when the daemon restarts."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from checkpoint import Lease, Ledger
from nodeplug.unlisted_record import FILE_NAME, UnlistedRecord
from tests.checkpoint.build import lease, opened
from tests.running import running, until

HELD = lease("misc-kvm", "example.com/kvm", holder="pod/x/y/z", pods="u1")


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    found = await opened(tmp_path / "state")
    await found.grant([HELD])
    yield found
    await found.close()


def restored(ledger: Ledger, state: Path) -> tuple[Lease, ...]:
    """The units that the next daemon restores."""
    ledger.unlisted.remove([HELD])
    UnlistedRecord(ledger, state).restore()
    return ledger.unlisted.leases()


async def recorded(ledger: Ledger, state: Path) -> None:
    """Unlist the unit, and wait until that is recorded."""
    async with running(UnlistedRecord(ledger, state).run()):
        ledger.unlisted.add([HELD])
        await until((state / FILE_NAME).exists)


async def test_recorded_unit_is_unlisted_again(ledger: Ledger, tmp_path: Path) -> None:
    await recorded(ledger, tmp_path)
    assert restored(ledger, tmp_path) == (HELD,)


@pytest.mark.parametrize(
    "now",
    [replace(HELD, pods=frozenset({"u2"})), replace(HELD, pods=frozenset()), replace(HELD, boot_id="boot-2"), None],
    ids=["another pod's", "an unknown pod's", "another boot", "none"],
)
async def test_unit_is_not_restored_with_another_lease(ledger: Ledger, tmp_path: Path, now: Lease | None) -> None:
    await recorded(ledger, tmp_path)
    await ledger.end([HELD])
    await ledger.grant([now] if now is not None else [], guarded=False)
    assert restored(ledger, tmp_path) == ()


@pytest.mark.parametrize(
    "place",
    [
        Path.mkdir,
        Path.touch,
        lambda path: path.write_bytes(b'[{"unit": "\xff"}]'),
        lambda path: path.write_bytes(b'[{"other": ' + b"[" * 100_000),
    ],
    ids=["a folder", "an empty file", "no text", "too deep"],
)
async def test_unreadable_record_restores_nothing(
    ledger: Ledger, tmp_path: Path, place: Callable[[Path], object]
) -> None:
    place(tmp_path / FILE_NAME)
    assert restored(ledger, tmp_path) == ()


async def test_unit_that_an_older_daemon_gave_to_another_pod_is_listed(ledger: Ledger, tmp_path: Path) -> None:
    """The next daemon reads the leases and the record before it owns the ledger."""
    await recorded(ledger, tmp_path)
    following = Ledger(tmp_path / "state", "boot-1")
    await following.read()
    record = UnlistedRecord(following, tmp_path)
    record.restore()
    assert following.unlisted.leases() == (HELD,)
    await ledger.end([HELD])
    await ledger.grant([replace(HELD, holder="pod/x/other/z", pods=frozenset({"u2"}))], guarded=False)
    await ledger.close()
    await following.take()
    record.restore()
    assert following.unlisted.leases() == ()
    await following.close()


async def test_record_stays_until_the_leases_are_known(ledger: Ledger, tmp_path: Path) -> None:
    """The ledger cannot be read when the next daemon takes it, and nothing is lost."""
    await recorded(ledger, tmp_path)
    await ledger.close()
    database = tmp_path / "state" / "ledger.sqlite3"
    database.rename(tmp_path / "moved")
    database.mkdir()
    found = Ledger(tmp_path / "state", "boot-1")
    await found.take()
    record = UnlistedRecord(found, tmp_path)
    record.restore()
    async with running(record.run()):
        assert not found.unlisted.leases()
        database.rmdir()
        (tmp_path / "moved").rename(database)
        await found.load()
        await until(found.unlisted.leases)
    assert found.unlisted.leases() == (HELD,)
    await found.close()


async def test_failed_write_is_reported_once_and_repeated(
    ledger: Ledger, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodeplug.unlisted_record.RETRY", 0.01)
    (tmp_path / FILE_NAME).mkdir()
    ledger.unlisted.add([HELD])
    record = UnlistedRecord(ledger, tmp_path)
    async with running(record.run()):
        ledger.unlisted.remove([HELD])
        ledger.unlisted.add([HELD])
        await until(lambda: caplog.records)
        failed_at = tmp_path.stat().st_mtime_ns
        await until(lambda: tmp_path.stat().st_mtime_ns != failed_at)  # by the temporary file of the next attempt
        await until(lambda: not list(tmp_path.glob(".*.tmp")))
        (warning,) = caplog.records
        assert warning.getMessage().startswith("units of pods that were deleted by force are not remembered")
        assert warning.__dict__["is_current"]()
        (tmp_path / FILE_NAME).rmdir()
        await until((tmp_path / FILE_NAME).exists)
        await until(lambda: not warning.__dict__["is_current"]())
    assert caplog.records == [warning]
