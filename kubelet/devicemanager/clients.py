"""The table of the plugins that the registration server counts as connected. Pure.

Up to 1.36 there is one entry per resource: the newest plugin replaces the previous one. Since 1.37 plugins of a
resource are distinguished by path. If a path is entered twice, both entries are removed together: the live plugin's
with the refused one's. Source: observations 7-10; changes-1.37, sections 1.1 and 1.3.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Generic, Protocol, TypeVar


class Client(Protocol):
    """A plugin's resource, and the path of its socket."""

    resource: str
    socket: Path


C = TypeVar("C", bound=Client)


class ClientTable(Generic[C]):
    """Resource -> clients, the oldest first."""

    def __init__(self, *, by_path: bool) -> None:
        """`by_path`: distinguish plugins by path, as since 1.37."""
        self._by_path = by_path
        self._clients: dict[str, list[C]] = {}

    def __iter__(self) -> Iterator[C]:
        """Return an iterator over all clients."""
        return iter([client for clients in self._clients.values() for client in clients])

    def add(self, client: C) -> None:
        """Add a plugin that registers."""
        if not self._by_path:
            self._clients[client.resource] = []
        self._clients.setdefault(client.resource, []).append(client)

    def find(self, resource: str, socket: Path) -> C | None:
        """Return the entry for a plugin, which can be another plugin's (see the module); None if there is none."""
        found = (each for each in self._clients.get(resource, ()) if not self._by_path or each.socket == socket)
        return next(found, None)

    def remove(self, resource: str, socket: Path) -> None:
        """Remove all entries for a plugin (see the module)."""
        kept = [each for each in self._clients.pop(resource, ()) if self._by_path and each.socket != socket]
        if kept:
            self._clients[resource] = kept
