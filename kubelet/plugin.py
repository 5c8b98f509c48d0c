"""A device plugin for tests: plain gRPC, and every answer can be replaced, delayed, failed or cut.

Tests of plugins do not need it; tests of a kubelet do, and it shows what the other side of the sockets looks like.
Source: device manager specification, section 10.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio
from google.protobuf.message import Message

from grpcunix import Client, UnixServer, connect, handler
from kubelet.devicemanager.device import Device, to_message
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from kubeletapi.pluginregistration.v1 import api_pb2 as registration

_PLUGIN = api.DESCRIPTOR.services_by_name["DevicePlugin"]
_KUBELET = api.DESCRIPTOR.services_by_name["Registration"]
_WATCHER = registration.DESCRIPTOR.services_by_name["Registration"]

Answer = Message | bytes
Behaviour = Callable[[Any], Awaitable[Answer]]


class PluginFault(Exception):
    """Raise it in a behaviour to answer with this gRPC status."""

    def __init__(self, text: str, code: grpc.StatusCode = grpc.StatusCode.INTERNAL) -> None:
        """`text` becomes the details."""
        super().__init__(text)
        self.code = code


class DevicePluginStub:
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
        self.info = registration.PluginInfo(
            type=plugin_type, name=resource, endpoint=endpoint, supported_versions=versions
        )
        self.calls: list[tuple[str, Any]] = []  # (method, request), in order
        self.behaviours: dict[str, Behaviour] = {}  # method -> what answers instead
        self.streams_opened = 0  # ever
        self._streams: list[asyncio.Queue[Answer | None]] = []
        self._changed = asyncio.Event()
        self._server: UnixServer | None = None

    async def __aenter__(self) -> Self:
        """Serve."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop serving."""
        await self.stop()

    async def start(self) -> None:
        """Serve at the socket, anew if it serves already. Raises `GrpcUnixError` and OSError."""
        await self.stop()
        server = UnixServer(self.socket, [handler(_PLUGIN, self), handler(_WATCHER, self)])
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
        """Register at the kubelet's socket, giving up after `seconds`. Raises `grpc.aio.AioRpcError`."""
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

    def send(self, message: Answer) -> None:
        """Send a list as it is, or bytes that are none, on every stream."""
        for stream in self._streams:
            stream.put_nowait(message)

    def end_streams(self) -> None:
        """End every stream well; the plugin goes on serving."""
        for stream in self._streams:
            stream.put_nowait(None)

    @property
    def streams(self) -> int:
        """How many `ListAndWatch` streams are open."""
        return len(self._streams)

    def called(self, method: str) -> list[Any]:
        """The requests of a method, in order."""
        return [request for name, request in self.calls if name == method]

    async def until(self, predicate: Callable[[], bool], seconds: float = 10.0) -> None:
        """Return as soon as `predicate` is true, looking after each call. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while not predicate():
                await self._changed.wait()

    async def get_device_plugin_options(self, request: api.Empty, context: grpc.aio.ServicerContext) -> Answer:
        """`DevicePlugin.GetDevicePluginOptions`."""
        return await self._answer("GetDevicePluginOptions", request, context, self.options)

    async def list_and_watch(self, request: api.Empty, context: grpc.aio.ServicerContext) -> AsyncIterator[Answer]:
        """`DevicePlugin.ListAndWatch`: the list, then each new one."""
        first = await self._answer("ListAndWatch", request, context, to_message(self.devices))
        stream: asyncio.Queue[Answer | None] = asyncio.Queue()
        self._streams.append(stream)
        self.streams_opened += 1
        self._notify()
        try:
            yield first
            while (message := await stream.get()) is not None:
                yield message
        finally:
            self._streams.remove(stream)
            self._notify()

    async def allocate(self, request: api.AllocateRequest, context: grpc.aio.ServicerContext) -> Answer:
        """`DevicePlugin.Allocate`: an environment variable with the ids."""
        answers = [
            api.ContainerAllocateResponse(envs={"DEVICES": ",".join(each.devices_ids)})
            for each in request.container_requests
        ]
        return await self._answer("Allocate", request, context, api.AllocateResponse(container_responses=answers))

    async def get_preferred_allocation(
        self, request: api.PreferredAllocationRequest, context: grpc.aio.ServicerContext
    ) -> Answer:
        """`DevicePlugin.GetPreferredAllocation`: no opinion."""
        return await self._answer("GetPreferredAllocation", request, context, api.PreferredAllocationResponse())

    async def pre_start_container(
        self, request: api.PreStartContainerRequest, context: grpc.aio.ServicerContext
    ) -> Answer:
        """`DevicePlugin.PreStartContainer`."""
        return await self._answer("PreStartContainer", request, context, api.PreStartContainerResponse())

    async def get_info(self, request: registration.InfoRequest, context: grpc.aio.ServicerContext) -> Answer:
        """`Registration.GetInfo` of the plugin watcher."""
        return await self._answer("GetInfo", request, context, self.info)

    async def notify_registration_status(
        self, request: registration.RegistrationStatus, context: grpc.aio.ServicerContext
    ) -> Answer:
        """`Registration.NotifyRegistrationStatus` of the plugin watcher."""
        answer = registration.RegistrationStatusResponse()
        return await self._answer("NotifyRegistrationStatus", request, context, answer)

    async def _answer(self, method: str, request: Any, context: grpc.aio.ServicerContext, usual: Answer) -> Answer:
        self.calls.append((method, request))
        self._notify()
        behaviour = self.behaviours.get(method)
        if behaviour is None:
            return usual
        try:
            return await behaviour(request)
        except PluginFault as fault:
            await context.abort(fault.code, str(fault))
            raise AssertionError("abort always raises") from fault

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def failing(text: str, code: grpc.StatusCode = grpc.StatusCode.INTERNAL) -> Behaviour:
    """A behaviour that answers with a gRPC error."""

    async def fail(_: Any) -> Answer:
        raise PluginFault(text, code)

    return fail


def answering(*answers: Answer) -> Behaviour:
    """A behaviour that gives these answers one after the other, and the last one from then on."""
    left = list(answers)

    async def give(_: Any) -> Answer:
        return left.pop(0) if len(left) > 1 else left[0]

    return give


class Gate:
    """A behaviour that waits until the test opens it, and gives `answer` then."""

    def __init__(self, answer: Answer) -> None:
        """Closed."""
        self.answer = answer
        self._opened = asyncio.Event()

    def open(self) -> None:
        """Let all callers through, now and later."""
        self._opened.set()

    async def __call__(self, _: Any) -> Answer:
        """Wait."""
        await self._opened.wait()
        return self.answer
