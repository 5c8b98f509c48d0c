"""Server behaviour: older API versions, refusals, lost answers, concurrent writers."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from controlplane.scheduler import Scheduler
from resourceapi.client import Credentials, Refused, Unreachable
from resourceapi.client.blocking import Client
from tests.controlplane.scheduler.kit import (
    SchedulerCluster,
    claim,
    device_class,
    devices,
    node,
    pod,
    slice_,
    template,
    users,
)
from tests.dra_scenarios import scenario
from tests.resourceapi.client.peer import Request, serving


class FailOnce:
    """A fault of the first request for a path. `is_executed` means that the request still reaches the server."""

    def __init__(self, method: str, ending: str, *, is_executed: bool, error: Exception | None = None) -> None:
        self._wanted = (method, ending)
        self._is_executed = is_executed
        self._error = error or Unreachable("connection lost")
        self.happened = False

    def __call__(self, method: str, path: str, send: Callable[[], Any]) -> Any:
        if self.happened or method != self._wanted[0] or not path.endswith(self._wanted[1]):
            return send()
        self.happened = True
        if self._is_executed:
            send()
        raise self._error


@scenario(230)
@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
async def test_pod_is_bound_with_older_api_version(version: str) -> None:
    async with SchedulerCluster() as newest:
        await newest.create(node(), device_class(), slice_("n1", "a"), template())
        kept = [
            each
            for kind in ("Node", "DeviceClass", "ResourceSlice", "ResourceClaimTemplate")
            for each in await newest.all(kind)
        ]
    async with SchedulerCluster(version) as cluster:
        for each in kept:  # objects are stored in v1, whatever version is served
            each.setdefault("metadata", {}).pop("resourceVersion", None)
        for kind, obj in zip(("nodes", "deviceclasses", "resourceslices", "resourceclaimtemplates"), kept, strict=True):
            found = next(each for each in cluster.server.registry if each.plural == kind)
            key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
            cluster.server.store.put(found.id, key, obj)
        await cluster.server.store.commit()
        await cluster.create(pod("p", templates={"g": "t"}))
        bound = await cluster.until_bound("p")
        name = bound["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
        path = f"/apis/resource.k8s.io/{version}/namespaces/default/resourceclaims/{name}"
        made = await asyncio.to_thread(cluster.client.request, "GET", path)
        assert devices(made) == ["n1/a"]


async def test_start_fails_when_credentials_are_refused() -> None:
    async with SchedulerCluster() as cluster:
        credentials = Credentials(server=cluster.server.url, token="wrong")
        client = Client(lambda: credentials)
        scheduler = Scheduler(client)
        with pytest.raises(Refused, match="401"):
            await scheduler.start()
        await scheduler.stop()
        client.close()


@pytest.mark.parametrize("is_executed", [True, False])
@pytest.mark.parametrize(
    ("method", "ending"),
    [
        ("PUT", "/resourceclaims/c"),
        ("PUT", "/resourceclaims/c/status"),
        ("POST", "/pods/p/binding"),
        ("PATCH", "/pods/p/status"),
        ("POST", "/namespaces/default/resourceclaims"),
    ],
)
async def test_pod_is_bound_despite_lost_request_or_answer(method: str, ending: str, is_executed: bool) -> None:
    fault = FailOnce(method, ending, is_executed=is_executed)
    async with SchedulerCluster(interceptor=fault) as cluster:
        await cluster.create(node(), device_class(), slice_("n1", "a", "b"), claim(), template())
        await cluster.create(pod("p", {"x": "c"}, {"y": "t"}))
        await cluster.until_bound("p")
        assert fault.happened
        held = devices(await cluster.get("ResourceClaim", "c"))
        held += devices((await cluster.claims_of("p"))["y"])
        assert sorted(held) == ["n1/a", "n1/b"]
        await cluster.delete("Pod", "p")
        await cluster.until_free("c")


async def test_unanswered_allocation_is_repeated_before_next_one() -> None:
    """The write of c reaches the server late, after the scheduler's request has failed."""
    late: list[Callable[[], Any]] = []

    def intercept(method: str, path: str, send: Callable[[], Any]) -> Any:
        if (method, path.rpartition("/resourceclaims/")[2]) != ("PUT", "c/status"):
            return send()
        if not late:
            late.append(send)
            raise Unreachable("connection lost")
        if len(late) == 1:
            late.append(send)
            late[0]()
        return send()

    async with SchedulerCluster(interceptor=intercept) as cluster:
        await cluster.create(node(), device_class(), slice_("n1", "a"), claim("c"), claim("d"))
        await cluster.create(pod("p", {"x": "c"}), pod("q", {"x": "d"}))
        await cluster.until_bound("p")
        await cluster.until_refused("q", "cannot allocate all claims")
        assert devices(await cluster.get("ResourceClaim", "c")) == ["n1/a"]
        assert users(await cluster.get("ResourceClaim", "c")) == {"p"}


async def test_request_is_repeated_after_server_error() -> None:
    fault = FailOnce("PUT", "/status", is_executed=True, error=Refused(500, "InternalError", "timed out", {}, None))
    async with SchedulerCluster(interceptor=fault) as cluster:
        await cluster.create(node(), device_class(), slice_("n1", "a"), claim(), pod("p", {"x": "c"}))
        await cluster.until_bound("p")
        assert fault.happened


async def test_write_is_repeated_after_conflict() -> None:
    done: list[str] = []

    def intercept(method: str, path: str, send: Callable[[], Any]) -> Any:
        if method == "PUT" and path.endswith("/c") and not done:
            done.append(path)
            claims = cluster.client.raw("resource.k8s.io/v1", "resourceclaims", namespaced=True)
            claims.patch("c", {"metadata": {"labels": {"a": "b"}}}, "default")
        return send()

    cluster = SchedulerCluster(interceptor=intercept)
    async with cluster:
        await cluster.create(node(), device_class(), slice_("n1", "a"), claim(), pod("p", {"x": "c"}))
        await cluster.until_bound("p")
        assert done
        assert (await cluster.get("ResourceClaim", "c"))["metadata"]["labels"] == {"a": "b"}


async def test_claim_is_released_when_pod_is_deleted_during_binding() -> None:
    def intercept(method: str, path: str, send: Callable[[], Any]) -> Any:
        if path.endswith("/pods/p/binding"):
            cluster.client.raw("v1", "pods", namespaced=True).delete("p", "default")
        return send()

    cluster = SchedulerCluster(interceptor=intercept)
    async with cluster:
        await cluster.create(node(), device_class(), slice_("n1", "a"), claim(), pod("p", {"x": "c"}))
        await cluster.until_gone("Pod", "p")
        await cluster.until_free("c")
        await cluster.create(pod("q", {"x": "c"}))
        await cluster.until_bound("q")


async def test_template_claims_are_not_created_without_controllers() -> None:
    async with SchedulerCluster(with_controllers=False) as cluster:
        await cluster.create(node(), device_class(), slice_("n1", "a"), claim(), template())
        await cluster.create(pod("p", {"x": "c"}), pod("q", templates={"y": "t"}))
        await cluster.until_bound("p")
        await cluster.until_refused("q", 'pod "default/q": ResourceClaim not created yet')
        assert [each["metadata"]["name"] for each in await cluster.all("ResourceClaim")] == ["c"]


async def test_start_fails_when_resource_versions_are_not_numbers() -> None:
    async def answer(request: Request) -> None:
        kinds = {"nodes": "NodeList", "pods": "PodList"}
        kind = kinds.get(request.path.rpartition("/")[2], "ResourceClaimList")
        await request.answer({"apiVersion": "v1", "kind": kind, "metadata": {"resourceVersion": "x"}, "items": []})

    async with serving(answer) as peer, asyncio.timeout(60) as patience:
        client = Client(lambda: Credentials(server=peer.url), attempts=1)
        with pytest.raises(ExceptionGroup) as failure:
            await Scheduler(client).start()
        assert failure.group_contains(ValueError, match="'x'")
        assert not patience.expired()
        client.close()
