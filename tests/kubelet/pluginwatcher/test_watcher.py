"""The plugin watcher: it finds plugins in a folder, registers and notifies them, and deregisters them."""

import asyncio
import itertools
import os
import shutil
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from kubelet import DEFAULT_VERSION, RELEASES, Version
from kubelet.clock import FakeClock
from kubelet.devicemanager import ManagerImpl
from kubelet.errors import KubeletError
from kubelet.pluginwatcher import DesiredState, PluginWatcher
from kubelet.rpc import Timeouts
from kubelet.stubs import DevicePluginStub, Gate, failing
from kubeletapi.pluginregistration.v1 import api_pb2 as registration
from tests.descriptors import no_more_descriptors
from tests.kubelet.kit import LONG_TIMEOUTS, R1, healthy
from tests.kubelet.scenarios import scenario


class WatcherKit:
    """A plugin watcher with a device manager, and a clock that the test controls."""

    def __init__(self, folder: Path, kubernetes: Version, wait: Timeouts) -> None:
        self.registry = folder / "registry"
        self.clock = FakeClock()
        self.listed = asyncio.Event()
        self.manager = ManagerImpl(
            folder / "plugins" / "kubelet.sock",
            clock=self.clock,
            timeouts=wait,
            on_change=lambda *_: self.listed.set(),
            release=RELEASES[kubernetes],
        )
        self.watcher = PluginWatcher(
            self.registry,
            {"DevicePlugin": self.manager.get_watcher_handler(), "FooPlugin": FailingHandler()},
            self.clock,
            wait,
            release=RELEASES[kubernetes],
        )

    def plugin(self, name: str = "p.sock", **options: Any) -> DevicePluginStub:
        return DevicePluginStub(self.registry / name, R1, healthy("a"), **options)

    async def status_after(self, plugin: DevicePluginStub, times: int = 1) -> registration.RegistrationStatus:
        """Advance the clock until the plugin has got this number of registration statuses."""
        for _ in range(600):
            if len(plugin.called("NotifyRegistrationStatus")) >= times:
                break
            await self.clock.advance(1)
            await self.watcher.idle()
        status: registration.RegistrationStatus = plugin.called("NotifyRegistrationStatus")[times - 1]
        return status


class FailingHandler:
    """A third-party handler that raises any exception."""

    def validate_plugin(self, name: str, endpoint: str, versions: list[str]) -> None:
        """Accept every plugin."""

    async def register_plugin(self, name: str, endpoint: str, versions: list[str]) -> None:
        raise ZeroDivisionError("a bug")

    async def deregister_plugin(self, name: str, endpoint: str) -> None:
        """Do nothing."""


@pytest.fixture
def kubernetes() -> Version:
    """The watcher's Kubernetes release; a test can change it with `parametrize`."""
    return DEFAULT_VERSION


@pytest.fixture
def timeouts() -> Timeouts:
    """The watcher's timeouts; a test of a timeout shortens them with `parametrize`."""
    return LONG_TIMEOUTS


SHORT_DIAL_TIMEOUT = pytest.mark.parametrize("timeouts", [Timeouts(dial=1.0, get_info=30.0)], ids=["soon"])


@pytest.fixture
async def watched(folder: Path, kubernetes: Version, timeouts: Timeouts) -> AsyncIterator[WatcherKit]:
    started = WatcherKit(folder, kubernetes, timeouts)
    await started.manager.start(list, lambda: True)
    await started.watcher.start()
    yield started
    await started.watcher.stop()
    await started.manager.stop()


@scenario(3, 96, 97, 99)
async def test_plugin_is_registered_and_deregistered_with_its_socket(watched: WatcherKit) -> None:
    async with watched.plugin() as plugin:
        status = await watched.status_after(plugin)
        assert (status.plugin_registered, status.error) == (True, "")
        await plugin.until(lambda: plugin.streams == 1)
        called = [method for method, _ in plugin.calls]
        assert called[:2] == ["GetInfo", "GetDevicePluginOptions"]
        assert sorted(called[2:]) == ["ListAndWatch", "NotifyRegistrationStatus"]  # the stream is opened concurrently
        (registered,) = watched.watcher.actual.plugins()
        assert registered.socket in watched.watcher.desired.sockets()
        os.unlink(plugin.socket)
        await watched.clock.advance(1)
        await watched.watcher.idle()
        assert watched.watcher.actual.plugins() == []
        assert watched.manager.state.endpoints[R1].is_stopped
        await plugin.until(lambda: plugin.streams == 0)


@scenario(5)
async def test_newest_plugin_in_registry_replaces_the_list(watched: WatcherKit) -> None:
    plugins = [
        DevicePluginStub(watched.registry / f"{name}.sock", R1, devices)
        for name, devices in (("a", healthy("1", "2")), ("b", healthy("1", "2")), ("c", healthy("3")))
    ]
    for plugin, count in zip(plugins, (2, 2, 1), strict=True):
        await plugin.start()
        await watched.status_after(plugin)
        ids = [device.id for device in plugin.devices]
        while list(watched.manager.state.all.get(R1, {})) != ids:
            await watched.listed.wait()
            watched.listed.clear()
        assert watched.manager.get_capacity()[0] == {R1: count}
    for plugin in plugins:
        await plugin.stop()


@scenario(98)
async def test_replaced_socket_is_registered_again(watched: WatcherKit) -> None:
    async with watched.plugin() as plugin:
        await watched.status_after(plugin)
        (before,) = watched.watcher.actual.plugins()
        await plugin.start()
        await watched.status_after(plugin, 2)
        (after,) = watched.watcher.actual.plugins()
        assert after.socket.generation != before.socket.generation
        assert watched.watcher.desired.sockets() == [after.socket]


async def test_changed_mode_or_link_count_is_no_new_socket(watched: WatcherKit) -> None:
    """A driver that binds under a hidden name and then links its socket is visible while both names exist."""
    async with watched.plugin() as plugin:
        path, other = watched.registry / "p.sock", watched.registry / ".p.sock"
        os.link(path, other)
        await watched.status_after(plugin)
        (before,) = watched.watcher.actual.plugins()
        changes: tuple[Callable[[], None], ...] = (other.unlink, lambda: path.chmod(0o600))
        for change in changes:
            change()
            await watched.clock.advance(5)
            await watched.watcher.idle()
        assert watched.watcher.actual.plugins() == [before]
        assert len(plugin.called("NotifyRegistrationStatus")) == 1


@scenario(95)
async def test_empty_folder_has_no_plugins(watched: WatcherKit) -> None:
    await watched.clock.advance(10)
    assert (watched.watcher.desired.sockets(), watched.watcher.actual.plugins()) == ([], [])


@scenario(94)
async def test_hidden_names_files_and_folders_are_ignored(watched: WatcherKit) -> None:
    folder = watched.registry
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "file.sock").write_text("")
    for name in [
        ".hidden.sock",
        "sub/.hidden.sock",
        "sub/deep/found.sock",
        *(f"{number}.sock" for number in range(10)),
    ]:
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(folder / name))
    watched.watcher.scan()
    found = {str(each.path.relative_to(folder)) for each in watched.watcher.desired.sockets()}
    assert found == {"sub/deep/found.sock", *(f"{number}.sock" for number in range(10))}


def test_hidden_folder_is_scanned_only_if_parent_is_new(folder: Path) -> None:
    """The kubelet checks only names of new entries. In a folder that it has not seen before it follows all folders."""
    watcher = PluginWatcher(folder, {}, FakeClock())

    def add(name: str) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(folder / name))

    def found() -> set[str]:
        watcher.scan()
        return {str(each.path.relative_to(folder)) for each in watcher.desired.sockets()}

    add(".first/a.sock")
    assert found() == {".first/a.sock"}
    add(".first/b.sock")
    add(".later/c.sock")
    add("new/.deep/d.sock")
    seen = {".first/a.sock", ".first/b.sock", "new/.deep/d.sock"}
    assert found() == seen
    add("new/.deep/e.sock")
    add("new/.more/f.sock")
    add(".later/deep/g.sock")
    assert found() == {*seen, "new/.deep/e.sock"}
    shutil.rmtree(folder / ".first")
    assert found() == {"new/.deep/d.sock", "new/.deep/e.sock"}
    add(".first/a.sock")
    assert found() == {"new/.deep/d.sock", "new/.deep/e.sock"}, "it is a new one"


async def test_links_to_folders_are_not_followed(watched: WatcherKit) -> None:
    """Two links to their own folder create too many paths to walk. A link to a socket counts as a socket."""
    for name in ("one", "two"):
        (watched.registry / name).symlink_to(".")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(watched.registry / "real.sock"))
    (watched.registry / "link.sock").symlink_to("real.sock")
    watched.watcher.scan()
    assert {each.path.name for each in watched.watcher.desired.sockets()} == {"real.sock", "link.sock"}


@scenario(91, 92, 93)
def test_desired_state_keeps_one_socket_per_path() -> None:
    clock = FakeClock()
    desired = DesiredState(clock)
    for number in range(10):
        desired.add_or_update(Path(f"/{number}.sock"))
        assert len(desired.sockets()) == number + 1
    generations = set()
    for _ in range(10):
        clock._now += 1
        desired.add_or_update(Path("/0.sock"))
        (entry,) = [each for each in desired.sockets() if each.path == Path("/0.sock")]
        assert entry.seen_at == clock.now()
        generations.add(entry.generation)
    assert len(generations) == 10
    for number in range(10):
        desired.remove(Path(f"/{number}.sock"))
    desired.remove(Path("/0.sock"))
    assert desired.sockets() == []
    with pytest.raises(KubeletError, match=r"^socket path is empty$"):
        desired.add_or_update(Path())


VALIDATION = "RegisterPlugin error -- plugin validation failed with err: "


@pytest.mark.parametrize(
    ("options", "name", "text"),
    [
        (
            {"versions": ("v1alpha", "v1")},
            R1,
            VALIDATION + "manager version, v1beta1, is not among plugin supported versions [v1alpha v1]",
        ),
        (
            {"versions": ()},
            R1,
            VALIDATION + "manager version, v1beta1, is not among plugin supported versions []",
        ),
        ({}, "noslash", VALIDATION + 'invalid name of device plugin socket: the ResourceName "noslash" is invalid'),
        (
            {"plugin_type": "FooPlugin"},
            R1,
            "RegisterPlugin error -- plugin registration failed with err: a bug",
        ),
        (
            {"plugin_type": "BarPlugin"},
            R1,
            "RegisterPlugin error -- no handler registered for plugin type: BarPlugin at socket {socket}",
        ),
        (
            {"endpoint": "/nobody/here.sock"},
            R1,
            "RegisterPlugin error -- plugin registration failed with err: failed to dial device plugin:"
            " context deadline exceeded",
        ),
    ],
)
@SHORT_DIAL_TIMEOUT
@scenario(99)
async def test_refused_plugin_is_notified_at_every_retry(
    watched: WatcherKit, options: dict[str, Any], name: str, text: str
) -> None:
    async with watched.plugin(**options) as plugin:
        plugin.info.name = name
        for times in (1, 2, 3):
            status = await watched.status_after(plugin, times)
            assert (status.plugin_registered, status.error) == (False, text.format(socket=plugin.socket))
        assert watched.watcher.actual.plugins() == []


async def test_back_off_doubles_until_registration_succeeds(watched: WatcherKit) -> None:
    async with watched.plugin() as plugin:
        plugin.behaviours["GetInfo"] = failing("not yet")
        asked_at: list[float] = []
        while len(asked_at) < 6:
            await watched.clock.advance(0.5)
            await watched.watcher.idle()
            asked_at += [watched.clock.now()] * (len(plugin.called("GetInfo")) - len(asked_at))
        waits = [later - earlier for earlier, later in itertools.pairwise(asked_at)]
        assert waits == [1, 1, 2, 4, 8]
        del plugin.behaviours["GetInfo"]
        assert (await watched.status_after(plugin)).plugin_registered


async def test_replaced_socket_keeps_back_off_of_its_path(watched: WatcherKit) -> None:
    """The delay belongs to the path and only ends with success (device manager specification, section 2.4)."""
    async with watched.plugin() as plugin:
        plugin.behaviours["GetInfo"] = failing("not yet")
        while len(plugin.called("GetInfo")) < 4:
            await watched.clock.advance(0.5)
            await watched.watcher.idle()
        await plugin.stop()
        await watched.clock.advance(1)
        await plugin.start()
        del plugin.behaviours["GetInfo"]
        began = watched.clock.now()
        await watched.status_after(plugin)
        assert watched.clock.now() - began == 3


@pytest.mark.parametrize("timeouts", [Timeouts(get_info=0.3)], ids=["soon"])
async def test_slow_get_info_times_out_and_is_retried(watched: WatcherKit) -> None:
    async with watched.plugin() as plugin:
        gate = plugin.behaviours["GetInfo"] = Gate(plugin.info)
        await watched.clock.advance(1)
        await watched.watcher.idle()
        assert watched.watcher.actual.plugins() == []
        gate.open()
        assert (await watched.status_after(plugin)).plugin_registered


async def test_failed_notification_deregisters_plugin(watched: WatcherKit) -> None:
    async with watched.plugin() as plugin:
        plugin.behaviours["NotifyRegistrationStatus"] = failing("busy")
        await watched.status_after(plugin)
        await watched.watcher.idle()
        assert watched.watcher.actual.plugins() == []
        assert watched.manager.state.endpoints[R1].is_stopped
        del plugin.behaviours["NotifyRegistrationStatus"]
        await watched.status_after(plugin, 2)
        assert len(watched.watcher.actual.plugins()) == 1


@SHORT_DIAL_TIMEOUT
@pytest.mark.parametrize("kubernetes", ["1.34", "1.35"])
async def test_refused_plugin_is_not_retried_before_1_36(watched: WatcherKit) -> None:
    """The plugin is retried only when its socket has been replaced."""
    refused = watched.plugin(endpoint="/nobody/here.sock")
    async with refused:
        assert not (await watched.status_after(refused)).plugin_registered
        await watched.clock.advance(60)
        await watched.watcher.idle()
        assert len(refused.called("NotifyRegistrationStatus")) == len(watched.watcher.actual.plugins()) == 1
        await refused.start()
        await watched.status_after(refused, 2)
    await watched.clock.advance(60)
    await watched.watcher.idle()
    assert watched.watcher.actual.plugins() == []


@pytest.mark.parametrize("kubernetes", ["1.34", "1.35"])
async def test_failed_notification_keeps_plugin_before_1_36(watched: WatcherKit) -> None:
    async with watched.plugin() as plugin:
        plugin.behaviours["NotifyRegistrationStatus"] = failing("busy")
        await watched.status_after(plugin)
        await watched.clock.advance(60)
        await watched.watcher.idle()
        assert len(plugin.called("GetInfo")) == 1
        await plugin.until(lambda: plugin.streams == 1)


async def test_scan_without_descriptors_keeps_all_sockets(watched: WatcherKit) -> None:
    """The folder cannot be read, and no plugin counts as removed."""
    (watched.registry / "below").mkdir()
    async with watched.plugin("below/p.sock") as plugin:
        await watched.status_after(plugin)
        before = watched.watcher.desired.sockets()
        with no_more_descriptors():
            watched.watcher.scan()
        assert watched.watcher.desired.sockets() == before
        os.unlink(plugin.socket)
        watched.watcher.scan()
        assert watched.watcher.desired.sockets() == []
