"""The desired and the actual state of plugins.

Source: device manager specification, section 2.4.
"""

import uuid
from pathlib import Path

from msgspec import Struct

from kubelet.clock import Clock
from kubelet.errors import KubeletError


class PluginSocket(Struct, frozen=True):
    """A socket that was found. A socket that is created again gets a new `generation`, and is registered again."""

    path: Path
    seen_at: float
    generation: str


class DesiredState:
    """The sockets in the folder."""

    def __init__(self, clock: Clock) -> None:
        """Start without sockets."""
        self._clock = clock
        self._sockets: dict[Path, PluginSocket] = {}

    def add_or_update(self, path: Path) -> None:
        """Add a socket that was created. Raises `KubeletError` for an empty path."""
        if path == Path():
            raise KubeletError("socket path is empty")
        self._sockets[path] = PluginSocket(path, self._clock.now(), uuid.uuid4().hex)

    def remove(self, path: Path) -> None:
        """Remove a socket that is gone."""
        self._sockets.pop(path, None)

    def sockets(self) -> list[PluginSocket]:
        """Return all sockets."""
        return list(self._sockets.values())

    def has(self, socket: PluginSocket) -> bool:
        """Return whether `socket` still exists, with the same generation."""
        return self._sockets.get(socket.path) == socket


class RegisteredPlugin(Struct, frozen=True):
    """A plugin that was passed to its handler."""

    socket: PluginSocket
    type: str
    name: str
    endpoint: str


class ActualState:
    """The plugins that were passed to a handler."""

    def __init__(self) -> None:
        self._plugins: dict[Path, RegisteredPlugin] = {}

    def add(self, plugin: RegisteredPlugin) -> None:
        """Add a plugin, before it is passed to its handler."""
        self._plugins[plugin.socket.path] = plugin

    def remove(self, plugin: RegisteredPlugin) -> None:
        """Remove a plugin that is gone or was refused."""
        if self._plugins.get(plugin.socket.path) == plugin:
            del self._plugins[plugin.socket.path]

    def plugins(self) -> list[RegisteredPlugin]:
        """Return all plugins."""
        return list(self._plugins.values())

    def has(self, socket: PluginSocket) -> bool:
        """Return whether the plugin of this socket, with this generation, is registered."""
        plugin = self._plugins.get(socket.path)
        return plugin is not None and plugin.socket == socket
