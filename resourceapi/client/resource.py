"""The objects of one kind on the server: create, read, change, delete, list, watch.

Typed objects keep what their structs do not know and write it back; raw ones are plain values.
"""

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from resourceapi.client.errors import ClientError, Refused
from resourceapi.client.watch import Watch
from resourceapi.objects import NAMESPACED, KubernetesObject, core, read_object, v1, write_object

if TYPE_CHECKING:
    from resourceapi.client.http import Client

T = TypeVar("T")
K = TypeVar("K", bound=KubernetesObject)

MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
PAGE_SIZE = 500

_PLURALS: dict[type[KubernetesObject], str] = {
    core.Namespace: "namespaces",
    core.Node: "nodes",
    core.Pod: "pods",
    v1.DeviceClass: "deviceclasses",
    v1.DeviceTaintRule: "devicetaintrules",
    v1.ResourceClaim: "resourceclaims",
    v1.ResourceClaimTemplate: "resourceclaimtemplates",
    v1.ResourceSlice: "resourceslices",
}


class Page(NamedTuple, Generic[T]):
    """Listed objects, and the version of the list."""

    items: tuple[T, ...]
    version: str


class Resource(Generic[T]):
    """See the module. All methods raise Refused, Unreachable or CredentialsError; `get` of what is not there, too."""

    def __init__(
        self,
        client: "Client",
        api_version: str,
        plural: str,
        *,
        namespaced: bool,
        read: Callable[[Any], T],
        write: Callable[[T], dict[str, Any]],
    ) -> None:
        self._client = client
        self._root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        self.api_version = api_version
        self._plural, self._namespaced = plural, namespaced
        self._read, self._write = read, write

    def get(self, name: str, namespace: str = "") -> T:
        """An object."""
        return self._read(self._client.request("GET", self.path(namespace, name)))

    def create(self, obj: T) -> T:
        """A new object, as it was stored."""
        value = self._write(obj)
        return self._read(self._client.request("POST", self.path(_namespace(value)), value))

    def update(self, obj: T) -> T:
        """A changed object; its resourceVersion must be the current one."""
        value = self._write(obj)
        return self._read(self._client.request("PUT", self.path(_namespace(value), _name(value)), value))

    def update_status(self, obj: T) -> T:
        """An object with a changed status."""
        value = self._write(obj)
        path = self.path(_namespace(value), _name(value)) + "/status"
        return self._read(self._client.request("PUT", path, value))

    def patch(
        self,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        content_type: str = MERGE_PATCH,
        subresource: str = "",
        query: Mapping[str, str] | None = None,
    ) -> T:
        """A patched object."""
        path = self.path(namespace, name) + (f"/{subresource}" if subresource else "")
        return self._read(self._client.request("PATCH", path, patch, content_type=content_type, query=query))

    def apply(self, value: dict[str, Any], manager: str, *, force: bool = False, subresource: str = "") -> T:
        """An object after server-side apply of a configuration."""
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        return self.patch(
            _name(value),
            value,
            _namespace(value),
            content_type=APPLY_PATCH,
            subresource=subresource,
            query=query,
        )

    def delete(self, name: str, namespace: str = "", *, uid: str = "", version: str = "") -> None:
        """Delete an object; with `uid` or `version` only that one."""
        preconditions = {key: value for key, value in (("uid", uid), ("resourceVersion", version)) if value}
        body: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if preconditions:
            body["preconditions"] = preconditions
        self._client.request("DELETE", self.path(namespace, name), body)

    def list(self, namespace: str = "", *, label_selector: str = "", field_selector: str = "") -> Page[T]:
        """All objects, page by page, of one namespace or of all.

        If the server forgets between two pages what was when the first one came, all come anew, in one.
        """
        items: list[T] = []
        wanted = selectors(label_selector, field_selector)
        query = wanted | {"limit": str(PAGE_SIZE)}
        while True:
            try:
                found = self._client.request("GET", self.path(namespace), query=query)
            except Refused as error:
                if not error.is_expired or "continue" not in query:
                    raise
                items, query = [], wanted
                continue
            items.extend(self._item(value, found) for value in found.get("items") or ())
            metadata = found.get("metadata") or {}
            if not metadata.get("continue"):
                return Page(tuple(items), str(metadata.get("resourceVersion") or ""))
            query["continue"] = metadata["continue"]

    def watch(
        self,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        stop: threading.Event | None = None,
        on_failure: Callable[[ClientError], object] | None = None,
    ) -> Watch[T]:
        """All objects and what happens to them, until it is closed (or `stop` is set and something happens)."""

        def listed() -> tuple[tuple[T, ...], str]:
            page = self.list(namespace, label_selector=label_selector, field_selector=field_selector)
            return page.items, page.version

        query, path = selectors(label_selector, field_selector), partial(self.path, namespace)
        return Watch(self._client, path, query, listed, self._read, stop or threading.Event(), on_failure)

    def _item(self, value: dict[str, Any], listed: dict[str, Any]) -> T:
        """An item of a list, which may leave its type to the list."""
        kind = str(listed.get("kind") or "").removesuffix("List")
        return self._read({"apiVersion": listed.get("apiVersion") or self.api_version, "kind": kind} | value)

    def path(self, namespace: str = "", name: str = "") -> str:
        """Where the objects of a namespace or of all are, or one of them."""
        path = f"{self._root}/namespaces/{namespace}" if self._namespaced and namespace else self._root
        return f"{path}/{self._plural}" + (f"/{name}" if name else "")


def typed_resource(client: "Client", kind: type[K], version: str = "") -> Resource[K]:
    """The objects of a typed kind."""
    group = kind.API_VERSION.rpartition("/")[0]
    api_version = f"{group}/{version}" if version and group else version or kind.API_VERSION
    return Resource(
        client,
        api_version,
        _PLURALS[kind],
        namespaced=issubclass(kind, NAMESPACED),
        read=reader(kind),
        write=lambda obj: write_object(obj, api_version),
    )


def reader(kind: type[K]) -> Callable[[Any], K]:
    """What reads objects of a kind, in any of its versions, from plain values."""

    def read(value: Any) -> K:
        obj = read_object(value)
        assert isinstance(obj, kind), "the path names the kind"
        return obj

    return read


def raw_resource(client: "Client", api_version: str, plural: str, *, namespaced: bool) -> Resource[dict[str, Any]]:
    """The objects of any kind, as plain values."""
    return Resource(
        client, api_version, plural, namespaced=namespaced, read=lambda value: value, write=lambda value: value
    )


def selectors(labels: str, fields: str) -> dict[str, str]:
    """The query that selects objects."""
    return {key: value for key, value in (("labelSelector", labels), ("fieldSelector", fields)) if value}


def _name(value: dict[str, Any]) -> str:
    return str(value["metadata"]["name"])


def _namespace(value: dict[str, Any]) -> str:
    return str(value["metadata"].get("namespace") or "")
