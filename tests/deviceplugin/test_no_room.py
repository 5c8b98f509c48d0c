"""A folder without room for a socket, and a disk that hangs: other resources continue, and this one recovers later."""

import asyncio
import os
import threading

import pytest

from deviceplugin import Paths
from resources.selector import Ids
from tests.deviceplugin.conftest import StartPlugins, resource
from tests.deviceplugin.host import MadeUpHost
from tests.deviceplugin.kubelet_end import kubelet_end
from tests.running import until
from tests.small_disk import mounted, take_all_names


@pytest.mark.parametrize("through_watcher", [False, True])
async def test_socket_is_created_once_a_full_folder_has_room(
    start: StartPlugins, paths: Paths, through_watcher: bool
) -> None:
    folder = paths.plugins_registry if through_watcher else paths.device_plugins
    with mounted(folder, "size=1m,nr_inodes=40"):
        async with kubelet_end(paths.device_plugins), asyncio.timeout(60):
            fillers = take_all_names(folder)
            assert fillers
            side = await start([resource()], through_watcher=through_watcher)
            await until(lambda: "No space left on device" in side.plugins.status()[0].last_error)
            assert not list(folder.glob("nodeplug-*"))
            for path in fillers:
                path.unlink()
            await until(lambda: list(folder.glob("nodeplug-*")))
            assert side.running is not None
            assert not side.running.done()
        await side.stop()


async def test_resource_registers_again_once_a_full_folder_has_room(start: StartPlugins, paths: Paths) -> None:
    with mounted(paths.device_plugins, "size=1m,nr_inodes=40"):
        async with kubelet_end(paths.device_plugins) as kubelet, asyncio.timeout(60):
            side = await start([resource()])
            await kubelet.lists.get()
            fillers = take_all_names(paths.device_plugins)
            await kubelet.cut_streams()
            await until(lambda: "No space left on device" in side.plugins.status()[0].last_error)
            for path in fillers:
                path.unlink()
            await kubelet.lists.get()
            await until(lambda: side.plugins.status()[0].last_error == "")  # answered after the stream starts
            await side.stop()


async def test_hanging_cdi_folder_does_not_delay_lists_to_the_kubelet(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalled, released = threading.Event(), threading.Event()
    real = os.rename

    def hang(old: str, new: str) -> None:
        if str(new).startswith(str(paths.cdi)):
            stalled.set()
            released.wait()
        real(old, new)

    try:
        async with kubelet_end(paths.device_plugins) as kubelet, asyncio.timeout(60):
            side = await start([resource("misc", selector=Ids(("misc-fuse", "misc-kvm")))])
            assert len(await kubelet.lists.get()) == 2
            monkeypatch.setattr(os, "rename", hang)
            devices = made_up.devices()
            side.update({"example.com/misc": (devices["misc-fuse"],)})
            assert [x.ID for x in await kubelet.lists.get()] == ["misc-fuse"]
            await until(stalled.is_set)
            side.update({"example.com/misc": ()})
            assert await kubelet.lists.get() == []
    finally:
        released.set()
