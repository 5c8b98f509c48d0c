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
LOOK = 0.2  # seconds between two looks at the kubelet's socket
stopping = asyncio.Event()


def wire(message: Any) -> bytes:
    """Return a message as it goes over the wire."""
    return bytes(message.SerializeToString())


async def options(_request: api.Empty, _context: Any) -> api.DevicePluginOptions:
    """No preferences, no calls before a container starts."""
    return api.DevicePluginOptions()


async def watch(_request: api.Empty, _context: Any) -> AsyncIterator[api.ListAndWatchResponse]:
    """Send the whole list, and again whenever it changes; the stream ends when the plugin does."""
    yield api.ListAndWatchResponse(devices=[api.Device(ID=i, health="Healthy") for i in DEVICES])
    await stopping.wait()


async def allocate(request: api.AllocateRequest, context: Any) -> api.AllocateResponse:
    """Say what a container gets. The kubelet keeps the answer for every start of it, also after its own restart."""
    for each in request.container_requests:
        if unknown := set(each.devices_ids) - set(DEVICES):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"unknown devices: {', '.join(sorted(unknown))}")
    answers = [{"envs": {"TWENTY": ",".join(each.devices_ids)}} for each in request.container_requests]
    return api.AllocateResponse(container_responses=answers)


async def serve(folder: Path, name: str) -> grpc.aio.Server:
    """Serve at a socket of this name: first serve, then register, for Register is answered after a call back."""
    unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
    methods = {
        "GetDevicePluginOptions": unary(options, api.Empty.FromString, wire),
        "ListAndWatch": stream(watch, api.Empty.FromString, wire),
        "Allocate": unary(allocate, api.AllocateRequest.FromString, wire),
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods)])
    server.add_insecure_port(f"unix:{folder / name}")
    await server.start()
    return server


async def register(folder: Path, name: str) -> None:
    """Tell the kubelet. Raises `grpc.aio.AioRpcError` where none listens, or it refuses."""
    async with grpc.aio.insecure_channel(f"unix:{folder / 'kubelet.sock'}") as channel:
        call = channel.unary_unary("/v1beta1.Registration/Register", wire)
        await call(api.RegisterRequest(version="v1beta1", endpoint=name, resource_name=RESOURCE), timeout=10)


def kubelet(folder: Path) -> object:
    """Tell one kubelet from the next: by its socket, whose number alone may be used again, and when it was made."""
    with contextlib.suppress(FileNotFoundError):
        found = (folder / "kubelet.sock").stat()
        return found.st_ino, found.st_ctime_ns
    return None


async def main(folder: Path) -> None:
    """Register with each kubelet, at a socket of a new name: 1.37 refuses one that it has used."""
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
            await asyncio.wait_for(stopping.wait(), LOOK)
    if server is not None:
        await server.stop(1)  # and its socket goes


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
