"""Writes of large objects: computed in a thread while other requests are answered, and stored without lost updates."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest

from controlplane.apiserver import Server
from controlplane.apiserver.bodies import LONG
from controlplane.apiserver.collector import Collector
from controlplane.apiserver.drafts import write_apart
from controlplane.apiserver.options import DeleteOptions, WriteOptions
from controlplane.apiserver.patch import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, Patch
from controlplane.apiserver.pods.eviction import evict
from controlplane.apiserver.rest import Outcome, Rest
from controlplane.apiserver.scaling import patch_scale
from controlplane.apiserver.status import ApiError
from controlplane.apiserver.store import Store
from controlplane.apiserver.target import Target

MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"a": "x"}}

READY = {"type": "Ready", "status": "True"}
VARIABLES = [{"name": f"V{number}", "value": "x"} for number in range(2000)]
LARGE = {"containers": [{"name": "c", "image": "i", "env": VARIABLES}]}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.e.x"},
    "spec": {
        "group": "e.x",
        "scope": "Cluster",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        ],
    },
}


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(token="", definitions=()) as running:
        yield running


def maps(server: Server, name: str = "", namespace: str = "default") -> Target:
    kind = server.registry.find("", "v1", "configmaps")
    assert kind is not None
    return Target(kind, "v1", namespace, name)


def with_data(rest: Rest, target: Target, **data: str) -> Outcome:
    return rest.patch(target, Patch(MERGE_PATCH, {"data": data}), WriteOptions(), "me")


def use_policy(server: Server, resource: str) -> None:
    """A policy that lets all writes of a resource pass."""
    group = "admissionregistration.k8s.io"
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": [resource]}]
    policy = {"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": "true"}]}
    binding = {"policyName": "all", "validationActions": ["Deny"]}
    for kind, spec in (("ValidatingAdmissionPolicy", policy), ("ValidatingAdmissionPolicyBinding", binding)):
        server.write({"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": "all"}, "spec": spec})


def disturbed(rest: Rest, write: Callable[[Rest], Outcome], other: Callable[[], Any], times: int = 1) -> Any:
    """A write during which `other` runs, so many times, after the write has read its input."""
    loop, left = asyncio.get_running_loop(), [other] * times

    async def run(change: Callable[[], Any]) -> None:
        change()

    def done(draft: Rest) -> Outcome:
        outcome = write(draft)
        if left and draft is not rest:
            asyncio.run_coroutine_threadsafe(run(left.pop()), loop).result(30)
        return outcome

    return done


@pytest.mark.parametrize(
    ("media_type", "value"),
    [
        (MERGE_PATCH, {"data": {"b": "y"}}),
        (STRATEGIC_MERGE_PATCH, {"data": {"b": "y"}}),
        (JSON_PATCH, [{"op": "add", "path": "/data/b", "value": "y"}]),
        (APPLY_PATCH, MAP | {"data": {"b": "y"}}),
    ],
)
@pytest.mark.parametrize("times", [1, 9])
async def test_what_came_between_is_kept(server: Server, media_type: str, value: Any, times: int) -> None:
    server.write(MAP)
    target, rest, numbers = maps(server, "one"), server.rest, iter(range(99))
    patch = Patch(media_type, value)
    write = partial(Rest.patch, target=target, patch=patch, options=WriteOptions(force=True), manager="m")
    again = disturbed(rest, write, lambda: with_data(rest, target, c=str(next(numbers))), times)
    outcome = await write_apart(rest, target, LONG, again)
    data = outcome.object["data"]
    assert data == {"a": "x", "b": "y", "c": data["c"]}
    assert rest.get(target) == outcome.object


async def test_a_name_that_was_taken_meanwhile(server: Server) -> None:
    create = partial(Rest.create, target=maps(server), value=MAP, options=WriteOptions(), manager="m")
    with pytest.raises(ApiError, match='configmaps "one" already exists'):
        await write_apart(server.rest, maps(server), LONG, disturbed(server.rest, create, lambda: server.write(MAP)))


async def test_nothing_new_comes_into_a_namespace_that_ended_meanwhile(server: Server) -> None:
    server.write({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "work"}})
    create = partial(Rest.create, target=maps(server, namespace="work"), options=WriteOptions(), manager="m")
    write = disturbed(
        server.rest,
        partial(create, value={**MAP, "metadata": {"name": "one", "namespace": "work"}}),
        lambda: server.store.remove("namespaces", ("", "work")),
    )
    with pytest.raises(ApiError, match='namespaces "work" not found'):
        await write_apart(server.rest, maps(server, namespace="work"), LONG, write)


async def test_nothing_is_stored_of_a_kind_that_went_meanwhile(server: Server) -> None:
    server.write(DEFINITION)
    kind = server.registry.find("e.x", "v1", "things")
    assert kind is not None
    target, thing = Target(kind, "v1", "", ""), {"apiVersion": "e.x/v1", "kind": "Thing", "metadata": {"name": "one"}}
    definition = server.registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    assert definition is not None
    create = partial(Rest.create, target=target, value=thing, options=WriteOptions(), manager="m")
    write = disturbed(server.rest, create, lambda: server.rest.remove(definition, ("", "things.e.x")))
    with pytest.raises(ApiError, match="could not find the requested resource"):
        await write_apart(server.rest, target, LONG, write)
    server.write(DEFINITION)
    assert server.store.count(kind.table) == 0


def test_who_looks_in_a_thread_meets_what_others_write() -> None:
    store, key = Store(), ("b", "one")
    store.put("maps", key, {"metadata": {"namespace": "b", "name": "one"}})

    class Meanwhile(str):
        """A namespace name whose first comparison triggers another write."""

        def __eq__(self, other: object) -> bool:
            if store.count("maps") == 1:
                store.put("maps", ("a", "new"), {"metadata": {"namespace": "a", "name": "new"}})
            return str(self) == other

        __hash__ = str.__hash__

    assert [each["metadata"]["name"] for each in store.objects("maps", Meanwhile("b"))] == ["one"]
    assert store.count("maps") == 2


def test_kinds_that_come_while_somebody_looks(server: Server) -> None:
    looking = iter(server.registry)
    next(looking)
    server.write(DEFINITION)
    assert all(kind.group != "e.x" for kind in looking)


async def test_a_large_object_that_ends_with_its_last_finalizer(server: Server) -> None:
    server.write(
        {**MAP, "metadata": {"name": "one", "finalizers": ["e.x/f"]}, "data": dict.fromkeys(map(str, range(3000)), "x")}
    )
    target = maps(server, "one")
    marked = {**server.rest.get(target)}
    marked["metadata"] = {**marked["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    server.rest.put(target.kind, target.key, marked)
    patch = Patch(MERGE_PATCH, {"metadata": {"finalizers": None}})
    write = partial(Rest.patch, target=target, patch=patch, options=WriteOptions(), manager="m")
    outcome = await write_apart(server.rest, target, 0, write)
    assert "finalizers" not in outcome.object["metadata"]
    assert server.rest.find(target.kind, target.key) is None


async def test_what_was_given_to_a_service_and_is_taken_meanwhile(server: Server) -> None:
    """It is given another address; a port that it asks for is refused."""
    use_policy(server, "services")
    kind = server.registry.find("", "v1", "services")
    assert kind is not None
    target, given = Target(kind, "v1", "default", ""), list[str]()
    one = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "one"}, "spec": {"ports": [{"port": 80}]}}
    create = partial(Rest.create, target=target, value=one, options=WriteOptions(), manager="m")

    def created(rest: Rest) -> Outcome:
        outcome = create(rest)
        given.append(outcome.object["spec"]["clusterIP"])
        return outcome

    def take() -> None:
        server.write({**one, "metadata": {"name": "other"}, "spec": {"clusterIP": given[0], "ports": [{"port": 80}]}})

    outcome = await write_apart(server.rest, target, 0, disturbed(server.rest, created, take))
    assert len(given) == 2
    assert outcome.object["spec"]["clusterIP"] == given[1] != given[0]
    balanced = {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30001}]}
    two = {**one, "metadata": {"name": "two"}, "spec": balanced}
    write = disturbed(
        server.rest,
        partial(create, value=two),
        lambda: server.write({**two, "metadata": {"name": "third"}}),
    )
    with pytest.raises(ApiError, match="30001: provided port is already allocated"):
        await write_apart(server.rest, target, 0, write)


async def test_what_a_policy_judges_is_collected_while_others_are_answered() -> None:
    async with Server(token="", definitions=(), collect_after=None) as server:
        use_policy(server, "configmaps")
        gone = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "0"}
        server.write({**MAP, "metadata": {"name": "one", "ownerReferences": [gone]}})
        collecting = asyncio.create_task(Collector(server.rest).collect())
        await asyncio.sleep(0)
        assert not collecting.done()
        assert await collecting
        assert server.store.get("configmaps", ("default", "one")) is None


async def test_an_object_whose_owner_came_while_others_were_collected_stays() -> None:
    async with Server(token="", definitions=(), collect_after=None) as server:
        use_policy(server, "configmaps")
        gone = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "0"}
        for name in ("a", "b"):
            server.write({**MAP, "metadata": {"name": name, "ownerReferences": [gone]}})
        collecting = asyncio.create_task(Collector(server.rest).collect())
        await asyncio.sleep(0)  # by now it waits for what is decided about a
        server.write({**MAP, "metadata": {"name": "owner"}})
        owner = server.rest.get(maps(server, "owner"))["metadata"]
        references = [{**gone, "name": "owner", "uid": owner["uid"]}]
        server.write({**MAP, "metadata": {"name": "b", "ownerReferences": references}})
        assert await collecting
        assert [each["metadata"]["name"] for each in server.store.objects("configmaps")] == ["b", "owner"]


@pytest.mark.parametrize("policy", ["Orphan", "Foreground"])
async def test_a_dependent_that_is_disowned_while_others_are_collected_stays(policy: str) -> None:
    async with Server(token="", definitions=(), collect_after=None) as server:
        use_policy(server, "configmaps")
        write = partial(server.rest.create, options=WriteOptions(), manager="me")
        missing = {"apiVersion": "v1", "kind": "ConfigMap", "name": "m", "uid": "m"}
        write(maps(server), {**MAP, "metadata": {"name": "first", "ownerReferences": [missing]}})
        uid = write(maps(server), {**MAP, "metadata": {"name": "owner"}}).object["metadata"]["uid"]
        reference = {**missing, "name": "owner", "uid": uid, "blockOwnerDeletion": True}
        write(maps(server), {**MAP, "metadata": {"name": "dependent", "ownerReferences": [reference]}})
        server.rest.delete(maps(server, "owner"), DeleteOptions(policy=policy))
        collecting = asyncio.create_task(Collector(server.rest).collect())
        await asyncio.sleep(0)  # it deletes the first one, in a thread
        disowned = Patch(MERGE_PATCH, {"metadata": {"ownerReferences": None}})
        server.rest.patch(maps(server, "dependent"), disowned, WriteOptions(), "me")
        assert not collecting.done()
        assert await collecting
        names = [each["metadata"]["name"] for each in server.store.objects("configmaps")]
        assert sorted(names) == ["dependent"]
        assert "deletionTimestamp" not in server.rest.get(maps(server, "dependent"))["metadata"]


async def test_two_that_fit_a_quota_one_by_one(server: Server) -> None:
    """The concurrent write used the rest of the quota."""
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}}
    amounts = {"hard": {"configmaps": "1"}, "used": {"configmaps": "0"}}
    server.write(quota | {"spec": {"hard": amounts["hard"]}, "status": amounts})
    create = partial(Rest.create, target=maps(server), options=WriteOptions(), manager="m")
    other = {**MAP, "metadata": {"name": "other"}}
    write = disturbed(server.rest, partial(create, value=MAP), lambda: server.write(other))
    with pytest.raises(ApiError, match="exceeded quota: q, requested: configmaps=1, used: configmaps=1"):
        await write_apart(server.rest, maps(server), LONG, write)


@pytest.mark.parametrize("times", [0, 1, 9])
async def test_a_large_pod_that_is_evicted(server: Server, times: int) -> None:
    """The pod gets its condition before it is deleted, and keeps concurrent changes."""
    server.write({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"conditions": [READY]}})
    server.write({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": {"nodeName": "n", **LARGE}})
    kind, numbers = server.registry.find("", "v1", "pods"), iter(range(99))
    assert kind is not None
    pod = Target(kind, "v1", "default", "one")

    def label() -> None:
        labels = {"metadata": {"labels": {"a": str(next(numbers))}}}
        server.rest.patch(pod, Patch(MERGE_PATCH, labels), WriteOptions(), "me")

    eviction = {"metadata": {"name": "one"}}
    write = partial(evict, target=pod._replace(subresource="eviction"), eviction=eviction, options=WriteOptions())
    before = server.store.version
    outcome = await write_apart(server.rest, pod, LONG, disturbed(server.rest, write, label, times))
    stored = [event.new for event in server.store.events_after("pods", before) if event.new is not None]
    assert "deletionTimestamp" not in stored[-2]["metadata"]
    assert "deletionTimestamp" in stored[-1]["metadata"]
    for each in stored[-2:]:
        assert [x["type"] for x in each["status"]["conditions"]] == ["DisruptionTarget"]
    assert server.rest.get(pod) == outcome.object == stored[-1]
    assert bool(outcome.object["metadata"].get("labels")) == bool(times)


async def test_a_large_pod_that_is_deleted_is_shown_as_it_ended(server: Server) -> None:
    server.write({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": LARGE})
    kind = server.registry.find("", "v1", "pods")
    assert kind is not None
    pod = Target(kind, "v1", "default", "one")
    delete = partial(Rest.delete, target=pod, options=DeleteOptions())
    outcome = await write_apart(server.rest, pod, 0, delete)
    assert outcome.object["metadata"]["resourceVersion"] == str(server.store.version)


@pytest.mark.parametrize("times", [0, 1, 9])
async def test_a_large_workload_that_is_scaled(server: Server, times: int) -> None:
    labels, numbers = {"a": "b"}, iter(range(99))
    template = {"metadata": {"labels": labels}, "spec": LARGE}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    server.write({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "one"}, "spec": spec})
    kind = server.registry.find("apps", "v1", "deployments")
    assert kind is not None
    served = kind.served("v1")
    assert served is not None
    assert served.scale is not None
    target, patch = Target(kind, "v1", "default", "one"), Patch(MERGE_PATCH, {"spec": {"replicas": 3}})

    def label() -> None:
        metadata = {"metadata": {"labels": {"a": str(next(numbers))}}}
        server.rest.patch(target, Patch(MERGE_PATCH, metadata), WriteOptions(), "me")

    write = partial(
        patch_scale, target=target, paths=served.scale, patch=patch, options=WriteOptions(), manager="scaler"
    )
    outcome = await write_apart(server.rest, target, 0, disturbed(server.rest, write, label, times))
    assert outcome.object["spec"]["replicas"] == 3
    assert bool(outcome.object["metadata"].get("labels")) == bool(times)
    assert server.rest.get(target) == outcome.object
