"""CDI specs while they are rewritten: devices that are described before and after are described in between."""

import os
import shutil
import threading
import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

import pytest

from cdi import CdiDirectory, Spec
from checkpoint import Ledger
from deviceplugin import Paths
from deviceplugin.descriptions import Descriptions, SpecSettings
from deviceplugin.specs import Specs
from folderwatch import FolderWatcher
from folderwatch.watcher import PAUSE
from hostdevices import Device
from resources.resource import Resource
from resources.selector import NOTHING
from tests.cdi.tampering import CHANGES, as_written
from tests.deviceplugin.conftest import StartPlugins, resource
from tests.hostdevices.made import device
from tests.running import running, until
from tests.threads import no_free_threads, no_more_threads

SETTINGS = SpecSettings.of(Resource("example.com/gps", NOTHING))
KIND = "example.com/gps"


class SlowDirectory(CdiDirectory):
    """A folder on a disk whose speed a test controls."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "device-plugin")
        self.is_writing = threading.Event()
        self.may_write = threading.Event()
        self.may_write.set()

    def sync(self, wanted: Iterable[tuple[str, Spec]], stale: Iterable[str] | None = None) -> None:
        self.is_writing.set()
        assert self.may_write.wait(30)
        super().sync(wanted, stale)

    def stop(self) -> None:
        self.may_write.clear()
        self.is_writing.clear()


def described(*devices: Device) -> Mapping[str, Descriptions]:
    return {KIND: Descriptions(KIND, SETTINGS, {each.id: each for each in devices})}


async def test_unchanged_device_stays_described_while_specs_are_rewritten(tmp_path: Path) -> None:
    stick, other = device("tty-1", "tty", "/dev/ttyUSB0"), device("tty-2", "tty", "/dev/ttyUSB1")
    moved = device("tty-1", "tty", "/dev/ttyUSB7")
    directory, changes = SlowDirectory(tmp_path), []
    specs = Specs(directory, lambda: changes.append(specs.has(KIND, SETTINGS, other)))
    specs.set_desired(described(stick))
    async with running(specs.run()):
        await until(lambda: changes)
        directory.stop()
        specs.set_desired(described(stick, other))
        await until(directory.is_writing.is_set)
        assert specs.has(KIND, SETTINGS, stick)
        assert not specs.has(KIND, SETTINGS, other)
        directory.may_write.set()
        await until(lambda: len(changes) == 2)
        assert specs.has(KIND, SETTINGS, other)
        directory.stop()
        specs.recheck()  # as for each restarted container
        await until(directory.is_writing.is_set)
        assert specs.has(KIND, SETTINGS, stick)
        directory.may_write.set()
        await specs.wait_written(30)
        directory.stop()
        specs.set_desired(described(moved, other))
        await until(directory.is_writing.is_set)
        assert not specs.has(KIND, SETTINGS, stick)
        assert not specs.has(KIND, SETTINGS, moved)
        assert specs.has(KIND, SETTINGS, other)
        directory.may_write.set()
        await until(lambda: len(changes) == 3)
    assert changes == [False, True, True]


async def test_specs_are_written_once_a_thread_is_free(tmp_path: Path) -> None:
    specs, stick = Specs(CdiDirectory(tmp_path, "device-plugin"), lambda: None, 0.01), device("tty-1", "tty", "/dev/x")
    async with running(specs.run()):
        with no_more_threads():
            specs.set_desired(described(stick))
            await until(lambda: specs.problem)
            assert specs.problem == "cannot write CDI specs: no thread is left: can't start new thread"
            assert not specs.has(KIND, SETTINGS, stick)
        await until(lambda: not specs.problem)
        assert list(tmp_path.glob("*.json"))
        async with no_free_threads():
            specs.recheck()
            await until(lambda: specs.problem)
            assert specs.has(KIND, SETTINGS, stick)  # nobody has touched it
        await until(lambda: not specs.problem)


class LateDirectory(SlowDirectory):
    """A folder whose `sync` does its work at once, but returns later."""

    def sync(self, wanted: Iterable[tuple[str, Spec]], stale: Iterable[str] | None = None) -> None:
        CdiDirectory.sync(self, wanted, stale)
        self.is_writing.set()
        assert self.may_write.wait(30)


async def test_spec_removed_during_a_recheck_is_rewritten_by_the_next(tmp_path: Path) -> None:
    directory = LateDirectory(tmp_path)
    specs = Specs(directory, lambda: None)
    specs.set_desired(described(device("tty-1", "tty", "/dev/ttyUSB0")))
    async with running(specs.run()):
        await specs.wait_written(30)
        (path,) = tmp_path.glob("*.json")
        directory.stop()
        specs.recheck()
        await until(directory.is_writing.is_set)
        path.unlink()
        specs.recheck()
        directory.may_write.set()
        await specs.wait_written(30)
        assert path.exists()


@pytest.mark.parametrize("how", ["all", "one"])
async def test_removed_specs_are_rewritten(start: StartPlugins, paths: Paths, how: str) -> None:
    """The next container start does not ask the daemon, and would fail."""

    def specs() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in paths.cdi.glob("*.json")}

    await start([resource(), resource("kvm")])
    await until(lambda: len(specs()) == 2)
    before = specs()
    for _ in range(2):
        shutil.rmtree(paths.cdi) if how == "all" else min(before).unlink()
        await until(lambda: specs() == before)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("change_name", CHANGES)
async def test_changed_spec_is_restored_and_logged(
    paths: Paths, change_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    specs = Specs(CdiDirectory(paths.cdi, "device-plugin"), lambda: None)
    specs.set_desired(of_kind(KIND))
    async with running(specs.run(), specs.watch(FolderWatcher())):
        await until(lambda: list(paths.cdi.glob("*.json")))
        await specs.wait_written(30)
        (path,) = paths.cdi.glob("*.json")
        before = as_written(path)
        for _ in range(2):
            CHANGES[change_name](path)
            await until(lambda: as_written(path) == before)
            await specs.wait_written(30)
    assert f"CDI specs in {paths.cdi} were removed" in caplog.text


async def test_instance_owns_the_specs_once_it_owns_the_ledger(
    start: StartPlugins, paths: Paths, tmp_path: Path
) -> None:
    """During an update, both instances remove and rewrite each other's specs until the new one owns the state."""
    ledger = Ledger(tmp_path / "state of the one before", "this-boot")
    await start([resource(), resource("kvm")], on=ledger)
    await until(lambda: len(list(paths.cdi.glob("*.json"))) == 2)
    lost, *_ = paths.cdi.glob("*.json")
    lost.unlink()
    (left := paths.cdi / "nodeplug-device-plugin~example.com~gone.json").touch()
    await ledger.take(0.0)
    await until(lambda: lost.exists() and not left.exists())
    await ledger.close()


class CountedDirectory(CdiDirectory):
    """A folder that records the times of its writes."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "device-plugin")
        self.writes: list[float] = []

    def sync(self, wanted: Iterable[tuple[str, Spec]], stale: Iterable[str] | None = None) -> None:
        self.writes.append(time.monotonic())
        super().sync(wanted, stale)


def of_kind(kind: str) -> Mapping[str, Descriptions]:
    return {kind: Descriptions(kind, SETTINGS, {"tty-1": device("tty-1", "tty", "/dev/x")})}


async def test_daemons_sharing_a_folder_keep_the_files_of_each_other(
    paths: Paths, caplog: pytest.LogCaptureFixture
) -> None:
    """At the start, each takes the other's files for its own stale ones. They are written again once."""
    watcher = FolderWatcher()
    names = ("example.com/one", "example.com/two")
    both = [Specs(CdiDirectory(paths.cdi, "device-plugin"), lambda: None) for _ in names]
    for each, kind in zip(both, names, strict=True):
        each.set_desired(of_kind(kind))
    async with running(*(each.run() for each in both), *(each.watch(watcher) for each in both)):

        def files() -> list[str]:
            return [path.name for path in paths.cdi.glob("*.json")]

        def is_gone(kind: str) -> bool:
            return not any(kind.replace("/", "~") in name for name in files())

        await until(lambda: len(files()) == 2)
        for each, kind in zip(both, names, strict=True):  # one that its daemon wants no more goes all the same
            each.set_desired({})
            await each.wait_written(30)
            await until(partial(is_gone, kind))
            assert len(files()) == 1
            each.set_desired(of_kind(kind))
            await until(lambda: len(files()) == 2)
    assert len([x for x in caplog.messages if "were removed" in x]) <= 2


async def test_repeatedly_removed_specs_are_rewritten_once_a_second_and_logged_once(
    paths: Paths, caplog: pytest.LogCaptureFixture
) -> None:
    directory, watcher = CountedDirectory(paths.cdi), FolderWatcher()
    specs = Specs(directory, lambda: None)
    specs.set_desired(of_kind(KIND))

    def removed() -> bool:
        for path in paths.cdi.glob("*.json"):
            path.unlink()
        return len(directory.writes) >= 6

    async with running(specs.run(), specs.watch(watcher)):
        await until(removed)
    *_, fourth, fifth, sixth = directory.writes
    assert fifth - fourth > PAUSE / 2 < sixth - fifth
    # once more if a busy machine let our removal come first
    assert len([x for x in caplog.messages if "were removed" in x]) <= 2
