"""A minimal device plugin, for `bench transport`.

`python -m bench.bare_plugin FOLDER TRANSPORT RESOURCES DEVICES` gives the same answers as the Go plugin of the
baselines, so that only the transport differs.
"""

# ruff: noqa: E402 - asyncio would load OpenSSL, which the daemon prevents too
from nodeplug.deferred import defer_unused

defer_unused()

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from grpcunix import Client, Context, RpcError, Status, Transport, UnixServer, connect, handler
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api

SERVICES = api.DESCRIPTOR.services_by_name


class Plugin:
    """One resource."""

    def __init__(self, number: int, devices: int) -> None:
        """Build the list of devices."""
        ids = [f"res{number}-dev{device:05}" for device in range(devices)]
        self._paths = {name: f"/dev/example{device}" for device, name in enumerate(ids)}
        self._list = api.ListAndWatchResponse(
            devices=[
                api.Device(ID=name, health="Healthy", topology=api.TopologyInfo(nodes=[api.NUMANode(ID=device % 2)]))
                for device, name in enumerate(ids)
            ]
        ).SerializeToString()

    async def get_device_plugin_options(self, request: api.Empty, context: Context) -> api.DevicePluginOptions:
        """Return that GetPreferredAllocation can be called."""
        del request, context
        return api.DevicePluginOptions(get_preferred_allocation_available=True)

    async def list_and_watch(self, request: api.Empty, context: Context) -> AsyncIterator[bytes]:
        """Send the list once."""
        del request, context
        yield self._list
        await asyncio.Event().wait()

    async def allocate(self, request: api.AllocateRequest, context: Context) -> api.AllocateResponse:
        """Answer with a device node, a mount and an environment variable."""
        del context
        answer = api.AllocateResponse()
        for container in request.container_requests:
            response = answer.container_responses.add()
            response.envs["EXAMPLE_VISIBLE_DEVICES"] = ",".join(container.devices_ids)
            response.mounts.add(container_path="/opt/example/lib", host_path="/usr/lib/example", read_only=True)
            for name in container.devices_ids:
                path = self._paths.get(name)
                if path is None:
                    raise RpcError(Status.INVALID_ARGUMENT, f"unknown device: {name}")
                response.devices.add(container_path=path, host_path=path, permissions="rw")
        return answer


async def _serve(folder: Path, transport: Transport, resources: int, devices: int) -> None:
    servers = []
    for number in range(resources):
        service = handler(SERVICES["DevicePlugin"], Plugin(number, devices))
        server = UnixServer(folder / f"res{number}.sock", [service], transport=transport)
        await server.start()
        servers.append(server)
    async with connect(folder / "kubelet.sock", transport=transport) as channel:
        kubelet = Client(channel, SERVICES["Registration"])
        for number, server in enumerate(servers):
            name = f"example.com/res{number}"
            request = api.RegisterRequest(version="v1beta1", endpoint=server.path.name, resource_name=name)
            await kubelet.call("Register", request, timeout=5.0)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    await stopping.wait()
    for server in servers:
        await server.stop()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))  # type: ignore[arg-type]
