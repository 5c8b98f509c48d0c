"""The calls to one plugin."""

import asyncio
import contextlib
import os
import sys
from pathlib import Path

import pytest

from kubelet.errors import PluginCallError
from kubelet.rpc import Timeouts
from kubelet.stubs import Gate, answering, failing
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from tests.kubelet import plugin_process
from tests.kubelet.kit import R1, ManagerKit, healthy
from tests.kubelet.scenarios import scenario


@scenario(35)
async def test_allocate_response_is_returned_unchanged(kit: ManagerKit) -> None:
    answer = api.AllocateResponse(
        container_responses=[
            api.ContainerAllocateResponse(
                devices=[
                    api.DeviceSpec(container_path=path, host_path=path, permissions="mrw")
                    for path in ("/dev/aaa", "/dev/bbb")
                ],
                mounts=[api.Mount(container_path="/container_dir1/file1", host_path="host_dir1/file1", read_only=True)],
            )
        ]
    )
    plugin = await kit.plugin(R1, healthy("ADeviceId"))
    plugin.behaviours["Allocate"] = answering(answer)
    assert await kit.manager.state.endpoints[R1].allocate(["ADeviceId"]) == answer
    assert [list(c.devices_ids) for c in plugin.called("Allocate")[0].container_requests] == [["ADeviceId"]]


@scenario(36)
async def test_preferred_allocation_response_is_returned_unchanged(kit: ManagerKit) -> None:
    answer = api.PreferredAllocationResponse(
        container_responses=[api.ContainerPreferredAllocationResponse(deviceIDs=["device0", "device1", "device2"])]
    )
    plugin = await kit.plugin(R1)
    plugin.behaviours["GetPreferredAllocation"] = answering(answer)
    assert await kit.manager.state.endpoints[R1].preferred_allocation([], [], -1) == answer
    assert plugin.called("GetPreferredAllocation")[0].container_requests[0].allocation_size == -1


async def test_call_errors_have_grpc_go_texts(kit: ManagerKit) -> None:
    plugin = await kit.plugin(R1)
    plugin.behaviours["Allocate"] = failing("cannot give d0")
    endpoint = kit.manager.state.endpoints[R1]
    with pytest.raises(PluginCallError, match=r"^rpc error: code = Internal desc = cannot give d0$"):
        await endpoint.allocate(["d0"])
    plugin.behaviours["Allocate"] = answering(b"\xff")
    with pytest.raises(PluginCallError, match=r"^rpc error: code = Internal desc = grpc: failed to unmarshal"):
        await endpoint.allocate(["d0"])


async def test_plugin_death_during_allocate_has_grpc_go_error(kit: ManagerKit) -> None:
    """The message is grpc-go 1.82's. Errors are passed on unchanged: device manager specification, section 3.1."""
    command = (sys.executable, str(Path(plugin_process.__file__)), str(kit.folder), "dies-in-allocate")
    process = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    try:
        await kit.listed("example.com/x", healthy("a", "b"))
        gone = "^rpc error: code = Unavailable desc = error reading from server: (EOF|connection reset by peer)$"
        with pytest.raises(PluginCallError, match=gone):
            await kit.manager.state.endpoints["example.com/x"].allocate(["a"])
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.mark.parametrize("timeouts", [Timeouts(pre_start=0.5)], ids=["soon"])
async def test_slow_pre_start_times_out(kit: ManagerKit) -> None:
    plugin = await kit.plugin(R1)
    gate = plugin.behaviours["PreStartContainer"] = Gate(api.PreStartContainerResponse())
    with pytest.raises(PluginCallError, match="code = DeadlineExceeded"):
        await kit.manager.state.endpoints[R1].pre_start_container(["a"])
    gate.open()
