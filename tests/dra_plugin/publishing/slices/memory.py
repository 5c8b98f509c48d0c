"""A server in memory whose watch can be delayed, and whose answers can get lost."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias

from msgspec.structs import replace

from dra_plugin.publishing.slices.publisher import Publisher
from resourceapi.client import Refused, Unreachable
from resourceapi.objects import v1, with_defaults

Deliver: TypeAlias = Callable[[Publisher], object]


class MemoryServer:
    """Stores slices as the API does. `events` are the watch events that are not delivered yet."""

    def __init__(self) -> None:
        self.objects: dict[str, v1.ResourceSlice] = {}
        self.events: list[Deliver] = []
        self.version = 0
        self.writes = 0
        self.fails: str = ""  # the next write fails "before" or "after" it is done

    async def create(self, wanted: v1.ResourceSlice, *, dry_run: bool = False) -> v1.ResourceSlice:
        """Store a slice with a new name and uid."""
        name = f"{wanted.metadata.generate_name}{self.version}"
        metadata = replace(wanted.metadata, name=name, uid=f"uid-{name}")
        return self._write(replace(wanted, metadata=metadata), dry_run)

    async def update(self, wanted: v1.ResourceSlice, *, dry_run: bool = False) -> v1.ResourceSlice:
        """Replace a slice if its version is the stored one."""
        self._check(wanted)
        return self._write(wanted, dry_run)

    async def delete(self, stored: v1.ResourceSlice) -> None:
        """Delete a slice if its version is the stored one."""
        self._check(stored)
        self._may_fail("before")
        self.remove(stored.metadata.name)
        self._may_fail("after")

    async def get(self, name: str) -> v1.ResourceSlice:
        """Return the stored slice."""
        if name not in self.objects:
            raise Refused(404, "NotFound", f'"{name}" not found', {"name": name}, None)
        return self.objects[name]

    async def node_uid(self, name: str) -> str:
        """Return the uid of the only node."""
        return "node-uid"

    def remove(self, name: str) -> None:
        """Delete a slice as any client."""
        gone = self.objects.pop(name)
        self.version += 1
        last = _at(gone, self.version)
        self.events.append(lambda publisher: publisher.removed(last))

    def put(self, stored: v1.ResourceSlice) -> v1.ResourceSlice:
        """Store a slice as any client."""
        self.version += 1
        found = with_defaults(_at(stored, self.version), datetime.now(UTC))
        self.objects[found.metadata.name] = found
        self.events.append(lambda publisher: publisher.changed(found))
        return found

    def relist(self, publisher: Publisher) -> None:
        """Deliver a new list; undelivered events are lost."""
        self.events.clear()
        publisher.listed(tuple(self.objects.values()), str(self.version))

    def deliver(self, publisher: Publisher, count: int) -> None:
        """Deliver the next `count` events."""
        for _ in range(min(count, len(self.events))):
            self.events.pop(0)(publisher)

    def _write(self, wanted: v1.ResourceSlice, is_dry_run: bool) -> v1.ResourceSlice:
        self._may_fail("before")
        if is_dry_run:
            return with_defaults(wanted, datetime.now(UTC))
        self.writes += 1
        found = self.put(wanted)
        self._may_fail("after")
        return found

    def _check(self, wanted: v1.ResourceSlice) -> None:
        name = wanted.metadata.name
        now = self.objects.get(name)
        if now is None:
            raise Refused(404, "NotFound", f'"{name}" not found', {"name": name}, None)
        if now.metadata.resource_version != wanted.metadata.resource_version:
            raise Refused(409, "Conflict", f'"{name}" changed', {"name": name}, None)

    def _may_fail(self, when: str) -> None:
        if self.fails == when:
            self.fails = ""
            raise Unreachable("the server hung up")


def _at(stored: v1.ResourceSlice, version: int) -> v1.ResourceSlice:
    return replace(stored, metadata=replace(stored.metadata, resource_version=str(version)))
