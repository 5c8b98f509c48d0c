"""Registration: which plugins are accepted, and the effect on an earlier plugin."""

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from grpcunix import RpcError, Status, is_live
from kubelet import RELEASES
from kubelet.devicemanager import Device, ManagerImpl
from kubelet.errors import RegistrationError
from kubelet.pods import container
from kubelet.rpc import Timeouts
from kubelet.stubs import DevicePluginStub, failing
from tests.kubelet.kit import R1, R2, ManagerKit, healthy
from tests.kubelet.scenarios import scenario

OLDER = ["1.34", "1.35", "1.36"]  # they know one plugin per resource; for later ones see test_instances.py


async def refusal(stub: DevicePluginStub, kit: ManagerKit, **fields: Any) -> str:
    """The error with which the kubelet refuses the stub."""
    with pytest.raises(RpcError) as error:
        await stub.register(kit.folder / "kubelet.sock", **fields)
    assert error.value.code is Status.UNKNOWN
    return error.value.details


@scenario(1)
async def test_relative_socket_path_is_refused(folder: Path) -> None:
    ManagerImpl(folder / "kubelet.sock")
    with pytest.raises(RegistrationError, match=r"bad socketPath, must be an absolute path: kubelet\.sock"):
        ManagerImpl(Path("kubelet.sock"))


@scenario(2)
async def test_manager_and_plugin_stop_repeatedly_and_concurrently(folder: Path) -> None:
    kit = ManagerKit(folder)
    await kit.manager.stop()
    async with kit, DevicePluginStub(folder / "p.sock", R1) as plugin:
        await plugin.register(folder / "kubelet.sock")
        await asyncio.gather(plugin.stop(), plugin.stop())
        await asyncio.gather(kit.manager.stop(), kit.manager.stop())
    await kit.manager.stop()
    assert set(os.listdir(folder)) <= {"kubelet_internal_checkpoint", "kubelet.sock"}
    assert not is_live(folder / "kubelet.sock"), "it stays as a file"


async def test_health_check_reports_registration_server(folder: Path) -> None:
    kit = ManagerKit(folder)
    with pytest.raises(RegistrationError, match="registration gRPC server failed and no device plugins can register"):
        kit.manager.check_health()
    async with kit:
        kit.manager.check_health()
    kit.manager.check_health()


@scenario(4)
@pytest.mark.parametrize("pre_start_required", [False, True])
@pytest.mark.parametrize("preferred_allocation", [False, True])
async def test_newest_plugin_replaces_the_list(
    kit: ManagerKit, pre_start_required: bool, preferred_allocation: bool
) -> None:
    options = {"pre_start_required": pre_start_required, "preferred_allocation": preferred_allocation}
    two, three = healthy("Dev1", "Dev2"), healthy("Dev3")
    for name, devices in (("p.sock", two), ("p.sock.new", two), ("p.sock.third", three)):
        await kit.plugin(R1, devices, name, **options)
        count = len(devices)
        assert kit.manager.get_capacity() == ({R1: count}, {R1: count}, [])


@scenario(33)
async def test_options_are_called_before_list_and_watch(kit: ManagerKit) -> None:
    async with DevicePluginStub(kit.folder / "p.sock", R1, healthy("a")) as plugin:
        await plugin.register(kit.folder / "kubelet.sock")
        await plugin.until(lambda: plugin.streams == 1)
        assert [method for method, _ in plugin.calls] == ["GetDevicePluginOptions", "ListAndWatch"]


@pytest.mark.parametrize("version", ["v1alpha2", "", "v1"])
async def test_other_api_versions_are_refused_without_a_call(kit: ManagerKit, version: str) -> None:
    async with DevicePluginStub(kit.folder / "p.sock", R1) as plugin:
        text = await refusal(plugin, kit, version=version)
        assert plugin.calls == []
    assert text == (f'requested API version "{version}" is not supported by kubelet. Supported version is ["v1beta1"]')


BAD_NAMES = [
    "",
    "noslash",
    "foo.kubernetes.io/x",
    "requests.example.com/x",
    "a/b/c",
    "EXAMPLE.com/x",
    "example.com/-x",
    "example.com/" + "x" * 64,
    "x" * 245 + "/x",
    "example.com/x\n",
    "/x",
    "example.com/",
    "a..b/x",
]


@pytest.mark.parametrize("name", BAD_NAMES)
async def test_invalid_resource_name_is_refused(kit: ManagerKit, name: str) -> None:
    async with DevicePluginStub(kit.folder / "p.sock", name) as plugin:
        assert await refusal(plugin, kit) == f'the ResourceName "{name}" is invalid'


@pytest.mark.parametrize(
    "name",
    [
        *("fake-domain/resource2", "example.com/A_b.c", "a/b"),
        *("x" * 244 + "/x", ".".join(["x" * 60] * 4) + "/x", "example.com/" + "x" * 63),
    ],
)
def test_extended_resource_name_is_accepted(folder: Path, name: str) -> None:
    ManagerImpl(folder / "kubelet.sock").validate_plugin(name, "p.sock", ["v1beta1"])


@pytest.mark.parametrize("timeouts", [Timeouts(dial=0.5)], ids=["soon"])
@pytest.mark.parametrize("endpoint", ["missing.sock", "", "/abs.sock", "file", "gone.sock"])
async def test_endpoint_without_server_is_refused(kit: ManagerKit, endpoint: str) -> None:
    (kit.folder / "file").write_text("")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(kit.folder / "gone.sock"))
    async with DevicePluginStub(kit.folder / "p.sock", R1) as plugin:
        text = await refusal(plugin, kit, endpoint=endpoint)
    assert text == "failed to dial device plugin: context deadline exceeded"
    assert kit.manager.get_capacity() == ({}, {}, [])


async def test_endpoint_path_is_relative_to_plugin_folder(kit: ManagerKit, folder: Path) -> None:
    (folder.parent / f"{folder.name}x").mkdir()
    outside = folder.parent / f"{folder.name}x" / "p.sock"
    try:
        async with DevicePluginStub(outside, R1) as plugin:
            await plugin.register(folder / "kubelet.sock", endpoint=f"../{folder.name}x/p.sock")
            await kit.until(lambda: kit.manager.get_capacity()[0] == {R1: 0})
    finally:
        outside.parent.rmdir()


@scenario(86, 119, 129)
async def test_failing_options_refuse_plugin_and_keep_other_plugins(kit: ManagerKit) -> None:
    first = await kit.plugin(R1, healthy("a", "b"))
    broken = DevicePluginStub(kit.folder / "broken.sock", R2)
    broken.behaviours["GetDevicePluginOptions"] = failing("options broken")
    async with broken:
        text = await refusal(broken, kit)
        assert text == "failed to get device plugin options: rpc error: code = Internal desc = options broken"
        assert [method for method, _ in broken.calls] == ["GetDevicePluginOptions"]
        assert kit.manager.get_capacity()[0] == {R1: 2}
        await refusal(broken, kit, resource=R1)
    await kit.admit("pod2", container("c", {R1: 1}))
    assert first.streams == 1
    assert kit.manager.get_capacity() == ({R1: 2}, {R1: 2}, [])


@scenario(87)
async def test_timed_out_register_call_has_no_effect(kit: ManagerKit) -> None:
    async with DevicePluginStub(kit.folder / "p.sock", R1) as plugin:
        cancelled = asyncio.Event()

        async def hang(_: Any) -> Any:
            try:
                return await asyncio.Future()
            finally:
                cancelled.set()

        plugin.behaviours["GetDevicePluginOptions"] = hang
        with pytest.raises(RpcError) as error:
            await plugin.register(kit.folder / "kubelet.sock", seconds=0.2)
        assert error.value.code is Status.DEADLINE_EXCEEDED
        await asyncio.wait_for(cancelled.wait(), 30)  # the kubelet can notice the end of the call later than the plugin
        del plugin.behaviours["GetDevicePluginOptions"]
        await plugin.register(kit.folder / "kubelet.sock")
        await plugin.until(lambda: plugin.streams == 1)
        assert len(plugin.called("ListAndWatch")) == 1


@pytest.mark.parametrize("kubernetes", OLDER)
async def test_second_registration_opens_second_stream_before_1_37(kit: ManagerKit) -> None:
    plugin = await kit.plugin(R1, healthy("a"))
    await plugin.register(kit.folder / "kubelet.sock")
    await plugin.until(lambda: plugin.streams == 2)
    assert len(plugin.called("GetDevicePluginOptions")) == 2


@pytest.mark.parametrize("kubernetes", RELEASES)
async def test_last_received_list_wins(kit: ManagerKit) -> None:
    old = await kit.plugin(R1, healthy("a", "b"))
    new = await kit.plugin(R1, healthy("a"))
    old.update(healthy("a", "b", "c"))
    await kit.until(lambda: kit.manager.get_capacity()[0] == {R1: 3})
    new.update(healthy("a", "b"))
    await kit.until(lambda: kit.manager.get_capacity()[0] == {R1: 2})


@pytest.mark.parametrize("kubernetes", OLDER)
async def test_exit_of_old_plugin_disconnects_new_one_before_1_37(kit: ManagerKit) -> None:
    old = await kit.plugin(R1, healthy("a"))
    new = await kit.plugin(R1, healthy("a", "b"))
    await old.stop()
    await kit.until(lambda: kit.manager.get_capacity() == ({R1: 2}, {R1: 0}, []))
    await new.until(lambda: new.streams == 0)
    await new.register(kit.folder / "kubelet.sock")
    await kit.until(lambda: kit.manager.get_capacity() == ({R1: 2}, {R1: 2}, []))


@pytest.mark.parametrize("kubernetes", OLDER)
async def test_exit_of_old_plugin_is_unnoticed_after_new_one_exited(kit: ManagerKit) -> None:
    old = await kit.plugin(R1, healthy("a"))
    new = await kit.plugin(R1, healthy("b"))
    await new.stop()
    await kit.until(lambda: kit.manager.get_capacity() == ({R1: 1}, {R1: 0}, []))
    old.update(healthy("a", "b"))
    await kit.until(lambda: kit.manager.get_capacity() == ({R1: 2}, {R1: 2}, []))
    await old.stop()
    await kit.clock.advance(299)
    assert kit.manager.get_capacity() == ({R1: 2}, {R1: 2}, [])
    await kit.clock.advance(2)
    assert kit.manager.get_capacity() == ({}, {}, [R1])


async def test_start_removes_only_sockets(folder: Path) -> None:
    (folder / "file").write_text("")
    (folder / "sub").mkdir()
    os.mkfifo(folder / "fifo")
    for name in ("old.sock", "sub/inner.sock"):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(folder / name))
    (folder / "link.sock").symlink_to("old.sock")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "kubelet_internal_checkpoint").write_text("broken")
    async with ManagerKit(folder):
        assert sorted(os.listdir(folder)) == [
            "dangling",
            "fifo",
            "file",
            "kubelet.sock",
            "kubelet_internal_checkpoint",
            "sub",
        ]
        assert os.listdir(folder / "sub") == ["inner.sock"]
        assert is_live(folder / "kubelet.sock")
    assert (folder / "kubelet_internal_checkpoint").read_text() == "broken"


async def test_200_registrations_are_served(folder: Path) -> None:
    async with (
        ManagerKit(folder) as kit,
        DevicePluginStub(folder / "p.sock", R1, [Device("a")]) as plugin,
    ):
        names = [f"example.com/r{number}" for number in range(200)]
        for start in range(0, len(names), 50):
            await asyncio.gather(
                *(plugin.register(folder / "kubelet.sock", resource=name) for name in names[start : start + 50])
            )
        await kit.until(lambda: len(kit.manager.get_capacity()[0]) == len(names))
        assert set(kit.manager.get_capacity()[1].values()) == {1}
