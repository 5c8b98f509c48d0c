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
from tests.cdi.tampering import CHANGES, as_written
from tests.dra_plugin.preparing.cluster import ApiProxy, Cluster
from tests.dra_plugin.preparing.node import Node
from tests.dra_plugin.preparing.world import DRIVER, World, claim, config, ref, result, uid
from tests.running import until

CLAIM_COUNT = 20


class PciWorld(World):
    """A node whose devices each have two PCI functions."""

    def found(self) -> dict[str, Device]:
        functions = ("0000:00:05.0", "0000:00:05.1")
        return {i: replace(x, functions=functions) for i, x in super().found().items()}


async def test_repair_waits_for_a_claim_that_is_being_prepared(world: World) -> None:
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


async def test_files_match_leases_during_concurrent_repairs(tmp_path: Path) -> None:
    names = [f"m{n}" for n in range(CLAIM_COUNT)]
    claims = [claim(result(f"misc-{name}"), name=name, uid=uid(n)) for n, name in enumerate(names)]
    async with World(tmp_path, *names) as world:
        for _ in range(5):
            outcomes, _ = await asyncio.gather(world.outcomes(*claims), world.preparer.repair())
            assert not [x for x in outcomes.values() if isinstance(x, ClaimFailed)]
            assert len(world.files()) == 3 * CLAIM_COUNT
            await asyncio.gather(world.failures(*map(ref, claims)), world.preparer.repair())
            assert (world.units(), world.files()) == ([], [])


async def test_pci_functions_in_variables_survive_a_restart(tmp_path: Path) -> None:
    """The repair runs before the first scan, when only the claim's lease describes the device."""
    world = PciWorld(tmp_path)
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


async def test_claim_that_cannot_be_described_does_not_prevent_the_start(
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
            lower.setattr("resources.template.MAX_BYTES", 4)
            await world.restart()
            assert "its files cannot be written again: variable NODES" in caplog.text
            assert world.container(kept).nodes
        assert await world.preparer.repair()
        assert world.container(prepared).nodes


@pytest.mark.parametrize("how", ["all", "one"])
async def test_removed_cdi_spec_is_written_again(node: Node, cluster: Cluster, how: str) -> None:
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
@pytest.mark.parametrize("change_name", CHANGES)
async def test_changed_cdi_spec_is_restored_and_logged(
    node: Node, cluster: Cluster, change_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = await cluster.allocate("mine", result("misc-fuse"))
    await node.prepare(wanted)
    for path in tuple(node.cdi.glob("*.json")):
        before = as_written(path)
        CHANGES[change_name](path)
        await until(lambda: as_written(path) == before)  # noqa: B023
    assert caplog.text.count("were removed or changed") == 1
    assert (await node.failures(ref(wanted)))[wanted.metadata.uid] is None


async def test_repeated_removals_of_specs_are_logged_once(
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


async def test_spec_removed_during_a_failing_call_is_written_again(
    node: Node, cluster: Cluster, proxy: ApiProxy
) -> None:
    wanted = await cluster.allocate("mine", result("misc-kvm"))
    other = await cluster.allocate("other", result("misc-fuse"))
    await node.prepare(wanted)
    await node.prepare(other)
    spec = next(path for path in node.cdi.glob("*.json") if wanted.metadata.uid in path.name)
    proxy.is_flowing.clear()
    call = asyncio.create_task(node.outcomes(wanted))
    await until(lambda: b"/resourceclaims/mine HTTP" in proxy.stalled)
    spec.unlink()
    await node.failures(ref(other))  # by then the removal was noticed
    await proxy.cut()
    assert isinstance((await call)[wanted.metadata.uid], ClaimFailed)
    await until(spec.exists)


async def test_half_undone_claim_has_no_modified_files(world: World) -> None:
    wanted = claim(result("misc-fuse"))
    await world.prepare(wanted)
    with closing(sqlite3.connect(world.state / "ledger.sqlite3", isolation_level=None)) as tool:
        tool.execute("BEGIN IMMEDIATE")  # no lease can end
        assert isinstance((await world.failures(ref(wanted)))[wanted.metadata.uid], ClaimFailed)
    assert not world.files()
    assert world.preparer.modified_files() == (False, set())
    await world.prepare(wanted)
    shutil.rmtree(world.cdi)
    assert world.preparer.modified_files() == (True, set())


async def test_files_of_another_daemon_are_kept_until_a_restart(node: Node, cluster: Cluster) -> None:
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


async def test_cdi_folder_removed_under_its_mount_ends_the_plugin(socket_dir: Path, proxy: ApiProxy) -> None:
    node = Node(socket_dir, proxy.client)
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


async def test_spec_removed_before_the_first_scan_is_written_again(
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


async def test_missing_spec_of_a_gone_device_is_not_logged_as_removed(
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


async def test_spec_deleted_for_an_unplugged_device_is_not_logged_as_removed(
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
