"""An API server with a scheduler, and short builders for cluster objects."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Self, TypeVar

from msgspec.structs import replace

from controlplane.apiserver import Server
from controlplane.apiserver.access.authorization import AuthorizationMode
from controlplane.apiserver.kinds import Kind
from controlplane.scheduler import Scheduler
from resourceapi.client import AsyncClient, Credentials, Refused
from resourceapi.client.blocking import Client
from resourceapi.client.transport import Answer

T = TypeVar("T")
Json = dict[str, Any]
Interceptor = Callable[[str, str, Callable[[], Any]], Any]
"""Receives a request's method, path, and a function that sends it."""

DRIVER = "gpu.example.com"
EVENT_TIMEOUT = 30.0  # the longest wait for any event on a slow machine
_PLURALS = {
    "DeviceClass": ("resource.k8s.io/v1", "deviceclasses", False),
    "DeviceTaintRule": ("resource.k8s.io/v1beta2", "devicetaintrules", False),
    "Event": ("v1", "events", True),
    "Namespace": ("v1", "namespaces", False),
    "Node": ("v1", "nodes", False),
    "Pod": ("v1", "pods", True),
    "ResourceClaim": ("resource.k8s.io/v1", "resourceclaims", True),
    "ResourceClaimTemplate": ("resource.k8s.io/v1", "resourceclaimtemplates", True),
    "ResourceSlice": ("resource.k8s.io/v1", "resourceslices", False),
}


def intercepted_client(server: Server, interceptor: Interceptor) -> Client:
    """A client whose requests pass through `interceptor`, which is called in a thread and can lose them."""

    class InterceptedAsyncClient(AsyncClient):
        async def send(self, method: str, path: str, body: Any = None, **options: Any) -> Answer:
            loop = asyncio.get_running_loop()
            send = functools.partial(super().send, method, path, body, **options)
            answer = await asyncio.to_thread(
                interceptor, method, path, lambda: asyncio.run_coroutine_threadsafe(send(), loop).result()
            )
            assert isinstance(answer, Answer)
            return answer

    class InterceptedClient(Client):
        implementation = InterceptedAsyncClient

    credentials = Credentials(server=server.url, token="t")
    return InterceptedClient(lambda: credentials, wait=lambda _: None)


class SchedulerCluster:
    """A cluster of one API server and one scheduler, connected by HTTP. `options` are those of the scheduler.

    With a `version` the server serves only this version of resource.k8s.io. The scheduler's requests pass through
    `interceptor`.
    """

    def __init__(
        self,
        version: str = "",
        interceptor: "Interceptor | None" = None,
        authorization: AuthorizationMode = "AlwaysAllow",
        tls: bool = False,
        **options: Any,
    ) -> None:
        self.server = Server(token="t", collect_after=0.0, authorization=authorization, tls=tls)
        if version:
            for kind in [each for each in self.server.registry if each.group == "resource.k8s.io"]:
                served = tuple(each for each in kind.versions if each.name == version)
                (self.server.registry.add if served else self._remove)(replace(kind, versions=served))
        self.scheduler_time = datetime(2100, 1, 1, tzinfo=UTC)  # later than all timestamps of the server
        self._interceptor = interceptor
        self._options: Json = {"now": lambda: self.scheduler_time} | options

    async def __aenter__(self) -> Self:
        self._changed = self.server.store.subscribe().changed
        await self.server.__aenter__()
        credentials = Credentials(server=self.server.url, token="t", ca=self.server.ca)
        self.client = Client(lambda: credentials)
        self._scheduler_client = (
            intercepted_client(self.server, self._interceptor) if self._interceptor else self.client
        )
        self.scheduler = Scheduler(self._scheduler_client, **self._options)
        await self.scheduler.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.scheduler.stop()
        await self.server.__aexit__()
        self._scheduler_client.close()
        self.client.close()

    async def restart(self) -> None:
        """Replace the scheduler by one without any state."""
        await self.scheduler.stop()
        self.scheduler = Scheduler(self._scheduler_client, **self._options)
        await self.scheduler.start()

    async def advance_scheduler_time(self, seconds: float) -> None:
        """Advance the scheduler's clock."""
        self.scheduler_time += timedelta(seconds=seconds)
        self.scheduler.wake()

    async def create(self, *objects: Json) -> None:
        """Create objects, including their status."""
        for obj in objects:
            resource = self._resource(obj["kind"])
            made = await asyncio.to_thread(resource.create, obj)
            if "status" in obj:
                await asyncio.to_thread(resource.update_status, {**made, "status": obj["status"]})

    async def get(self, kind: str, name: str) -> Json:
        """An object; empty if it does not exist."""
        namespace = "default" if _PLURALS[kind][2] else ""
        try:
            return await asyncio.to_thread(self._resource(kind).get, name, namespace)
        except Refused as refusal:
            if refusal.is_missing:
                return {}
            raise

    async def all(self, kind: str) -> list[Json]:
        """All objects of a kind."""
        return list((await asyncio.to_thread(self._resource(kind).list)).items)

    async def patch(self, kind: str, name: str, patch: Json, subresource: str = "") -> Json:
        """Apply a merge patch."""
        namespace = "default" if _PLURALS[kind][2] else ""
        return await asyncio.to_thread(self._resource(kind).patch, name, patch, namespace, subresource=subresource)

    async def set_status(self, kind: str, name: str, **status: Any) -> Json:
        """Change members of a status."""
        return await self.patch(kind, name, {"status": status}, "status")

    async def delete(self, kind: str, name: str) -> None:
        """Delete an object."""
        namespace = "default" if _PLURALS[kind][2] else ""
        await asyncio.to_thread(self._resource(kind).delete, name, namespace)

    async def end_pod_by_force(self, name: str) -> None:
        """Delete a pod without waiting for its kubelet."""
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        path = self._resource("Pod").path("default", name)
        await asyncio.to_thread(self.client.request, "DELETE", path, options)

    async def until(self, ask: Callable[[], Awaitable[T]]) -> T:
        """The first true result of `ask`, which runs again after each change of the server's objects."""
        async with asyncio.timeout(EVENT_TIMEOUT):
            while True:
                self._changed.clear()
                if answer := await ask():
                    return answer
                await self._changed.wait()

    async def until_bound(self, name: str) -> Json:
        """Wait until the pod is on a node and has the condition PodScheduled."""

        async def bound() -> Json:
            pod = await self.get("Pod", name)
            return pod if condition(pod, "PodScheduled").get("status") == "True" else {}

        return await self.until(bound)

    async def until_refused(self, name: str, *parts: str) -> Json:
        """Wait for a false PodScheduled condition whose message contains all parts, and return the condition."""

        async def refused() -> Json:
            found = condition(await self.get("Pod", name), "PodScheduled")
            is_it = found.get("status") == "False" and all(part in found["message"] for part in parts)
            return found if is_it else {}

        return await self.until(refused)

    async def until_gone(self, kind: str, name: str) -> None:
        """Wait until an object no longer exists."""

        async def gone() -> bool:
            return not await self.get(kind, name)

        await self.until(gone)

    async def until_free(self, name: str) -> Json:
        """Wait until the claim has no allocation, and return it."""

        async def free() -> Json:
            claim = await self.get("ResourceClaim", name)
            is_free = not claim.get("status", {}).get("allocation") and not claim["metadata"].get("finalizers")
            return claim if is_free else {}

        return await self.until(free)

    async def finish(self, name: str, phase: str = "Succeeded") -> None:
        """End a pod by writing its phase, as a kubelet does."""
        await self.set_status("Pod", name, phase=phase)

    async def claims_of(self, pod: str) -> dict[str, Json]:
        """The claims created for a pod, by their name in the pod; the one for extended resources is `extended`."""
        status = (await self.get("Pod", pod)).get("status", {})
        names = {each["name"]: each["resourceClaimName"] for each in status.get("resourceClaimStatuses", ())}
        if "extendedResourceClaimStatus" in status:
            names["extended"] = status["extendedResourceClaimStatus"]["resourceClaimName"]
        return {reference: await self.get("ResourceClaim", name) for reference, name in names.items()}

    async def events(self, reason: str) -> list[str]:
        """The messages of all events with this reason."""
        return [each["message"] for each in await self.all("Event") if each["reason"] == reason]

    async def until_event(self, reason: str, message: str) -> None:
        """Wait for an event."""

        async def is_recorded() -> bool:
            return message in await self.events(reason)

        await self.until(is_recorded)

    def _remove(self, kind: Kind) -> None:
        self.server.registry.remove(kind.id)

    def _resource(self, kind: str) -> Any:
        api_version, plural, namespaced = _PLURALS[kind]
        return self.client.raw(api_version, plural, namespaced=namespaced)


def condition(pod: Json, type_: str) -> Json:
    """A condition of a pod; empty if the pod does not have it."""
    return next((x for x in pod.get("status", {}).get("conditions", ()) if x["type"] == type_), {})


def devices(claim: Json) -> list[str]:
    """The devices of a claim as pool/device."""
    allocation = claim.get("status", {}).get("allocation") or {"devices": {}}
    return [f"{each['pool']}/{each['device']}" for each in allocation["devices"].get("results", ())]


def users(claim: Json) -> set[str]:
    """The pods that a claim is reserved for."""
    return {each["name"] for each in claim.get("status", {}).get("reservedFor", ())}


def node(name: str = "n1", labels: Mapping[str, str] | None = None, **allocatable: int) -> Json:
    """A node; `example_com=2` means two allocatable example.com/x."""
    amounts = {f"{key.replace('_', '.')}/x": str(count) for key, count in allocatable.items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def device_class(name: str = "gpu", *expressions: str, **spec: Any) -> Json:
    """A class, which selects all devices unless there are expressions."""
    selectors = [{"cel": {"expression": each}} for each in expressions]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": selectors, **spec},
    }


def slice_(pool: str = "n1", *found: str | Json, name: str = "", count: int = 1, **spec: Any) -> Json:
    """A slice of the node's pool; devices are names or full objects."""
    full = [{"name": each} if isinstance(each, str) else each for each in found]
    place = {} if {"allNodes", "nodeSelector", "perDeviceNodeSelection"} & spec.keys() else {"nodeName": pool}
    listed = {"devices": full} if full else {}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name or f"{pool}-slice"},
        "spec": {
            "driver": DRIVER,
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": count},
            **place,
            **listed,
            **spec,
        },
    }


def request(name: str = "r", count: int = 1, *expressions: str, **exactly: Any) -> Json:
    """A request for devices of the class `gpu`, or of `deviceClassName`."""
    selectors = [{"cel": {"expression": each}} for each in expressions]
    return {"name": name, "exactly": {"deviceClassName": "gpu", "count": count, "selectors": selectors} | exactly}


def claim_spec(*requests: Json, **more: Any) -> Json:
    """The spec of a claim, for one device by default."""
    return {"devices": {"requests": list(requests) or [request()], **more}}


def claim(name: str = "c", *requests: Json, **more: Any) -> Json:
    """A claim."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": claim_spec(*requests, **more),
    }


def template(name: str = "t", *requests: Json, metadata: Json | None = None) -> Json:
    """A claim template."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"metadata": metadata or {}, "spec": claim_spec(*requests)},
    }


def pod(
    name: str,
    claims: Mapping[str, str] | None = None,
    templates: Mapping[str, str] | None = None,
    limits: Iterable[Mapping[str, str]] = (),
    **spec: Any,
) -> Json:
    """A pod with its names for claims and templates, and the limits of each container."""
    references = [{"name": key, "resourceClaimName": value} for key, value in (claims or {}).items()]
    references += [{"name": key, "resourceClaimTemplateName": value} for key, value in (templates or {}).items()]
    containers = [
        {"name": f"c{number}", "image": "any", "resources": {"limits": dict(each)}}
        for number, each in enumerate(list(limits) or [{}])
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": containers, "resourceClaims": references, **spec},
    }
