"""After a crash at any moment, no claim is half prepared, no file is stale, and no lease is lost."""

import asyncio
import contextlib
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.dra_plugin.preparing.world import UID, World, claim, ref, resource, result, uid

WANTED = claim(result("misc-fuse", "a"), result("misc-kvm", "b"))
FILES = [
    f"cdi/nodeplug-dra~nodeplug.dev~claim~{UID}.json",
    f"cdi/nodeplug-dra~nodeplug.dev~metadata~{UID}.json",
    f"plugin/dra-device-metadata/{UID}~a.json",
    f"plugin/dra-device-metadata/{UID}~b.json",
]
SOME_FILES = [(), *((path,) for path in FILES), tuple(FILES[:2]), tuple(FILES)]


def remove(world: World, files: tuple[str, ...]) -> None:
    for path in files:
        (world.folder / path).unlink()


async def write_intent(world: World) -> None:
    """Restore the leases to their state while the host was changed."""
    await world.ledger.grant([replace(lease, phase="intended") for lease in world.ledger.leases()])


@pytest.mark.parametrize("missing", SOME_FILES, ids=str)
async def test_crash_while_preparing_is_undone_at_start(world: World, missing: tuple[str, ...]) -> None:
    await world.prepare(WANTED)
    assert world.files() == FILES
    await write_intent(world)
    remove(world, missing)
    await world.restart()
    assert (world.units(), world.files()) == ([], [])
    await world.prepare(WANTED)
    assert world.files() == FILES


@pytest.mark.parametrize("missing", SOME_FILES, ids=str)
async def test_missing_files_of_a_prepared_claim_are_restored_at_start(world: World, missing: tuple[str, ...]) -> None:
    """This includes a crash while unpreparing, which removes files first: the kubelet's next call finds them again."""
    answer = await world.prepare(WANTED)
    before = {path: (world.folder / path).read_bytes() for path in FILES}
    remove(world, missing)
    await world.restart()
    assert {path: (world.folder / path).read_bytes() for path in world.files()} == before
    assert await world.prepare(WANTED) == answer
    await world.unprepare(WANTED)
    assert (world.units(), world.files()) == ([], [])


async def test_crash_after_the_leases_ended_leaves_no_files(world: World) -> None:
    await world.prepare(WANTED)
    await world.ledger.end(world.ledger.leases())
    (world.cdi / ".nodeplug-dra~x.json.12345678.tmp").write_text("{")
    (world.metadata / f".{UID}~a.json.12345678.tmp").write_text("{")
    (world.cdi / "nvidia.yaml").write_text("somebody's")
    await world.restart()
    assert world.files() == ["cdi/nvidia.yaml"]


async def test_half_prepared_claim_is_completed_or_undone_by_the_next_call(world: World) -> None:
    answer = await world.prepare(WANTED)
    await write_intent(world)
    assert await world.prepare(WANTED) == answer
    assert {lease.phase for lease in world.ledger.leases()} == {"done"}
    await write_intent(world)
    await world.unprepare(WANTED)
    assert (world.units(), world.files()) == ([], [])


async def test_specs_return_and_claims_are_prepared_again_after_a_reboot(world: World) -> None:
    answer = await world.prepare(WANTED)
    for path in world.cdi.iterdir():
        path.unlink()
    await world.restart("next-boot")
    assert world.files() == FILES
    assert await world.prepare(WANTED) == answer
    assert {lease.boot_id for lease in world.ledger.leases()} == {"next-boot"}
    await world.end()
    world.made_up.remove_node("fuse")
    await world.begin("third-boot")
    world.scan()
    assert "misc-fuse is not offered on this node any more" in await world.refusal(WANTED)
    assert world.units() == ["misc-fuse", "misc-kvm"]  # until the kubelet unprepares the claim


async def test_leases_and_files_of_another_version_are_kept(world: World) -> None:
    await world.prepare(WANTED)
    await world.ledger.grant([replace(lease, record=b"\x00") for lease in world.ledger.leases()])
    await world.restart()
    assert (world.units(), world.files()) == (["misc-fuse", "misc-kvm"], FILES)
    await world.prepare(WANTED)  # after a call of the kubelet, this version answers for the claim
    await world.ledger.grant([replace(x, record=b"\x00", phase="intended") for x in world.ledger.leases()])
    await world.restart()
    assert world.units() == []
    assert not list(world.cdi.iterdir())


async def test_directory_at_a_spec_path_affects_only_its_claim(world: World) -> None:
    other = claim(result("misc-kvm"), name="other", uid=uid(2))
    await world.prepare(claim(result("misc-fuse")))
    await world.prepare(other)
    remove(world, (FILES[0],))
    (world.folder / FILES[0]).mkdir()
    (world.folder / FILES[1].replace(UID, uid(2))).unlink()
    await world.restart()
    assert FILES[1].replace(UID, uid(2)) in world.files()
    assert "Is a directory" in await world.refusal(claim(result("misc-fuse")))
    (world.folder / FILES[0]).rmdir()
    await world.prepare(claim(result("misc-fuse")))


async def test_failed_undo_of_a_half_prepared_claim_is_retried(world: World) -> None:
    await world.prepare(claim(result("misc-fuse")))
    await world.prepare(claim(result("misc-kvm"), name="other", uid=uid(2)))
    await write_intent(world)
    remove(world, (FILES[0],))
    (world.folder / FILES[0]).mkdir()
    assert not await world.preparer.repair()
    assert world.units() == ["misc-fuse"]
    (world.folder / FILES[0]).rmdir()
    assert await world.preparer.repair()
    assert (world.units(), world.files()) == ([], [])


async def test_warning_about_a_partly_prepared_claim_lasts_until_it_is_prepared(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    (world.folder / FILES[0]).mkdir(parents=True)
    await world.refusal(WANTED)
    (warning,) = (x for x in caplog.records if "stays partly prepared" in x.getMessage())
    assert world.units()
    assert warning.__dict__["is_current"]()
    (world.folder / FILES[0]).rmdir()
    await world.prepare(WANTED)
    assert not warning.__dict__["is_current"]()


@pytest.mark.parametrize("turns", range(0, 40, 3))
async def test_stop_without_grace_at_any_turn_leaves_a_consistent_state(world: World, turns: int) -> None:
    """Interrupted work is completed or undone afterwards."""
    other = claim(result("misc-kvm"), name="other", uid=uid(2))
    first = await world.prepare(other)
    calls = [
        asyncio.create_task(world.outcomes(claim(result("misc-fuse")))),
        asyncio.create_task(world.failures(ref(other))),
    ]
    for _ in range(turns):
        await asyncio.sleep(0)
    await world.end(grace=0.0)
    await asyncio.gather(*calls, return_exceptions=True)
    await world.begin()
    assert {lease.phase for lease in world.ledger.leases()} <= {"done"}
    with_leases = {lease.owner.removeprefix("claim/") for lease in world.ledger.leases()}
    with_files = {path.split("~")[-1].removesuffix(".json") for path in os.listdir(world.cdi)}
    assert with_files == with_leases
    await world.prepare(claim(result("misc-fuse")))
    assert await world.prepare(other) == first


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "disk"
    mount.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(mount)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"no file system of its own: {made.stderr.strip()}")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


@pytest.mark.parametrize("full", ["cdi", "metadata"])
async def test_claim_is_refused_on_a_full_disk_and_leaves_nothing(world: World, small_disk: Path, full: str) -> None:
    if full == "cdi":
        world.cdi = small_disk / "cdi"
    else:
        world.metadata = small_disk / "metadata"
    await world.restart()
    (small_disk / "ballast").write_bytes(bytes(60 * 1024))
    with (small_disk / "rest").open("wb", buffering=0) as rest, contextlib.suppress(OSError):
        while rest.write(bytes(512)):
            pass
    assert "No space left on device" in await world.refusal(WANTED)
    assert world.units() == []
    assert not list(world.cdi.glob("*"))
    (small_disk / "ballast").unlink()
    await world.prepare(WANTED)


async def test_claim_is_refused_while_the_ledger_is_locked(world: World) -> None:
    (database,) = world.state.glob("*.sqlite3")
    with closing(sqlite3.connect(database, isolation_level=None)) as intruder:
        intruder.execute("begin exclusive")  # a locked file is as useless as a full disk
        assert "cannot write the lease database" in await world.refusal(WANTED)
        intruder.execute("rollback")
    assert (world.units(), world.files()) == ([], [])
    await world.prepare(WANTED)


async def test_nothing_is_undone_while_the_ledger_cannot_be_read(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        answer = await world.prepare(WANTED)
        await world.end()
        state, hidden = world.state, tmp_path / "hidden"
        state.rename(hidden)
        state.write_text("a disk that is not mounted yet")
        await world.begin()
        assert "cannot open the lease database" in await world.refusal(WANTED)
        (failed,) = (await world.preparer.unprepare([ref(WANTED)])).values()
        assert failed is not None
        assert world.files() == FILES
        state.unlink()
        hidden.rename(state)
        assert await world.prepare(WANTED) == answer


async def test_metadata_of_a_later_claim_of_the_same_name_is_kept(world: World) -> None:
    world.resources = [resource("fuse"), resource("kvm")]
    old, new = claim(result("misc-fuse", "a")), claim(result("misc-kvm", "a"), uid=uid(2))
    await world.prepare(old)
    answer = await world.prepare(new)  # the claim was deleted and created again while the first one's pod runs
    await world.unprepare(old)
    (mount,) = world.container(answer).mounts
    assert world.container(answer).metadata(mount)[0]["metadata"]["uid"] == uid(2)


async def test_two_claims_of_the_same_name_leave_no_files(world: World) -> None:
    """Each also has a request that the other one does not have."""
    old = claim(result("misc-fuse", "a"), result("misc-fuse", "b", admin_access=True))
    new = claim(result("misc-kvm", "a"), result("misc-kvm", "c", admin_access=True), uid=uid(2))
    await world.prepare(old)
    await world.prepare(new)
    await world.unprepare(old)
    assert sorted(x.name for x in world.metadata.iterdir()) == [f"{uid(2)}~a.json", f"{uid(2)}~c.json"]
    await world.unprepare(new)
    assert world.files() == []
    assert not list(world.metadata.iterdir())


async def test_metadata_of_a_later_claim_of_the_same_name_survives_a_restart(world: World) -> None:
    old, new = claim(result("misc-fuse", "a"), uid=uid(2)), claim(result("misc-kvm", "a"), uid=uid(1))
    await world.prepare(old)
    answer = await world.prepare(new)
    await world.restart()
    (mount,) = world.container(answer).mounts
    assert world.container(answer).metadata(mount)[0]["metadata"]["uid"] == uid(1)
