"""The running plugins of DRA drivers. Of several instances of a driver (rolling update) the newest connected is used.

Each instance has one connection for all calls and its health stream, opened at once and again whenever it ends.
Source: DRA specification, sections 1.3 and 4.8; corrections 26 and 30.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message

from grpcunix import Client
from grpcunix.grpcio import GrpcioChannel
from kubelet.dramanager.claim_info import ClaimInfo
from kubelet.errors import ClaimError, RegistrationError
from kubelet.metrics import KubeletMetrics
from kubelet.rpc import Timeouts, await_unary, connect
from kubeletapi.dra.v1 import api_pb2 as v1
from kubeletapi.dra.v1beta1 import api_pb2 as v1beta1
from resourceapi.objects import quoted_text

SERVICES: Mapping[str, Any] = {"v1.DRAPlugin": v1, "v1beta1.DRAPlugin": v1beta1}  # in the kubelet's own order
PREPARE = "NodePrepareResources"
UNPREPARE = "NodeUnprepareResources"


def choose_service(versions: Sequence[str]) -> str:
    """Return the first service in the plugin's list that the kubelet knows. Raises `RegistrationError`."""
    if not versions:
        raise RegistrationError("empty list of supported gRPC services (aka supported versions)")
    for version in versions:
        if version in SERVICES:
            return version
    raise RegistrationError(
        f"none of services supported by the plugin ({_quoted(versions)}) are supported by the kubelet"
        f" ({_quoted(SERVICES)})"
    )


class DRAPlugin:
    """One instance of a driver's plugin."""

    def __init__(
        self,
        driver: str,
        endpoint: str,
        versions: Sequence[str],
        timeouts: Timeouts,
        metrics: KubeletMetrics,
        on_connection: Callable[["DRAPlugin"], None],
    ) -> None:
        """Prepare; `start` dials. `on_connection` is called when a connection begins or ends.

        Raises `RegistrationError`.
        """
        self.driver = driver
        self.endpoint = endpoint
        self.versions = tuple(versions)
        self.is_connected = False
        self.connections = 0  # number of connections so far
        self._messages = SERVICES[choose_service(versions)]
        self._seconds = timeouts.claims
        self._metrics = metrics
        self._on_connection = on_connection
        self._channel: GrpcioChannel | None = None
        self._following: asyncio.Task[None] | None = None

    @property
    def channel(self) -> GrpcioChannel:
        """The connection, for other services at the endpoint."""
        assert self._channel is not None, "it is open between start and close"
        return self._channel

    def start(self) -> None:
        """Dial, and dial again after every end of the connection."""
        self._channel = connect(Path(self.endpoint))
        self._following = asyncio.create_task(self._follow(self._channel), name=f"connection {self.endpoint}")

    async def close(self) -> None:
        """Close the connection. Idempotent."""
        following, self._following = self._following, None
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            self.is_connected = False
            await self.channel.close()

    async def call(self, method: str, claims: Sequence[ClaimInfo]) -> Mapping[str, Any]:
        """Prepare or unprepare claims; return the driver's answers by uid, as v1 messages. Raises `PluginCallError`."""
        api = self._messages
        request: Message = getattr(api, f"{method}Request")(
            claims=[api.Claim(namespace=info.namespace, uid=info.uid, name=info.name) for info in claims]
        )
        service = api.DESCRIPTOR.services_by_name["DRAPlugin"]
        call = Client(self.channel, service).call(method, request, timeout=self._seconds)
        counted = self._metrics.measure_call(self.driver, f"/{service.full_name}/{method}", call)
        response = await await_unary(counted, Path(self.endpoint))
        if api is not v1:  # older messages only lack fields, which must not be converted as unknown fields
            response.DiscardUnknownFields()
            response = getattr(v1, f"{method}Response").FromString(response.SerializeToString())
        answers: Mapping[str, Any] = response.claims
        return answers

    async def _follow(self, channel: GrpcioChannel) -> None:
        while True:
            state = channel.grpc.get_state(try_to_connect=True)
            is_connected = state is grpc.ChannelConnectivity.READY
            if is_connected != self.is_connected:
                self.is_connected = is_connected
                self.connections += is_connected
                self._on_connection(self)
            await channel.grpc.wait_for_state_change(state)


class PluginStore:
    """The instances of all drivers, for each driver in the order of their registration."""

    def __init__(self) -> None:
        self._drivers: dict[str, list[DRAPlugin]] = {}

    def add(self, plugin: DRAPlugin) -> None:
        """Add an instance. Raises `RegistrationError` if its endpoint is registered already."""
        instances = self._drivers.setdefault(plugin.driver, [])
        if any(each.endpoint == plugin.endpoint for each in instances):
            raise RegistrationError(
                f"endpoint {plugin.endpoint} already registered for DRA driver plugin {plugin.driver}"
            )
        instances.append(plugin)

    def remove(self, driver: str, endpoint: str) -> DRAPlugin | None:
        """Remove and return an instance; None if it is not registered."""
        instances = self._drivers.get(driver, [])
        for plugin in instances:
            if plugin.endpoint == endpoint:
                instances.remove(plugin)
                if not instances:
                    del self._drivers[driver]
                return plugin
        return None

    def get(self, driver: str) -> DRAPlugin:
        """Return the instance to call: the newest connected one, otherwise the newest. Raises `ClaimError`."""
        if not driver:
            raise ClaimError("DRA driver name is empty")
        instances = self._drivers.get(driver)
        if not instances:
            raise ClaimError(f"DRA driver {driver} is not registered")
        return next((each for each in reversed(instances) if each.is_connected), instances[-1])

    def instances(self, driver: str) -> tuple[DRAPlugin, ...]:
        """Return a driver's instances, the oldest first."""
        return tuple(self._drivers.get(driver, ()))

    def drivers(self) -> list[str]:
        """Return the registered drivers."""
        return list(self._drivers)

    def is_usable(self, driver: str) -> bool:
        """Return whether an instance of a driver is connected."""
        return any(each.is_connected for each in self._drivers.get(driver, ()))


def _quoted(names: Iterable[str]) -> str:
    """Return a list as Go prints it with %q."""
    return f"[{' '.join(map(quoted_text, names))}]"
