"""Which plugins the registration server counts as connected. Pure.

Up to 1.36 a resource's name has one place, which the newest plugin takes, whoever had it before. Since 1.37 plugins of
a resource are told apart by path; but a path that is there twice leaves as one, the live plugin with the refused one.
Source: observations 7-10; changes-1.37, sections 1.1 and 1.3.
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
        """`by_path` since 1.37."""
        self._by_path = by_path
        self._clients: dict[str, list[C]] = {}

    def __iter__(self) -> Iterator[C]:
        """All of them."""
        return iter([client for clients in self._clients.values() for client in clients])

    def enter(self, client: C) -> None:
        """A plugin registers."""
        if not self._by_path:
            self._clients[client.resource] = []
        self._clients.setdefault(client.resource, []).append(client)

    def find(self, resource: str, socket: Path) -> C | None:
        """Who stands for a plugin, not always the plugin itself; None if nobody does."""
        found = (each for each in self._clients.get(resource, ()) if not self._by_path or each.socket == socket)
        return next(found, None)

    def leave(self, resource: str, socket: Path) -> None:
        """Whoever stands for a plugin is not connected any more."""
        kept = [each for each in self._clients.pop(resource, ()) if self._by_path and each.socket != socket]
        if kept:
            self._clients[resource] = kept
