"""What plugins there should be, and which there are.

Source: device manager specification, section 2.4.
"""

import uuid
from pathlib import Path

from msgspec import Struct

from kubelet.clock import Clock
from kubelet.errors import KubeletError


class PluginSocket(Struct, frozen=True):
    """A socket that was seen. Seeing it again gives it a new `generation`, and it is registered again."""

    path: Path
    seen_at: float
    generation: str


class DesiredState:
    """The sockets in the folder."""

    def __init__(self, clock: Clock) -> None:
        """No sockets."""
        self._clock = clock
        self._sockets: dict[Path, PluginSocket] = {}

    def add_or_update(self, path: Path) -> None:
        """A socket was created. Raises `KubeletError` for an empty path."""
        if path == Path():
            raise KubeletError("socket path is empty")
        self._sockets[path] = PluginSocket(path, self._clock.now(), uuid.uuid4().hex)

    def remove(self, path: Path) -> None:
        """A socket is gone."""
        self._sockets.pop(path, None)

    def sockets(self) -> list[PluginSocket]:
        """All of them."""
        return list(self._sockets.values())

    def has(self, socket: PluginSocket) -> bool:
        """Tell whether `socket` is still there, and the same."""
        return self._sockets.get(socket.path) == socket


class Registered(Struct, frozen=True):
    """A plugin that its handler has."""

    socket: PluginSocket
    type: str
    name: str
    endpoint: str


class ActualState:
    """The plugins that were handed to a handler."""

    def __init__(self) -> None:
        self._plugins: dict[Path, Registered] = {}

    def add(self, plugin: Registered) -> None:
        """A plugin is being handed over."""
        self._plugins[plugin.socket.path] = plugin

    def remove(self, plugin: Registered) -> None:
        """It is gone, or was refused."""
        if self._plugins.get(plugin.socket.path) == plugin:
            del self._plugins[plugin.socket.path]

    def plugins(self) -> list[Registered]:
        """All of them."""
        return list(self._plugins.values())

    def has(self, socket: PluginSocket) -> bool:
        """Tell whether this very socket's plugin is registered."""
        plugin = self._plugins.get(socket.path)
        return plugin is not None and plugin.socket == socket
