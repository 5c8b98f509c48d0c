"""The registration service at `kubelet.sock`, and a client for each plugin that registered.

When a stream ends, the plugin that the client table has for it is disconnected. Up to 1.36 that can be another plugin:
the exit of an old plugin disconnects its successor, which must then register again. Since 1.37 there can be none: a
plugin whose second Register for its path was refused is never disconnected, and its path stays taken until the kubelet
restarts.
Source: observations 1-10; device manager specification, sections 2.1-2.5; changes-1.37, section 1.
"""

import asyncio
import logging
import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from grpcunix import Channel, Client, Context, RpcError, Status, handler
from kubelet.devicemanager.clients import ClientTable
from kubelet.devicemanager.device import Device, devices_of
from kubelet.errors import DialError, KubeletError, PluginCallError, RegistrationError, go_text
from kubelet.metrics import KubeletMetrics
from kubelet.release import Release
from kubelet.rpc import KubeletServer, Timeouts, await_unary, dial
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from resourceapi.objects.names import is_extended_resource

SUPPORTED_VERSION = "v1beta1"
_PLUGIN = api.DESCRIPTOR.services_by_name["DevicePlugin"]
_REGISTRATION = api.DESCRIPTOR.services_by_name["Registration"]

BeforeRegister = Callable[[api.RegisterRequest], Awaitable[None]]

log = logging.getLogger(__name__)


class PluginEvents(Protocol):
    """Receives the events of plugins."""

    async def plugin_connected(self, client: "PluginClient") -> None:
        """Called when the plugin can be called. Raise an error to refuse it."""
        ...

    def plugin_refused(self, resource: str, why: str) -> None:
        """Called when `Register` of a plugin was refused."""
        ...

    def plugin_disconnected(self, resource: str, socket: Path, why: str) -> None:
        """Called when the plugin is gone; `why` is the end of its stream, empty if the kubelet disconnected it."""
        ...

    async def plugin_list_received(self, resource: str, devices: list[Device]) -> None:
        """Called when a plugin of `resource` sent a list."""
        ...


class PluginClient:
    """The kubelet's connection to one plugin."""

    def __init__(self, resource: str, socket: Path) -> None:
        """Prepare; `connect` dials."""
        self.resource = resource
        self.socket = socket
        self.api: Client | None = None
        self.stream: asyncio.Task[None] | None = None
        self._channel: Channel | None = None

    async def connect(self, seconds: float) -> Client:
        """Dial the plugin. Raises `DialError`."""
        try:
            self._channel = await dial(self.socket, seconds)
        except DialError as error:
            raise DialError(f"failed to dial device plugin: {error}") from error
        self.api = Client(self._channel, _PLUGIN)
        return self.api

    async def get_options(self) -> api.DevicePluginOptions:
        """Return the plugin's options. Raises `RegistrationError`."""
        assert self.api is not None
        try:
            options: api.DevicePluginOptions = await await_unary(self.api.call("GetDevicePluginOptions", api.Empty()))
        except PluginCallError as error:
            raise RegistrationError(f"failed to get device plugin options: {error}") from error
        return options

    async def watch(self, events: PluginEvents) -> str:
        """Forward the plugin's lists until its stream ends; return the end's text in Go's gRPC library."""
        if self.api is None:  # disconnected between the options and the stream
            return ""
        try:
            async for response in self.api.stream("ListAndWatch", api.Empty()):
                await events.plugin_list_received(self.resource, devices_of(response))
        except RpcError as error:
            return go_text(error)
        return "EOF"

    async def close(self) -> None:
        """Close the connection, and the task that reads the stream unless that task is the caller."""
        stream, self.stream = self.stream, None
        if stream is not None and stream is not asyncio.current_task():
            stream.cancel()
            await asyncio.wait([stream])
            if not stream.cancelled():
                stream.result()
        channel, self._channel, self.api = self._channel, None, None
        if channel is not None:
            await channel.close()


class RegistrationServer:
    """Serves `v1beta1.Registration` and handles plugins that the plugin watcher finds."""

    def __init__(
        self, socket: Path, events: PluginEvents, timeouts: Timeouts, release: Release, metrics: KubeletMetrics
    ) -> None:
        """Prepare to serve at `socket`. Raises `RegistrationError` for a path that is not absolute."""
        if not socket.is_absolute():
            raise RegistrationError(f"bad socketPath, must be an absolute path: {'' if socket == Path() else socket}")
        self.socket = socket
        self.is_healthy = False
        self.before_register: BeforeRegister | None = None  # for tests, to delay and refuse registrations
        self._events = events
        self._timeouts = timeouts
        self._release = release
        self._metrics = metrics
        self._server: KubeletServer | None = None
        self._table = self._new_table()
        self._connected: set[PluginClient] = set()  # includes clients that are no longer in the table
        self.offered: dict[str, Path] = {}  # resource -> the socket of its last registration, accepted or not

    async def start(self, keep: Path) -> None:
        """Create the folder, remove all sockets in it, serve. `keep` is the checkpoint's path. Raises OSError."""
        folder = self.socket.parent
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        _remove_sockets(folder, keep)
        self._server = KubeletServer(self.socket, [handler(_REGISTRATION, self)])
        await self._server.start()
        self.is_healthy = True

    async def stop(self) -> None:
        """Stop serving and disconnect all plugins. Idempotent, and safe before `start`."""
        # stop the server first, so that a disconnected plugin cannot register again
        server, self._server = self._server, None
        if server is not None:
            await server.stop()
        table, self._table = self._table, self._new_table()
        connected, self._connected = self._connected, set()
        for client in connected:
            await client.close()
        for client in table:
            self._events.plugin_disconnected(client.resource, client.socket, "")
        self.is_healthy = True

    def check_health(self) -> None:
        """Raise `RegistrationError` if the server was neither started nor stopped yet."""
        if not self.is_healthy:
            raise RegistrationError("device plugin registration gRPC server failed and no device plugins can register")

    async def register(self, request: api.RegisterRequest, context: Context) -> api.Empty:
        """`Registration.Register`: dials the plugin and gets its options before it answers."""
        del context
        self._metrics.registrations[request.resource_name] += 1
        try:
            if self.before_register is not None:
                await self.before_register(request)
            if request.version != SUPPORTED_VERSION:
                raise RegistrationError(
                    f'requested API version "{request.version}" is not supported by kubelet.'
                    f' Supported version is ["{SUPPORTED_VERSION}"]'
                )
            if not is_extended_resource(request.resource_name):
                raise RegistrationError(f'the ResourceName "{request.resource_name}" is invalid')
            await self._connect(request.resource_name, _join(self.socket.parent, request.endpoint))
        except KubeletError as error:
            self._events.plugin_refused(request.resource_name, str(error))
            raise RpcError(Status.UNKNOWN, str(error)) from error
        except asyncio.CancelledError:
            if self._server is not None:  # the plugin's call ended, not the server
                self._events.plugin_refused(
                    request.resource_name, "the plugin ended its call of Register before the answer"
                )
            raise
        return api.Empty()

    def validate_plugin(
        self,
        name: str,
        endpoint: str,  # noqa: ARG002 - for other handlers, which use it
        versions: list[str],
    ) -> None:
        """Check a plugin for the plugin watcher, before `register_plugin`. Raises `RegistrationError`."""
        if SUPPORTED_VERSION not in versions:
            raise RegistrationError(
                f"manager version, {SUPPORTED_VERSION}, is not among plugin supported versions [{' '.join(versions)}]"
            )
        if not is_extended_resource(name):
            raise RegistrationError(f'invalid name of device plugin socket: the ResourceName "{name}" is invalid')

    async def register_plugin(
        self,
        name: str,
        endpoint: str,
        versions: list[str],  # noqa: ARG002 - for handlers that serve several
    ) -> None:
        """Connect to a plugin that the plugin watcher found; `endpoint` is a full path. Raises `KubeletError`."""
        await self._connect(name, Path(endpoint))

    async def deregister_plugin(self, name: str, endpoint: str) -> None:
        """Disconnect a plugin whose registration socket is gone."""
        await self._disconnect(name, Path(endpoint))

    async def _connect(self, resource: str, socket: Path) -> None:
        client = PluginClient(resource, socket)
        self.offered[resource] = socket
        self._table.add(client)
        self._connected.add(client)
        try:
            await client.connect(self._timeouts.dial)
            await self._events.plugin_connected(client)
        except BaseException:  # including cancellation when the caller of Register disconnects
            self._table.remove(resource, socket)
            self._connected.discard(client)
            await client.close()
            raise
        client.stream = asyncio.create_task(self._watch(client), name=f"ListAndWatch {resource}")

    async def _watch(self, client: PluginClient) -> None:
        why = await client.watch(self._events)
        if await self._disconnect(client.resource, client.socket, why) or not self._release.distinguishes_instances:
            self._connected.discard(client)
            await client.close()
        # Otherwise the table has no entry for it: its connection stays, and reconnects when it is called.

    async def _disconnect(self, resource: str, socket: Path, why: str = "") -> bool:
        """Disconnect the client that the table has for a plugin; return whether there is one."""
        client = self._table.find(resource, socket)
        if client is None:
            return False
        self._table.remove(resource, socket)
        self._connected.discard(client)
        self._events.plugin_disconnected(resource, client.socket, why)
        await client.close()
        return True

    def _new_table(self) -> ClientTable[PluginClient]:
        return ClientTable(by_path=self._release.distinguishes_instances)


def _join(folder: Path, endpoint: str) -> Path:
    """Join like Go: an absolute endpoint stays below the folder, `..` is resolved in the text."""
    return Path(os.path.normpath(f"{folder}/{endpoint}"))


def _remove_sockets(folder: Path, keep: Path) -> None:
    """Remove sockets and links to sockets, like every start of the kubelet. Raises OSError after trying all."""
    failed: list[OSError] = []
    for path in sorted(folder.iterdir()):
        try:
            if path == keep or not stat.S_ISSOCK(path.stat().st_mode):
                continue
        except OSError as error:
            log.warning("%s: %s", path, error)
            continue
        try:
            path.unlink(missing_ok=True)  # its owner might remove it at the same time
        except OSError as error:
            failed.append(error)
    if failed:
        raise OSError(", ".join(map(str, failed)))
