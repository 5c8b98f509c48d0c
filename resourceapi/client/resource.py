"""The objects of one kind on the server: create, read, change, delete, list, watch.

Typed objects keep unknown members and write them back; raw objects are plain values. An answer about another object
or of another kind than requested raises InvalidAnswer, so that callers need not check it.
"""

import urllib.parse
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from resourceapi.client.errors import ClientError, InvalidAnswer, Refused
from resourceapi.client.transport import Transport
from resourceapi.client.watch import OBJECT_OVERHEAD, Event, OnFailure, Page, watch
from resourceapi.objects import NAMESPACED, KubernetesObject, core, read_object, v1, write_object

T = TypeVar("T")
K = TypeVar("K", bound=KubernetesObject)

MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
PAGE_SIZE = 500
MAX_PAGES = 1000

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


class AsyncResource(Generic[T]):
    """The objects of one kind. All methods raise Refused, Unreachable or another ClientError, and DecodeError.

    `get` raises Refused if the object does not exist.
    """

    def __init__(
        self,
        transport: Transport,
        api_version: str,
        plural: str,
        *,
        namespaced: bool,
        read: Callable[[Any], T],
        write: Callable[[T], dict[str, Any]],
        kind: str = "",
    ) -> None:
        self._transport = transport
        self._root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        self.api_version = api_version
        self._plural, self._namespaced = plural, namespaced
        self._read, self._write = read, write
        self._kind = kind  # empty: any kind

    async def get(self, name: str, namespace: str = "") -> T:
        """Return an object."""
        return await self._request_object("GET", self.path(namespace, name), _Named(name, namespace))

    async def create(self, obj: T, *, dry_run: bool = False) -> T:
        """Create an object and return it as stored; with `dry_run`, as it would be stored."""
        value = self._write(obj)
        named = _named(value)._replace(uid="")  # the server assigns a new uid
        return await self._request_object(
            "POST", self.path(named.namespace), named, value, query=_query(dry_run=dry_run)
        )

    async def update(self, obj: T, *, dry_run: bool = False) -> T:
        """Update an object, which must have the current resourceVersion; with `dry_run`, return it unstored."""
        value = self._write(obj)
        named = _named(value)
        path = self.path(named.namespace, named.name)
        return await self._request_object("PUT", path, named, value, query=_query(dry_run=dry_run))

    async def update_status(self, obj: T) -> T:
        """Update the status of an object."""
        value = self._write(obj)
        named = _named(value)
        return await self._request_object("PUT", self.path(named.namespace, named.name) + "/status", named, value)

    async def patch(
        self,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        content_type: str = MERGE_PATCH,
        subresource: str = "",
        query: Mapping[str, str] | None = None,
    ) -> T:
        """Patch an object."""
        path = self.path(namespace, name) + (f"/{subresource}" if subresource else "")
        return await self._request_object(
            "PATCH", path, _Named(name, namespace), patch, content_type=content_type, query=query
        )

    async def apply(self, value: dict[str, Any], manager: str, *, force: bool = False, subresource: str = "") -> T:
        """Apply a configuration (server-side apply) and return the object."""
        named = _named(value)
        return await self._request_object(
            "PATCH",
            self.path(named.namespace, named.name) + (f"/{subresource}" if subresource else ""),
            named,
            value,
            content_type=APPLY_PATCH,
            query={"fieldManager": manager, "force": "true" if force else "false"},
        )

    async def delete(self, name: str, namespace: str = "", *, uid: str = "", version: str = "") -> None:
        """Delete an object; with `uid` or `version` (resourceVersion), only if it matches."""
        preconditions = {key: value for key, value in (("uid", uid), ("resourceVersion", version)) if value}
        body: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if preconditions:
            body["preconditions"] = preconditions
        await self._transport.send("DELETE", self.path(namespace, name), body)

    async def list(self, namespace: str = "", *, label_selector: str = "", field_selector: str = "") -> Page[T]:
        """Return all objects of one namespace or of all, read page by page.

        If the list's version expires between two pages, everything is read again in one page.
        """
        path, max_bytes = self.path(namespace), self._transport.limits.collection
        items: list[T] = []
        weight = 0
        wanted = selectors(label_selector, field_selector)
        query = wanted | {"limit": str(PAGE_SIZE)}
        for _ in range(MAX_PAGES):
            try:
                answer = await self._transport.send("GET", path, query=query, max_bytes=max_bytes - weight)
            except Refused as error:
                if not error.is_expired or "continue" not in query:
                    raise
                items, weight, query = [], 0, wanted
                continue
            metadata, values = self._items(path, answer.value, namespace)
            items.extend(values)
            weight += answer.size + len(values) * OBJECT_OVERHEAD
            if not metadata.get("continue"):
                return Page(tuple(items), str(metadata.get("resourceVersion") or ""), weight)
            if weight >= max_bytes:
                raise InvalidAnswer(f"GET {path}: there are more objects than {max_bytes} bytes can hold")
            query["continue"] = str(metadata["continue"])
        raise InvalidAnswer(f"GET {path}: more than {MAX_PAGES} pages")

    def watch(
        self,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        on_failure: OnFailure | None = None,
    ) -> AsyncGenerator[Event[T], None]:
        """Yield all objects, then their changes; see the function `watch`."""
        listed = partial(self.list, namespace, label_selector=label_selector, field_selector=field_selector)
        read = partial(self.read_one, namespace=namespace)
        query = selectors(label_selector, field_selector)
        return watch(self._transport, partial(self.path, namespace), query, listed, read, on_failure)

    def read_one(self, value: Any, namespace: str = "") -> T:
        """Return the object of a list item or a watch event. Raises InvalidAnswer, DecodeError."""
        return self._checked(self.path(namespace), value, _Named("", namespace))

    def path(self, namespace: str = "", name: str = "") -> str:
        """Return the path of an object, of a namespace's objects, or of all. Raises ClientError for bad names."""
        path = f"{self._root}/namespaces/{_segment(namespace)}" if self._namespaced and namespace else self._root
        return f"{path}/{self._plural}" + (f"/{_segment(name)}" if name else "")

    async def _request_object(self, method: str, path: str, named: "_Named", body: Any = None, **options: Any) -> T:
        answer = await self._transport.send(method, path, body, **options)
        return self._checked(f"{method} {path}", answer.value, named)

    def _items(self, path: str, value: Any, namespace: str) -> tuple[dict[str, Any], "Sequence[T]"]:
        """Return the metadata and the items of a list; items can omit their type. Raises InvalidAnswer, DecodeError."""
        kind = str(value.get("kind")) if isinstance(value, dict) else ""
        if not kind.endswith("List") or (self._kind and kind != f"{self._kind}List"):
            raise InvalidAnswer(f"GET {path}: the API server answered with no {self._kind}List")
        metadata, items = value.get("metadata") or {}, value.get("items", False)
        if not isinstance(metadata, dict) or not isinstance(items, list | None):
            raise InvalidAnswer(f"GET {path}: the API server answered with a list without items")
        typed = {"apiVersion": value.get("apiVersion") or self.api_version, "kind": kind.removesuffix("List")}
        request, named = f"GET {path}", _Named("", namespace)
        plain = (typed | each if isinstance(each, dict) else each for each in items or ())
        return metadata, [self._checked(request, each, named) for each in plain]

    def _checked(self, request: str, value: Any, named: "_Named") -> T:
        metadata = value.get("metadata", {}) if isinstance(value, dict) else None
        if not isinstance(metadata, dict):
            raise InvalidAnswer(f"{request}: the API server answered with no object")
        if why := named.mismatch(metadata):
            raise InvalidAnswer(f"{request}: the API server answered with another object: {why}")
        try:
            return self._read(value)
        except InvalidAnswer as error:
            raise InvalidAnswer(f"{request}: {error}") from None


class _Named(NamedTuple):
    """The object that an answer must be about; an empty field matches any value."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    prefix: str = ""  # generateName: the prefix of a name that the server generates

    def mismatch(self, metadata: Mapping[str, Any]) -> str:
        """Return how an answer's metadata differs; empty if it matches."""
        for field, wanted in (("name", self.name), ("namespace", self.namespace), ("uid", self.uid)):
            if wanted and metadata.get(field) != wanted:
                return f"{field} {str(metadata.get(field))[:80]!r}, not {wanted!r}"
        if self.prefix and not str(metadata.get("name")).startswith(self.prefix):
            return f"name {str(metadata.get('name'))[:80]!r}, which does not begin with {self.prefix!r}"
        return ""


def typed_resource(transport: Transport, kind: type[K], version: str = "") -> AsyncResource[K]:
    """Return the objects of a typed kind."""
    group = kind.API_VERSION.rpartition("/")[0]
    api_version = f"{group}/{version}" if version and group else version or kind.API_VERSION
    return AsyncResource(
        transport,
        api_version,
        _PLURALS[kind],
        namespaced=issubclass(kind, NAMESPACED),
        read=_reader(kind),
        write=lambda obj: write_object(obj, api_version),
        kind=kind.KIND,
    )


def raw_resource(
    transport: Transport, api_version: str, plural: str, *, namespaced: bool
) -> AsyncResource[dict[str, Any]]:
    """Return the objects of any kind, as plain values."""
    return AsyncResource(
        transport, api_version, plural, namespaced=namespaced, read=lambda value: value, write=lambda value: value
    )


def selectors(labels: str, fields: str) -> dict[str, str]:
    """Return the query parameters that select objects."""
    return {key: value for key, value in (("labelSelector", labels), ("fieldSelector", fields)) if value}


def _reader(kind: type[K]) -> Callable[[Any], K]:
    """Return a function that reads objects of a kind, in any of its versions, from plain values."""

    def read(value: Any) -> K:
        obj = read_object(value)
        if not isinstance(obj, kind):
            raise InvalidAnswer(f"the API server answered with a {obj.KIND}, not a {kind.KIND}")
        return obj

    return read


def _segment(name: str) -> str:
    """Return a name as a path segment, by the API server's rule for names. Raises ClientError."""
    try:
        if name not in (".", "..") and not {"/", "%"} & set(name):
            return urllib.parse.quote(name, safe="")
    except UnicodeError:
        pass
    raise ClientError(f"{name[:80]!r} cannot be a name on the API server: no '/', no '%', not '.' or '..'")


def _query(*, dry_run: bool) -> dict[str, str] | None:
    return {"dryRun": "All"} if dry_run else None


def _named(value: dict[str, Any]) -> _Named:
    metadata = value["metadata"]
    name, prefix = str(metadata.get("name") or ""), str(metadata.get("generateName") or "")
    uid = str(metadata.get("uid") or "")
    return _Named(name, str(metadata.get("namespace") or ""), uid, "" if name else prefix)
