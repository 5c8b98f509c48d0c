"""Registers and deregisters one plugin that was found.

Source: device manager specification, section 2.4, and the texts of observation 1.5.
"""

from collections.abc import Mapping
from typing import NoReturn
from urllib.parse import quote

from google.protobuf.message import Message

from grpcunix import Client
from kubelet.devicemanager.manager import PluginHandler
from kubelet.errors import DialError, PluginCallError, RegistrationError
from kubelet.pluginwatcher.states import ActualState, PluginSocket, RegisteredPlugin
from kubelet.release import Release
from kubelet.rpc import Timeouts, await_unary, dial
from kubeletapi.pluginregistration.v1 import api_pb2 as api

_SERVICE = api.DESCRIPTOR.services_by_name["Registration"]
_ERROR = "RegisterPlugin error --"


class Operations:
    """The operations of the reconciler on a plugin."""

    def __init__(
        self, handlers: Mapping[str, PluginHandler], actual: ActualState, timeouts: Timeouts, release: Release
    ) -> None:
        """`handlers` are by plugin type."""
        self._handlers = handlers
        self._actual = actual
        self._timeouts = timeouts
        self._release = release

    async def register(self, socket: PluginSocket) -> None:
        """Identify the plugin, pass it to its handler, and notify it of the result. Raises `RegistrationError`."""
        path = socket.path
        try:
            # the kubelet's client uses the socket's path as the authority here
            channel = await dial(path, self._timeouts.dial, quote(str(path), safe=""))
        except DialError as error:
            raise RegistrationError(f"{_ERROR} dial failed at socket {path}, err: {error}") from error
        async with channel:
            client = Client(channel, _SERVICE)
            try:
                info: api.PluginInfo = await await_unary(
                    client.call("GetInfo", api.InfoRequest(), timeout=self._timeouts.get_info)
                )
            except PluginCallError as error:
                text = f"{_ERROR} failed to get plugin info using RPC GetInfo at socket {path}, err: {error}"
                raise RegistrationError(text) from error
            await self._register_with_handler(client, socket, info)

    async def deregister(self, plugin: RegisteredPlugin) -> None:
        """Deregister a plugin at its handler."""
        self._actual.remove(plugin)
        await self._handlers[plugin.type].deregister_plugin(plugin.name, plugin.endpoint)

    async def _register_with_handler(self, client: Client, socket: PluginSocket, info: api.PluginInfo) -> None:
        handler = self._handlers.get(info.type)
        if handler is None:
            text = f"{_ERROR} no handler registered for plugin type: {info.type} at socket {socket.path}"
            await self._refuse(client, text)
        endpoint = info.endpoint or str(socket.path)
        versions = list(info.supported_versions)
        try:
            handler.validate_plugin(info.name, endpoint, versions)
        except Exception as error:
            await self._refuse(client, f"{_ERROR} plugin validation failed with err: {error}")
        plugin = RegisteredPlugin(socket, info.type, info.name, endpoint)
        self._actual.add(plugin)  # before the handler's call, so that a removal meanwhile deregisters the plugin
        try:
            await handler.register_plugin(info.name, endpoint, versions)
        except Exception as error:
            if not self._release.keeps_refused_sockets:
                self._actual.remove(plugin)
            await self._refuse(client, f"{_ERROR} plugin registration failed with err: {error}")
        try:
            await self._notify(client, api.RegistrationStatus(plugin_registered=True))
        except PluginCallError as error:
            if not self._release.keeps_refused_sockets:
                await self.deregister(plugin)
            text = f"{_ERROR} failed to send registration status at socket {socket.path}, err: {error}"
            raise RegistrationError(text) from error

    async def _refuse(self, client: Client, text: str) -> NoReturn:
        """Notify the plugin of the refusal, and raise `RegistrationError` with the text."""
        try:
            await self._notify(client, api.RegistrationStatus(plugin_registered=False, error=text))
        except PluginCallError as error:
            raise RegistrationError(f"{text}: {error}") from error
        raise RegistrationError(text)

    async def _notify(self, client: Client, status: Message) -> None:
        await await_unary(client.call("NotifyRegistrationStatus", status, timeout=self._timeouts.notify))
