"""A device plugin as a process, for tests of a kubelet in another process: `plugin_process.py FOLDER BEHAVIOUR`."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from grpcunix import RpcError
from kubelet.devicemanager import HEALTHY, UNHEALTHY, Device
from kubelet.stubs import DevicePluginStub, Gate, PluginFault, StubReply, answering, failing
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api

LISTS = {"duplicate-id": "abb", "four-devices": "abcd", "nine-devices": "abcdefghi"}
"""The devices of a behaviour, one letter each."""


async def allocate(request: api.AllocateRequest) -> StubReply:
    """Allocate known devices, and refuse unknown ones."""
    asked = [id_ for each in request.container_requests for id_ in each.devices_ids]
    if not all(id_ in {*"abcdefghi"} or id_.isdigit() for id_ in asked):
        raise PluginFault(f"{asked[0]}: no such device")
    responses = [
        api.ContainerAllocateResponse(devices=[api.DeviceSpec(host_path="/d", container_path="/d", permissions="rw")])
        for _ in request.container_requests
    ]
    return api.AllocateResponse(container_responses=responses)


async def allocate_by_process(request: api.AllocateRequest) -> StubReply:
    """Allocate a CDI device whose name is new in each process."""
    cdi = api.CDIDevice(name=f"example.com/x={os.getpid()}")
    return api.AllocateResponse(
        container_responses=[api.ContainerAllocateResponse(cdi_devices=[cdi]) for _ in request.container_requests]
    )


async def kill_process(_: api.AllocateRequest) -> StubReply:
    """End the process during a call."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed")


async def prefer(request: api.PreferredAllocationRequest) -> StubReply:
    """Prefer the devices that must be included, then the first available ones."""
    chosen = []
    for each in request.container_requests:
        ids = list(dict.fromkeys([*each.must_include_deviceIDs, *each.available_deviceIDs]))
        chosen.append(api.ContainerPreferredAllocationResponse(deviceIDs=ids[: each.allocation_size]))
    return api.PreferredAllocationResponse(container_responses=chosen)


async def main(folder: Path, behaviour: str) -> None:
    """Serve and register, again after each end of the kubelet, until a signal arrives."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    name = "kubernetes.io/x" if behaviour == "invalid-name" else "example.com/x"
    health = UNHEALTHY if behaviour == "unhealthy" else HEALTHY
    if behaviour == "exits-if-socket-exists" and (folder / "p.sock").exists():
        sys.exit(6)
    if behaviour == "registers-once":
        marker = folder.parent / "ran"
        behaviour = "unregistered" if marker.exists() else "correct"
        marker.touch()
    ids = [str(os.getpid())] if behaviour == "ids-per-process" else LISTS.get(behaviour, "ab")
    devices = [Device(id_, health) for id_ in ids]
    socket_folder = folder.parent if behaviour == "wrong-folder" else folder
    plugin = DevicePluginStub(socket_folder / "p.sock", name, devices, preferred_allocation=True)
    plugin.behaviours = {"Allocate": allocate, "GetPreferredAllocation": prefer}

    async def allocate_until_restart(request: api.AllocateRequest) -> StubReply:
        if plugin.streams_opened > 2:  # the kubelet's first one, and that of the test
            raise PluginFault("devices are not known")
        return await allocate(request)

    async def end_stream_after_restart(request: api.AllocateRequest) -> StubReply:
        if plugin.streams_opened > 2:
            registration.cancel()  # it does not register again
            plugin.end_streams()
            await stopped.wait()
        return await allocate(request)

    faulty: dict[str, Any] = {
        "fails-after-restart": {"Allocate": allocate_until_restart},
        "ends-list-in-allocate": {"Allocate": end_stream_after_restart},
        "accepts-unknown": {
            "Allocate": answering(api.AllocateResponse(container_responses=[api.ContainerAllocateResponse()]))
        },
        "escapes-in-error": {"Allocate": failing("\x1b[31mno\x1b[0m")},
        "no-list": {"ListAndWatch": Gate(api.ListAndWatchResponse())},  # never opened
        "list-fails": {"ListAndWatch": failing("no list")},
        "empty-id": {"ListAndWatch": answering(api.ListAndWatchResponse(devices=[api.Device(health="Healthy")]))},
        "cdi-name-per-process": {"Allocate": allocate_by_process},
        "dies-in-allocate": {"Allocate": kill_process},
        "hangs-in-allocate": {"Allocate": Gate(api.AllocateResponse())},  # never opened
        "invalid-answers": {
            "Allocate": answering(
                api.AllocateResponse(
                    container_responses=[api.ContainerAllocateResponse(mounts=[api.Mount(host_path="relative")])]
                )
            ),
            "GetPreferredAllocation": answering(
                api.PreferredAllocationResponse(
                    container_responses=[api.ContainerPreferredAllocationResponse(deviceIDs=["a", "a", "z"])]
                )
            ),
        },
    }
    plugin.behaviours |= faulty.get(behaviour, {})
    registration = asyncio.create_task(stay_registered(plugin, folder / "kubelet.sock", behaviour))
    await stopped.wait()
    registration.cancel()
    await plugin.stop()
    if behaviour == "removes-all-files":  # it also removes files of others
        for path in folder.iterdir():
            path.unlink()


async def next_stream_ends(plugin: DevicePluginStub, opened: int) -> None:
    """Wait until a stream after the first `opened` has opened and ended."""
    await plugin.until(lambda: plugin.streams_opened > opened and not plugin.streams, 600)


async def stay_registered(plugin: DevicePluginStub, kubelet: Path, behaviour: str) -> None:
    """Stay registered."""
    if behaviour == "unregistered":
        return
    while True:
        opened = plugin.streams_opened
        gone = asyncio.create_task(next_stream_ends(plugin, opened))
        try:
            await plugin.start()
            await plugin.register(kubelet, seconds=1)
        except (RpcError, OSError):  # the kubelet is not running yet, or has just removed our socket
            gone.cancel()
            if behaviour == "invalid-name":
                sys.exit("registration refused")
            await asyncio.sleep(0.02)
            continue
        if behaviour == "short-stream":
            await plugin.until(lambda: plugin.streams > 0)
            plugin.end_streams()
        await gone
        if behaviour == "exits-at-second-list" and plugin.streams_opened > opened + 1:
            os._exit(3)
        if behaviour in ("ignores-restart", "short-stream", "list-fails"):
            return


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
