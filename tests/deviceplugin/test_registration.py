"""Serving, registering, and what a kubelet may do to us meanwhile."""

import asyncio
import os
import socket
import threading

import pytest

from deviceplugin import Paths
from deviceplugin.lifecycle import Timings
from hostdevices import Device
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from tests.deviceplugin.conftest import StartPlugins, resource
from tests.deviceplugin.kubelet_end import KubeletEnd, kubelet_end
from tests.grpcunix.hanging import hang_listening

QUICK = Timings(register=0.2, stream=0.05, stable=0.0)


def ids(devices: list[api.Device]) -> list[tuple[str, str]]:
    return [(device.ID, device.health) for device in devices]


async def test_serves_first_then_registers_then_lists(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource()])
        request = await kubelet.requests.get()
        assert (request.version, request.resource_name) == ("v1beta1", "example.com/fuse")
        assert request.options.get_preferred_allocation_available
        assert ids(await kubelet.lists.get()) == [("misc-fuse", "Healthy")]


async def test_a_kubelet_that_comes_later_is_found_by_its_socket(start: StartPlugins, paths: Paths) -> None:
    await start([resource()])
    async with kubelet_end(paths.device_plugins) as kubelet:
        assert ids(await kubelet.lists.get()) == [("misc-fuse", "Healthy")]


async def test_an_empty_list_is_sent_too(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource("missing")])
        assert await kubelet.lists.get() == []


async def test_a_kubelet_that_restarts_gets_everything_again(start: StartPlugins, paths: Paths) -> None:
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


async def test_a_refusal_is_shown_and_tried_again(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins, "refuse", "refuse", "ok") as kubelet:
        plugins = await start([resource()])
        for _ in range(2):
            await kubelet.requests.get()
        await kubelet.lists.get()
        assert kubelet.requests.qsize() == 1
        assert plugins.status()[0].registrations == 1


async def test_the_kubelets_words_stand_in_the_status(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins, "refuse", "hang") as kubelet:
        plugins = await start([resource()])
        for _ in range(2):
            await kubelet.requests.get()
        assert plugins.status()[0].last_error == 'the kubelet refused: the ResourceName "example.com/fuse" is invalid'


async def test_a_register_that_hangs_is_given_up(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins, "hang", "ok") as kubelet:
        await start([resource()], timings=QUICK)
        assert ids(await kubelet.lists.get()) == [("misc-fuse", "Healthy")]


async def test_a_kubelet_that_never_listens_is_asked_again(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins, "deaf", "deaf", "ok") as kubelet:
        await start([resource()], timings=QUICK)
        assert ids(await kubelet.lists.get()) == [("misc-fuse", "Healthy")]


async def test_a_stream_that_the_kubelet_ends_is_followed_by_a_registration(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource()])
        for _ in range(3):
            assert ids(await kubelet.lists.get()) == [("misc-fuse", "Healthy")]
            await kubelet.cut_streams()


async def test_an_older_stream_stays_open_and_silent(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        plugins = await start([resource()])
        request = await kubelet.requests.get()
        await kubelet.lists.get()
        second = asyncio.ensure_future(kubelet._listen(request.endpoint))
        await kubelet.lists.get()
        await plugins.update({})
        assert await kubelet.lists.get() == []
        assert kubelet.lists.empty()
        assert not any(stream.done() for stream in kubelet._streams)
        second.cancel()


async def test_equal_lists_are_not_sent_again(start: StartPlugins, paths: Paths) -> None:
    fuse = Device(id="misc-fuse", kind="misc", name="fuse")
    async with kubelet_end(paths.device_plugins) as kubelet:
        plugins = await start([resource()])
        await kubelet.lists.get()
        for number in range(5):
            await plugins.update({"example.com/fuse": (Device(id="misc-fuse", kind="misc", name=f"fuse{number}"),)})
        await plugins.update({"example.com/fuse": ()})
        assert await kubelet.lists.get() == []
        await plugins.update({"example.com/fuse": (fuse,)})
        assert ids(await kubelet.lists.get()) == [("misc-fuse", "Healthy")]


async def test_somebody_elses_live_socket_is_left_alone(start: StartPlugins, paths: Paths) -> None:
    taken = paths.device_plugins / "nodeplug-example.com_fuse-a.sock"
    with socket.socket(socket.AF_UNIX) as owner:
        owner.bind(str(taken))
        owner.listen()
        await start([resource()])  # before the kubelet: a kubelet that starts removes every socket
        kubelet = KubeletEnd(paths.device_plugins)
        await kubelet.start(wipe=False)
        assert (await kubelet.requests.get()).endpoint == "nodeplug-example.com_fuse-b.sock"
        assert taken.exists()
        await kubelet.stop()


async def test_stale_sockets_of_ours_are_removed_and_nobody_elses(start: StartPlugins, paths: Paths) -> None:
    for name in ("nodeplug-old-a.sock", "other.sock"):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(paths.device_plugins / name))
    await start([resource()])
    left = {path.name for path in paths.device_plugins.iterdir()}
    assert "other.sock" in left
    assert "nodeplug-old-a.sock" not in left


async def test_stopping_removes_our_sockets_and_ends_streams(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        plugins = await start([resource("fuse"), resource("kvm")])
        await kubelet.lists.get()
        await kubelet.lists.get()
        await plugins.stop()
        assert [path.name for path in paths.device_plugins.iterdir()] == ["kubelet.sock"]
        assert not any(status.streaming for status in plugins.status())


async def test_a_long_resource_name_still_fits_a_socket(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource("a" * 60)])
        request = await kubelet.requests.get()
        assert len(request.endpoint) <= 48


async def test_a_kubelet_that_hangs_with_its_stream_open_is_registered_with_again(
    start: StartPlugins, paths: Paths
) -> None:
    async with kubelet_end(paths.device_plugins, "deaf", "ok") as kubelet:
        await start([resource()], timings=Timings(silence=0.1))
        request = await kubelet.requests.get()
        hanging = await hang_listening(paths.device_plugins / request.endpoint)
        assert ids(await kubelet.lists.get()) == [("misc-fuse", "Healthy")]
        hanging.kill()
        await hanging.wait()


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_a_thousand_kubelet_restarts_leak_nothing(start: StartPlugins, paths: Paths) -> None:
    kubelet = KubeletEnd(paths.device_plugins)
    await kubelet.start()
    await start([resource()], timings=QUICK)
    await kubelet.lists.get()

    async def restart(times: int) -> None:
        for _ in range(times):
            await kubelet.stop()
            await kubelet.start()
            await kubelet.lists.get()

    await restart(20)  # gRPC's own threads and pools settle
    threads, descriptors = threading.active_count(), open_descriptors()
    await restart(980)
    assert threading.active_count() <= threads
    assert open_descriptors() <= descriptors + 3
    assert sorted(path.name for path in paths.device_plugins.iterdir()) == [
        "kubelet.sock",
        "nodeplug-example.com_fuse-a.sock",
    ]
    await kubelet.stop()


async def test_a_folder_that_is_missing_is_named(made_up: object, paths: Paths, start: StartPlugins) -> None:
    paths.device_plugins.rmdir()
    with pytest.raises(OSError, match="device-plugins"):
        await start([resource()])
