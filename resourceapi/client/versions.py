"""Objects of resource.k8s.io in the newest version that the server has: v1, v1beta2 or v1beta1.

A request first uses the version of the last answer. If the server does not know the path, each of the other versions
is tried once. Objects are v1 objects in every case. Source: DRA node specification, 3.12.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import Any, Generic, TypeVar

from resourceapi.client.errors import Refused
from resourceapi.client.resource import AsyncResource, selectors, typed_resource
from resourceapi.client.transport import Transport
from resourceapi.client.watch import Event, OnFailure, Page, watch
from resourceapi.objects import KINDS, KubernetesObject, v1

K = TypeVar("K", bound=KubernetesObject)
A = TypeVar("A")

VERSIONS = ("v1", "v1beta2", "v1beta1")


class AsyncAnyVersion(Generic[K]):
    """The objects of one kind, in a version that the server has. Methods and errors are those of AsyncResource."""

    def __init__(self, transport: Transport, kind: type[K]) -> None:
        known = [version for version in VERSIONS if (f"{v1.GROUP}/{version}", kind.KIND) in KINDS]
        self._transport, self._kind = transport, kind
        self._versions = known
        self._resources: list[AsyncResource[K]] = [typed_resource(transport, kind, version) for version in known]
        self._at = 0

    @property
    def version(self) -> str:
        """The version of the last answer; initially the newest."""
        return self._versions[self._at]

    async def get(self, name: str, namespace: str = "") -> K:
        """Return an object."""
        return await self._call(lambda objects: objects.get(name, namespace))

    async def create(self, obj: K, *, dry_run: bool = False) -> K:
        """Create an object and return it as stored; with `dry_run`, as it would be stored."""
        return await self._call(lambda objects: objects.create(obj, dry_run=dry_run))

    async def update(self, obj: K, *, dry_run: bool = False) -> K:
        """Update an object, which must have the current resourceVersion; with `dry_run`, return it unstored."""
        return await self._call(lambda objects: objects.update(obj, dry_run=dry_run))

    async def update_status(self, obj: K) -> K:
        """Update the status of an object."""
        return await self._call(lambda objects: objects.update_status(obj))

    async def apply(self, value: dict[str, Any], manager: str, *, force: bool = False, subresource: str = "") -> K:
        """Apply a configuration (server-side apply), which must be valid in every version of the API."""

        def applied(objects: AsyncResource[K]) -> Awaitable[K]:
            named = {"apiVersion": objects.api_version, "kind": self._kind.KIND, **value}
            return objects.apply(named, manager, force=force, subresource=subresource)

        return await self._call(applied)

    async def delete(self, name: str, namespace: str = "", *, uid: str = "", version: str = "") -> None:
        """Delete an object; with `uid` or `version` (resourceVersion), only if it matches."""
        await self._call(lambda objects: objects.delete(name, namespace, uid=uid, version=version))

    async def list(self, namespace: str = "", *, label_selector: str = "", field_selector: str = "") -> Page[K]:
        """Return all objects of one namespace or of all, read page by page."""
        return await self._call(
            lambda objects: objects.list(namespace, label_selector=label_selector, field_selector=field_selector)
        )

    def watch(
        self,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        on_failure: OnFailure | None = None,
    ) -> AsyncGenerator[Event[K], None]:
        """Yield all objects, then their changes, in the version that the list found."""
        listed = partial(self.list, namespace, label_selector=label_selector, field_selector=field_selector)

        def path() -> str:
            return self._resources[self._at].path(namespace)

        read = partial(self._resources[0].read_one, namespace=namespace)
        return watch(self._transport, path, selectors(label_selector, field_selector), listed, read, on_failure)

    async def _call(self, call: Callable[[AsyncResource[K]], Awaitable[A]]) -> A:
        first, refused = self._at, None
        for turn in range(len(self._resources)):
            at = (first + turn) % len(self._resources)
            try:
                answer = await call(self._resources[at])
            except Refused as error:
                if error.code != 404 or error.is_missing:
                    raise
                refused = refused or error
            else:
                self._at = at
                return answer
        assert refused is not None, "there is a version to ask"
        raise refused
