"""A device plugin for tests: plain gRPC on a socket of its own. It is also an example of the plugin's side of the API.

`DevicePluginStub` is scripted by tests, call by call. `Stub` is the same with the members of the kubelet's own stub:

    stub = Stub([api.Device(ID="dev-1", health="Healthy")], folder / "stub.sock", "example.com/thing")
    await stub.start()
    await stub.register(folder / "kubelet.sock", "example.com/thing", plugin_sock_dir="")
    stub.update([api.Device(ID="dev-1", health="Unhealthy")])
    await stub.stop()

Source: device manager specification, section 10.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from grpcunix import Client, Context, RpcError, UnixServer, handler
from kubelet.devicemanager.device import Device, devices_of, to_message
from kubelet.rpc import connect
from kubelet.scripted_plugin import REGISTRATION, ScriptedPlugin, StubReply
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from kubeletapi.pluginregistration.v1 import api_pb2 as registration

_PLUGIN = api.DESCRIPTOR.services_by_name["DevicePlugin"]
_KUBELET = api.DESCRIPTOR.services_by_name["Registration"]
_DEPRECATION = "DEPRECATION"  # a file of old kubelets, which means that plugins register through the plugin watcher
_REGISTER_SECONDS = 20.0  # timeout of Register, including the kubelet's dial
_GRACE = 1.0  # seconds that running calls have when `Stub` stops

AllocFunc: TypeAlias = Callable[[api.AllocateRequest, Mapping[str, api.Device]], api.AllocateResponse]
PreferredAllocFunc: TypeAlias = Callable[
    [api.PreferredAllocationRequest, Mapping[str, api.Device]], api.PreferredAllocationResponse
]


class DevicePluginStub(ScriptedPlugin):
    """A plugin of one resource on a socket of its own. Use it as a context manager, or `start` and `stop` it."""

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
        """`endpoint`, `versions` and `plugin_type` are part of the answer to a plugin watcher's GetInfo."""
        self.socket = socket
        self.resource = resource
        self.devices = list(devices)
        self.options = api.DevicePluginOptions(
            pre_start_required=pre_start_required, get_preferred_allocation_available=preferred_allocation
        )
        super().__init__(plugin_type, resource, endpoint, versions)
        self._server: UnixServer | None = None

    async def start(self) -> None:
        """Serve at the socket; if it serves already, stop first. Raises `GrpcUnixError` and OSError."""
        await self.stop()
        server = UnixServer(self.socket, [handler(_PLUGIN, self), handler(REGISTRATION, self)], transport="grpcio")
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Stop at once, like a plugin that dies: streams break, the socket is removed. Idempotent."""
        await self.stop_server()

    async def register(
        self,
        kubelet: Path,
        *,
        version: str = "v1beta1",
        endpoint: str | None = None,
        resource: str | None = None,
        options: api.DevicePluginOptions | None = None,
        seconds: float | None = None,
    ) -> None:
        """Register at the kubelet's socket, giving up after `seconds`. Raises `RpcError`."""
        request = api.RegisterRequest(
            version=version,
            endpoint=self.socket.name if endpoint is None else endpoint,
            resource_name=self.resource if resource is None else resource,
            options=options,
        )
        async with connect(kubelet) as channel:
            await Client(channel, _KUBELET).call("Register", request, timeout=seconds)

    @property
    def is_serving(self) -> bool:
        """Whether the plugin was started and not stopped since."""
        return self._server is not None

    async def stop_server(self, grace: float | None = None) -> None:
        """Stop serving; running calls have `grace` seconds to end, then they break. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace)

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
        """`DevicePlugin.Allocate`: returns an environment variable with the ids."""
        answers = [
            api.ContainerAllocateResponse(envs={"DEVICES": ",".join(each.devices_ids)})
            for each in request.container_requests
        ]
        return await self.reply_to("Allocate", request, api.AllocateResponse(container_responses=answers))

    async def get_preferred_allocation(self, request: api.PreferredAllocationRequest, _: Context) -> StubReply:
        """`DevicePlugin.GetPreferredAllocation`: returns no preference."""
        return await self.reply_to("GetPreferredAllocation", request, api.PreferredAllocationResponse())

    async def pre_start_container(self, request: api.PreStartContainerRequest, _: Context) -> StubReply:
        """`DevicePlugin.PreStartContainer`."""
        return await self.reply_to("PreStartContainer", request, api.PreStartContainerResponse())


class Stub:
    """A plugin that offers `devs` as the resource `name` at `socket`, with the members of the kubelet's own stub."""

    def __init__(
        self,
        devs: Sequence[api.Device],
        socket: Path | str,
        name: str,
        pre_start_container_flag: bool = False,
        get_preferred_allocation_flag: bool = False,
    ) -> None:
        """The flags are the answer of GetDevicePluginOptions."""
        self.devs = list(devs)
        self.registration_status: asyncio.Queue[registration.RegistrationStatus] = asyncio.Queue()
        self._plugin = DevicePluginStub(
            Path(socket),
            name,
            devices_of(api.ListAndWatchResponse(devices=devs)),
            pre_start_required=pre_start_container_flag,
            preferred_allocation=get_preferred_allocation_flag,
        )
        self._plugin.behaviours["NotifyRegistrationStatus"] = self._keep_status
        self.set_alloc_func(lambda request, devices: api.AllocateResponse())  # noqa: ARG005 - the default
        self.set_get_preferred_alloc_func(lambda r, d: api.PreferredAllocationResponse())  # noqa: ARG005

    @property
    def socket(self) -> Path:
        """The plugin's socket."""
        return self._plugin.socket

    async def start(self) -> None:
        """Serve the device plugin and the registration service. Raises `GrpcUnixError` or OSError."""
        await self._plugin.start()

    async def stop(self) -> None:
        """Stop serving; open ListAndWatch streams end without an error. Idempotent, also without `start`."""
        self._plugin.end_streams()
        await self._plugin.stop_server(_GRACE)

    async def restart(self) -> None:
        """Stop and serve again, like after a crash: streams break. Does nothing before `start`."""
        if self._plugin.is_serving:
            await self._plugin.start()

    async def update(self, devs: Sequence[api.Device]) -> None:
        """Send a new list through ListAndWatch, after a stream is open. The attribute `devs` is not changed."""
        await self._plugin.until(lambda: self._plugin.streams > 0)
        self._plugin.send(api.ListAndWatchResponse(devices=devs))

    async def register(self, kubelet_endpoint: Path | str, resource_name: str, plugin_sock_dir: str) -> None:
        """Register at the kubelet's socket, unless `plugin_sock_dir` + "DEPRECATION" exists (old kubelets).

        Raises `RpcError` if the kubelet refuses; the stub is then stopped.
        """
        if plugin_sock_dir and Path(plugin_sock_dir + _DEPRECATION).exists():
            return
        try:
            await self._plugin.register(
                Path(kubelet_endpoint), resource=resource_name, options=self._plugin.options, seconds=_REGISTER_SECONDS
            )
        except RpcError:
            await self.stop()
            raise

    def set_alloc_func(self, function: AllocFunc) -> None:
        """Answer Allocate with `function(request, devices by id)`; an empty response by default."""

        async def respond(request: api.AllocateRequest) -> StubReply:
            return function(request, self._by_id())

        self._plugin.behaviours["Allocate"] = respond

    def set_get_preferred_alloc_func(self, function: PreferredAllocFunc) -> None:
        """Answer GetPreferredAllocation with `function(request, devices by id)`; no preference by default."""

        async def respond(request: api.PreferredAllocationRequest) -> StubReply:
            return function(request, self._by_id())

        self._plugin.behaviours["GetPreferredAllocation"] = respond

    async def get_device_plugin_options(self, request: api.Empty, context: Context) -> StubReply:
        """`DevicePlugin.GetDevicePluginOptions`: the two flags."""
        return await self._plugin.get_device_plugin_options(request, context)

    def list_and_watch(self, request: api.Empty, context: Context) -> AsyncIterator[StubReply]:
        """`DevicePlugin.ListAndWatch`: the first list, then every update, until the stub stops."""
        return self._plugin.list_and_watch(request, context)

    async def allocate(self, request: api.AllocateRequest, context: Context) -> StubReply:
        """`DevicePlugin.Allocate`: returns the result of the `set_alloc_func` function."""
        return await self._plugin.allocate(request, context)

    async def get_preferred_allocation(self, request: api.PreferredAllocationRequest, context: Context) -> StubReply:
        """`DevicePlugin.GetPreferredAllocation`: returns the result of the `set_get_preferred_alloc_func` function."""
        return await self._plugin.get_preferred_allocation(request, context)

    async def pre_start_container(self, request: api.PreStartContainerRequest, context: Context) -> StubReply:
        """`DevicePlugin.PreStartContainer`: succeeds."""
        return await self._plugin.pre_start_container(request, context)

    async def get_info(self, request: registration.InfoRequest, context: Context) -> StubReply:
        """`Registration.GetInfo`: identifies the plugin for the plugin watcher."""
        return await self._plugin.get_info(request, context)

    async def notify_registration_status(self, request: registration.RegistrationStatus, context: Context) -> StubReply:
        """`Registration.NotifyRegistrationStatus`: puts the status into `registration_status`."""
        return await self._plugin.notify_registration_status(request, context)

    async def _keep_status(self, request: registration.RegistrationStatus) -> StubReply:
        self.registration_status.put_nowait(request)
        return registration.RegistrationStatusResponse()

    def _by_id(self) -> dict[str, api.Device]:
        return {device.ID: device for device in self.devs}
