"""What the API server has: kept up to date by watches, and by the answers to our own writes before those return.

Rule: nobody ever computes with a state that is older than what we wrote ourselves, or a device would be given out
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

_OPTIONAL = "DeviceTaintRule"  # not every server has them


class Cache(Generic[K]):
    """The objects of one kind. `objects` is for reading only."""

    def __init__(self) -> None:
        self._objects: dict[Key, K] = {}
        self._watched = 0  # everything up to this version has been seen
        self.objects: Mapping[Key, K] = self._objects
        self.revision = 0  # counts up with every change

    def get(self, namespace: str, name: str) -> K | None:
        """An object, or None."""
        return self._objects.get((namespace, name))

    def apply(self, event: Event[K]) -> bool:
        """Take over what a watch says; returns whether it was news."""
        if event.type == "LISTED":
            self._replace(event.items, int(event.version or 0))
            return True
        obj = event.object
        key, version = key_of(obj), _version(obj)
        self._watched = max(self._watched, version)
        known = self._objects.get(key)
        if known is not None and _version(known) >= version:
            return False  # we wrote this, or something after it
        if event.type == "DELETED" and known is None:
            return False
        self.revision += 1
        if event.type == "DELETED":
            del self._objects[key]
        else:
            self._objects[key] = obj
        return True

    def written(self, obj: K) -> None:
        """Take over the answer to a write, unless the watch has gone past it."""
        if _version(obj) > self._watched:
            self._objects[key_of(obj)] = obj
            self.revision += 1

    def deleted(self, obj: K) -> None:
        """An object is gone by our own doing."""
        known = self._objects.get(key_of(obj))
        if known is not None and known.metadata.uid == obj.metadata.uid:
            del self._objects[key_of(obj)]
            self.revision += 1

    def _replace(self, items: tuple[K, ...], version: int) -> None:
        is_other_server = version < self._watched  # one that restarts; what we wrote to the old one is gone
        ours = {} if is_other_server else {k: obj for k, obj in self._objects.items() if _version(obj) > version}
        self._objects.clear()
        self._objects.update({key_of(obj): obj for obj in items} | ours)
        self._watched = version
        self.revision += 1


class ClusterCache:
    """The caches of all kinds that decide about devices. Everything happens on one loop.

    `on_change` is called when something was news.
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
            self._informer(_OPTIONAL, self.rules, aio.any_version(DeviceTaintRule)),
        ]

    @property
    def revisions(self) -> tuple[int, ...]:
        """What is different whenever something has changed that decides about placements."""
        caches = (self.pods, self.nodes, self.claims, self.classes, self.slices, self.rules)
        return tuple(cache.revision for cache in caches)

    async def start(self) -> None:
        """Read everything once and follow it from then on. Raises Refused if there is something we may not read."""
        self._listed = asyncio.get_running_loop().create_future()
        self._watching = asyncio.create_task(self._run_informers())
        await asyncio.wait([self._listed, self._watching], return_when=asyncio.FIRST_COMPLETED)
        await (self._listed if self._listed.done() else self._watching)  # which ends with a fault of ours only

    async def stop(self) -> None:
        """End the watches. Idempotent."""
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
            if kind == _OPTIONAL and isinstance(error, Refused) and error.code in (403, 404):
                on_event(Event("LISTED", ()))
                return
            log.error("cannot follow %s objects: %s", kind, error)
            if self._listed is not None and not self._listed.done():
                self._listed.set_exception(error)

        return Informer(objects, on_event, on_failure)


def key_of(obj: KubernetesObject) -> Key:
    """Under what an object is known."""
    return obj.metadata.namespace, obj.metadata.name


def _version(obj: KubernetesObject) -> int:
    return int(obj.metadata.resource_version or 0)
