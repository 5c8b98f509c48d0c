"""What the API server has: kept up to date by watches, and by the answers to our own writes before those return.

Rule: nobody ever computes with a state that is older than what we wrote ourselves, or a device would be given out
twice. Versions of one kind are compared as numbers, which API servers allow.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from resourceapi.client import AnyVersion, Client, ClientError, Event, Refused, Resource, Watch
from resourceapi.client.patience import pause
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
        self.is_listed = False

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
        is_other_server = version < self._watched  # one that starts anew; what we wrote to the old one is gone
        ours = {} if is_other_server else {k: obj for k, obj in self._objects.items() if _version(obj) > version}
        self._objects.clear()
        self._objects.update({key_of(obj): obj for obj in items} | ours)
        self._watched = version
        self.revision += 1
        self.is_listed = True


class Cluster:
    """All that decides about devices. Everything happens on one loop; threads only wait for the server.

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
        self._followed: tuple[tuple[Cache[Any], Resource[Any] | AnyVersion[Any], str], ...] = (
            (self.pods, client.resource(Pod), "Pod"),
            (self.nodes, client.resource(Node), "Node"),
            (self.claims, client.any_version(ResourceClaim), "ResourceClaim"),
            (self.templates, client.any_version(ResourceClaimTemplate), "ResourceClaimTemplate"),
            (self.classes, client.any_version(DeviceClass), "DeviceClass"),
            (self.slices, client.any_version(ResourceSlice), "ResourceSlice"),
            (self.rules, client.any_version(DeviceTaintRule), _OPTIONAL),
        )
        self._on_change = on_change
        self._listed: asyncio.Future[None] | None = None
        self._stopping = threading.Event()
        self._watches: list[Watch[Any]] = []
        self._threads: list[threading.Thread] = []

    async def start(self) -> None:
        """Read everything once and follow it from then on. Raises Refused if there is something we may not read."""
        loop = asyncio.get_running_loop()
        self._listed = loop.create_future()
        for cache, objects, name in self._followed:
            thread = threading.Thread(target=self._follow, args=(loop, cache, objects, name), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        await self._listed

    async def stop(self) -> None:
        """End the watches. Idempotent."""
        self._stopping.set()
        for watch in list(self._watches):
            watch.close()
        threads, self._threads = self._threads, []
        for thread in threads:
            await asyncio.to_thread(thread.join)

    def _follow(
        self, loop: asyncio.AbstractEventLoop, cache: Cache[K], objects: Resource[K] | AnyVersion[K], name: str
    ) -> None:
        """Hand a kind's events to the loop, in a thread of its own, until `stop`."""
        failures = 0
        while not self._stopping.is_set():
            watch = objects.watch(stop=self._stopping)
            self._watches.append(watch)
            try:
                for event in watch:
                    failures = 0
                    loop.call_soon_threadsafe(self._arrived, cache, event)
            except (ClientError, DecodeError) as error:
                failures += 1
                if name == _OPTIONAL and isinstance(error, Refused) and error.code in (403, 404):
                    loop.call_soon_threadsafe(self._arrived, cache, Event("LISTED", ()))
                else:
                    log.error("cannot follow %s objects: %s", name, error)
                    loop.call_soon_threadsafe(self._failed, error)
                self._stopping.wait(pause(failures))
            finally:
                self._watches.remove(watch)

    def _arrived(self, cache: Cache[K], event: Event[K]) -> None:
        is_news = cache.apply(event)
        assert self._listed is not None, "it was started"
        if not self._listed.done() and all(each.is_listed for each, *_ in self._followed):
            self._listed.set_result(None)
        if is_news:
            self._on_change()

    def _failed(self, error: Exception) -> None:
        assert self._listed is not None, "it was started"
        if not self._listed.done():
            self._listed.set_exception(error)


def key_of(obj: KubernetesObject) -> Key:
    """Under what an object is known."""
    return obj.metadata.namespace, obj.metadata.name


def _version(obj: KubernetesObject) -> int:
    return int(obj.metadata.resource_version or 0)
