"""The stub, as tests of other projects use it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from grpcunix import Client, RpcError, connect, is_live
from kubelet.devicemanager import Stub
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from kubeletapi.pluginregistration.v1 import api_pb2 as registration
from tests.deviceplugin.kubelet_end import kubelet_end
from tests.kubelet.kit import ManagerKit

DEVICES = [api.Device(ID="dev-1", health="Healthy"), api.Device(ID="dev-2", health="Healthy")]
PLUGIN = api.DESCRIPTOR.services_by_name["DevicePlugin"]
REGISTRATION = registration.DESCRIPTOR.services_by_name["Registration"]


async def test_stub_registers_and_sends_lists(socket_dir: Path) -> None:
    async with kubelet_end(socket_dir) as kubelet:
        stub = Stub(DEVICES, socket_dir / "stub.sock", "example.com/thing", pre_start_container_flag=True)
        await stub.start()
        await stub.register(socket_dir / "kubelet.sock", "example.com/thing", "")
        assert await kubelet.lists.get() == DEVICES
        await stub.update([api.Device(ID="dev-1", health="Unhealthy")])
        assert await kubelet.lists.get() == [api.Device(ID="dev-1", health="Unhealthy")]
        assert stub.devs == DEVICES
        assert (await kubelet.requests.get()).options.pre_start_required
        await stub.stop()
        assert not is_live(stub.socket)


async def test_refused_stub_is_stopped(socket_dir: Path) -> None:
    async with kubelet_end(socket_dir, "refuse"):
        stub = Stub(DEVICES, socket_dir / "stub.sock", "example.com/thing")
        await stub.start()
        with pytest.raises(RpcError, match="is invalid"):
            await stub.register(socket_dir / "kubelet.sock", "example.com/thing", "")
        assert not stub.socket.exists()


async def test_stub_does_not_register_if_deprecation_file_exists(socket_dir: Path) -> None:
    (socket_dir / "DEPRECATION").touch()
    async with kubelet_end(socket_dir) as kubelet:
        stub = Stub(DEVICES, socket_dir / "stub.sock", "example.com/thing")
        await stub.start()
        await stub.register(socket_dir / "kubelet.sock", "example.com/thing", f"{socket_dir}/")
        assert kubelet.requests.empty()
        await stub.stop()


async def test_custom_allocation_functions_answer_calls(socket_dir: Path) -> None:
    def allocate(request: api.AllocateRequest, devices: Mapping[str, api.Device]) -> api.AllocateResponse:
        ids = [devices[i].ID for c in request.container_requests for i in c.devices_ids]
        return api.AllocateResponse(container_responses=[api.ContainerAllocateResponse(envs={"IDS": ",".join(ids)})])

    def prefer(
        request: api.PreferredAllocationRequest, devices: Mapping[str, api.Device]
    ) -> api.PreferredAllocationResponse:
        chosen = api.ContainerPreferredAllocationResponse(deviceIDs=sorted(devices)[:1])
        return api.PreferredAllocationResponse(container_responses=[chosen])

    stub = Stub(DEVICES, socket_dir / "stub.sock", "example.com/thing", get_preferred_allocation_flag=True)
    stub.set_alloc_func(allocate)
    stub.set_get_preferred_alloc_func(prefer)
    await stub.start()
    async with connect(stub.socket) as channel:
        client = Client(channel, PLUGIN)
        request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=["dev-2"])])
        assert (await client.call("Allocate", request)).container_responses[0].envs == {"IDS": "dev-2"}
        preferred = await client.call("GetPreferredAllocation", api.PreferredAllocationRequest())
        assert preferred.container_responses[0].deviceIDs == ["dev-1"]
        assert (await client.call("GetDevicePluginOptions", api.Empty())).get_preferred_allocation_available
        assert await client.call("PreStartContainer", api.PreStartContainerRequest()) is not None
    await stub.stop()


async def test_stub_answers_plugin_watcher(socket_dir: Path) -> None:
    stub = Stub(DEVICES, socket_dir / "stub.sock", "example.com/thing")
    await stub.start()
    async with connect(stub.socket) as channel:
        client = Client(channel, REGISTRATION)
        info = await client.call("GetInfo", registration.InfoRequest())
        assert (info.type, info.name, info.endpoint) == ("DevicePlugin", "example.com/thing", "")
        assert list(info.supported_versions) == ["v1beta1"]
        await client.call("NotifyRegistrationStatus", registration.RegistrationStatus(plugin_registered=True))
        assert stub.registration_status.get_nowait().plugin_registered
    await stub.stop()


async def test_stop_is_idempotent_and_ends_streams_without_error(socket_dir: Path) -> None:
    stub = Stub(DEVICES, socket_dir / "stub.sock", "example.com/thing")
    await stub.stop()
    await stub.start()
    async with connect(stub.socket) as channel:
        stream = aiter(Client(channel, PLUGIN).stream("ListAndWatch", api.Empty()))
        assert len((await anext(stream)).devices) == 2
        rest = asyncio.ensure_future(_read_to_end(stream))
        await stub.stop()
        assert await rest == []
    await stub.stop()


async def test_restart_breaks_streams_and_serves_again(socket_dir: Path) -> None:
    stub = Stub(DEVICES, socket_dir / "stub.sock", "example.com/thing")
    await stub.start()
    async with connect(stub.socket) as channel:
        stream = aiter(Client(channel, PLUGIN).stream("ListAndWatch", api.Empty()))
        await anext(stream)
        await stub.restart()
        with pytest.raises(RpcError):
            await _read_to_end(stream)
    assert is_live(stub.socket)
    await stub.stop()


async def test_manager_registers_stub_by_name_and_endpoint(kit: ManagerKit) -> None:
    stub = Stub(DEVICES, kit.folder / "stub.sock", "example.com/thing")
    await stub.start()
    await kit.manager.register_plugin("example.com/thing", str(stub.socket))
    healthy = kit.manager.state.healthy
    await kit.until(lambda: healthy.get("example.com/thing", {}).keys() == {"dev-1", "dev-2"})
    await stub.update([api.Device(ID="dev-1", health="Healthy")])
    await kit.until(lambda: healthy["example.com/thing"].keys() == {"dev-1"})
    await stub.stop()


async def _read_to_end(stream: AsyncIterator[api.ListAndWatchResponse]) -> list[api.ListAndWatchResponse]:
    return [message async for message in stream]
