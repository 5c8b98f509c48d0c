"""Serving, registering, and a kubelet that restarts, refuses or hangs meanwhile."""

import asyncio
import contextlib
import logging
import os
import shutil
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from deviceplugin import Paths
from deviceplugin.folder import SUPERSEDED, PluginFolder, new_instance, new_socket
from deviceplugin.lifecycle import State, Timings
from deviceplugin.registration import Registration
from deviceplugin.watcher_registration import WatcherRegistration
from folderwatch import FolderGone, FolderWatcher
from grpcunix import Client, Context, UnixServer, connect, handler
from hostdevices import Device
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from kubeletapi.pluginregistration.v1 import api_pb2 as registration_api
from telemetry import EventLog
from tests.descriptors import no_more_descriptors
from tests.deviceplugin.conftest import StartPlugins, resource
from tests.deviceplugin.kubelet_end import KubeletEnd, kubelet_end
from tests.grpcunix.hanging import start_hanging_client
from tests.leaks import LeakCheck
from tests.running import running
from tests.running import until as until_true

REGISTRATION = registration_api.DESCRIPTOR.services_by_name["Registration"]
QUICK = Timings(register=0.2, stream=0.05, stable=0.0)


def ids(devices: list[api.Device]) -> list[tuple[str, str]]:
    return [(device.ID, device.health) for device in devices]


async def test_resource_registers_and_then_lists_its_devices(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource()])
        request = await kubelet.requests.get()
        assert (request.version, request.resource_name) == ("v1beta1", "example.com/fuse")
        assert request.options.get_preferred_allocation_available
        assert ids(await kubelet.lists.get()) == [("misc-fuse", "Healthy")]


async def test_kubelet_started_later_is_found_by_its_socket(start: StartPlugins, paths: Paths) -> None:
    await start([resource()])
    async with kubelet_end(paths.device_plugins) as kubelet:
        assert ids(await kubelet.lists.get()) == [("misc-fuse", "Healthy")]


OTHER_FILES: dict[str, Callable[[Path], object]] = {
    "a file": lambda path: path.write_text("no socket"),
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to where it is": lambda path: path.symlink_to("."),
}


@pytest.mark.parametrize("place", OTHER_FILES.values(), ids=OTHER_FILES.keys())
async def test_other_file_in_place_of_the_kubelet_socket_is_tolerated(
    start: StartPlugins, paths: Paths, place: Callable[[Path], object]
) -> None:
    path = paths.device_plugins / "kubelet.sock"
    place(path)
    await start([resource()])
    path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    async with kubelet_end(paths.device_plugins) as kubelet:
        assert ids(await kubelet.lists.get()) == [("misc-fuse", "Healthy")]


async def test_hundreds_of_dead_kubelet_sockets_do_not_delay_registration(start: StartPlugins, paths: Paths) -> None:
    path = paths.device_plugins / "kubelet.sock"
    side = await start([resource()])
    since = LeakCheck()
    for _ in range(300):
        with socket.socket(socket.AF_UNIX) as nobody:
            nobody.bind(str(path))
        await asyncio.sleep(0)
        path.unlink()
    async with kubelet_end(paths.device_plugins) as kubelet:
        assert ids(await kubelet.lists.get()) == [("misc-fuse", "Healthy")]
        assert side.plugins.status()[0].registrations == 1
    assert len(since.descriptors()) <= 10  # gRPC's own descriptors, and one connection


async def test_empty_list_is_sent(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource("missing")])
        assert await kubelet.lists.get() == []


async def test_restarted_kubelet_gets_all_lists_again(start: StartPlugins, paths: Paths) -> None:
    kubelet = KubeletEnd(paths.device_plugins)
    await kubelet.start()
    await start([resource("fuse"), resource("kvm")])
    for _ in range(3):
        assert sorted([ids(await kubelet.lists.get()), ids(await kubelet.lists.get())]) == [
            [("misc-fuse", "Healthy")],
            [("misc-kvm", "Healthy")],
        ]
        await kubelet.stop()
        await kubelet.start()
    await kubelet.stop()


async def test_refused_registration_is_repeated(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins, "refuse", "refuse", "ok") as kubelet:
        side = await start([resource()])
        for _ in range(2):
            await kubelet.requests.get()
        await kubelet.lists.get()
        assert kubelet.requests.qsize() == 1
        await until_true(lambda: side.plugins.status()[0].registrations == 1)  # the stream can start before the answer


async def test_missing_kubelet_is_shown_in_the_status_and_logged_once(
    start: StartPlugins, paths: Paths, caplog: pytest.LogCaptureFixture
) -> None:
    """For a missing folder, a missing socket, and a killed kubelet's socket: in the status, and logged once."""
    folder, path = paths.device_plugins, paths.device_plugins / "kubelet.sock"
    folder.rmdir()
    side = await start([resource("fuse"), resource("kvm")], timings=QUICK)

    def waits(words: str) -> Callable[[], bool]:
        return lambda: {x.last_error for x in side.plugins.status()} == {f"waiting for the kubelet: {words}"}

    await until_true(waits(f"there is no {folder}"))
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as nobody:
        nobody.bind(str(path))
    await until_true(waits(f"{path}: cannot connect: Connection refused"))
    path.unlink()
    await until_true(waits(f"there is no {path}"))
    warnings = [
        x.getMessage() for x in caplog.records if x.name == "nodeplug.deviceplugin" and x.levelname == "WARNING"
    ]
    assert warnings == [
        f"waiting for the kubelet: there is no {folder}; if the kubelet has another folder, set settings.kubeletRoot",
        f"waiting for the kubelet: {path}: cannot connect: Connection refused",
    ]
    async with kubelet_end(folder) as kubelet:
        for _ in range(2):
            await kubelet.lists.get()
        await until_true(lambda: {x.last_error for x in side.plugins.status()} == {""})


async def test_warning_about_an_unanswered_socket_ends_with_an_answer_at_the_same_socket(
    start: StartPlugins, paths: Paths, caplog: pytest.LogCaptureFixture
) -> None:
    async with kubelet_end(paths.device_plugins, "busy", "ok") as kubelet:
        await start([resource()], timings=QUICK)
        await kubelet.requests.get()
        await until_true(lambda: "waiting for the kubelet: too busy" in caplog.messages)
        (warning,) = (x for x in caplog.records if x.getMessage() == "waiting for the kubelet: too busy")
        await kubelet.lists.get()
        await until_true(lambda: not warning.__dict__["is_current"]())


async def test_error_ends_when_the_kubelet_opens_the_stream_late(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins, "deaf") as kubelet:
        side = await start([resource()], timings=Timings(stream=0.01))
        await until_true(lambda: side.plugins.status()[0].registrations > 7)  # the next one is then after 0.3 s
        await until_true(lambda: "did not open ListAndWatch" in side.plugins.status()[0].last_error)
        kubelet.listen(kubelet.endpoint)
        await kubelet.lists.get()
        await until_true(lambda: side.plugins.status()[0].last_error == "")


async def test_refusal_text_of_the_kubelet_is_in_the_status(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins, "refuse", "hang") as kubelet:
        side = await start([resource()])
        for _ in range(2):
            await kubelet.requests.get()
        assert (
            side.plugins.status()[0].last_error == 'the kubelet refused: the ResourceName "example.com/fuse" is invalid'
        )


async def test_hanging_register_call_times_out_and_is_repeated(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins, "hang", "ok") as kubelet:
        await start([resource()], timings=QUICK)
        assert ids(await kubelet.lists.get()) == [("misc-fuse", "Healthy")]


async def test_registration_is_repeated_when_the_kubelet_opens_no_stream(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins, "deaf", "deaf", "ok") as kubelet:
        await start([resource()], timings=QUICK)
        assert ids(await kubelet.lists.get()) == [("misc-fuse", "Healthy")]


async def test_registration_is_repeated_when_the_kubelet_ends_the_stream(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource()])
        for _ in range(3):
            assert ids(await kubelet.lists.get()) == [("misc-fuse", "Healthy")]
            await kubelet.cut_streams()


async def test_older_stream_stays_open_and_sends_nothing(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start([resource()])
        request = await kubelet.requests.get()
        await kubelet.lists.get()
        second = asyncio.ensure_future(kubelet._listen(request.endpoint))
        await kubelet.lists.get()
        side.update({})
        assert await kubelet.lists.get() == []
        assert kubelet.lists.empty()
        assert not any(stream.done() for stream in kubelet._streams.values())
        second.cancel()


async def test_equal_lists_are_not_sent_again(start: StartPlugins, paths: Paths) -> None:
    fuse = Device(id="misc-fuse", kind="misc", name="fuse")
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start([resource()])
        await kubelet.lists.get()
        for number in range(5):
            side.update({"example.com/fuse": (Device(id="misc-fuse", kind="misc", name=f"fuse{number}"),)})
        side.update({"example.com/fuse": ()})
        assert await kubelet.lists.get() == []
        side.update({"example.com/fuse": (fuse,)})
        assert ids(await kubelet.lists.get()) == [("misc-fuse", "Healthy")]


async def test_only_stale_nodeplug_sockets_are_removed(start: StartPlugins, paths: Paths) -> None:
    """Also in the folder that `registerThroughPluginWatcher` chose before: a kubelet would connect there forever."""
    for folder in (paths.device_plugins, paths.plugins_registry):
        for name in ("nodeplug-old-a.sock", "other.sock"):
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(str(folder / name))
    kubelet = KubeletEnd(paths.device_plugins)
    await kubelet.start(wipe=False)
    await start([resource()])
    await kubelet.lists.get()
    for folder in (paths.device_plugins, paths.plugins_registry):
        left = {path.name for path in folder.iterdir()}
        assert "other.sock" in left
        assert "nodeplug-old-a.sock" not in left
    await kubelet.stop()


async def test_each_registration_uses_a_new_socket_and_removes_old_ones(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource()])
        seen = set()
        for _ in range(5):
            await kubelet.lists.get()
            seen.add((await kubelet.requests.get()).endpoint)
            await kubelet.cut_streams()
        assert len(seen) == 5
        await kubelet.lists.get()
        await until(paths.device_plugins, lambda names: len(names) == 2)  # the kubelet's, and our newest


async def test_changes_in_the_folder_cause_no_registration_while_streaming(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start([resource()])
        await kubelet.lists.get()
        (paths.device_plugins / "kubelet.sock").chmod(0o600)  # changes the ctime, as a relabel does
        for path in paths.device_plugins.glob("nodeplug-*"):
            path.unlink()
        (paths.device_plugins / "anything").touch()
        side.update({})
        assert await kubelet.lists.get() == []
        assert kubelet.requests.qsize() == 1


async def test_register_answer_after_the_stream_counts_as_one_registration(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins, "early") as kubelet:
        side = await start([resource()])
        await kubelet.lists.get()
        kubelet.answer_now.set()
        await until(paths.device_plugins, lambda _: side.plugins.status()[0].registrations == 1)
        assert side.plugins.status()[0].last_error == ""


@pytest.mark.parametrize("how", ["delete", "move"])
async def test_recreated_folder_is_noticed_each_time(start: StartPlugins, paths: Paths, how: str) -> None:
    kubelet = KubeletEnd(paths.device_plugins)
    await kubelet.start()
    await start([resource()])
    for n in range(3):
        assert ids(await kubelet.lists.get()) == [("misc-fuse", "Healthy")]
        await kubelet.stop()
        if how == "delete":
            shutil.rmtree(paths.device_plugins)
        else:
            paths.device_plugins.rename(paths.device_plugins.with_name(f"moved-{n}"))
        paths.device_plugins.mkdir()
        await kubelet.start()
    await kubelet.lists.get()
    await kubelet.stop()


@contextlib.asynccontextmanager
async def mounted(folder: Path, at: Path) -> AsyncIterator[None]:
    at.mkdir(exist_ok=True)
    if await (await asyncio.create_subprocess_exec("mount", "--bind", folder, at)).wait():
        pytest.skip("no file system can be mounted here")
    try:
        yield
    finally:
        await (await asyncio.create_subprocess_exec("umount", at)).wait()


async def test_device_plugins_folder_removed_under_its_mount_ends_the_watch(paths: Paths, tmp_path: Path) -> None:
    async with mounted(paths.device_plugins, tmp_path / "mounted"):
        folder = PluginFolder(tmp_path / "mounted", new_instance(), FolderWatcher(), 0.01)
        paths.device_plugins.rmdir()
        with pytest.raises(FolderGone, match="was removed while it was mounted here"):
            await folder.run()


@pytest.mark.parametrize("name", ["cdi", "plugins_registry"])
async def test_needed_folder_removed_under_its_mount_ends_the_plugins(
    start: StartPlugins, paths: Paths, tmp_path: Path, name: str
) -> None:
    (real := tmp_path / "real").mkdir()
    seen: Path = getattr(paths, name)
    async with mounted(real, seen):
        side = await start([resource()], timings=Timings(recheck=0.01), through_watcher=name == "plugins_registry")
        assert side.running is not None
        await until_true(lambda: any(seen.iterdir()))
        shutil.rmtree(real)
        with pytest.raises(ExceptionGroup) as ended:
            async with asyncio.timeout(30):
                await side.running
        side.running = None
    assert f"{seen} was removed while it was mounted here" in str(ended.value.exceptions[0])


@pytest.mark.parametrize("name", ["cdi", "plugins_registry"])
async def test_unneeded_folder_removed_under_its_mount_is_ignored(
    start: StartPlugins, paths: Paths, tmp_path: Path, name: str
) -> None:
    (real := tmp_path / "real").mkdir()
    seen: Path = getattr(paths, name)
    async with mounted(real, seen), kubelet_end(paths.device_plugins) as kubelet:
        side = await start([resource(cdi=False)], timings=Timings(recheck=0.001))
        assert side.running is not None
        await kubelet.lists.get()
        real.rmdir()
        for _ in range(3):  # each round includes a check of the folder
            side.update({})
            await kubelet.lists.get()
            side.update()
            await kubelet.lists.get()
        assert not side.running.done()


async def test_old_instance_sends_no_lists_while_its_successor_serves(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        old = await start([resource()])
        await kubelet.lists.get()
        new = await start([resource()])
        await kubelet.lists.get()
        assert kubelet.requests.qsize() == 2
        old.update({})
        new.update({})
        assert await kubelet.lists.get() == []  # from the new instance; the old one is silent
        new.update()
        assert ids(await kubelet.lists.get()) == [("misc-fuse", "Healthy")]
        await new.stop()
        assert await kubelet.lists.get() == []
        assert kubelet.lists.empty()


async def test_old_instance_does_not_register_while_its_successor_serves(
    start: StartPlugins, paths: Paths, caplog: pytest.LogCaptureFixture
) -> None:
    """The old instance logs it once: otherwise a second daemon that was started by mistake stays unnoticed."""
    caplog.set_level(logging.INFO, "nodeplug")
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource()])
        first = (await kubelet.requests.get()).endpoint
        await kubelet.lists.get()
        new = await start([resource()])
        second = (await kubelet.requests.get()).endpoint
        await kubelet.lists.get()
        await kubelet.cut_stream_of(first)
        await new.stop()
        third = (await kubelet.requests.get()).endpoint  # after the new instance stopped
        assert len({first, second, third}) == 3
    assert caplog.text.count(SUPERSEDED) == 1


async def test_successor_is_the_instance_that_started_last(socket_dir: Path) -> None:
    """After a restart of the kubelet both register, in any order."""
    watcher = FolderWatcher()
    old, new = [PluginFolder(socket_dir, instance, watcher, 30.0) for instance in sorted(new_instance() for _ in "12")]
    async with running(old.run(), new.run()):
        servers = [UnixServer(new_socket(socket_dir, "example.com/fuse", folder.instance), []) for folder in (new, old)]
        for server in servers:
            await server.start()
        await until(socket_dir, lambda _: old.has_successor("example.com/fuse"))
        assert not new.has_successor("example.com/fuse")
        assert not old.has_successor("example.com/other")
        for server in servers:
            await server.stop()
        await until(socket_dir, lambda _: not old.has_successor("example.com/fuse"))


async def test_successor_still_counts_without_free_descriptors(socket_dir: Path) -> None:
    """An instance that considers its successor gone registers, and sends a list of its own."""
    old, new = sorted(new_instance() for _ in "12")
    folder = PluginFolder(socket_dir, old, FolderWatcher(), 0.01)
    server = UnixServer(new_socket(socket_dir, "example.com/fuse", new), [])
    await server.start()
    notifications: list[bool] = []
    folder.listen(lambda: notifications.append(folder.has_successor("example.com/fuse")))
    async with running(folder.run()):
        await until(socket_dir, lambda _: bool(notifications))
        with no_more_descriptors():
            before = len(notifications)
            await until_true(lambda: len(notifications) > before + 1)
    assert all(notifications)
    await server.stop()


async def test_only_sockets_in_the_folder_notify_listeners(socket_dir: Path) -> None:
    """The kubelet writes its checkpoint at each Allocate."""
    watcher = FolderWatcher()
    folder = PluginFolder(socket_dir, new_instance(), watcher, 30.0)
    notifications: list[None] = []
    folder.listen(lambda: notifications.append(None))
    async with running(folder.run()):
        await until(socket_dir, lambda _: bool(notifications))
        written: asyncio.Queue[None] = asyncio.Queue()
        watch = watcher.watch(socket_dir, lambda: written.put_nowait(None))  # receives all events, after `folder`
        for name, expected in (("kubelet_internal_checkpoint", 1), ("kubelet.sock", 2), ("nodeplug-x.sock", 3)):
            (socket_dir / name).touch()
            await written.get()
            assert len(notifications) == expected
        watch.close()


async def test_chmod_of_the_kubelet_socket_is_not_a_restart(socket_dir: Path) -> None:
    """Its change time changes then, as with a label of SELinux or a second link; the time it was made does not."""
    events, recorded = EventLog(), list[str]()
    events.subscribe(lambda event: recorded.append(event.kind))
    folder = PluginFolder(socket_dir, new_instance(), FolderWatcher(), 0.01, events)
    notifications: list[object] = []
    folder.listen(lambda: notifications.append(folder.kubelet()))
    folder.kubelet_socket.touch()
    async with running(folder.run()):
        await until_true(lambda: bool(notifications))
        folder.kubelet_socket.chmod(0o600)
        before = len(notifications)
        await until_true(lambda: len(notifications) > before + 1)
        assert (len({*notifications}), recorded) == (1, [])
        (socket_dir / "new").touch()
        (socket_dir / "new").rename(folder.kubelet_socket)
        await until_true(lambda: recorded == ["kubelet-restarted"])


async def test_resource_names_with_equal_file_names_have_separate_sockets(start: StartPlugins, paths: Paths) -> None:
    names = ("a-b-c", "a_b_c", "a-b_c", "a_b-c")
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource(name) for name in names])
        found = {(await kubelet.requests.get()).resource_name for _ in names}
        assert found == {f"example.com/{name}" for name in names}


async def until(folder: Path, holds: Callable[[list[str]], bool]) -> None:
    """Wait for a condition on the names in a folder, or on a state that changes with them."""
    async with asyncio.timeout(30):
        while not holds(os.listdir(folder)):  # noqa: ASYNC110 - no event reports it
            await asyncio.sleep(0.005)


async def test_stop_removes_sockets_and_ends_streams(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start([resource("fuse"), resource("kvm")])
        await kubelet.lists.get()
        await kubelet.lists.get()
        await side.stop()
        assert [path.name for path in paths.device_plugins.iterdir()] == ["kubelet.sock"]
        assert not any(status.streaming for status in side.plugins.status())


async def test_socket_name_of_a_long_resource_name_is_within_the_limit(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource("a" * 60)])
        request = await kubelet.requests.get()
        assert len(request.endpoint) <= 48  # the limit that the check of kubeletRoot assumes


async def test_registration_is_repeated_when_a_streaming_kubelet_hangs(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins, "deaf", "ok") as kubelet:
        await start([resource()], timings=Timings(silence=0.1))
        request = await kubelet.requests.get()
        hanging = await start_hanging_client(paths.device_plugins / request.endpoint)
        assert ids(await kubelet.lists.get()) == [("misc-fuse", "Healthy")]
        hanging.kill()
        await hanging.wait()


async def test_two_hundred_kubelet_restarts_leak_no_descriptors_threads_or_sockets(
    start: StartPlugins, paths: Paths
) -> None:
    kubelet = KubeletEnd(paths.device_plugins)
    await kubelet.start()
    await start([resource()], timings=QUICK)
    await kubelet.lists.get()

    async def restart(times: int) -> None:
        for _ in range(times):
            await kubelet.stop()
            await kubelet.start()
            await kubelet.lists.get()

    await restart(20)  # gRPC's own threads and pools reach their size
    since = LeakCheck()
    await restart(180)
    assert len(since.threads()) <= 1  # gRPC's own, which ends with its last connection and starts again
    assert len(since.descriptors()) <= 10  # including the connections of the last restart
    names: list[str] = []

    def has_only_final_names() -> bool:  # a new socket has a temporary name at first
        names[:] = sorted(path.name for path in paths.device_plugins.iterdir())
        return len(names) == 2

    await until_true(has_only_final_names)
    assert (names[0], names[1].startswith("nodeplug-fuse-")) == ("kubelet.sock", True)
    await kubelet.stop()


async def test_registration_is_repeated_when_the_stream_ends_at_once(socket_dir: Path) -> None:
    """For example, a kubelet is killed just after its first list: the stream ends before the state is streaming."""
    loop, has_ended = asyncio.get_running_loop(), asyncio.Event()

    class Plugin:
        async def get_device_plugin_options(self, _request: api.Empty, _context: Context) -> api.DevicePluginOptions:
            return api.DevicePluginOptions()

    async def wait_idle() -> None:
        """There is no Allocate to wait for."""

    def end() -> None:
        has_ended.set()
        registration.stream_changed()

    def streaming() -> bool:
        if registration.state is not State.REGISTERED or has_ended.is_set():
            return False
        loop.call_soon(end)
        return True

    folder = PluginFolder(socket_dir, new_instance(), FolderWatcher(), 30.0)
    async with kubelet_end(socket_dir, "deaf") as kubelet:
        registration = Registration(
            "example.com/fuse",
            folder,
            handler(api.DESCRIPTOR.services_by_name["DevicePlugin"], Plugin()),
            options=api.DevicePluginOptions,
            streaming=streaming,
            suspend_lists=lambda _: None,
            wait_idle=wait_idle,
            timings=Timings(stream=600.0),
        )
        async with running(registration.run()):
            first, second = await kubelet.requests.get(), await kubelet.requests.get()
    assert first.endpoint != second.endpoint


def by_watcher(
    folder: Path,
    instance: str = "",
    *,
    streaming: bool = False,
    suspend_lists: Callable[[bool], None] = lambda _: None,
    timings: Timings = Timings(),
) -> WatcherRegistration:
    """A registration through the plugin watcher, of a plugin without methods."""
    return WatcherRegistration(
        "example.com/fuse",
        folder,
        instance or new_instance(),
        handler(api.DESCRIPTOR.services_by_name["DevicePlugin"], object()),
        streaming=lambda: streaming,
        suspend_lists=suspend_lists,
        watcher=FolderWatcher(),
        timings=timings,
    )


async def test_plugin_watcher_silences_the_older_instance(socket_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nodeplug")
    old, new = sorted(new_instance() for _ in "12")
    suspended: asyncio.Queue[bool] = asyncio.Queue()
    registration = by_watcher(socket_dir, old, streaming=True, suspend_lists=suspended.put_nowait)
    async with running(registration.run()):
        for _ in range(2):
            server = UnixServer(new_socket(socket_dir, "example.com/fuse", new), [])
            await server.start()
            assert await suspended.get()
            await server.stop()
            assert not await suspended.get()
    assert suspended.empty()
    assert [x.message for x in caplog.records] == [SUPERSEDED] * 2


async def test_refusal_by_the_plugin_watcher_is_not_current_once_the_resource_is_removed(
    socket_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    registration = by_watcher(socket_dir)
    async with running(registration.run()):
        await until_true(lambda: [*socket_dir.iterdir()])
        (path,) = socket_dir.iterdir()
        async with connect(path) as channel:
            refused = registration_api.RegistrationStatus(error="no")
            await Client(channel, REGISTRATION).call("NotifyRegistrationStatus", refused, timeout=10)
        (warning,) = caplog.records
        assert warning.__dict__["is_current"]()
    assert not warning.__dict__["is_current"]()


async def test_warning_about_the_plugin_watchers_folder_ends_when_its_socket_is_served(
    socket_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder := socket_dir / "plugins_registry").touch()
    async with running(by_watcher(folder).run()):
        await until_true(lambda: caplog.records)
        (warning,) = caplog.records
        assert warning.getMessage().startswith("cannot serve: ")
        assert warning.__dict__["is_current"]()
        folder.unlink()
        folder.mkdir()
        await until_true(lambda: not warning.__dict__["is_current"]())


async def test_plugin_watcher_socket_is_renewed_when_the_kubelet_opens_no_stream(
    socket_dir: Path,
) -> None:
    registration = by_watcher(socket_dir, timings=QUICK)
    found: list[Path] = []

    def is_new() -> bool:
        before, found[:] = found[:], sorted(socket_dir.iterdir())
        return len(found) == 1 and found != before

    async with running(registration.run()):
        for _ in range(3):
            await until_true(is_new)
            async with connect(found[0]) as channel:
                accepted = registration_api.RegistrationStatus(plugin_registered=True)
                await Client(channel, REGISTRATION).call("NotifyRegistrationStatus", accepted, timeout=10)
    assert registration.registrations == 3
