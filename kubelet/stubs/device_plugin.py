"""A device plugin for tests: plain gRPC at a socket of its own.

Tests of plugins do not need it; tests of a kubelet do, and it shows what the other side of the sockets looks like.
Source: device manager specification, section 10.
"""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from grpcunix import Client, Context, UnixServer, handler
from kubelet.devicemanager.device import Device, to_message
from kubelet.rpc import connect
from kubelet.stubs.scripted import REGISTRATION, ScriptedPlugin, StubReply
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api

_PLUGIN = api.DESCRIPTOR.services_by_name["DevicePlugin"]
_KUBELET = api.DESCRIPTOR.services_by_name["Registration"]


class DevicePluginStub(ScriptedPlugin):
    """A plugin of one resource at a socket of its own. Use it as a context manager, or `start` and `stop` it."""

    def __init__(
        self,
        socket: Path,
        resource: str = "example.com/device",
        devices: Sequence[Device] = (),
        *,
        pre_start_required: bool = False,
        preferred_allocation: bool = False,
        endpoint: str = "",
        versions: Sequence[str] = ("v1beta1",),
        plugin_type: str = "DevicePlugin",
    ) -> None:
        """`endpoint`, `versions` and `plugin_type` are what it tells a plugin watcher that finds its socket."""
        self.socket = socket
        self.resource = resource
        self.devices = list(devices)
        self.options = api.DevicePluginOptions(
            pre_start_required=pre_start_required, get_preferred_allocation_available=preferred_allocation
        )
        super().__init__(plugin_type, resource, endpoint, versions)
        self._server: UnixServer | None = None

    async def start(self) -> None:
        """Serve at the socket, anew if it serves already. Raises `GrpcUnixError` and OSError."""
        await self.stop()
        server = UnixServer(self.socket, [handler(_PLUGIN, self), handler(REGISTRATION, self)], transport="grpcio")
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Die: streams break, the socket goes. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    async def register(
        self,
        kubelet: Path,
        *,
        version: str = "v1beta1",
        endpoint: str | None = None,
        resource: str | None = None,
        seconds: float | None = None,
    ) -> None:
        """Register at the kubelet's socket, giving up after `seconds`. Raises `RpcError`."""
        request = api.RegisterRequest(
            version=version,
            endpoint=self.socket.name if endpoint is None else endpoint,
            resource_name=self.resource if resource is None else resource,
        )
        async with connect(kubelet) as channel:
            await Client(channel, _KUBELET).call("Register", request, timeout=seconds)

    def update(self, devices: Sequence[Device]) -> None:
        """Send a new list on every stream."""
        self.devices = list(devices)
        self.send(to_message(self.devices))

    async def get_device_plugin_options(self, request: api.Empty, _: Context) -> StubReply:
        """`DevicePlugin.GetDevicePluginOptions`."""
        return await self.reply_to("GetDevicePluginOptions", request, self.options)

    async def list_and_watch(self, request: api.Empty, _: Context) -> AsyncIterator[StubReply]:
        """`DevicePlugin.ListAndWatch`: the list, then each new one."""
        first = self.reply_to("ListAndWatch", request, to_message(self.devices))
        async for message in self.stream(first):
            yield message

    async def allocate(self, request: api.AllocateRequest, _: Context) -> StubReply:
        """`DevicePlugin.Allocate`: an environment variable with the ids."""
        answers = [
            api.ContainerAllocateResponse(envs={"DEVICES": ",".join(each.devices_ids)})
            for each in request.container_requests
        ]
        return await self.reply_to("Allocate", request, api.AllocateResponse(container_responses=answers))

    async def get_preferred_allocation(self, request: api.PreferredAllocationRequest, _: Context) -> StubReply:
        """`DevicePlugin.GetPreferredAllocation`: no opinion."""
        return await self.reply_to("GetPreferredAllocation", request, api.PreferredAllocationResponse())

    async def pre_start_container(self, request: api.PreStartContainerRequest, _: Context) -> StubReply:
        """`DevicePlugin.PreStartContainer`."""
        return await self.reply_to("PreStartContainer", request, api.PreStartContainerResponse())
