"""The API server's objects: updated by watches, and by the answers to this scheduler's writes before those return.

Rule: no decision uses a state that is older than the scheduler's own writes; otherwise a device could be allocated
twice. Versions of one kind are compared as numbers, which API servers allow.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from resourceapi.client import ClientError, Event, Informer, Refused, Watched
from resourceapi.client.blocking import Client
from resourceapi.objects import DecodeError, KubernetesObject
from resourceapi.objects.core import Node, Pod
from resourceapi.objects.v1 import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)

log = logging.getLogger(__name__)
K = TypeVar("K", bound=KubernetesObject)
Key: TypeAlias = tuple[str, str]
"""Namespace (empty if there is none) and name."""

_OPTIONAL_KIND = "DeviceTaintRule"  # not every server serves this kind


class Cache(Generic[K]):
    """The objects of one kind. `objects` is read-only."""

    def __init__(self) -> None:
        self._objects: dict[Key, K] = {}
        self._watched = 0  # all changes up to this version have been seen
        self.objects: Mapping[Key, K] = self._objects
        self.revision = 0  # increases with every change

    def get(self, namespace: str, name: str) -> K | None:
        """Return an object, or None."""
        return self._objects.get((namespace, name))

    def apply(self, event: Event[K]) -> bool:
        """Apply a watch event. Return whether it changed the cache."""
        if event.type == "LISTED":
            self._replace(event.items, int(event.version or 0))
            return True
        obj = event.object
        key, version = key_of(obj), _version(obj)
        self._watched = max(self._watched, version)
        known = self._objects.get(key)
        if known is not None and _version(known) >= version:
            return False  # a write of this scheduler, or a later change
        if event.type == "DELETED" and known is None:
            return False
        self.revision += 1
        if event.type == "DELETED":
            del self._objects[key]
        else:
            self._objects[key] = obj
        return True

    def record_write(self, obj: K) -> None:
        """Store the answer to a write, unless the watch is already past its version."""
        if _version(obj) > self._watched:
            self._objects[key_of(obj)] = obj
            self.revision += 1

    def record_deletion(self, obj: K) -> None:
        """Remove an object that this scheduler deleted."""
        known = self._objects.get(key_of(obj))
        if known is not None and known.metadata.uid == obj.metadata.uid:
            del self._objects[key_of(obj)]
            self.revision += 1

    def _replace(self, items: tuple[K, ...], version: int) -> None:
        is_other_server = version < self._watched  # the server was replaced; what was written to the old one is lost
        ours = {} if is_other_server else {k: obj for k, obj in self._objects.items() if _version(obj) > version}
        self._objects.clear()
        self._objects.update({key_of(obj): obj for obj in items} | ours)
        self._watched = version
        self.revision += 1


class ClusterCache:
    """The caches of all kinds that placements depend on. Everything runs on one event loop.

    `on_change` is called after each event that changed a cache.
    """

    def __init__(self, client: Client, on_change: Callable[[], None]) -> None:
        self.pods = Cache[Pod]()
        self.nodes = Cache[Node]()
        self.claims = Cache[ResourceClaim]()
        self.templates = Cache[ResourceClaimTemplate]()
        self.classes = Cache[DeviceClass]()
        self.slices = Cache[ResourceSlice]()
        self.rules = Cache[DeviceTaintRule]()
        self._on_change = on_change
        self._unlisted: set[str] = set()
        self._listed: asyncio.Future[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        aio = client.aio
        self._informers: list[Informer[Any]] = [
            self._informer("Pod", self.pods, aio.resource(Pod)),
            self._informer("Node", self.nodes, aio.resource(Node)),
            self._informer("ResourceClaim", self.claims, aio.any_version(ResourceClaim)),
            self._informer("ResourceClaimTemplate", self.templates, aio.any_version(ResourceClaimTemplate)),
            self._informer("DeviceClass", self.classes, aio.any_version(DeviceClass)),
            self._informer("ResourceSlice", self.slices, aio.any_version(ResourceSlice)),
            self._informer(_OPTIONAL_KIND, self.rules, aio.any_version(DeviceTaintRule)),
        ]

    @property
    def revisions(self) -> tuple[int, ...]:
        """A value that changes whenever an object changes that placements depend on."""
        caches = (self.pods, self.nodes, self.claims, self.classes, self.slices, self.rules)
        return tuple(cache.revision for cache in caches)

    async def start(self) -> None:
        """Read everything once, and keep watching. Raises Refused if a kind cannot be read."""
        self._listed = asyncio.get_running_loop().create_future()
        self._watching = asyncio.create_task(self._run_informers())
        await asyncio.wait([self._listed, self._watching], return_when=asyncio.FIRST_COMPLETED)
        await (self._listed if self._listed.done() else self._watching)  # this task ends only because of a bug

    async def stop(self) -> None:
        """Stop the watches. Idempotent."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
            if not self._watching.cancelled():
                self._watching.result()

    async def _run_informers(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for informer in self._informers:
                    group.create_task(informer.run())
        except Exception:
            log.exception("nothing of the cluster is followed any more")
            raise

    def _informer(self, kind: str, cache: Cache[K], objects: Watched[K]) -> Informer[K]:
        self._unlisted.add(kind)

        def on_event(event: Event[K]) -> None:
            self._unlisted.discard(kind)
            if not self._unlisted and self._listed is not None and not self._listed.done():
                self._listed.set_result(None)
            if cache.apply(event):
                self._on_change()

        def on_failure(error: ClientError | DecodeError) -> None:
            if isinstance(error, ClientError) and error.is_transient:
                log.warning("following %s objects: %s; it is tried again", kind, error)
                return
            if kind == _OPTIONAL_KIND and isinstance(error, Refused) and error.code in (403, 404):
                on_event(Event("LISTED", ()))
                return
            log.error("cannot follow %s objects: %s", kind, error)
            if self._listed is not None and not self._listed.done():
                self._listed.set_exception(error)

        return Informer(objects, on_event, on_failure)


def key_of(obj: KubernetesObject) -> Key:
    """The cache key of an object."""
    return obj.metadata.namespace, obj.metadata.name


def _version(obj: KubernetesObject) -> int:
    return int(obj.metadata.resource_version or 0)
