"""Writes of large objects: computed in a thread while other requests are answered, and stored without lost updates."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest

from controlplane.apiserver import Server
from controlplane.apiserver.bodies import LARGE_BODY
from controlplane.apiserver.collector import Collector
from controlplane.apiserver.optimistic_writes import write_off_loop
from controlplane.apiserver.options import DeleteOptions, WriteOptions
from controlplane.apiserver.patch import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, Patch
from controlplane.apiserver.pods.eviction import evict
from controlplane.apiserver.rest import Outcome, Rest
from controlplane.apiserver.scaling import patch_scale
from controlplane.apiserver.status import ApiError
from controlplane.apiserver.store import Store
from controlplane.apiserver.target import Target

CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"a": "x"}}

READY_CONDITION = {"type": "Ready", "status": "True"}
VARIABLES = [{"name": f"V{number}", "value": "x"} for number in range(1000)]
LARGE_POD_SPEC = {"containers": [{"name": "c", "image": "i", "env": VARIABLES}]}
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


def config_map_target(server: Server, name: str = "", namespace: str = "default") -> Target:
    kind = server.registry.find("", "v1", "configmaps")
    assert kind is not None
    return Target(kind, "v1", namespace, name)


def patch_data(rest: Rest, target: Target, **data: str) -> Outcome:
    return rest.patch(target, Patch(MERGE_PATCH, {"data": data}), WriteOptions(), "me")


def create_permissive_policy(server: Server, resource: str) -> None:
    """Create a policy that allows all writes of a resource."""
    group = "admissionregistration.k8s.io"
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": [resource]}]
    policy = {"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": "true"}]}
    binding = {"policyName": "all", "validationActions": ["Deny"]}
    for kind, spec in (("ValidatingAdmissionPolicy", policy), ("ValidatingAdmissionPolicyBinding", binding)):
        server.write({"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": "all"}, "spec": spec})


def with_concurrent_write(
    rest: Rest, write: Callable[[Rest], Outcome], other: Callable[[], Any], times: int = 1
) -> Any:
    """A write during which `other` runs `times` times, each time after the write has read its input."""
    loop, left = asyncio.get_running_loop(), [other] * times

    async def run(change: Callable[[], Any]) -> None:
        change()

    def run_both(attempt: Rest) -> Outcome:
        outcome = write(attempt)
        if left and attempt is not rest:
            asyncio.run_coroutine_threadsafe(run(left.pop()), loop).result(30)
        return outcome

    return run_both


@pytest.mark.parametrize(
    ("media_type", "value"),
    [
        (MERGE_PATCH, {"data": {"b": "y"}}),
        (STRATEGIC_MERGE_PATCH, {"data": {"b": "y"}}),
        (JSON_PATCH, [{"op": "add", "path": "/data/b", "value": "y"}]),
        (APPLY_PATCH, CONFIG_MAP | {"data": {"b": "y"}}),
    ],
)
@pytest.mark.parametrize("times", [1, 9])
async def test_patch_keeps_concurrent_change(server: Server, media_type: str, value: Any, times: int) -> None:
    server.write(CONFIG_MAP)
    target, rest, numbers = config_map_target(server, "one"), server.rest, iter(range(99))
    patch = Patch(media_type, value)
    write = partial(Rest.patch, target=target, patch=patch, options=WriteOptions(force=True), manager="m")
    disturbed = with_concurrent_write(rest, write, lambda: patch_data(rest, target, c=str(next(numbers))), times)
    outcome = await write_off_loop(rest, target, LARGE_BODY, disturbed)
    data = outcome.object["data"]
    assert data == {"a": "x", "b": "y", "c": data["c"]}
    assert rest.get(target) == outcome.object


async def test_create_conflicts_when_name_is_created_concurrently(server: Server) -> None:
    create = partial(
        Rest.create, target=config_map_target(server), value=CONFIG_MAP, options=WriteOptions(), manager="m"
    )
    with pytest.raises(ApiError, match='configmaps "one" already exists'):
        await write_off_loop(
            server.rest,
            config_map_target(server),
            LARGE_BODY,
            with_concurrent_write(server.rest, create, lambda: server.write(CONFIG_MAP)),
        )


async def test_create_fails_when_namespace_is_removed_concurrently(server: Server) -> None:
    server.write({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "work"}})
    create = partial(
        Rest.create, target=config_map_target(server, namespace="work"), options=WriteOptions(), manager="m"
    )
    write = with_concurrent_write(
        server.rest,
        partial(create, value={**CONFIG_MAP, "metadata": {"name": "one", "namespace": "work"}}),
        lambda: server.store.remove("namespaces", ("", "work")),
    )
    with pytest.raises(ApiError, match='namespaces "work" not found'):
        await write_off_loop(server.rest, config_map_target(server, namespace="work"), LARGE_BODY, write)


async def test_create_fails_when_definition_is_removed_concurrently(server: Server) -> None:
    server.write(DEFINITION)
    kind = server.registry.find("e.x", "v1", "things")
    assert kind is not None
    target, thing = Target(kind, "v1", "", ""), {"apiVersion": "e.x/v1", "kind": "Thing", "metadata": {"name": "one"}}
    definition = server.registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    assert definition is not None
    create = partial(Rest.create, target=target, value=thing, options=WriteOptions(), manager="m")
    write = with_concurrent_write(server.rest, create, lambda: server.rest.remove(definition, ("", "things.e.x")))
    with pytest.raises(ApiError, match="could not find the requested resource"):
        await write_off_loop(server.rest, target, LARGE_BODY, write)
    server.write(DEFINITION)
    assert server.store.count(kind.table) == 0


def test_store_iteration_tolerates_concurrent_write() -> None:
    store, key = Store(), ("b", "one")
    store.put("maps", key, {"metadata": {"namespace": "b", "name": "one"}})

    class WritingNamespace(str):
        """A namespace name whose first comparison triggers another write."""

        def __eq__(self, other: object) -> bool:
            if store.count("maps") == 1:
                store.put("maps", ("a", "new"), {"metadata": {"namespace": "a", "name": "new"}})
            return str(self) == other

        __hash__ = str.__hash__

    assert [each["metadata"]["name"] for each in store.objects("maps", WritingNamespace("b"))] == ["one"]
    assert store.count("maps") == 2


def test_registry_iteration_tolerates_concurrent_definition(server: Server) -> None:
    kinds = iter(server.registry)
    next(kinds)
    server.write(DEFINITION)
    assert all(kind.group != "e.x" for kind in kinds)


async def test_large_object_is_deleted_with_its_last_finalizer(server: Server) -> None:
    server.write(
        {
            **CONFIG_MAP,
            "metadata": {"name": "one", "finalizers": ["e.x/f"]},
            "data": dict.fromkeys(map(str, range(3000)), "x"),
        }
    )
    target = config_map_target(server, "one")
    marked = {**server.rest.get(target)}
    marked["metadata"] = {**marked["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    server.rest.put(target.kind, target.key, marked)
    patch = Patch(MERGE_PATCH, {"metadata": {"finalizers": None}})
    write = partial(Rest.patch, target=target, patch=patch, options=WriteOptions(), manager="m")
    outcome = await write_off_loop(server.rest, target, 0, write)
    assert "finalizers" not in outcome.object["metadata"]
    assert server.rest.find(target.kind, target.key) is None


async def test_service_gets_another_address_when_first_is_taken_concurrently(server: Server) -> None:
    """A new cluster IP is allocated. A requested node port that is in use is refused."""
    create_permissive_policy(server, "services")
    kind = server.registry.find("", "v1", "services")
    assert kind is not None
    target, addresses = Target(kind, "v1", "default", ""), list[str]()
    one = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "one"}, "spec": {"ports": [{"port": 80}]}}
    create = partial(Rest.create, target=target, value=one, options=WriteOptions(), manager="m")

    def created(rest: Rest) -> Outcome:
        outcome = create(rest)
        addresses.append(outcome.object["spec"]["clusterIP"])
        return outcome

    def use_first_address() -> None:
        server.write(
            {**one, "metadata": {"name": "other"}, "spec": {"clusterIP": addresses[0], "ports": [{"port": 80}]}}
        )

    outcome = await write_off_loop(
        server.rest, target, 0, with_concurrent_write(server.rest, created, use_first_address)
    )
    assert len(addresses) == 2
    assert outcome.object["spec"]["clusterIP"] == addresses[1] != addresses[0]
    balanced = {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30001}]}
    two = {**one, "metadata": {"name": "two"}, "spec": balanced}
    write = with_concurrent_write(
        server.rest,
        partial(create, value=two),
        lambda: server.write({**two, "metadata": {"name": "third"}}),
    )
    with pytest.raises(ApiError, match="30001: provided port is already allocated"):
        await write_off_loop(server.rest, target, 0, write)


async def test_collector_yields_while_policy_is_evaluated() -> None:
    async with Server(token="", definitions=(), collect_after=None) as server:
        create_permissive_policy(server, "configmaps")
        gone = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "0"}
        server.write({**CONFIG_MAP, "metadata": {"name": "one", "ownerReferences": [gone]}})
        collecting = asyncio.create_task(Collector(server.rest).collect())
        await asyncio.sleep(0)
        assert not collecting.done()
        assert await collecting
        assert server.store.get("configmaps", ("default", "one")) is None


async def test_collector_keeps_object_that_gains_owner_concurrently() -> None:
    async with Server(token="", definitions=(), collect_after=None) as server:
        create_permissive_policy(server, "configmaps")
        gone = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "0"}
        for name in ("a", "b"):
            server.write({**CONFIG_MAP, "metadata": {"name": name, "ownerReferences": [gone]}})
        collecting = asyncio.create_task(Collector(server.rest).collect())
        await asyncio.sleep(0)  # the collector now waits for the policy's decision about a
        server.write({**CONFIG_MAP, "metadata": {"name": "owner"}})
        owner = server.rest.get(config_map_target(server, "owner"))["metadata"]
        references = [{**gone, "name": "owner", "uid": owner["uid"]}]
        server.write({**CONFIG_MAP, "metadata": {"name": "b", "ownerReferences": references}})
        assert await collecting
        assert [each["metadata"]["name"] for each in server.store.objects("configmaps")] == ["b", "owner"]


@pytest.mark.parametrize("policy", ["Orphan", "Foreground"])
async def test_collector_keeps_dependent_that_loses_owner_concurrently(policy: str) -> None:
    async with Server(token="", definitions=(), collect_after=None) as server:
        create_permissive_policy(server, "configmaps")
        write = partial(server.rest.create, options=WriteOptions(), manager="me")
        missing = {"apiVersion": "v1", "kind": "ConfigMap", "name": "m", "uid": "m"}
        write(config_map_target(server), {**CONFIG_MAP, "metadata": {"name": "first", "ownerReferences": [missing]}})
        uid = write(config_map_target(server), {**CONFIG_MAP, "metadata": {"name": "owner"}}).object["metadata"]["uid"]
        reference = {**missing, "name": "owner", "uid": uid, "blockOwnerDeletion": True}
        write(
            config_map_target(server), {**CONFIG_MAP, "metadata": {"name": "dependent", "ownerReferences": [reference]}}
        )
        server.rest.delete(config_map_target(server, "owner"), DeleteOptions(policy=policy))
        collecting = asyncio.create_task(Collector(server.rest).collect())
        await asyncio.sleep(0)  # it deletes the first one, in a thread
        disowned = Patch(MERGE_PATCH, {"metadata": {"ownerReferences": None}})
        server.rest.patch(config_map_target(server, "dependent"), disowned, WriteOptions(), "me")
        assert not collecting.done()
        assert await collecting
        names = [each["metadata"]["name"] for each in server.store.objects("configmaps")]
        assert sorted(names) == ["dependent"]
        assert "deletionTimestamp" not in server.rest.get(config_map_target(server, "dependent"))["metadata"]


async def test_quota_counts_concurrent_create(server: Server) -> None:
    """The concurrent write used the rest of the quota."""
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}}
    amounts = {"hard": {"configmaps": "1"}, "used": {"configmaps": "0"}}
    server.write(quota | {"spec": {"hard": amounts["hard"]}, "status": amounts})
    create = partial(Rest.create, target=config_map_target(server), options=WriteOptions(), manager="m")
    other = {**CONFIG_MAP, "metadata": {"name": "other"}}
    write = with_concurrent_write(server.rest, partial(create, value=CONFIG_MAP), lambda: server.write(other))
    with pytest.raises(ApiError, match="exceeded quota: q, requested: configmaps=1, used: configmaps=1"):
        await write_off_loop(server.rest, config_map_target(server), LARGE_BODY, write)


@pytest.mark.parametrize("times", [0, 1, 9])
async def test_eviction_sets_condition_and_keeps_concurrent_labels(server: Server, times: int) -> None:
    """The pod gets its condition before it is deleted, and keeps concurrent changes."""
    server.write(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"conditions": [READY_CONDITION]}}
    )
    server.write(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": {"nodeName": "n", **LARGE_POD_SPEC}}
    )
    kind, numbers = server.registry.find("", "v1", "pods"), iter(range(99))
    assert kind is not None
    pod = Target(kind, "v1", "default", "one")

    def label() -> None:
        labels = {"metadata": {"labels": {"a": str(next(numbers))}}}
        server.rest.patch(pod, Patch(MERGE_PATCH, labels), WriteOptions(), "me")

    eviction = {"metadata": {"name": "one"}}
    write = partial(evict, target=pod._replace(subresource="eviction"), eviction=eviction, options=WriteOptions())
    before = server.store.version
    outcome = await write_off_loop(
        server.rest, pod, LARGE_BODY, with_concurrent_write(server.rest, write, label, times)
    )
    stored = [event.new for event in server.store.events_after("pods", before) if event.new is not None]
    assert "deletionTimestamp" not in stored[-2]["metadata"]
    assert "deletionTimestamp" in stored[-1]["metadata"]
    for each in stored[-2:]:
        assert [x["type"] for x in each["status"]["conditions"]] == ["DisruptionTarget"]
    assert server.rest.get(pod) == outcome.object == stored[-1]
    assert bool(outcome.object["metadata"].get("labels")) == bool(times)


async def test_delete_of_large_pod_returns_its_final_version(server: Server) -> None:
    server.write({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": LARGE_POD_SPEC})
    kind = server.registry.find("", "v1", "pods")
    assert kind is not None
    pod = Target(kind, "v1", "default", "one")
    delete = partial(Rest.delete, target=pod, options=DeleteOptions())
    outcome = await write_off_loop(server.rest, pod, 0, delete)
    assert outcome.object["metadata"]["resourceVersion"] == str(server.store.version)


@pytest.mark.parametrize("times", [0, 1, 9])
async def test_scale_patch_keeps_concurrent_labels(server: Server, times: int) -> None:
    labels, numbers = {"a": "b"}, iter(range(99))
    template = {"metadata": {"labels": labels}, "spec": LARGE_POD_SPEC}
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
    outcome = await write_off_loop(server.rest, target, 0, with_concurrent_write(server.rest, write, label, times))
    assert outcome.object["spec"]["replicas"] == 3
    assert bool(outcome.object["metadata"].get("labels")) == bool(times)
    assert server.rest.get(target) == outcome.object
