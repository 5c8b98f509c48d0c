"""Evictions and disruption budgets. A real 1.37.1 answers as here: `tests/e2e/requests/evictions.txt`."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from controlplane.apiserver import Server
from controlplane.apiserver.controllers import Controllers
from tests.controlplane.apiserver.running import MERGE, Http, Plain, Running
from tests.controlplane.apiserver.test_admission import create_policy

PODS, BUDGETS = "/api/v1/namespaces/default/pods", "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
APPS = "/apis/apps/v1/namespaces/default"
REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
LABELS = {"a": "x"}


@pytest.fixture(scope="module")
def server_without_controllers() -> Iterator[Running]:
    """A server without controllers: only tests write statuses."""
    with Running(collect_after=None) as running:
        yield running


@pytest.fixture
def uncontrolled(server_without_controllers: Running) -> Iterator[Http]:
    """A client of the server without controllers, which has no objects yet."""
    server_without_controllers.clear()
    with server_without_controllers.http() as http:
        yield http


def create_pod(api: Http, name: str, *, ready: bool = True, owner: Plain | None = None, phase: str = "Running") -> None:
    """Create a pod with the labels, and set its status."""
    metadata: Plain = {"name": name, "labels": LABELS}
    if owner is not None:
        metadata["ownerReferences"] = [
            {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
            | {key: owner["metadata"][key] for key in ("name", "uid")}
        ]
    spec = {"containers": [{"name": "c", "image": "i"}]}
    api.ok("POST", PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    api.ok("PATCH", f"{PODS}/{name}/status", {"status": {"phase": phase, "conditions": conditions}}, content=MERGE)


def create_budget(api: Http, name: str = "b", **spec: Any) -> None:
    """Create a budget for the pods with the labels."""
    body = {"selector": {"matchLabels": LABELS}} | (spec or {"minAvailable": 1})
    api.ok(
        "POST",
        BUDGETS,
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": body},
    )


def set_budget_numbers(api: Http, **numbers: Any) -> None:
    """Set numbers in the budget's status."""
    api.ok("PATCH", f"{BUDGETS}/b/status", {"status": {"observedGeneration": 1} | numbers}, content=MERGE)


def evict(api: Http, name: str, **query: str) -> tuple[int, str]:
    """Evict a pod; return the status code, and the cause if the budget refuses."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    answer = api.send("POST", f"{PODS}/{name}/eviction", body, **query)
    if answer.status != 429:
        return answer.status, answer.message if answer.status > 299 else ""
    assert answer.message == REFUSED
    (cause,) = answer.body["details"]["causes"]
    assert cause["reason"] == "DisruptionBudget"
    return 429, cause["message"].removeprefix("The disruption budget b ")


def test_eviction_decrements_the_budget_until_it_refuses(uncontrolled: Http) -> None:
    for name in ("p", "q", "r"):
        create_pod(uncontrolled, name)
    create_budget(uncontrolled)
    assert evict(uncontrolled, "p") == (429, "is still being processed by the server.")
    set_budget_numbers(uncontrolled, disruptionsAllowed=2, currentHealthy=3, desiredHealthy=1)
    assert evict(uncontrolled, "p", dryRun="All") == (201, "")
    assert uncontrolled.ok("GET", f"{BUDGETS}/b")["status"]["disruptionsAllowed"] == 2
    assert evict(uncontrolled, "p") == evict(uncontrolled, "q") == (201, "")
    budget = uncontrolled.ok("GET", f"{BUDGETS}/b")
    assert budget["status"]["disruptionsAllowed"] == 0
    assert budget["status"]["disruptedPods"].keys() == {"p", "q"}
    (verdict,) = budget["status"]["conditions"]
    assert (verdict["status"], verdict["reason"]) == ("False", "InsufficientPods")
    assert "kube-apiserver" in {each["manager"] for each in budget["metadata"]["managedFields"]}
    assert evict(uncontrolled, "r") == (429, "needs 1 healthy pods and has 3 currently")
    uncontrolled.ok("GET", f"{PODS}/r")
    create_budget(uncontrolled, "another", maxUnavailable="50%")
    several = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    assert evict(uncontrolled, "r") == (500, several)


def test_refusal_contains_the_reason_of_failed_sync(uncontrolled: Http) -> None:
    create_pod(uncontrolled, "p")
    create_budget(uncontrolled)
    why = {"reason": "SyncFailed", "message": "no controller", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    set_budget_numbers(
        uncontrolled,
        disruptionsAllowed=0,
        conditions=[{"type": "DisruptionAllowed", "status": "False", **why}],
    )
    text = "does not allow evicting pods currently because it failed sync: no controller"
    assert evict(uncontrolled, "p") == (429, text)


@pytest.mark.parametrize(
    ("policy", "healthy", "code"),
    [(None, 1, 429), (None, 2, 201), ("IfHealthyBudget", 1, 429), ("AlwaysAllow", 0, 201)],
)
def test_unready_pod_eviction_follows_policy_without_using_the_budget(
    uncontrolled: Http, policy: str | None, healthy: int, code: int
) -> None:
    """The eviction does not change the budget."""
    create_pod(uncontrolled, "p", ready=False)
    create_budget(uncontrolled, minAvailable=2, **({"unhealthyPodEvictionPolicy": policy} if policy else {}))
    set_budget_numbers(uncontrolled, disruptionsAllowed=0, currentHealthy=healthy, desiredHealthy=2)
    assert evict(uncontrolled, "p")[0] == code
    assert "disruptedPods" not in uncontrolled.ok("GET", f"{BUDGETS}/b")["status"]


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_pod_that_does_not_run_is_evicted_regardless_of_budget(uncontrolled: Http, phase: str) -> None:
    create_pod(uncontrolled, "p", phase=phase)
    create_budget(uncontrolled)
    assert evict(uncontrolled, "p") == (201, "")


def test_eviction_preconditions_are_checked(uncontrolled: Http) -> None:
    create_pod(uncontrolled, "p")
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    for wrong in ("uid", "resourceVersion"):
        options = {"deleteOptions": {"preconditions": {wrong: "7"}}}
        answer = uncontrolled.send("POST", f"{PODS}/p/eviction", body | options)
        assert (answer.status, answer.body["details"]["kind"]) == (409, "Pod")
    version = uncontrolled.ok("GET", f"{PODS}/p")["metadata"]["resourceVersion"]
    options = {"deleteOptions": {"preconditions": {"resourceVersion": version}}}
    uncontrolled.ok("POST", f"{PODS}/p/eviction", body | options)


def wait_for_budget_status(api: Http, name: str, **wanted: Any) -> None:
    """Wait until a budget's status has these numbers."""
    with api.watch(BUDGETS, fieldSelector=f"metadata.name={name}", timeoutSeconds="60") as events:
        status: Plain = {}
        for event in events:
            status = event["object"].get("status", {})
            if wanted.items() <= status.items():
                return
    raise AssertionError(status)


def workload(kind: str, name: str, replicas: int, owner: Plain | None = None) -> Plain:
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": LABELS}, "template": template}
    metadata: Plain = {"name": name}
    if owner is not None:
        reference = {"apiVersion": "apps/v1", "kind": owner["kind"], "controller": True}
        metadata["ownerReferences"] = [reference | {key: owner["metadata"][key] for key in ("name", "uid")}]
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}


def test_budget_status_counts_pods_and_owner_replicas(api: Http) -> None:
    """The numbers are those of a real controller manager: a Deployment counts once, for all of its replica sets."""
    deployment = api.ok("POST", f"{APPS}/deployments", workload("Deployment", "d", 7))
    for index in (1, 2):
        owner = api.ok("POST", f"{APPS}/replicasets", workload("ReplicaSet", f"r{index}", index, deployment))
        create_pod(api, f"p{index}", owner=owner)
    create_budget(api, "least", minAvailable=1)
    wait_for_budget_status(api, "least", expectedPods=2, currentHealthy=2, desiredHealthy=1, disruptionsAllowed=1)
    create_budget(api, "half", minAvailable="50%")
    wait_for_budget_status(api, "half", expectedPods=7, currentHealthy=2, desiredHealthy=4, disruptionsAllowed=0)
    create_budget(api, "third", maxUnavailable="30%")
    wait_for_budget_status(api, "third", expectedPods=7, desiredHealthy=4, observedGeneration=1)
    for name in ("half", "third"):
        api.ok("DELETE", f"{BUDGETS}/{name}")
    assert evict(api, "p1") == (201, "")
    wait_for_budget_status(api, "least", expectedPods=1, currentHealthy=1, disruptionsAllowed=0)
    assert evict(api, "p2")[0] == 429


def test_budget_sync_fails_if_pod_owner_has_no_scale(api: Http) -> None:
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec}
    create_pod(api, "p", owner=api.ok("POST", "/apis/batch/v1/namespaces/default/jobs", body))
    create_budget(api, maxUnavailable=1)
    with api.watch(BUDGETS, timeoutSeconds="60") as events:
        status = next(each["object"]["status"] for each in events if each["object"].get("status", {}).get("conditions"))
    (verdict,) = status["conditions"]
    assert (verdict["reason"], verdict["message"]) == (
        "SyncFailed",
        "jobs.batch does not implement the scale subresource",
    )


def deny(api: Http, operation: str, resource: str, expression: str) -> None:
    """Create a policy that denies operations on a resource unless an expression is true."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]}
    kinds = "string(object == null ? '' : object.kind) + ' ' + request.kind.kind + ' ' + request.resource.resource"
    validation = {"expression": expression, "messageExpression": kinds}
    name = resource.replace("/", "-")
    create_policy(api, name, {}, matchConstraints={"resourceRules": [rule]}, validations=[validation])


def test_policies_for_evictions_apply_but_not_those_for_deletions(api: Http) -> None:
    deny(api, "DELETE", "pods", "false")
    deny(api, "CREATE", "pods/eviction", "object.metadata.name != 'p'")
    for name in ("p", "q"):
        create_pod(api, name)
    assert api.send("DELETE", f"{PODS}/q").status == 422
    code, message = evict(api, "p")
    assert (code, message.partition("request: ")[2]) == (422, "Eviction Eviction pods")
    assert evict(api, "q") == (201, "")
    assert api.send("GET", f"{PODS}/q").status == 404


def test_policies_for_bindings_apply(api: Http) -> None:
    deny(api, "CREATE", "pods/binding", "object.target.name != 'reserved'")
    create_pod(api, "p")
    for node, code in (("reserved", 422), ("n", 201)):
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"name": node}}
        assert api.send("POST", f"{PODS}/p/binding", body).status == code


async def test_counting_budgets_does_not_block_the_server() -> None:
    async with Server(token="", definitions=(), collect_after=None) as server:
        for name in ("a", "b", "c"):
            metadata = {"name": name, "namespace": "default"}
            body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata}
            server.write({**body, "spec": {"minAvailable": 1, "selector": {}}})
        running = asyncio.create_task(Controllers(server.rest, 0.0).run())
        counted: set[str] = set()
        while not counted:
            await asyncio.sleep(0)
            found = server.store.objects("poddisruptionbudgets.policy")
            counted = {each["metadata"]["name"] for each in found if each["status"].get("observedGeneration")}
        assert counted == {"a"}
        running.cancel()
