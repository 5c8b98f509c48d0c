"""A device plugin in Python that passes `nodeplug kubelet verify`; comments explain what a kubelet expects.

nodeplug kubelet verify -- python plugin.py {dir}
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api

RESOURCE = "example.com/twenty"
DEVICES = ["a", "b"]
INTERVAL = 0.2  # seconds between checks of the kubelet's socket
stopping = asyncio.Event()


def serialize(message: Any) -> bytes:
    """Return the serialized message."""
    return bytes(message.SerializeToString())


async def options(_request: api.Empty, _context: Any) -> api.DevicePluginOptions:
    """Return the plugin's options: no preferred allocation, no PreStartContainer."""
    return api.DevicePluginOptions()


async def watch(_request: api.Empty, _context: Any) -> AsyncIterator[api.ListAndWatchResponse]:
    """Send the whole list at once and after each change. The stream stays open until the plugin ends."""
    yield api.ListAndWatchResponse(devices=[api.Device(ID=i, health="Healthy") for i in DEVICES])
    await stopping.wait()


async def allocate(request: api.AllocateRequest, context: Any) -> api.AllocateResponse:
    """Return what each container gets. The kubelet stores the answer and uses it again when the container restarts."""
    for each in request.container_requests:
        if unknown := set(each.devices_ids) - set(DEVICES):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"unknown devices: {', '.join(sorted(unknown))}")
    answers = [{"envs": {"TWENTY": ",".join(each.devices_ids)}} for each in request.container_requests]
    return api.AllocateResponse(container_responses=answers)


async def serve(folder: Path, name: str) -> grpc.aio.Server:
    """Serve at a socket of this name. Serve before you register: the kubelet calls back before it answers Register."""
    unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
    methods = {
        "GetDevicePluginOptions": unary(options, api.Empty.FromString, serialize),
        "ListAndWatch": stream(watch, api.Empty.FromString, serialize),
        "Allocate": unary(allocate, api.AllocateRequest.FromString, serialize),
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods)])
    server.add_insecure_port(f"unix:{folder / name}")
    await server.start()
    return server


async def register(folder: Path, name: str) -> None:
    """Register with the kubelet. Raises `grpc.aio.AioRpcError` if it does not listen or refuses."""
    async with grpc.aio.insecure_channel(f"unix:{folder / 'kubelet.sock'}") as channel:
        call = channel.unary_unary("/v1beta1.Registration/Register", serialize)
        await call(api.RegisterRequest(version="v1beta1", endpoint=name, resource_name=RESOURCE), timeout=10)


def kubelet(folder: Path) -> object:
    """Return what identifies a kubelet: its socket's inode, which can be used again, and its creation time."""
    with contextlib.suppress(FileNotFoundError):
        found = (folder / "kubelet.sock").stat()
        return found.st_ino, found.st_mtime_ns
    return None


async def main(folder: Path) -> None:
    """Register with each kubelet, with a new socket name: kubelet 1.37 refuses a name that was used before."""
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stopping.set)
    server, registered = None, None
    while not stopping.is_set():
        now = kubelet(folder)
        if now is not None and now != registered:
            if server is not None:
                await server.stop(0)
            name = f"twenty-{os.urandom(4).hex()}.sock"
            server = await serve(folder, name)
            try:
                await register(folder, name)
                registered = now
            except grpc.aio.AioRpcError as error:
                print(f"not registered, trying again: {error.details()}", file=sys.stderr)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), INTERVAL)
    if server is not None:
        await server.stop(1)  # this also removes the socket


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
