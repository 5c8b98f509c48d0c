"""`Stub`: a device plugin for tests of kubelets, schedulers and plugins, without devices.

    stub = Stub([api.Device(ID="dev-1", health="Healthy")], socket=folder / "stub.sock", name="example.com/thing")
    await stub.start()
    await stub.register(folder / "kubelet.sock", "example.com/thing", plugin_sock_dir="")
    await stub.update([api.Device(ID="dev-1", health="Unhealthy")])
    await stub.stop()

The members are those of the kubelet's own stub in Python's spelling (device manager specification, section 10), with
`restart`, `set_get_preferred_alloc_func` and `registration_status` of its later versions.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from deviceplugin.registration import VERSION
from grpcunix import Client, Context, RpcError, UnixServer, connect, handler
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from kubeletapi.pluginregistration.v1 import api_pb2 as registration

_PLUGIN = api.DESCRIPTOR.services_by_name["DevicePlugin"]
_REGISTRATION = registration.DESCRIPTOR.services_by_name["Registration"]
_KUBELET = api.DESCRIPTOR.services_by_name["Registration"]
_DEPRECATION = "DEPRECATION"  # a file that old kubelets left to say: register through the plugin watcher
_DIAL_TIMEOUT = 10.0  # seconds

AllocFunc: TypeAlias = Callable[[api.AllocateRequest, Mapping[str, api.Device]], api.AllocateResponse]
PreferredAllocFunc: TypeAlias = Callable[
    [api.PreferredAllocationRequest, Mapping[str, api.Device]], api.PreferredAllocationResponse
]


class Stub:
    """A device plugin that offers `devs` as the resource `name` at the socket `socket`."""

    def __init__(
        self,
        devs: Sequence[api.Device],
        socket: Path | str,
        name: str,
        pre_start_container_flag: bool = False,
        get_preferred_allocation_flag: bool = False,
    ) -> None:
        """Prepare; the flags are what GetDevicePluginOptions answers."""
        self.devs = list(devs)
        self.socket = Path(socket)
        self.name = name
        self.endpoint = ""  # what GetInfo answers
        self.registration_status: asyncio.Queue[registration.RegistrationStatus] = asyncio.Queue()
        self._options = api.DevicePluginOptions(
            pre_start_required=pre_start_container_flag,
            get_preferred_allocation_available=get_preferred_allocation_flag,
        )
        self._alloc_func: AllocFunc = lambda request, devices: api.AllocateResponse()  # noqa: ARG005 - the default
        self._preferred_func: PreferredAllocFunc = lambda r, d: api.PreferredAllocationResponse()  # noqa: ARG005
        self._updates: asyncio.Queue[list[api.Device]] = asyncio.Queue(maxsize=1)
        self._stopping = asyncio.Event()
        self._server: UnixServer | None = None

    async def start(self) -> None:
        """Serve the device plugin and the registration service. Raises `GrpcUnixError` or OSError."""
        server = UnixServer(self.socket, [handler(_PLUGIN, self), handler(_REGISTRATION, self)], transport="grpcio")
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Stop serving; open ListAndWatch streams end well. May come without `start` and more than once."""
        server, self._server = self._server, None
        if server is not None:
            self._stopping.set()
            await server.stop(grace=1.0)

    async def restart(self) -> None:
        """Stop and serve again, as after a crash: streams break. Does nothing before `start`."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop()
            await self.start()

    async def update(self, devs: Sequence[api.Device]) -> None:
        """Hand a new list to one ListAndWatch stream; returns when a stream has taken it. `devs` stays as it is."""
        await self._updates.put(list(devs))
        await self._updates.join()

    async def register(self, kubelet_endpoint: Path | str, resource_name: str, plugin_sock_dir: str) -> None:
        """Register at the kubelet's socket, unless `plugin_sock_dir` + "DEPRECATION" exists (old kubelets).

        Raises `RpcError` where the kubelet refuses; the stub is stopped then.
        """
        if plugin_sock_dir and Path(plugin_sock_dir + _DEPRECATION).exists():
            return
        request = api.RegisterRequest(
            version=VERSION, endpoint=self.socket.name, resource_name=resource_name, options=self._options
        )
        async with connect(Path(kubelet_endpoint), transport="grpcio") as channel:
            try:
                await Client(channel, _KUBELET).call("Register", request, timeout=_DIAL_TIMEOUT * 2)
            except RpcError:
                await self.stop()
                raise

    def set_alloc_func(self, function: AllocFunc) -> None:
        """Answer Allocate with `function(request, devices by id)`."""
        self._alloc_func = function

    def set_get_preferred_alloc_func(self, function: PreferredAllocFunc) -> None:
        """Answer GetPreferredAllocation with `function(request, devices by id)`."""
        self._preferred_func = function

    async def get_device_plugin_options(self, request: api.Empty, context: Context) -> api.DevicePluginOptions:
        """Answer the two flags."""
        del request, context
        return self._options

    async def list_and_watch(self, request: api.Empty, context: Context) -> AsyncIterator[api.ListAndWatchResponse]:
        """Send the first list at once, then every update, until the stub stops."""
        del request, context
        yield api.ListAndWatchResponse(devices=self.devs)
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            while True:
                update = asyncio.ensure_future(self._updates.get())
                await asyncio.wait([stopping, update], return_when=asyncio.FIRST_COMPLETED)
                if not update.done():
                    update.cancel()
                    return
                self._updates.task_done()
                yield api.ListAndWatchResponse(devices=update.result())
        finally:
            stopping.cancel()

    async def allocate(self, request: api.AllocateRequest, context: Context) -> api.AllocateResponse:
        """Answer what the function set with `set_alloc_func` answers; an empty response by default."""
        del context
        return self._alloc_func(request, self._by_id())

    async def get_preferred_allocation(
        self, request: api.PreferredAllocationRequest, context: Context
    ) -> api.PreferredAllocationResponse:
        """Answer what the function set with `set_get_preferred_alloc_func` answers; no preference by default."""
        del context
        return self._preferred_func(request, self._by_id())

    async def pre_start_container(
        self, request: api.PreStartContainerRequest, context: Context
    ) -> api.PreStartContainerResponse:
        """Answer that all is well."""
        del request, context
        return api.PreStartContainerResponse()

    async def get_info(self, request: registration.InfoRequest, context: Context) -> registration.PluginInfo:
        """Tell the plugin watcher who we are."""
        del request, context
        return registration.PluginInfo(
            type="DevicePlugin", name=self.name, endpoint=self.endpoint, supported_versions=[VERSION]
        )

    async def notify_registration_status(
        self, request: registration.RegistrationStatus, context: Context
    ) -> registration.RegistrationStatusResponse:
        """Keep the verdict in `registration_status`."""
        del context
        self.registration_status.put_nowait(request)
        return registration.RegistrationStatusResponse()

    def _by_id(self) -> dict[str, api.Device]:
        return {device.ID: device for device in self.devs}
