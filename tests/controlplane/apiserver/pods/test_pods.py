"""Pods: the defaults that a kubelet depends on, and the grace period for their deletion."""

import itertools
from collections.abc import Iterator

import pytest

from resourceapi.objects.release import RELEASES
from tests.controlplane.apiserver.running import MERGE, Http, Plain, Running

PODS = "/api/v1/namespaces/default/pods"
STRATEGIC = "application/strategic-merge-patch+json"
COUNT = itertools.count()


@pytest.fixture(scope="module")
def api() -> Iterator[Http]:
    with Running() as running, running.http() as http:
        for name, status in (("ready", "True"), ("lost", "Unknown")):
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
            http.ok("POST", "/api/v1/nodes", node | {"status": {"conditions": [{"type": "Ready", "status": status}]}})
        yield http


def _pod(name: str, **spec: object) -> Plain:
    container = {"name": "c", "image": "i"}
    spec = {"containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _exists(api: Http, name: str) -> bool:
    return api.send("GET", f"{PODS}/{name}").status == 200


def test_pod_on_ready_node_is_deleted_after_its_grace_period(api: Http) -> None:
    """The pod is marked, its status can still be written, and a grace period of zero removes it."""
    api.ok("POST", PODS, _pod("p", nodeName="ready", terminationGracePeriodSeconds=20))
    marked = api.ok("DELETE", f"{PODS}/p")["metadata"]
    assert marked["deletionGracePeriodSeconds"] == 20
    assert marked["deletionTimestamp"]
    running = {"status": {"phase": "Running"}}
    assert api.ok("PATCH", f"{PODS}/p/status", running, content=MERGE)["status"]["phase"] == "Running"
    assert api.ok("DELETE", f"{PODS}/p")["metadata"] | {"resourceVersion": ""} == marked | {
        "resourceVersion": "",
        "managedFields": api.ok("GET", f"{PODS}/p")["metadata"]["managedFields"],
    }
    shorter = api.ok("DELETE", f"{PODS}/p", gracePeriodSeconds="5")["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 5
    assert shorter["deletionTimestamp"] < marked["deletionTimestamp"]
    api.ok("DELETE", f"{PODS}/p", {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})
    assert not _exists(api, "p")


@pytest.mark.parametrize(("name", "spec"), [("a", {}), ("b", {"nodeName": "lost"}), ("c", {"nodeName": "nowhere"})])
def test_pod_without_ready_kubelet_is_deleted_at_once(api: Http, name: str, spec: Plain) -> None:
    """No kubelet would confirm the deletion."""
    api.ok("POST", PODS, _pod(name, **spec))
    api.ok("DELETE", f"{PODS}/{name}")
    assert not _exists(api, name)


def test_terminated_pod_is_deleted_at_once(api: Http) -> None:
    api.ok("POST", PODS, _pod("e", nodeName="ready"))
    api.ok("PATCH", f"{PODS}/e/status", {"status": {"phase": "Succeeded"}}, content=MERGE)
    api.ok("DELETE", f"{PODS}/e")
    assert not _exists(api, "e")


def test_pod_spec_gets_the_defaults_of_the_kubelet(api: Http) -> None:
    """Fields that the kubelet requires, and requests that default to the limits."""
    pod = _pod("d", volumes=[{"name": "v"}, {"name": "s", "secret": {"secretName": "x"}}])
    (container,) = pod["spec"]["containers"]
    container |= {"resources": {"limits": {"example.com/gpu": "1"}}, "livenessProbe": {"httpGet": {"port": 80}}}
    container |= {"env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]}
    spec = api.ok("POST", PODS, pod, dryRun="All")["spec"]
    assert spec["enableServiceLinks"] is True
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["terminationGracePeriodSeconds"] == 30
    (container,) = spec["containers"]
    assert container["imagePullPolicy"] == "Always"
    assert container["resources"]["requests"] == {"example.com/gpu": "1"}
    assert container["livenessProbe"]["periodSeconds"] == 10
    assert container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"
    assert spec["volumes"] == [
        {"name": "v", "emptyDir": {}},
        {"name": "s", "secret": {"secretName": "x", "defaultMode": 0o644}},
    ]


def test_new_pod_is_pending_with_qos_class_priority_and_tolerations(api: Http) -> None:
    """A status in the request is ignored: a new pod is pending. Quantities are returned in Go's canonical form."""
    asked = {"name": "c", "image": "i", "resources": {"limits": {"example.com/gpu": 1, "cpu": "1000m"}}}
    made = api.ok("POST", PODS, _pod("q", containers=[asked]) | {"status": {"phase": "Running"}})
    assert made["status"] == {"phase": "Pending", "qosClass": "Burstable"}
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"example.com/gpu": "1", "cpu": "1"}
    assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    keys = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
    assert [each["key"] for each in made["spec"]["tolerations"]] == keys


def test_toleration_of_all_taints_adds_no_default_tolerations(api: Http) -> None:
    made = api.ok("POST", PODS, _pod("t", tolerations=[{"operator": "Exists"}]))
    assert made["spec"]["tolerations"] == [{"operator": "Exists"}]


def test_priority_class_sets_priority_and_missing_one_is_refused(api: Http) -> None:
    group = "/apis/scheduling.k8s.io/v1/priorityclasses"
    one = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "first"}, "value": 7}
    api.ok("POST", group, one | {"preemptionPolicy": "Never"})
    spec = api.ok("POST", PODS, _pod("first", priorityClassName="first"))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (7, "Never")
    assert api.ok("POST", PODS, _pod("node", priorityClassName="system-node-critical"))["spec"]["priority"] > 10**9
    refused = api.send("POST", PODS, _pod("none", priorityClassName="nope"))
    assert refused.status == 403
    assert refused.body["message"] == 'pods "none" is forbidden: no PriorityClass with name nope was found'


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "b"}]}]}, "spec"),
        ({"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]}, "spec.containers"),
        ({"restartPolicy": "Never"}, "spec"),
        ({"containers": [{"name": "c", "image": "other"}]}, ""),
        ({"activeDeadlineSeconds": 5}, ""),
        ({"tolerations": [{"operator": "Exists"}]}, "spec.tolerations"),
    ],
)
def test_update_of_immutable_pod_field_is_refused(api: Http, change: Plain, where: str) -> None:
    name = f"changed-{abs(hash(str(change)))}"
    api.ok("POST", PODS, _pod(name))
    answer = api.send("PATCH", f"{PODS}/{name}", {"spec": change}, content="application/strategic-merge-patch+json")
    assert answer.status == (422 if where else 200)
    if where:
        assert [cause["field"] for cause in answer.body["details"]["causes"]] == [where]
    api.ok("DELETE", f"{PODS}/{name}")


def test_watch_shows_deletion_mark_then_deletion_of_pod(api: Http) -> None:
    """Watches first see the deletion mark, then the deletion: the object as last stored, with the removed finalizer."""
    body = _pod("w", nodeName="nowhere")
    body["metadata"]["finalizers"] = ["x.dev/a"]
    made = api.ok("POST", PODS, body)
    start = made["metadata"]["resourceVersion"]
    ending = api.ok("DELETE", f"{PODS}/w")["metadata"]
    assert (ending["deletionGracePeriodSeconds"], ending["generation"]) == (0, 2)
    assert api.ok("DELETE", f"{PODS}/w")["metadata"]["generation"] == 2
    api.ok("PATCH", f"{PODS}/w", {"metadata": {"finalizers": None}}, content=MERGE)
    events = _events(api, start, 2)
    assert [kind for kind, _ in events] == ["MODIFIED", "DELETED"]
    assert all(found["finalizers"] == ["x.dev/a"] for _, found in events)


def test_watch_shows_two_events_for_immediate_deletion(api: Http) -> None:
    start = api.ok("POST", PODS, _pod("v"))["metadata"]["resourceVersion"]
    api.ok("DELETE", f"{PODS}/v")
    (marked, first), (gone, last) = _events(api, start, 2)
    assert (marked, gone) == ("MODIFIED", "DELETED")
    assert first["deletionGracePeriodSeconds"] == last["deletionGracePeriodSeconds"] == 0
    assert int(first["resourceVersion"]) < int(last["resourceVersion"])


def _events(api: Http, start: str, count: int) -> list[tuple[str, Plain]]:
    """The first events after a version: their types, and the metadata of their objects."""
    with api.watch(PODS, resourceVersion=start) as events:
        return [(event["type"], event["object"]["metadata"]) for event in itertools.islice(events, count)]


def test_eviction_body_is_validated_and_dry_run_deletes_nothing(api: Http) -> None:
    api.ok("POST", PODS, _pod("e"))
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "other"}}
    answer = api.send("POST", f"{PODS}/e/eviction", body)
    assert (answer.status, answer.message) == (400, "name in URL does not match name in Eviction object")
    dry = {"metadata": {"name": "e"}, "deleteOptions": {"dryRun": ["All"]}}
    api.ok("POST", f"{PODS}/e/eviction", body | dry)
    assert "deletionTimestamp" not in api.ok("GET", f"{PODS}/e")["metadata"], "as `kubectl drain --dry-run` has it"
    wrong = api.send("POST", f"{PODS}/e/eviction", body | dry | {"deleteOptions": {"gracePeriodSeconds": "1"}})
    assert (wrong.status, "cannot unmarshal string" in wrong.message) == (400, True)
    for members, message in (
        (
            {"deleteOptions": 5},
            "json: cannot unmarshal number into Go struct field Eviction.deleteOptions of type v1.Del",
        ),
        ({"metadata": 5}, "json: cannot unmarshal number into Go struct field Eviction.metadata of type v1.ObjectMeta"),
        (
            {"apiVersion": "v1"},
            'no kind "Eviction" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111"',
        ),
        (
            {"kind": "PodDisruptionBudget"},
            "converting (v1.PodDisruptionBudget) to (policy.Eviction): unknown conversion",
        ),
    ):
        wrong = api.send("POST", f"{PODS}/e/eviction", body | dry | members)
        handled = f'{members.get("kind", "Eviction")} in version "v1" cannot be handled as a Eviction: {message}'
        assert (wrong.status, wrong.message[: len(handled)]) == (400, handled)
    assert api.send("POST", f"{PODS}/e/eviction", body | {"apiVersion": 5}).status == 400
    api.ok("POST", f"{PODS}/e/eviction", body | dry | {"apiVersion": "policy/v1beta1"})
    done = api.ok("POST", f"{PODS}/e/eviction", body | {"metadata": {"name": "e"}})
    assert (done["status"], done["code"]) == ("Success", 201)
    assert not _exists(api, "e")


def test_ephemeral_container_can_be_added_but_not_changed(api: Http) -> None:
    """The request that `kubectl debug` sends."""
    api.ok("POST", PODS, _pod("joined"))
    part, added = f"{PODS}/joined/ephemeralcontainers", {"name": "e", "image": "i", "targetContainerName": "c"}
    change = {"metadata": {"labels": {"a": "b"}}, "spec": {"ephemeralContainers": [added], "activeDeadlineSeconds": 5}}
    made = api.ok("PATCH", part, change, content=STRATEGIC)
    assert [each["name"] for each in made["spec"]["ephemeralContainers"]] == ["e"]
    assert "activeDeadlineSeconds" not in made["spec"]
    assert "labels" not in made["metadata"]
    assert made["metadata"]["generation"] == 2
    for containers, why in (
        ([], 'existing ephemeral containers "e" may not be removed'),
        ([{**added, "image": "j"}], 'existing ephemeral containers "e" may not be changed'),
        ([added, {"name": "c", "image": "i"}], 'spec.ephemeralContainers[1].name: Duplicate value: "c"'),
    ):
        answer = api.send("PATCH", part, {"spec": {"ephemeralContainers": containers}}, content=MERGE)
        assert answer.status == 422
        assert why in answer.message
    assert "pods/ephemeralcontainers" in {each["name"] for each in api.ok("GET", "/api/v1")["resources"]}


@pytest.mark.parametrize(
    ("resources", "why"),
    [
        ({"requests": {"cpu": "2"}}, ""),
        ({"requests": {"cpu": "2"}, "limits": {"x.dev/a": "2"}}, "only cpu and memory resources are mutable"),
        (
            {"requests": {"memory": None}},
            "resources.requests: Forbidden: resource requests cannot be removed",
        ),
        ({"requests": {"cpu": "3", "memory": "1Gi"}, "limits": {"cpu": "3", "memory": "1Gi"}}, "Pod QOS Class may not"),
    ],
)
def test_resize_changes_only_cpu_and_memory(api: Http, resources: Plain, why: str) -> None:
    if api.send("GET", f"{PODS}/resized").status == 200:
        api.ok("DELETE", f"{PODS}/resized")
    pod = _pod("resized")
    amounts = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "3", "x.dev/a": "1"}}
    pod["spec"]["containers"][0]["resources"] = amounts
    api.ok("POST", PODS, pod)
    change = {"spec": {"containers": [{"name": "c", "image": "other", "resources": resources}]}}
    answer = api.send("PATCH", f"{PODS}/resized/resize", change, content=STRATEGIC)
    if why:
        assert (answer.status, why in answer.message) == (422, True), answer
    else:
        (container,) = answer.body["spec"]["containers"]
        assert container["resources"]["requests"]["cpu"] == "2"
        assert container["image"] == "i"
    renamed = api.send(
        "PATCH", f"{PODS}/resized/resize", {"spec": {"containers": [{"name": "d", "image": "i"}]}}, content=MERGE
    )
    assert "containers may not be renamed or reordered on resize" in renamed.message


@pytest.mark.parametrize(
    ("status", "found"),
    [
        ({"qosClass": "Guaranteed"}, 'status.qosClass: Invalid value: "Guaranteed": field is immutable'),
        (
            {"resourceClaimStatuses": [{"name": "z"}]},
            'status.resourceClaimStatuses[0].name: Invalid value: "z": must match the name of an entry in'
            " `spec.resourceClaims`",
        ),
        (
            {"extendedResourceClaimStatus": {"resourceClaimName": "a"}},
            "status.extendedResourceClaimStatus.requestMappings: Required value: at least one request mapping is"
            " required",
        ),
        (
            {"containerStatuses": [{"name": "c", "state": {"running": {}}}]},
            "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state",
        ),
        (
            {"hostIP": "1.1.1.1", "hostIPs": [{"ip": "2.2.2.2"}]},
            'status.hostIPs[0].ip: Invalid value: "2.2.2.2": must be equal to `hostIP`',
        ),
    ],
)
def test_invalid_pod_status_is_refused(api: Http, status: Plain, found: str) -> None:
    name = f"status-{next(COUNT)}"
    path = f"{PODS}/{name}/status"
    claims = [{"name": "a", "resourceClaimTemplateName": "t"}]
    api.ok("POST", PODS, _pod(name, restartPolicy="Never", resourceClaims=claims))
    ended = [{"name": "c", "state": {"terminated": {"exitCode": 0}}}]
    known = {"containerStatuses": ended, "resourceClaimStatuses": [{"name": "a", "resourceClaimName": "n"}]}
    api.ok("PATCH", path, {"status": known}, content=MERGE)
    answer = api.send("PATCH", path, {"status": status}, content=MERGE)
    assert (answer.status, answer.message) == (422, f'Pod "{name}" is invalid: {found}')
    kept = api.ok("PATCH", path, {"status": {"qosClass": None, "resourceClaimStatuses": None}}, content=MERGE)["status"]
    assert kept["qosClass"] == "BestEffort"
    assert kept["resourceClaimStatuses"] == known["resourceClaimStatuses"]


TWO = [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]
NO_HOST = "pod {} does not have a host assigned"
NO_NAME = "a container name must be specified for pod {}, choose one of: [a b]"


@pytest.mark.parametrize(
    ("path", "spec", "status", "message"),
    [
        ("log", {}, 204, ""),
        ("log?container=b", {"containers": TWO}, 204, ""),
        ("log", {"containers": TWO}, 400, NO_NAME),
        (
            "log",
            {"containers": TWO, "initContainers": [{"name": "i", "image": "i"}]},
            400,
            NO_NAME + " or one of the init containers: [i]",
        ),
        ("log?container=x", {}, 400, "container x is not valid for pod {}"),
        ("exec?command=ls", {}, 400, NO_HOST),
        ("attach", {"containers": TWO}, 400, NO_NAME),
        ("portforward", {"containers": TWO}, 400, NO_HOST),
        ("log", {"nodeName": "ready"}, 500, "pod {}: log is its kubelet's to answer, and this stand-in"),
        ("portforward", {"nodeName": "ready"}, 500, "pod {}: portforward is its kubelet's to answer, and this"),
    ],
)
def test_kubelet_subresource_is_refused_or_empty(api: Http, path: str, spec: Plain, status: int, message: str) -> None:
    name = f"silent-{next(COUNT)}"
    api.ok("POST", PODS, _pod(name, **spec))
    answer = api.send("GET", f"{PODS}/{name}/{path}")
    assert answer.status == status
    if message:
        assert answer.body["message"].startswith(message.format(name))


def test_log_of_missing_pod_or_with_wrong_method_is_refused(api: Http) -> None:
    assert api.send("GET", f"{PODS}/nobody/log").body["message"] == 'pods "nobody" not found'
    api.ok("POST", PODS, _pod("verbs"))
    assert [api.send(method, f"{PODS}/verbs/log").status for method in ("POST", "PUT", "DELETE")] == [405] * 3


def test_pod_level_limit_is_set_if_all_containers_have_it_since_1_37(api: Http) -> None:
    """The limit is the request of the pod if that is greater."""
    limited = {"name": "c", "image": "i", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
    free = {"name": "d", "image": "i", "resources": {"limits": {"cpu": "1"}}}
    whole = {"requests": {"cpu": "3"}}
    made = api.ok("POST", PODS, _pod("whole", containers=[limited, free], resources=whole), dryRun="All")
    assert made["spec"]["resources"] == {"requests": {"cpu": "3", "memory": "1Gi"}, "limits": {"cpu": "3"}}
    with Running(release=RELEASES["1.36"]) as running, running.http() as older:
        made = older.ok("POST", PODS, _pod("whole", containers=[limited, free], resources=whole))
        assert "limits" not in made["spec"]["resources"]


def test_unsupported_pod_level_limit_is_refused_once(api: Http) -> None:
    """The limit is not also used as a request."""
    limits = {"limits": {"example.com/x": "1"}}
    refused = api.send("POST", PODS, _pod("whole", resources=limits))
    assert [each["field"] for each in refused.body["details"]["causes"]] == ["spec.resources.limits[example.com/x]"]
