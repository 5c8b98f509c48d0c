"""The API server as the publisher uses it, in whichever version it serves."""

from collections.abc import Awaitable
from typing import TypeVar

from dra_plugin.publishing.slices.compare import comparable
from resourceapi.client import AsyncClient, InvalidAnswer
from resourceapi.objects import DecodeError, core, v1

T = TypeVar("T")


class ApiStorage:
    """A `Storage` on a client."""

    def __init__(self, client: AsyncClient) -> None:
        self.slices = client.any_version(v1.ResourceSlice)
        self._nodes = client.resource(core.Node)

    async def create(self, wanted: v1.ResourceSlice, *, dry_run: bool = False) -> v1.ResourceSlice:
        """Return the new slice as it was stored."""
        return comparable(await _read(self.slices.create(wanted, dry_run=dry_run)))

    async def update(self, wanted: v1.ResourceSlice, *, dry_run: bool = False) -> v1.ResourceSlice:
        """Return the changed slice as it was stored."""
        return comparable(await _read(self.slices.update(wanted, dry_run=dry_run)))

    async def delete(self, stored: v1.ResourceSlice) -> None:
        """Delete exactly this version of this slice."""
        metadata = stored.metadata
        await self.slices.delete(metadata.name, uid=metadata.uid, version=metadata.resource_version)

    async def get(self, name: str) -> v1.ResourceSlice:
        """Return a slice as it is now."""
        return comparable(await _read(self.slices.get(name)))

    async def node_uid(self, name: str) -> str:
        """Return the uid of a Node."""
        return (await _read(self._nodes.get(name))).metadata.uid


async def _read(answer: Awaitable[T]) -> T:
    """Return the server's object.

    Raises InvalidAnswer for an unreadable one: whether the request took effect is unknown.
    """
    try:
        return await answer
    except DecodeError as error:
        raise InvalidAnswer(str(error)) from error
