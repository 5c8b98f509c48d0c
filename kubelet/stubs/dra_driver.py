"""A DRA driver's plugin for tests: plain gRPC.

Tests of a kubelet need it, tests of drivers do not. It serves the registration and the driver's services on one socket
in `plugins_registry`, or on two sockets.
Source: DRA specification, sections 1.1-1.5.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from grpcunix import Context, Handler, UnixServer, handler
from kubelet.scripted_plugin import REGISTRATION, ScriptedPlugin, StubReply
from kubeletapi.dra.v1 import api_pb2 as v1
from kubeletapi.dra.v1beta1 import api_pb2 as v1beta1
from kubeletapi.dra_health.v1 import api_pb2 as health_v1
from kubeletapi.dra_health.v1alpha1 import api_pb2 as health_v1alpha1

_APIS = {
    "v1.DRAPlugin": v1,
    "v1beta1.DRAPlugin": v1beta1,
    "v1.DRAResourceHealth": health_v1,
    "v1alpha1.DRAResourceHealth": health_v1alpha1,
}

Prepare = Callable[[Any], Iterable[v1.Device]]  # a claim of the request -> its devices


class DRAPluginStub(ScriptedPlugin):
    """A plugin of one driver.

    It prepares every claim, by default without devices. `prepare` returns the devices of a claim, or raises
    `PluginFault`.
    """

    def __init__(
        self,
        registry: Path,
        driver: str = "driver.example.com",
        prepare: Prepare = lambda _: (),
        *,
        name: str = "",
        socket: Path | None = None,
        versions: Sequence[str] | None = None,
        services: Sequence[str] = ("v1.DRAPlugin", "v1beta1.DRAPlugin"),
        plugin_type: str = "DRAPlugin",
    ) -> None:
        """A plugin whose registration socket is in the folder `registry`, as `name` or `<driver>-reg.sock`.

        Args:
            registry: the kubelet's `plugins_registry`.
            driver: the driver's name.
            prepare: returns the devices of a claim.
            name: the file name of the registration socket.
            socket: the socket of the driver's services; by default the registration socket serves them too.
            versions: the announced services; by default those that are served.
            services: the services that are served.
            plugin_type: the announced plugin type.
        """
        self.registration_socket = registry / (name or f"{driver}-reg.sock")
        self.socket = socket or self.registration_socket
        self.prepare = prepare
        announced = services if versions is None else versions
        super().__init__(plugin_type, driver, "" if socket is None else str(socket), announced)
        self.services = tuple(services)
        self._servers: list[UnixServer] = []

    async def start(self) -> None:
        """Serve, the driver's services first. Raises `GrpcUnixError` and OSError."""
        await self.stop()
        services = [handler(_service(name), _Methods(self, name)) for name in self.services]
        if self.socket == self.registration_socket:
            await self._serve(self.socket, [*services, handler(REGISTRATION, self)])
        else:
            await self._serve(self.socket, services)
            await self._serve(self.registration_socket, [handler(REGISTRATION, self)])

    async def stop(self) -> None:
        """Stop serving: remove the sockets, the registration socket first. Idempotent."""
        while self._servers:
            await self._servers.pop().stop()

    async def stop_service(self) -> None:
        """Stop only the driver's services and remove their socket; the separate registration socket stays."""
        await self._servers.pop(0).stop()

    async def start_service(self) -> None:
        """Serve the driver's services again at the same socket."""
        await self._serve(self.socket, [handler(_service(name), _Methods(self, name)) for name in self.services])
        self._servers.insert(0, self._servers.pop())

    def report(self, *devices: health_v1alpha1.DeviceHealth) -> None:
        """Send a report on every health stream."""
        self.send(health_v1alpha1.NodeWatchResourcesResponse(devices=devices))

    def claims(self, method: str) -> list[list[str]]:
        """Return the names of the claims in each request of a method, in order."""
        return [[claim.name for claim in request.claims] for request in self.called(method)]

    @property
    def notified(self) -> list[tuple[bool, str]]:
        """The kubelet's notifications about the registration, in order: whether it succeeded, and the error."""
        return [(each.plugin_registered, each.error) for each in self.called("NotifyRegistrationStatus")]

    async def _serve(self, socket: Path, handlers: Sequence[Handler]) -> None:
        server = UnixServer(socket, handlers, transport="grpcio")
        await server.start()
        self._servers.append(server)


class _Methods:
    """The methods of one service of a stub."""

    def __init__(self, stub: DRAPluginStub, service: str) -> None:
        self._stub = stub
        self._api: Any = _APIS[service]

    async def node_prepare_resources(self, request: Any, _: Context) -> StubReply:
        def prepared() -> StubReply:
            response = v1.NodePrepareResourcesResponse()
            for claim in request.claims:
                response.claims[claim.uid].devices.extend(self._stub.prepare(claim))
            return self._converted(response)

        return await self._stub.reply_to("NodePrepareResources", request, prepared)

    async def node_unprepare_resources(self, request: Any, _: Context) -> StubReply:
        response = v1.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            response.claims[claim.uid].SetInParent()
        return await self._stub.reply_to("NodeUnprepareResources", request, self._converted(response))

    async def node_watch_resources(self, request: Any, _: Context) -> AsyncIterator[StubReply]:
        usual = self._api.NodeWatchResourcesResponse()
        async for message in self._stub.stream(self._stub.reply_to("NodeWatchResources", request, usual)):
            yield message

    def _converted(self, response: Any) -> StubReply:
        """Convert a v1 message to the service's version; the encodings are the same except for fields only v1 has."""
        found: StubReply = getattr(self._api, type(response).__name__).FromString(response.SerializeToString())
        return found


def _service(name: str) -> Any:
    return _APIS[name].DESCRIPTOR.services_by_name[name.partition(".")[2]]


def claimed(requests: Sequence[str], pool: str, device: str, *cdi: str, share_id: str | None = None) -> v1.Device:
    """Return a device for `prepare`."""
    made = v1.Device(request_names=requests, pool_name=pool, device_name=device, cdi_device_ids=cdi)
    if share_id is not None:
        made.share_id = share_id
    return made
