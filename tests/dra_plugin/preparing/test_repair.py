"""Repairs while the kubelet calls, as after a lost ledger is restored: no call's work is undone."""

import asyncio
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from dra_plugin.driver import ClaimFailed
from dra_plugin.serving.sockets import plugin_socket
from hostdevices import Device
from tests.cdi.tampering import WAYS, as_written
from tests.dra_plugin.preparing.cluster import Cluster, Road
from tests.dra_plugin.preparing.node import Node
from tests.dra_plugin.preparing.world import DRIVER, World, claim, config, ref, result, uid
from tests.running import until

MANY = 20


class OnPci(World):
    """A node whose devices each have two PCI functions."""

    def found(self) -> dict[str, Device]:
        functions = ("0000:00:05.0", "0000:00:05.1")
        return {i: replace(x, functions=functions) for i, x in super().found().items()}


async def test_what_is_being_prepared_is_not_half_prepared(world: World) -> None:
    pipe = world.hold_reset("fuse")
    wanted = claim(result("misc-fuse"), configs=[config(reset=True)])
    call = asyncio.create_task(world.prepare(wanted))
    await until(world.units)
    assert [lease.phase for lease in world.ledger.leases()] == ["intended"]
    repairing = asyncio.create_task(world.preparer.repair())
    await asyncio.to_thread(pipe.read_bytes)
    await call
    await repairing
    assert [lease.phase for lease in world.ledger.leases()] == ["done"]
    assert len(world.files()) == 3


async def test_files_are_those_of_leases_whoever_comes_and_goes_meanwhile(tmp_path: Path) -> None:
    names = [f"m{n}" for n in range(MANY)]
    claims = [claim(result(f"misc-{name}"), name=name, uid=uid(n)) for n, name in enumerate(names)]
    async with World(tmp_path, *names) as world:
        for _ in range(5):
            outcomes, _ = await asyncio.gather(world.outcomes(*claims), world.preparer.repair())
            assert not [x for x in outcomes.values() if isinstance(x, ClaimFailed)]
            assert len(world.files()) == 3 * MANY
            await asyncio.gather(world.failures(*map(ref, claims)), world.preparer.repair())
            assert (world.units(), world.files()) == ([], [])


async def test_after_a_restart_variables_name_the_functions_that_devices_had(tmp_path: Path) -> None:
    """The repair runs before the first scan, when only the claim's lease describes the device."""
    world = OnPci(tmp_path)
    async with world:
        wanted = claim(
            result("misc-fuse"), configs=[config(env={"HOSTDEV": "{pciFunctions}", "TEXT": "{{pciFunctions}}"})]
        )
        prepared = await world.prepare(wanted)
        before = world.container(prepared).env
        assert (before["HOSTDEV"], before["TEXT"]) == ("0000:00:05.0,0000:00:05.1", "{pciFunctions}")
        shutil.rmtree(world.cdi)
        await world.restart()
        assert world.container(prepared).env == before


async def test_a_claim_that_cannot_be_described_now_keeps_no_daemon_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A variable has a limit, and its value can have grown; another version can have another limit."""
    wanted = claim(result("misc-fuse"), configs=[config(env={"NODES": "{devnodes}"})])
    other = claim(result("misc-kvm"), name="other", uid=uid(2))
    async with World(tmp_path) as world:
        prepared = await world.prepare(wanted)
        kept = await world.prepare(other)
        shutil.rmtree(world.cdi)
        with monkeypatch.context() as lower:
            lower.setattr("resources.template.MOST_BYTES", 4)
            await world.restart()
            assert "its files cannot be written again: variable NODES" in caplog.text
            assert world.container(kept).nodes
        assert await world.preparer.repair()
        assert world.container(prepared).nodes


@pytest.mark.parametrize("how", ["all", "one"])
async def test_cdi_specs_of_claims_that_somebody_removes_are_written_again(
    node: Node, cluster: Cluster, how: str
) -> None:
    """The kubelet does not call again: no container of the claim could start until a restart of the daemon."""
    wanted = await cluster.allocate("mine", result("misc-fuse"))
    await node.prepare(wanted)
    specs = {path: path.read_bytes() for path in node.cdi.glob("*.json")}
    for _ in range(2):
        shutil.rmtree(node.cdi) if how == "all" else min(specs).unlink()
        await until(lambda: {path: path.read_bytes() for path in node.cdi.glob("*.json")} == specs)
    assert (await node.failures(ref(wanted)))[wanted.metadata.uid] is None
    assert not list(node.cdi.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("way", WAYS)
async def test_what_somebody_does_to_a_spec_of_a_claim_is_undone_and_said(
    node: Node, cluster: Cluster, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = await cluster.allocate("mine", result("misc-fuse"))
    await node.prepare(wanted)
    for path in tuple(node.cdi.glob("*.json")):
        before = as_written(path)
        WAYS[way](path)
        await until(lambda: as_written(path) == before)  # noqa: B023
    assert caplog.text.count("were removed or changed") == 1
    assert (await node.failures(ref(wanted)))[wanted.metadata.uid] is None


async def test_somebody_who_removes_specs_of_claims_all_the_time_is_said_once(
    node: Node, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await node.prepare(await cluster.allocate("mine", result("misc-fuse")))
    removed: list[int] = []

    def remove() -> bool:
        if specs := list(node.cdi.glob("*.json")):
            removed.append(len(specs))
        for path in specs:
            path.unlink()
        return len(removed) >= 5

    await until(remove)
    assert caplog.text.count("were removed") <= 2  # once more if a busy machine let our removal come first


async def test_a_spec_is_written_again_that_goes_while_the_kubelet_waits_for_its_claim_in_vain(
    node: Node, cluster: Cluster, road: Road
) -> None:
    wanted = await cluster.allocate("mine", result("misc-kvm"))
    other = await cluster.allocate("other", result("misc-fuse"))
    await node.prepare(wanted)
    await node.prepare(other)
    spec = next(path for path in node.cdi.glob("*.json") if wanted.metadata.uid in path.name)
    road.is_free.clear()
    call = asyncio.create_task(node.outcomes(wanted))
    await until(lambda: b"/resourceclaims/mine HTTP" in road.held)
    spec.unlink()
    await node.failures(ref(other))  # by then the removal was noticed
    await road.cut()
    assert isinstance((await call)[wanted.metadata.uid], ClaimFailed)
    await until(spec.exists)


async def test_of_a_claim_that_is_half_undone_nobody_has_removed_the_files(world: World) -> None:
    wanted = claim(result("misc-fuse"))
    await world.prepare(wanted)
    with closing(sqlite3.connect(world.state / "ledger.sqlite3", isolation_level=None)) as tool:
        tool.execute("BEGIN IMMEDIATE")  # no lease can end
        assert isinstance((await world.failures(ref(wanted)))[wanted.metadata.uid], ClaimFailed)
    assert not world.files()
    assert world.preparer.touched_files() == (False, set())
    await world.prepare(wanted)
    shutil.rmtree(world.cdi)
    assert world.preparer.touched_files() == (True, set())


async def test_files_of_another_daemon_that_shares_the_folder_stay(node: Node, cluster: Cluster) -> None:
    """At its start it takes existing files for its own stale ones, but not files that appear later."""
    await node.prepare(await cluster.allocate("mine", result("misc-fuse")))
    mine, *_ = node.cdi.glob("*.json")
    other = mine.with_name(mine.name.replace(mine.stem.rpartition("~")[2], uid(7)))
    shutil.copy(mine, other)
    mine.unlink()
    await until(mine.exists)
    assert other.exists()
    await node.end()
    await node.begin()
    assert not other.exists()


async def test_a_folder_that_was_removed_under_its_mount_ends_the_dra_side(socket_dir: Path, road: Road) -> None:
    node = Node(socket_dir, road.client)
    (real := socket_dir / "real").mkdir()
    node.cdi.mkdir(parents=True)
    if await (await asyncio.create_subprocess_exec("mount", "--bind", real, node.cdi)).wait():
        pytest.skip("no file system can be mounted here")
    node.recheck = 0.01
    try:
        await node.begin()
        real.rmdir()
        await asyncio.wait([node.work])
        assert not plugin_socket(node.folders.data, DRIVER).exists()
        with pytest.raises(ExceptionGroup) as ended:
            await node.end()
    finally:
        await (await asyncio.create_subprocess_exec("umount", node.cdi)).wait()
    assert "was removed while it was mounted here" in str(ended.value.exceptions)


async def test_what_is_removed_between_the_repair_at_the_start_and_the_first_scan_is_written_again_too(
    node: Node, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = await cluster.allocate("mine", result("misc-fuse"))
    await node.prepare(wanted)
    specs, scan = sorted(node.cdi.glob("*.json")), node.scan
    await node.end()
    shutil.rmtree(node.cdi)

    async def scan_later() -> None:
        await until(lambda: sorted(node.cdi.glob("*.json")) == specs)
        shutil.rmtree(node.cdi)
        scan()

    scanning: list[asyncio.Task[None]] = []
    monkeypatch.setattr(node, "scan", lambda: scanning.append(asyncio.create_task(scan_later())))
    await node.begin()
    await until(lambda: sorted(node.cdi.glob("*.json")) == specs)
    await asyncio.gather(*scanning)


async def test_of_a_device_that_is_gone_nobody_has_removed_the_spec(
    node: Node, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await node.prepare(await cluster.allocate("mine", result("misc-fuse")))
    await node.end()
    unplug(node)
    await node.begin()
    assert len(list(node.cdi.iterdir())) == 1
    assert "were removed" not in caplog.text
    shutil.rmtree(node.cdi)
    await until(lambda: "were removed" in caplog.text)
    await until(lambda: len(list(node.cdi.glob("*.json"))) == 1)


async def test_of_a_device_that_goes_while_the_daemon_runs_nobody_has_removed_the_spec(
    node: Node, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The daemon removed it itself: a runtime must not find an absent device."""

    def specs() -> set[Path]:
        return set(node.cdi.glob("*.json"))

    await node.prepare(await cluster.allocate("mine", result("misc-fuse")))
    of_mine = specs()
    unplug(node)
    node.scan()
    await until(lambda: specs() < of_mine)
    left = specs()
    await node.prepare(await cluster.allocate("other", result("misc-kvm")))
    for path in (of_other := specs() - left):
        path.unlink()  # the removal by another program is still noticed
    await until(lambda: specs() == left | of_other)
    assert caplog.text.count("were removed") == 1


def unplug(node: Node) -> None:
    shutil.rmtree(node.made_up.root / "sys/devices/virtual/misc/fuse")
    (node.made_up.root / "sys/class/misc/fuse").unlink()
    (node.made_up.root / "dev/fuse").unlink()
