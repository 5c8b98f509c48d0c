"""Objects of resource.k8s.io in whichever version the server has: v1, else v1beta2, else v1beta1.

The version that answered last is asked first; when the server does not know the path, the next one is, once around.
Objects are those of v1 whatever was spoken. Source: DRA node specification, 3.12.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from resourceapi.client.errors import ClientError, Refused
from resourceapi.client.resource import Page, Resource, reader, selectors, typed_resource
from resourceapi.client.watch import Watch
from resourceapi.objects import KINDS, KubernetesObject, v1

if TYPE_CHECKING:
    from resourceapi.client.http import Client

K = TypeVar("K", bound=KubernetesObject)
A = TypeVar("A")

VERSIONS = ("v1", "v1beta2", "v1beta1")


class AnyVersion(Generic[K]):
    """See the module. Methods are those of Resource, and raise what it raises."""

    def __init__(self, client: "Client", kind: type[K]) -> None:
        known = [version for version in VERSIONS if (f"{v1.GROUP}/{version}", kind.KIND) in KINDS]
        self._client, self._kind = client, kind
        self._versions = known
        self._resources: list[Resource[K]] = [typed_resource(client, kind, version) for version in known]
        self._at = 0

    @property
    def version(self) -> str:
        """The version that answered last, the newest at first."""
        return self._versions[self._at]

    def get(self, name: str, namespace: str = "") -> K:
        """An object."""
        return self._ask(lambda objects: objects.get(name, namespace))

    def create(self, obj: K) -> K:
        """A new object, as it was stored."""
        return self._ask(lambda objects: objects.create(obj))

    def update(self, obj: K) -> K:
        """A changed object; its resourceVersion must be the current one."""
        return self._ask(lambda objects: objects.update(obj))

    def update_status(self, obj: K) -> K:
        """An object with a changed status."""
        return self._ask(lambda objects: objects.update_status(obj))

    def apply(self, value: dict[str, Any], manager: str, *, force: bool = False, subresource: str = "") -> K:
        """An object after server-side apply of a configuration, which says the same in every version of the API."""

        def applied(objects: Resource[K]) -> K:
            named = {"apiVersion": objects.api_version, "kind": self._kind.KIND, **value}
            return objects.apply(named, manager, force=force, subresource=subresource)

        return self._ask(applied)

    def delete(self, name: str, namespace: str = "", *, uid: str = "", version: str = "") -> None:
        """Delete an object; with `uid` or `version` (of the object) only that one."""
        self._ask(lambda objects: objects.delete(name, namespace, uid=uid, version=version))

    def list(self, namespace: str = "", *, label_selector: str = "", field_selector: str = "") -> Page[K]:
        """All objects, page by page, of one namespace or of all."""
        return self._ask(
            lambda objects: objects.list(namespace, label_selector=label_selector, field_selector=field_selector)
        )

    def watch(
        self,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        stop: threading.Event | None = None,
        on_failure: Callable[[ClientError], object] | None = None,
    ) -> Watch[K]:
        """All objects and what happens to them, in the version that the list found."""

        def listed() -> tuple[tuple[K, ...], str]:
            page = self.list(namespace, label_selector=label_selector, field_selector=field_selector)
            return page.items, page.version

        def path() -> str:
            return self._resources[self._at].path(namespace)

        query = selectors(label_selector, field_selector)
        return Watch(self._client, path, query, listed, reader(self._kind), stop or threading.Event(), on_failure)

    def _ask(self, call: Callable[[Resource[K]], A]) -> A:
        first, refused = self._at, None
        for turn in range(len(self._resources)):
            at = (first + turn) % len(self._resources)
            try:
                answer = call(self._resources[at])
            except Refused as error:
                if error.code != 404 or error.is_missing:
                    raise
                refused = refused or error
            else:
                self._at = at
                return answer
        assert refused is not None, "there is a version to ask"
        raise refused
