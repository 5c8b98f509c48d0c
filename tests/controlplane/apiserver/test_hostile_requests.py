"""Expensive requests: each is refused or completed, and other requests are answered meanwhile."""

import contextlib
import http.client
import json
import select
import socket
import urllib.parse
from typing import Any

import pytest

from controlplane.apiserver.pods.changes import check_pod
from controlplane.apiserver.pods.port_warnings import port_warnings
from controlplane.apiserver.pods.status_rules import status_part
from controlplane.apiserver.rules import storage_rules
from controlplane.apiserver.rules.overlaps import overlap_warnings
from controlplane.apiserver.rules.traffic_rules import check_ingress_status
from resourceapi.objects import ErrorList
from resourceapi.objects.json_value import MAX_DEPTH
from resourceapi.objects.release import LATEST
from tests.controlplane.apiserver.definitions.test_definitions import DEFINITIONS, DRIVERS, SPEC, definition
from tests.controlplane.apiserver.running import APPLY, CLASSES, MERGE, Http, Running, device_class
from tests.controlplane.apiserver.test_admission import POLICIES, REGISTRATION, create_policy, policy

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
YAML = "application/yaml"
MUTATING_POLICIES = f"{REGISTRATION}/mutatingadmissionpolicies"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


def config_map(name: str = "one", **members: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **members}


def nested(value: dict[str, Any], depth: int) -> bytes:
    """An object of a given depth, as text, because Python's JSON encoder has a recursion limit."""
    before, after = json.dumps(value).encode().split(b'"HERE"')
    inner = depth - sum(before.count(sign) for sign in (b"{", b"[")) + sum(before.count(sign) for sign in (b"}", b"]"))
    return before + b'{"a":' * inner + b"1" + b"}" * inner + after


def deep_class(depth: int, name: str = "deep") -> bytes:
    config = [{"opaque": {"driver": "d.example.com", "parameters": "HERE"}}]
    return nested(device_class(name) | {"spec": {"config": config}}, depth)


@pytest.mark.parametrize("content", [YAML, APPLY])
def test_deeply_nested_yaml_is_refused(api: Http, content: str) -> None:
    method, path = ("POST", MAPS) if content == YAML else ("PATCH", f"{MAPS}/one?fieldManager=me")
    answer = api.send(method, path, b"[" * 100_000, content=content)
    assert answer.status == 400
    assert "exceeded max" in answer.message  # our message, or that of a PyYAML with its own limit (6.0.4)


def test_yaml_with_excessive_aliasing_is_refused(api: Http) -> None:
    levels = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    levels += [f"a{level}: &a{level} [{','.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 9)]
    answer = api.send("POST", MAPS, "\n".join(levels).encode(), content=YAML)
    assert answer.status == 400
    assert "excessive aliasing" in answer.message


def test_nesting_over_maximum_depth_is_refused_in_every_format(api: Http) -> None:
    """Accepted depths can be written in every format, and greater depths are refused in every format."""
    assert api.send("POST", CLASSES, deep_class(MAX_DEPTH)).status == 201
    for depth, code in ((MAX_DEPTH, 200), (MAX_DEPTH + 1, 400), (100_000, 400)):
        text = deep_class(depth)
        assert api.send("PUT", f"{CLASSES}/deep", text).status == code
        for content in (MERGE, STRATEGIC):
            assert api.send("PATCH", f"{CLASSES}/deep", text, content=content).status == code
        applied = api.send("PATCH", f"{CLASSES}/deep?fieldManager=me&force=true", text, content=APPLY)
        assert applied.status == code
        assert api.send("POST", MAPS, nested(config_map("m", x="HERE"), depth)).status == {200: 201}.get(code, code)
        api.send("DELETE", f"{MAPS}/m")
    assert api.send("GET", CLASSES, accept=YAML).status == 200
    with_patch = [{"op": "copy", "from": "/spec/config/0", "path": "/spec/config/0/opaque/parameters/a/a"}]
    assert api.send("PATCH", f"{CLASSES}/deep", with_patch, content=JSON_PATCH).status == 422


def test_long_lists_of_unique_items_are_checked_in_time(api: Http) -> None:
    """The check for duplicates does not compare all pairs, which would take minutes."""
    owner = {"apiVersion": "v1", "kind": "K", "name": "n"}
    obj = config_map()
    obj["metadata"]["ownerReferences"] = [owner | {"uid": str(number)} for number in range(25_000)]
    assert api.send("POST", MAPS, obj).status == 201
    families = [f"family{number}" for number in range(60_000)]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ipFamilies": families}}
    assert api.send("POST", "/api/v1/namespaces/default/services", service).status == 422


def test_json_patch_with_exponential_copies_is_refused(api: Http) -> None:
    """Each operation doubles the object. Upstream also limits the size that copies add."""
    api.ok("POST", MAPS, config_map(data={"a": "x"}))
    doubling = [{"op": "copy", "from": "", "path": "/z"}, {"op": "copy", "from": "", "path": "/y"}] * 15
    assert api.send("PATCH", f"{MAPS}/one", doubling, content=JSON_PATCH).status == 422
    some = [{"op": "copy", "from": "/data/a", "path": f"/data/b{n}"} for n in range(20)]
    assert len(api.ok("PATCH", f"{MAPS}/one", some, content=JSON_PATCH)["data"]) == 21


@pytest.mark.parametrize("step", ["1_0", " 1", "\u0663", "1 ", "+", "9" * 5000])
def test_json_patch_with_malformed_index_is_refused(api: Http, step: str) -> None:
    api.ok("POST", MAPS, config_map(data={"a": "x"}))
    patch = [{"op": "add", "path": "/metadata/finalizers", "value": ["e.x/a"] * 20}]
    patch.append({"op": "replace", "path": f"/metadata/finalizers/{step}", "value": "e.x/b"})
    assert api.send("PATCH", f"{MAPS}/one", patch, content=JSON_PATCH).status == 422


@pytest.mark.parametrize("name", ["limit", "timeoutSeconds", "resourceVersion"])
@pytest.mark.parametrize("number", ["-+5", "9" * 26, "9" * 5000])
def test_malformed_number_in_query_is_refused(api: Http, name: str, number: str) -> None:
    assert api.send("GET", CLASSES, None, **{name: number}).status == 400


def test_definition_patterns_are_re2_and_values_compare_as_json(api: Http) -> None:
    """Patterns are RE2: matched in linear time, and checked when the kind is defined."""
    schema: dict[str, Any] = {"type": "object", "properties": {"spec": SPEC | {"properties": {}, "required": []}}}
    made = definition()
    made["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema
    schema["properties"]["spec"]["properties"] = {"p": {"type": "string", "pattern": "("}}
    refused = api.send("POST", DEFINITIONS, made)
    assert refused.status == 422
    assert "must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `(`" in (
        refused.message
    )
    schema["properties"]["spec"]["properties"] = {
        "p": {"type": "string", "pattern": "^(a+)+$"},
        "q": {"type": "string", "pattern": "^[a-z]+$"},
        "tenths": {"type": "number", "multipleOf": 0.1},
        "any": {"x-kubernetes-preserve-unknown-fields": True, "enum": [1, 2]},
        "unique": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "number"}},
    }
    api.ok("POST", DEFINITIONS, made)

    def create(**spec: Any) -> int:
        value = {"apiVersion": "example.com/v1alpha1", "kind": "Driver", "metadata": {"name": "d"}, "spec": spec}
        return api.send("POST", f"{DRIVERS}?dryRun=All", value).status

    assert create(p="a" * 40 + "b") == 422
    assert (create(q="abc"), create(q="abc\n")) == (201, 422)
    assert (create(tenths=0.3), create(tenths=0.35)) == (201, 422)
    assert (create(any=1), create(any=True), create(any=1.0)) == (201, 422, 201)
    assert (create(unique=[0, 1]), create(unique=[1, 1])) == (201, 422)


def test_validation_error_size_is_limited(api: Http) -> None:
    """Each scope is invalid for each amount, and each message lists all scopes."""
    hard = {f"hugepages-{size}Mi": "1" for size in range(1000)}
    expressions = [{"scopeName": "BestEffort", "operator": "Exists"}] * 1000
    for spec in ({"scopes": ["BestEffort"] * 1000}, {"scopeSelector": {"matchExpressions": expressions}}):
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard} | spec}
        answer = api.send("POST", "/api/v1/namespaces/default/resourcequotas", quota)
        assert answer.status == 422
        assert len(answer.text) < 20 * 1024 * 1024


def test_large_body_does_not_block_other_requests(server: Running) -> None:
    """Large bodies are decoded in another thread."""
    numbers = b",".join([b"1"] * 150_000)
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: long}\nx: [" + numbers + b"]\n"
    headers = {"Authorization": "Bearer secret", "Content-Type": YAML}
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(server.url).netloc, timeout=30)
    with contextlib.closing(connection), server.http() as other:
        connection.request("POST", f"{MAPS}?dryRun=All", text, headers)
        assert other.send("GET", "/healthz").status == 200
        assert not select.select([connection.sock], [], [], 0)[0], "the large request was answered first"
        assert connection.getresponse().status == 201


def test_large_answer_does_not_block_other_requests(server: Running, api: Http) -> None:
    """YAML is encoded in another thread."""
    api.ok("POST", MAPS, config_map("long", data={f"k{number}": "x" for number in range(20_000)}))
    headers = {"Authorization": "Bearer secret", "Accept": YAML}
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(server.url).netloc, timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", MAPS, headers=headers)
        assert api.send("GET", "/healthz").status == 200
        assert not select.select([connection.sock], [], [], 0)[0], "the large request was answered first"
        assert connection.getresponse().read().count(b": x\n") == 20_000


def test_websocket_upgrade_is_answered_over_http(server: Running) -> None:
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    key = {"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="}
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(server.url).netloc, timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", "/healthz", headers=upgrade | key)
        assert connection.getresponse().status == 200


def test_apply_with_unconvertible_number_is_refused(api: Http) -> None:
    """An applied value that does not fit its type is reported as in upstream's converter."""
    path = "/apis/apps/v1/namespaces/default/deployments/d?fieldManager=me"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template, "replicas": 1.5}
    config = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}
    refused = api.send("PATCH", path, config, content=APPLY)
    assert (refused.status, refused.message) == (
        500,
        "failed to convert new object (/d; apps/v1, Kind=Deployment) to proper version: unable to convert unstructured"
        " object to apps/v1, Kind=Deployment: cannot convert float64 to int32",
    )
    spec["replicas"] = {}
    assert "expected numeric (int or float), got map[string]interface {}" in (
        api.send("PATCH", path, config, content=APPLY).message
    )


def test_stalled_clients_do_not_block_other_requests(server: Running) -> None:
    host, _, port = urllib.parse.urlsplit(server.url).netloc.partition(":")
    watch = f"GET {MAPS}?watch=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\n\r\n".encode()
    with contextlib.ExitStack() as stack, server.http() as other:
        for number in range(200):
            peer = stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
            peer.sendall(watch if number % 2 else watch[: number % len(watch)])
        other.ok("POST", MAPS, config_map())
        for number in range(30):
            other.ok("PUT", f"{MAPS}/one", config_map(data={"k": f"{number}" * 20_000}))
        assert other.send("GET", MAPS).status == 200
    with server.http() as again:
        assert again.send("GET", "/healthz").status == 200


def _pod_with_containers(number: int, **members: Any) -> dict[str, Any]:
    containers = [{"name": f"c{each}", "image": "i", **members} for each in range(number)]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{number}"}, "spec": {"containers": containers}}


def test_object_over_etcd_limit_is_refused_without_blocking_others(server: Running) -> None:
    headers = {"Authorization": "Bearer secret", "Content-Type": "application/json"}
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(server.url).netloc, timeout=60)
    with contextlib.closing(connection), server.http() as other:
        connection.request("POST", PODS, json.dumps(_pod_with_containers(5000, args=["x" * 500])).encode(), headers)
        answered = _count_answers(other, connection, 21)
        assert answered == 21, "the event loop was blocked"
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["message"].partition(" (")[0]) == (
            500,
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max",
        )
        assert other.send("GET", f"{PODS}/p5000").status == 404


def send_and_count_other_answers(
    server: Running, method: str, path: str, body: Any = None, content: str = "application/json"
) -> tuple[int, int]:
    """Send a request; return how many other requests (at most six) were answered before it, and its status."""
    headers = {"Authorization": "Bearer secret", "Content-Type": content}
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(server.url).netloc, timeout=60)
    with contextlib.closing(connection), server.http() as other:
        connection.request(method, path, json.dumps(body).encode() if body is not None else None, headers)
        return _count_answers(other, connection, 6), connection.getresponse().status


def _count_answers(other: Http, connection: http.client.HTTPConnection, enough: int) -> int:
    """How many requests of `other` are answered before that of `connection`; it stops at `enough`, to save time."""
    answered = 0
    while answered < enough and not select.select([connection.sock], [], [], 0)[0]:
        assert other.send("GET", "/api/v1/namespaces/default").status == 200
        answered += 1
    return answered


def test_expressions_do_not_block_other_requests(server: Running, api: Http) -> None:
    """Both compiling expressions and evaluating a policy take long."""
    many = " && ".join(f"object.metadata.name != 'x{number}'" for number in range(1500))
    texts = (f"device.driver == 'x{number}' || " * 150 + "true" for number in range(10))
    selective = device_class("c") | {"spec": {"selectors": [{"cel": {"expression": text}} for text in texts]}}
    mutation = {"patchType": "JSONPatch", "jsonPatch": {"expression": f"{many} ? [JSONPatch{{}}] : []"}}
    changing = policy("many", mutations=[mutation], reinvocationPolicy="Never")
    changing["spec"]["matchConstraints"]["resourceRules"][0]["operations"] = ["CREATE"]
    webhook: dict[str, Any] = {"name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"]}
    webhook |= {"clientConfig": {"url": "https://a.b/c"}, "matchConditions": [{"name": "a", "expression": many}]}
    for path, made in (
        (POLICIES, policy("many", validations=[{"expression": many}])),
        (MUTATING_POLICIES, changing),
        (f"{REGISTRATION}/validatingwebhookconfigurations", {"metadata": {"name": "many"}, "webhooks": [webhook]}),
        (f"{REGISTRATION}/mutatingwebhookconfigurations", {"metadata": {"name": "many"}, "webhooks": [webhook]}),
        (CLASSES, selective),
    ):
        answered, status = send_and_count_other_answers(server, "POST", path, made)
        assert (answered > 5, status) == (True, 201), f"the event loop was blocked by {path}"
    hundred = str([*range(100)])
    slow = f"{hundred}.all(a, {hundred}.all(b, {hundred}.all(c, a + b + c >= 0)))"
    create_policy(api, "slow", {"validationActions": ["Warn"]}, validations=[{"expression": slow}])
    for method, path, body in (
        ("POST", MAPS, config_map()),
        ("PUT", f"{MAPS}/one", config_map(data={"a": "b"})),
        ("DELETE", f"{MAPS}/one", None),
        ("POST", MAPS, config_map("two")),
        ("DELETE", MAPS, None),
    ):
        answered, status = send_and_count_other_answers(server, method, path, body)
        assert (answered > 5, status // 100) == (True, 2), f"the event loop was blocked by {method} {path}"


@pytest.mark.parametrize("content", [MERGE, STRATEGIC, JSON_PATCH, APPLY])
def test_patch_of_large_object_does_not_block_other_requests(server: Running, api: Http, content: str) -> None:
    """The cost depends on the object, not on the length of the patch."""
    api.ok("POST", PODS, _pod_with_containers(1000))
    labels = {"metadata": {"labels": {"a": "b"}}}
    patch: Any = [{"op": "add", "path": "/metadata/labels", "value": {}}] if content == JSON_PATCH else labels
    if content == APPLY:
        patch = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p1000", "labels": {"a": "b"}}}
    answered, status = send_and_count_other_answers(server, "PATCH", f"{PODS}/p1000?fieldManager=me", patch, content)
    assert (answered > 5, status) == (True, 200), "the event loop was blocked"


def test_port_warnings_of_thousands_of_containers_are_limited() -> None:
    """Neither the checks nor the messages cover all pairs; a pod of 5,000 took a minute."""
    ports = [(f"ports[{number}]", {"containerPort": 80, "protocol": "TCP"}) for number in range(30_000)]
    assert len(list(port_warnings(ports))) == 4096
    of_host = [(where, {**port, "hostPort": number}) for number, (where, port) in enumerate(ports, 1)]
    assert list(port_warnings(of_host)) == []


def test_managed_fields_are_dropped_when_object_is_too_large(api: Http) -> None:
    """Those of 800 containers have over 100 kB; without them, the larger pod is 80 kB below the limit of etcd."""
    long = "x" * 1770
    assert "managedFields" in api.ok("POST", PODS, _pod_with_containers(400, args=[long]))["metadata"]
    assert "managedFields" not in api.ok("POST", PODS, _pod_with_containers(800, args=[long]))["metadata"]
    pod = api.send("PATCH", f"{PODS}/p800", {"metadata": {"labels": {"a": "b"}}}, content=MERGE)
    assert (pod.status, "managedFields" in pod.body["metadata"]) == (200, False)
    grown = api.send("PATCH", f"{PODS}/p800", {"metadata": {"annotations": {"a": "x" * 50_000}}}, content=MERGE)
    assert grown.status == 200
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}}
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    refused = api.send("POST", path, lease | {"spec": {"holderIdentity": "x" * 1_600_000}})
    assert (refused.status, refused.message) == (500, "etcdserver: request is too large")
    api.ok("POST", path, lease)
    refused = api.send("PATCH", f"{path}/l", {"spec": {"holderIdentity": "x" * 1_600_000}}, content=MERGE)
    assert (refused.status, refused.message) == (500, "etcdserver: request is too large")


def test_apply_releases_thousands_of_fields_in_time(api: Http) -> None:
    """The time is linear in the number of fields; a quadratic one took minutes."""
    data = {f"k{number}": "x" for number in range(5000)}
    path = f"{MAPS}/one?fieldManager=me"
    api.ok("PATCH", path, config_map(data=data), content=APPLY)
    fewer = dict(list(data.items())[:2500])
    assert len(api.ok("PATCH", path, config_map(data=fewer), content=APPLY)["data"]) == 2500


@pytest.mark.parametrize("is_one", [False, True])
def test_volume_with_thirty_thousand_files_is_checked_in_time(is_one: bool) -> None:
    """Neither the checks nor the messages cover all pairs, which would take minutes."""
    files = {"name": "m", "items": [{"key": "k", "path": "p" if is_one else f"p{number}"} for number in range(30_000)]}
    pod = _pod_with_containers(1)
    pod["spec"]["volumes"] = [{"name": "v", "configMap": files}]
    errors = ErrorList()
    check_pod(errors, pod, None, release=LATEST)
    assert not [text for text in map(str, errors) if "volumes" in text]
    assert len(list(overlap_warnings(pod["spec"]["volumes"]))) == (4096 if is_one else 0)


class _ComparisonCounter(str):
    """A text that counts its comparisons."""

    comparisons = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        type(self).comparisons += 1
        return str.__eq__(self, other)


def _pod_spec_with_items(number: int) -> dict[str, Any]:
    names = [_ComparisonCounter(f"a-{each}") for each in range(number)]
    container = {"name": "c", "image": "i", "resources": {"claims": [{"name": name} for name in names]}}
    return {
        "containers": [container],
        "resourceClaims": [{"name": name, "resourceClaimName": "x"} for name in names],
        "schedulingGates": [{"name": name} for name in names],
        "tolerations": [{"key": name, "operator": "Exists"} for name in names],
        "topologySpreadConstraints": [
            {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "topologyKey": name} for name in names
        ],
    }


def test_pod_checks_are_linear_in_list_length() -> None:
    """Twice as many items take twice as long; with quadratic time, thirty thousand took minutes."""

    def comparisons(number: int) -> int:
        old, new = _pod_spec_with_items(number), _pod_spec_with_items(number)
        new |= {name: new[name][::-1] for name in ("tolerations", "schedulingGates")} | {"hostname": "h"}
        statuses = [{"name": each["name"], "resourceClaimName": "x"} for each in new["resourceClaims"]]
        errors, _ComparisonCounter.comparisons = ErrorList(), 0
        before, after = ({"metadata": {"name": "p"}, "spec": spec, "status": {}} for spec in (old, new))
        check_pod(errors, after, before, release=LATEST)
        after["status"] = {"resourceClaimStatuses": statuses}
        status_part(LATEST).check(errors, after, before)
        assert not [text for text in map(str, errors) if "Duplicate" in text]
        return _ComparisonCounter.comparisons

    assert comparisons(400) < 2.5 * comparisons(200)


def test_storage_class_and_ingress_checks_are_linear_in_list_length() -> None:
    def comparisons(number: int) -> int:
        _ComparisonCounter.comparisons = 0
        values = [_ComparisonCounter(f"10.0.{index // 250}.{index % 250 + 1}") for index in range(number)]
        terms = [{"matchLabelExpressions": [{"key": "example.com/zone", "values": values}]}]
        storage_rules.checks(LATEST)["StorageClass"](ErrorList(), {"allowedTopologies": terms}, None)
        balanced = {"status": {"loadBalancer": {"ingress": [{"ip": value} for value in values]}}}
        check_ingress_status(ErrorList(), balanced, balanced)
        return _ComparisonCounter.comparisons

    assert comparisons(400) < 2.5 * comparisons(200) + 100
