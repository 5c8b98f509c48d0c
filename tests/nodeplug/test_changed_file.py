"""Changes of the configuration file while `nodeplug run` runs."""

import asyncio
import contextlib
import gc
import json
import os
import signal
import time
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.inspect import StructType

from checkpoint.database import Database
from folderwatch import FolderWatcher
from kubelet.node import Node
from kubelet.pods import container, pod
from nodeplug.config import Config, load, loads
from nodeplug.config_file import ConfigFile, differences, stamp
from resourceapi.objects.core import Pod
from tests.controlplane.scheduler.kit import Json
from tests.descriptors import no_more_descriptors
from tests.nodeplug.conftest import StartDaemon, ended, until_logged
from tests.nodeplug.machine import Machine
from tests.running import running, until
from tests.threads import no_more_threads

FUSE = {"name": "example.com/fuse", "select": "fuse"}
KVM = {"name": "example.com/kvm", "select": "kvm"}


def rewrite(path: Path, *resources: object, **settings: Any) -> None:
    """Replace the file by renaming a new one, as editors do."""
    content = json.loads(path.read_text())
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"settings": content["settings"] | settings, "resources": resources}))
    new.rename(path)


def write_config(path: Path, resources: Sequence[Json], **settings: Any) -> None:
    path.write_text(json.dumps({"settings": settings, "resources": resources}))


def changes_of(
    file: ConfigFile, watcher: FolderWatcher, needs_restart: Callable[[Config], bool] = lambda _: False
) -> contextlib.aclosing[AsyncGenerator[Config]]:
    """Yield the iterator that the daemon uses; it ends with the block."""
    return contextlib.aclosing(file.changes(watcher, needs_restart))


def pod_of(resource: str, name: str = "a") -> Pod:
    return pod(name, container("c", {resource: 1}))


async def start_offering(start: StartDaemon, node: Node, *resources: Json, **settings: Any) -> Process:
    process = await start(list(resources), **settings)
    await node.until(lambda: all(node.allocatable().get(str(x["name"])) for x in resources), 30)
    return process


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The first daemon's configuration file."""
    return tmp_path / "config0.yaml"


async def test_added_and_removed_resources_leave_other_sockets_in_place(
    start: StartDaemon, socket_dir: Path, path: Path
) -> None:
    async with Node(socket_dir) as node:
        process = await start_offering(start, node, FUSE)
        sockets = list(node.device_plugins.glob("nodeplug-example.com_fuse-*"))
        rewrite(path, FUSE, KVM)
        await node.until(lambda: node.allocatable().get("example.com/kvm") == 1, 30)
        assert list(node.device_plugins.glob("nodeplug-example.com_fuse-*")) == sockets
        rewrite(path, KVM)
        await until_logged(process, "example.com/fuse is not offered any more")
        await node.until(lambda: not node.allocatable().get("example.com/fuse"), 30)
        assert node.allocatable()["example.com/kvm"] == 1
        assert (await node.admit(pod_of("example.com/kvm"))).phase == "Running"


async def test_pod_keeps_its_device_when_the_resource_is_renamed(
    start: StartDaemon, socket_dir: Path, path: Path
) -> None:
    async with Node(socket_dir) as node:
        await start_offering(start, node, FUSE)
        assert (await node.admit(pod_of("example.com/fuse"))).phase == "Running"
        rewrite(path, {**FUSE, "name": "example.com/renamed"})
        await node.until(lambda: node.capacity().get("example.com/renamed") == 1, 30)
        assert node.allocatable().get("example.com/renamed") == 0  # the pod has the device
        refused = await node.admit(pod_of("example.com/renamed", "b"))
        assert refused.phase == "Failed"
        await node.remove("a")
        await node.until(lambda: node.allocatable().get("example.com/renamed") == 1, 60)
        assert (await node.admit(pod_of("example.com/renamed", "c"))).phase == "Running"


async def test_changed_shares_are_sent_through_the_same_socket(
    start: StartDaemon, socket_dir: Path, path: Path
) -> None:
    async with Node(socket_dir) as node:
        await start_offering(start, node, FUSE)
        sockets = list(node.device_plugins.glob("nodeplug-*"))
        rewrite(path, {**FUSE, "shares": 3, "env": {"MODE": "new"}})
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 3, 30)
        assert list(node.device_plugins.glob("nodeplug-*")) == sockets
        assert (await node.admit(pod_of("example.com/fuse"))).phase == "Running"


async def test_resource_is_registered_again_when_plugin_options_change(
    start: StartDaemon, socket_dir: Path, path: Path
) -> None:
    async with Node(socket_dir) as node:
        await start_offering(start, node, FUSE)
        sockets = list(node.device_plugins.glob("nodeplug-*"))
        rewrite(path, {**FUSE, "select": {"any": [{"preset": "fuse"}, {"preset": "usb-serial"}]}})
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 0, 30)  # the resource's stream has ended
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 1, 30)
        assert len(list(node.device_plugins.glob("nodeplug-*"))) == 1
        assert list(node.device_plugins.glob("nodeplug-*")) != sockets


async def test_invalid_file_is_logged_and_changes_nothing(start: StartDaemon, socket_dir: Path, path: Path) -> None:
    async with Node(socket_dir) as node:
        process = await start_offering(start, node, FUSE)
        good = path.read_text()
        for wrong, message in (
            (good.replace("select", "selct"), "unknown key selct"),
            ("", "the file is empty"),
            (None, "cannot be read"),
        ):
            if wrong is None:
                path.unlink()
            else:
                path.write_text(wrong)
            await until_logged(process, message)
            assert node.allocatable()["example.com/fuse"] == 1
        path.write_text(good.replace("example.com/fuse", "example.com/again"))
        await node.until(lambda: node.allocatable().get("example.com/again") == 1, 30)


async def test_sighup_reads_the_target_of_a_symlink(
    start: StartDaemon, socket_dir: Path, path: Path, tmp_path: Path
) -> None:
    async with Node(socket_dir) as node:
        process = await start_offering(start, node, FUSE)
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        path.rename(elsewhere / "real.yaml")
        path.symlink_to(elsewhere / "real.yaml")
        rewrite(elsewhere / "real.yaml", FUSE, KVM)
        process.send_signal(signal.SIGHUP)
        await node.until(lambda: node.allocatable().get("example.com/kvm") == 1, 30)
        process.send_signal(signal.SIGTERM)
        code, _ = await ended(process)
        assert code == 0


async def test_swapped_config_map_is_read(start: StartDaemon, socket_dir: Path, path: Path) -> None:
    """The kubelet writes a new folder, and replaces the link to the old one."""
    folder = path.parent / "mounted"
    for name in ("..one", "..two"):
        (folder / name).mkdir(parents=True)
    async with Node(socket_dir) as node:
        first = await start_offering(start, node, FUSE)
        first.terminate()
        await first.wait()
        path.rename(folder / "..one/config.yaml")
        (folder / "..data").symlink_to("..one")
        path.symlink_to(folder / "config.yaml")
        (folder / "config.yaml").symlink_to("..data/config.yaml")
        await start(path=folder / "config.yaml")
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 1, 30)
        content = json.loads((folder / "..one/config.yaml").read_text())
        (folder / "..two/config.yaml").write_text(json.dumps({**content, "resources": [FUSE, KVM]}))
        (folder / "..data_tmp").symlink_to("..two")
        os.rename(folder / "..data_tmp", folder / "..data")
        await node.until(lambda: node.allocatable().get("example.com/kvm") == 1, 30)


async def test_changed_settings_restart_the_daemon_in_the_same_process(
    start: StartDaemon, socket_dir: Path, path: Path
) -> None:
    async with Node(socket_dir) as node:
        process = await start_offering(start, node, FUSE)
        assert (await node.admit(pod_of("example.com/fuse"))).phase == "Running"
        rewrite(path, FUSE, KVM, rescanSeconds=30, logFormat="text")
        await until_logged(process, "restarting with the new configuration")
        await node.until(lambda: node.allocatable().get("example.com/kvm") == 1, 30)
        assert node.allocations("a", "c") == {"example.com/fuse": ["misc-fuse"]}
        assert process.returncode is None


async def test_dra_without_api_server_keeps_the_previous_configuration(
    start: StartDaemon, socket_dir: Path, path: Path
) -> None:
    async with Node(socket_dir) as node:
        process = await start_offering(start, node, FUSE)
        rewrite(path, FUSE, {**KVM, "api": "dra"})
        await until_logged(process, "the configuration stays as it was: example.com/kvm: DRA needs the API server")
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 1, 30)
        rewrite(path, FUSE, KVM)
        await node.until(lambda: node.allocatable().get("example.com/kvm") == 1, 30)


async def test_failed_change_restores_the_last_working_configuration(
    start: StartDaemon, socket_dir: Path, path: Path
) -> None:
    async with Node(socket_dir) as node:
        process = await start_offering(start, node, FUSE)
        rewrite(path, FUSE, KVM)
        await node.until(lambda: node.allocatable().get("example.com/kvm") == 1, 30)
        rewrite(path, FUSE, KVM, {**KVM, "name": "example.com/dra", "api": "dra"})
        await until_logged(process, "the configuration stays as it was: example.com/dra: DRA needs the API server")
        await until_logged(process, "offering resources: 2")


@pytest.fixture
def state_in_use(tmp_path: Path) -> Iterator[Path]:
    """A state directory that another instance owns."""
    database = Database(tmp_path / "kept")
    database.load()
    yield tmp_path / "kept"
    database.close()


async def test_state_directory_in_use_keeps_the_previous_configuration(
    start: StartDaemon, socket_dir: Path, path: Path, state_in_use: Path
) -> None:
    async with Node(socket_dir) as node:
        process = await start_offering(start, node, FUSE)
        rewrite(path, FUSE, stateDirectory=str(state_in_use), lockWaitSeconds=0)
        await until_logged(process, f"the configuration stays as it was: {state_in_use}: another nodeplug uses")
        await until_logged(process, "offering resources: 1")
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 1, 30)


async def test_second_failed_change_restores_the_last_working_configuration(
    start: StartDaemon, socket_dir: Path, path: Path, tmp_path: Path, state_in_use: Path
) -> None:
    """The intermediate settings are not restored: they would fail as well, and the daemon would end."""
    async with Node(socket_dir) as node:
        process = await start_offering(start, node, FUSE)
        rewrite(path, FUSE, stateDirectory=str(state_in_use), lockWaitSeconds=300)
        await until_logged(process, "restarting with the new configuration")
        rewrite(path, FUSE, lockWaitSeconds=0)
        await until_logged(process, "restarting with the new configuration")
        await until_logged(process, f"the configuration stays as it was: {state_in_use}: another nodeplug uses")
        await until_logged(process, "offering resources: 1")
        await node.until(lambda: node.allocatable().get("example.com/fuse") == 1, 30)
        rewrite(path, FUSE, KVM, stateDirectory=str(tmp_path / "free"))
        await node.until(lambda: node.allocatable().get("example.com/kvm") == 1, 30)
        rewrite(path, FUSE, stateDirectory=str(state_in_use))
        await until_logged(process, f"the configuration stays as it was: {state_in_use}: another nodeplug uses")
        await until_logged(process, "offering resources: 2")


async def test_removed_dra_resource_is_no_longer_published(machine: Machine, tmp_path: Path) -> None:
    await machine.classes()
    await machine.start()
    await machine.until_published()
    path = tmp_path / "config0.yaml"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "resources": content["resources"][:1]}))
    deadline = time.monotonic() + 60
    while set(await machine.published()) != {"misc-fuse"}:
        await machine.cluster.clock.advance(0.1)
        assert time.monotonic() < deadline


def config(*resources: Json, **settings: Any) -> Config:
    return loads(json.dumps({"resources": resources, "settings": settings}).encode())


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (config(FUSE), config(FUSE), []),
        (config(FUSE), config(FUSE, KVM), ["example.com/kvm is new"]),
        (config(FUSE, KVM), config(KVM), ["example.com/fuse is not offered any more"]),
        (config(FUSE, KVM), config(KVM, FUSE), ["the order of resources"]),
        (config(FUSE), config({**FUSE, "shares": 2, "api": "both"}), ["example.com/fuse (shares, api)"]),
        (config(FUSE), config(FUSE, logLevel="debug"), ["settings (logLevel)"]),
        (
            config(FUSE),
            config({**FUSE, "select": "kvm", "containerPath": "/dev/x"}),
            ["example.com/fuse (select, containerPath)"],
        ),
    ],
)
def test_differences_name_the_changed_keys(before: Config, now: Config, expected: list[str]) -> None:
    assert list(differences(before, now)) == expected


async def test_unreadable_file_is_retried_until_it_can_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No file event reports that a disk has recovered."""
    (tmp_path / "watched").mkdir()
    path, disk = tmp_path / "watched/config.yaml", tmp_path / "disk"
    path.symlink_to(disk)
    disk.write_text(json.dumps({"resources": [FUSE]}))
    file = ConfigFile(path, load(path), disk.read_bytes(), retry_seconds=0.01)
    with contextlib.closing(FolderWatcher()) as watcher:
        changes = file.changes(watcher)
        change = asyncio.ensure_future(anext(changes))
        disk.unlink()
        disk.symlink_to(disk)
        file.request()
        await until(lambda: not file.status.is_good)
        disk.unlink()
        disk.write_text(json.dumps({"resources": [FUSE, KVM]}))
        async with asyncio.timeout(30):
            assert [each.name for each in (await change).resources] == ["example.com/fuse", "example.com/kvm"]
        await changes.aclose()
    assert file.status.is_good
    assert len([x for x in caplog.messages if "this file cannot be read: Too many levels" in x]) == 1


async def test_file_is_read_again_after_no_thread_could_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps({"resources": [FUSE]}))
    file = ConfigFile(path, load(path), path.read_bytes(), retry_seconds=0.01)
    with contextlib.closing(FolderWatcher()) as watcher:
        changes = file.changes(watcher)
        change = asyncio.ensure_future(anext(changes))
        with no_more_threads():
            path.write_text(json.dumps({"resources": [FUSE, KVM]}))
            file.request()
            await until(lambda: not file.status.is_good or change.done())
        async with asyncio.timeout(30):
            assert [each.name for each in (await change).resources] == ["example.com/fuse", "example.com/kvm"]
        await changes.aclose()
    assert len([x for x in caplog.messages if "this file cannot be read: can't start new thread" in x]) == 1


async def test_only_a_changed_file_is_read_without_inotify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodeplug.config_file.DEBOUNCE", 0.0)
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps({"resources": [FUSE]}))
    file = ConfigFile(path, load(path), path.read_bytes(), retry_seconds=0.01)
    polls = asyncio.Semaphore(0)
    with contextlib.closing(FolderWatcher(poll_interval=0.01)) as watcher, path.open("r+b", buffering=0) as writer:
        async with changes_of(file, watcher) as changes, asyncio.timeout(30):
            with no_more_descriptors():
                change = asyncio.ensure_future(anext(changes))
                watcher.watch(tmp_path, polls.release)
                for _ in range(20):
                    await polls.acquire()
                assert file.status.is_good  # the file is unreadable at this moment
                writer.write(json.dumps({"resources": [FUSE, KVM]}).encode())
                await until(lambda: not file.status.is_good)
            assert [x.name for x in (await change).resources] == ["example.com/fuse", "example.com/kvm"]


async def test_change_before_the_watch_begins_is_read(tmp_path: Path) -> None:
    """The daemon has to start after the first read, and restarts after changes of some settings."""
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps({"resources": [FUSE]}))
    stamped, config, content = stamp(path), load(path), path.read_bytes()
    path.write_text(json.dumps({"resources": [KVM]}))
    file = ConfigFile(path, config, content, stamped=stamped)
    with contextlib.closing(FolderWatcher()) as watcher:
        for resources in ([KVM], [FUSE, KVM]):
            write_config(path, resources)
            async with changes_of(file, watcher) as changes, asyncio.timeout(30):
                assert [x.name for x in (await anext(changes)).resources] == [x["name"] for x in resources]


async def test_constantly_written_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodeplug.config_file.MAX_DEBOUNCE", 0.5)
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps({"resources": [FUSE]}))
    file = ConfigFile(path, load(path), path.read_bytes())

    async def write_constantly() -> None:
        while True:
            write_config(path, [KVM])
            await asyncio.sleep(0.01)

    with contextlib.closing(FolderWatcher()) as watcher:
        async with changes_of(file, watcher) as changes, running(write_constantly()), asyncio.timeout(30):
            assert [x.name for x in (await anext(changes)).resources] == ["example.com/kvm"]


async def test_refused_configuration_is_not_read_again_until_the_file_changes(tmp_path: Path) -> None:
    """The daemon can wait for the state for a minute before it fails, and the file can change meanwhile."""
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps({"resources": [FUSE]}))
    file = ConfigFile(path, load(path), path.read_bytes())
    with contextlib.closing(FolderWatcher()) as watcher:
        async with changes_of(file, watcher, lambda _: True) as changes, asyncio.timeout(30):
            write_config(path, [FUSE], logLevel="debug")
            await anext(changes)
        async with changes_of(file, watcher) as changes, asyncio.timeout(30):
            write_config(path, [KVM], logLevel="debug")
            await anext(changes)
            file.refuse("another nodeplug uses it")
        assert [x.name for x in file.config.resources] == ["example.com/fuse"]
        assert (file.config.settings.log_level, json.loads(file.content)["resources"]) == ("info", [FUSE])
        assert not file.is_changed()
        write_config(path, [FUSE, KVM])
        assert file.is_changed()


async def test_reading_leaves_no_garbage_in_reference_cycles(tmp_path: Path) -> None:
    """Garbage between long-lived objects fragments memory: a daemon whose file changes often would grow."""
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps({"resources": [FUSE]}))
    file = ConfigFile(path, load(path), path.read_bytes())
    with contextlib.closing(FolderWatcher()) as watcher, _no_collector():
        before = _descriptions()
        reading = asyncio.create_task(file.reload())
        changes = file.changes(watcher)
        path.write_text(json.dumps({"resources": [FUSE, KVM]}))
        async with contextlib.aclosing(changes):
            await anext(changes)
            assert (await reading).problems == ()
            assert _descriptions() == before


@contextlib.contextmanager
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _descriptions() -> int:
    """The number of type descriptions, which each read creates in reference cycles."""
    return sum(isinstance(each, StructType) for each in gc.get_objects())
