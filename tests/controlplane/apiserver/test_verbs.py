"""Create, update and delete: stored objects, and refusals with their messages."""

import http.client
import json
from typing import Any

import pytest

from tests.controlplane.apiserver.running import (
    APPLY,
    CLAIMS,
    CLASSES,
    MERGE,
    Http,
    Running,
    claim,
    device_class,
    wait_until_deleted,
)

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def test_what_the_server_adds(api: Http) -> None:
    """Identity, defaults, and field ownership."""
    made = api.ok("POST", CLAIMS, claim(), fieldManager="me")
    metadata = made["metadata"]
    assert metadata["namespace"] == "default"
    assert len(metadata["uid"]) == 36
    assert made["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
    assert metadata["managedFields"][0]["manager"] == "me"
    assert metadata["managedFields"][0]["fieldsV1"] == {"f:spec": {"f:devices": {"f:requests": {}}}}
    assert made["status"] == {}


def test_what_a_creator_cannot_say(api: Http) -> None:
    """The server sets identity and times of a new object, and drops its status."""
    value = claim(uid="x", generation=7, creationTimestamp="2020-01-01T00:00:00Z", selfLink="x")
    value["status"] = {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}
    made = api.ok("POST", CLAIMS, value)
    assert made["metadata"]["uid"] != "x"
    assert made["metadata"]["creationTimestamp"] > "2020-01-01T00:00:00Z"
    assert "selfLink" not in made["metadata"]
    assert made["status"] == {}
    refused = api.send("POST", CLAIMS, claim("two", resourceVersion="5"))
    assert (refused.status, refused.message) == (500, "resourceVersion should not be set on objects to be created")


def test_generated_names(api: Http) -> None:
    """The prefix and five random characters."""
    value = device_class()
    value["metadata"] = {"generateName": "gen-"}
    names = {api.ok("POST", CLASSES, value)["metadata"]["name"] for _ in range(20)}
    assert len(names) == 20
    assert all(len(name) == 9 and name.startswith("gen-") for name in names)


@pytest.mark.parametrize(
    ("path", "value", "code", "message"),
    [
        (CLASSES, device_class("A"), 422, 'DeviceClass.resource.k8s.io "A" is invalid: metadata.name: Invalid value'),
        (
            CLASSES,
            device_class() | {"apiVersion": "resource.k8s.io/v1beta1"},
            400,
            "the API version in the data (resource.k8s.io/v1beta1) does not match the expected API version"
            " (resource.k8s.io/v1)",
        ),
        (
            CLASSES,
            device_class() | {"kind": "ResourceClaim"},
            400,
            'ResourceClaim in version "v1" cannot be handled as a DeviceClass: converting (v1.ResourceClaim) to'
            " (resource.DeviceClass): unknown conversion",
        ),
        (CLASSES, device_class() | {"kind": "Nope"}, 400, 'no kind "Nope" is registered for version'),
        (CLASSES, b"{", 400, "couldn't get version/kind; json parse error: unexpected end of JSON input ({)"),
        (CLASSES, b"", 400, "json parse error: unexpected end of JSON input (<empty>)"),
        (CLASSES, b"null", 422, "metadata.name: Required value: name or generateName is required"),
        (CLAIMS, claim(namespace="other"), 400, "the namespace of the provided object does not match the namespace"),
        (CLAIMS.replace("default", "nope"), claim(), 404, 'namespaces "nope" not found'),
    ],
    ids=["name", "version", "kind", "no kind", "half", "empty", "null", "namespace", "no namespace"],
)
def test_a_create_that_is_refused(api: Http, path: str, value: Any, code: int, message: str) -> None:
    """Status code and message."""
    answer = api.send("POST", path, value)
    assert answer.status == code
    assert message in answer.message


def test_an_update(api: Http) -> None:
    """Only spec changes increase the generation. An update without changes writes nothing. The versions must match."""
    made = api.ok("POST", CLASSES, device_class())
    path = f"{CLASSES}/gpu"
    same = api.ok("PUT", path, device_class())
    assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    labelled = api.ok("PUT", path, device_class(labels={"a": "b"}))
    assert labelled["metadata"]["generation"] == 1
    changed = api.ok("PUT", path, device_class() | {"spec": {}})
    assert changed["metadata"]["generation"] == 2
    stale = api.send("PUT", path, device_class(resourceVersion=made["metadata"]["resourceVersion"]))
    assert (stale.status, stale.message) == (
        409,
        f'Operation cannot be fulfilled on deviceclasses.resource.k8s.io "gpu": {MODIFIED}',
    )
    assert api.send("PUT", path, device_class(uid="x")).status == 409
    assert api.send("PUT", path, device_class(resourceVersion="x")).status == 500
    other = api.send("PUT", path, device_class("other"))
    assert other.message == "the name of the object (other) does not match the name on the URL (gpu)"


@pytest.mark.parametrize("way", ["PUT", "merge", "patch"])
@pytest.mark.parametrize(("before", "after"), [("1", "true"), ("true", "1"), ("0", "false"), ("1", '"1"')])
def test_a_value_of_another_type_is_another_value(api: Http, way: str, before: str, after: str) -> None:
    """The server stores and returns it, with a new generation: drivers have such values in their parameters."""

    def configured(value: str) -> Any:
        parameters = {"n": json.loads(value), "in": [{"n": json.loads(value)}]}
        config = [{"opaque": {"driver": "gpu.example.com", "parameters": parameters}}]
        return {"spec": {"config": config}}

    path = f"{CLASSES}/gpu"
    made = api.ok("POST", CLASSES, device_class() | configured(before))
    if way == "PUT":
        changed = api.ok("PUT", path, device_class() | configured(after))
    elif way == "merge":
        changed = api.ok("PATCH", path, configured(after), content=MERGE)
    else:
        place = "/spec/config/0/opaque/parameters"
        test = [{"op": "test", "path": f"{place}/n", "value": json.loads(after)}]
        assert api.send("PATCH", path, test, content="application/json-patch+json").status == 422
        parameters = configured(after)["spec"]["config"][0]["opaque"]["parameters"]
        replacing = [{"op": "replace", "path": place, "value": parameters}]
        changed = api.ok("PATCH", path, replacing, content="application/json-patch+json")
    assert changed["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
    assert changed["metadata"]["generation"] == 2
    (config,) = api.ok("GET", path)["spec"]["config"]
    assert json.dumps(config["opaque"]["parameters"]["n"]) == after
    assert json.dumps(config["opaque"]["parameters"]["in"]) == f'[{{"n": {after}}}]'
    assert api.send("PUT", f"{CLASSES}/nope", device_class("nope")).status == 404


def test_immutable_and_status(api: Http) -> None:
    """A claim's spec is immutable. Only the status subresource changes its status, and it changes nothing else."""
    api.ok("POST", CLAIMS, claim())
    result = {"request": "gpu", "driver": "d.example.com", "pool": "p", "device": "d"}
    status = {"allocation": {"devices": {"results": [result]}}}
    changed = claim(labels={"a": "b"}) | {"status": status}
    main = api.ok("PUT", f"{CLAIMS}/one", changed)
    assert (main["status"], main["metadata"]["labels"]) == ({}, {"a": "b"})
    sub = api.ok("PUT", f"{CLAIMS}/one/status", claim(labels={"c": "d"}) | {"status": status})
    assert (sub["status"], sub["metadata"]["labels"]) == (status, {"a": "b"})
    other = claim()
    other["spec"]["devices"]["requests"][0]["name"] = "x"
    refused = api.send("PUT", f"{CLAIMS}/one", other)
    assert refused.status == 422
    assert refused.message.endswith("field is immutable")


def test_dry_run_and_validation_of_fields(api: Http) -> None:
    """Nothing is written. Unknown fields are refused, reported or dropped."""
    value = device_class()
    value["spec"]["unknown"] = 1
    strict = api.send("POST", CLASSES, value, fieldValidation="Strict")
    assert strict.message == (
        'DeviceClass in version "v1" cannot be handled as a DeviceClass:'
        ' strict decoding error: unknown field "spec.unknown"'
    )
    warned = api.send("POST", CLASSES, value, dryRun="All")
    assert (warned.status, warned.warnings) == (201, ['299 - "unknown field \\"spec.unknown\\""'])
    assert "resourceVersion" not in warned.body["metadata"]
    ignored = api.send("POST", CLASSES, value, fieldValidation="Ignore")
    assert (ignored.status, ignored.warnings) == (201, [])
    assert "unknown" not in ignored.body["spec"]
    other = api.send("POST", CLASSES, value, fieldValidation="Other")
    assert other.message.startswith('CreateOptions.meta.k8s.io "" is invalid: fieldValidation: Unsupported value')


def test_how_much_is_told_of_a_body_with_many_faults(api: Http) -> None:
    """At most 100 errors and 4,096 characters of warnings. Above that total, each warning is cut to 256 characters."""
    longest = {f"{'x' * 300}": 1}
    value = device_class() | longest | {f"{number:03}{'y' * 80}": 1 for number in range(150)}
    strict = api.send("POST", CLASSES, value, fieldValidation="Strict")
    assert strict.message.count("unknown field") == 100
    told = api.send("POST", CLASSES, value, dryRun="All").warnings
    assert len(told[0]) == len('299 - ""') + 256 + 1  # a quote is escaped
    assert sum(len(text.replace("\\", "")) - len('299 - ""') for text in told[:-1]) < 4096
    assert len(told) == 1 + 39
    exact = device_class() | {f"{number:03}{'y' * 109}": 1 for number in range(40)}  # 32 of 128 characters are all
    assert len(api.send("POST", CLASSES, exact, dryRun="All").warnings) == 33
    api.ok("POST", CLASSES, device_class())
    merged = api.send("PATCH", f"{CLASSES}/gpu", value, content=MERGE, fieldValidation="Strict")
    assert merged.message.count("unknown field") == 100


def test_finalizers_hold_an_object(api: Http) -> None:
    """The object is marked, finalizers cannot be added, and removing the last one deletes it."""
    api.ok("POST", CLASSES, device_class(finalizers=["example.com/hold"]))
    path = f"{CLASSES}/gpu"
    marked = api.ok("DELETE", path)
    assert marked["metadata"]["deletionTimestamp"]
    assert (marked["metadata"]["deletionGracePeriodSeconds"], marked["metadata"]["generation"]) == (0, 2)
    again = api.ok("DELETE", path)
    assert again["metadata"]["resourceVersion"] == marked["metadata"]["resourceVersion"]
    more = api.send("PATCH", path, {"metadata": {"finalizers": ["example.com/hold", "a.b/c"]}}, content=MERGE)
    assert "no new finalizers can be added if the object is being deleted" in more.message
    api.ok("PATCH", path, {"metadata": {"finalizers": None}}, content=MERGE)
    assert api.send("GET", path).status == 404


def test_preconditions(api: Http) -> None:
    """A delete of one object only."""
    made = api.ok("POST", CLASSES, device_class())["metadata"]
    wrong_uid = api.send("DELETE", f"{CLASSES}/gpu", {"preconditions": {"uid": "x"}})
    assert "the UID in the precondition (x) does not match the UID in record" in wrong_uid.message
    wrong = api.send("DELETE", f"{CLASSES}/gpu", {"preconditions": {"resourceVersion": "1"}})
    assert "the ResourceVersion in the precondition (1) does not match" in wrong.message
    right = {"uid": made["uid"], "resourceVersion": made["resourceVersion"]}
    assert api.send("DELETE", f"{CLASSES}/gpu", {"preconditions": right}).status == 200


def test_delete_collection_by_label(api: Http) -> None:
    """Only objects that match the selector."""
    for name, tier in (("a", "x"), ("b", "y"), ("c", "x")):
        api.ok("POST", CLASSES, device_class(name, labels={"tier": tier}))
    gone = api.ok("DELETE", CLASSES, labelSelector="tier=x")
    assert [item["metadata"]["name"] for item in gone["items"]] == ["a", "c"]
    assert [item["metadata"]["name"] for item in api.ok("GET", CLASSES)["items"]] == ["b"]


def _owned(name: str, owner: dict[str, Any], **more: Any) -> dict[str, Any]:
    reference = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"}
    reference |= {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]} | more
    return device_class(name, ownerReferences=[reference])


def test_dependents_go_with_their_owner(api: Http) -> None:
    """Dependents are deleted in the background, or before the owner with foreground deletion."""
    owner = api.ok("POST", CLASSES, device_class("owner"))
    api.ok("POST", CLASSES, _owned("child", owner))
    api.ok("DELETE", f"{CLASSES}/owner")
    wait_until_deleted(api, "child")
    owner = api.ok("POST", CLASSES, device_class("owner"))
    api.ok("POST", CLASSES, _owned("child", owner, blockOwnerDeletion=True))
    marked = api.ok("DELETE", f"{CLASSES}/owner", propagationPolicy="Foreground")
    assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]
    wait_until_deleted(api, "owner")
    assert api.send("GET", f"{CLASSES}/child").status == 404


def test_orphans_stay(api: Http) -> None:
    """The server removes the reference."""
    owner = api.ok("POST", CLASSES, device_class("owner"))
    api.ok("POST", CLASSES, _owned("child", owner))
    api.ok("DELETE", f"{CLASSES}/owner", propagationPolicy="Orphan")
    wait_until_deleted(api, "owner")
    assert "ownerReferences" not in api.ok("GET", f"{CLASSES}/child")["metadata"]


def test_an_orphan_of_two_owners_stays() -> None:
    """The dependent loses both references, in any order of deletion."""
    with Running(collect_after=0.5) as running, running.http() as api:
        owners = [api.ok("POST", CLASSES, device_class(name)) for name in ("a", "b")]
        references = [each["metadata"]["ownerReferences"][0] for each in (_owned("child", owner) for owner in owners)]
        api.ok("POST", CLASSES, device_class("child", ownerReferences=references))
        for name in "ab":
            api.ok("DELETE", f"{CLASSES}/{name}", propagationPolicy="Orphan")
        for name in "ab":
            wait_until_deleted(api, name)
        child = api.ok("GET", f"{CLASSES}/child")
        assert "ownerReferences" not in child["metadata"]


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_a_namespace_takes_its_objects_along(api: Http, policy: str) -> None:
    """The server deletes the objects first, and refuses new ones meanwhile."""
    api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "work"}})
    claims = CLAIMS.replace("default", "work")
    api.ok("POST", claims, claim(finalizers=["a.b/c"]))
    marked = api.ok("DELETE", "/api/v1/namespaces/work", propagationPolicy=policy)
    assert marked["status"]["phase"] == "Terminating"
    refused = api.send("POST", claims, claim("two"))
    assert (refused.status, "because it is being terminated" in refused.message) == (403, True)
    if policy == "Foreground":
        path = "/api/v1/namespaces"
        with api.watch(path, resourceVersion=marked["metadata"]["resourceVersion"], timeoutSeconds="10") as events:
            assert next(events)["type"] == "MODIFIED", "the collector has released it, and it is still there"
    api.ok("PATCH", f"{claims}/one", {"metadata": {"finalizers": None}}, content=MERGE)
    found = api.send("GET", "/api/v1/namespaces/work")
    if found.status == 200:
        version = found.body["metadata"]["resourceVersion"]
        with api.watch("/api/v1/namespaces", resourceVersion=version, timeoutSeconds="10") as events:
            assert any(event["type"] == "DELETED" for event in events)


def test_pods_are_bound_once(api: Http) -> None:
    """The binding subresource sets the node name."""
    pods = "/api/v1/namespaces/default/pods"
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    api.ok("POST", pods, pod)
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n"},
    }
    api.ok("POST", f"{pods}/p/binding", binding)
    assert api.ok("GET", f"{pods}/p")["spec"]["nodeName"] == "n"
    again = api.send("POST", f"{pods}/p/binding", binding)
    assert (again.status, "already assigned to node" in again.message) == (409, True)


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/nope", 404),
        ("GET", "/apis/nope", 404),
        ("GET", "/apis/resource.k8s.io/v9", 404),
        ("GET", "/apis/resource.k8s.io/v1/nopes", 404),
        ("GET", f"{CLASSES}/gpu/status", 404),
        ("GET", "/apis/resource.k8s.io/v1/namespaces/default/deviceclasses", 404),
        ("GET", "/apis/resource.k8s.io/v1/resourceclaims/one", 404),
        ("POST", f"{CLASSES}/gpu", 405),
        ("PUT", CLASSES, 405),
        ("POST", "/apis/resource.k8s.io/v1/resourceclaims", 405),
        ("DELETE", "/apis/resource.k8s.io/v1/resourceclaims", 405),
    ],
)
def test_paths_that_lead_nowhere(api: Http, method: str, path: str, code: int) -> None:
    """Plain text outside the API groups, otherwise a Status."""
    answer = api.send(method, path, {})
    assert answer.status == code
    if path in ("/nope", "/apis/nope"):
        assert answer.text == "404 page not found\n"
    else:
        assert answer.body["reason"] == ("NotFound" if code == 404 else "MethodNotAllowed")


def test_the_step_that_makes_a_real_server_panic(api: Http) -> None:
    """A capacity policy with a range whose step is zero."""
    policy = {"default": "1", "validRange": {"min": "1", "step": "0"}}
    device = {
        "name": "d",
        "allowMultipleAllocations": True,
        "capacity": {"m": {"value": "10", "requestPolicy": policy}},
    }
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d.example.com", "nodeName": "n", "pool": pool, "devices": [device]}
    value = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec}
    answer = api.send("POST", "/apis/resource.k8s.io/v1/resourceslices", value)
    assert answer.status == 422
    assert "must be greater than zero" in answer.message


def test_admin_access_needs_the_label(api: Http) -> None:
    """The label belongs on the claim's namespace."""
    value = claim()
    value["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = True
    refused = api.send("POST", CLAIMS, value)
    assert "label on the containing namespace" in refused.message
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    api.ok("PATCH", "/api/v1/namespaces/default", label, content=MERGE)
    assert api.send("POST", CLAIMS, value).status == 201


def test_a_refused_body_leaves_the_connection_open(server: Running) -> None:
    """The second request on the connection is answered although the server did not read the first body."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=20)
    headers = {"Authorization": "Bearer secret", "Content-Type": "text/plain"}
    for _ in range(3):
        connection.request("PATCH", f"{CLASSES}/gpu", b"x" * 100_000, headers)
        first = connection.sock
        with connection.getresponse() as answer:
            assert answer.status == 415
            answer.read()
        assert connection.sock is first
    connection.close()


def test_a_warning_that_no_header_can_hold(api: Http) -> None:
    """Such a warning is omitted. Others are sent, including those with non-ASCII characters."""
    spoilt = device_class("a") | {"b\n": 1, 'ä"': 1}
    assert api.send("POST", CLASSES, spoilt).warnings == ['299 - "unknown field \\"ä\\"\\""'.encode().decode("latin-1")]


@pytest.mark.parametrize("field", ["data", "stringData"])
def test_texts_must_be_texts(api: Http, field: str) -> None:
    """In config maps and secrets."""
    kind, plural = ("ConfigMap", "configmaps") if field == "data" else ("Secret", "secrets")
    value = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}, field: {"a": True}}
    answer = api.send("POST", f"/api/v1/namespaces/default/{plural}", value)
    assert (answer.status, answer.message) == (
        400,
        f'{kind} in version "v1" cannot be handled as a {kind}:'
        f" json: cannot unmarshal bool into Go struct field {kind}.{field} of type string",
    )


def test_delete_options_of_another_media_type(api: Http) -> None:
    """The request is refused, and nothing is deleted."""
    api.ok("POST", CLASSES, device_class())
    assert api.send("DELETE", f"{CLASSES}/gpu", {}, content=MERGE).status == 415
    assert api.ok("GET", f"{CLASSES}/gpu")


@pytest.mark.parametrize(("before", "after"), [(1, True), (0, False), ([1, {"a": 0}], [1, {"a": False}])])
def test_a_change_of_type_is_a_change(api: Http, before: Any, after: Any) -> None:
    """Python's `==` treats the two as equal, but a driver's parameters must distinguish them."""

    def with_parameters(value: Any) -> dict[str, Any]:
        opaque = {"driver": "d.example.com", "parameters": {"n": value}}
        return device_class() | {"spec": {"config": [{"opaque": opaque}]}}

    api.ok("POST", CLASSES, with_parameters(before))
    for method, content in (("PUT", "application/json"), ("PATCH", MERGE), ("PATCH", APPLY)):
        path = f"{CLASSES}/gpu?fieldManager=me{'&force=true' if content == APPLY else ''}"
        one = api.ok(method, path, with_parameters(before), content=content)
        other = api.ok(method, path, with_parameters(after), content=content)
        assert json.dumps(other["spec"]) == json.dumps(with_parameters(after)["spec"])
        assert other["metadata"]["generation"] == one["metadata"]["generation"] + 1
    test = [{"op": "test", "path": "/spec/config/0/opaque/parameters/n", "value": before}]
    refused = api.send("PATCH", f"{CLASSES}/gpu", test, content="application/json-patch+json")
    assert refused.status == 422


@pytest.mark.parametrize(
    "options",
    [
        {"dryRun": "All"},
        {"dryRun": [1]},
        {"propagationPolicy": 1},
        {"orphanDependents": "true"},
        {"preconditions": "x"},
        {"preconditions": {"uid": 1}},
        {"gracePeriodSeconds": "0"},
    ],
)
def test_delete_options_of_another_type_delete_nothing(api: Http, options: dict[str, Any]) -> None:
    api.ok("POST", CLASSES, device_class())
    refused = api.send("DELETE", f"{CLASSES}/gpu", options)
    assert refused.status == 400
    assert "cannot unmarshal" in refused.message
    assert api.send("GET", f"{CLASSES}/gpu").status == 200


def test_bindings(api: Http) -> None:
    """A dry run does not bind the pod. Neither does a binding with another pod's uid."""
    pods = "/api/v1/namespaces/default/pods"
    containers = [{"name": "c", "image": "i"}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers}}
    uid = api.ok("POST", pods, pod)["metadata"]["uid"]

    def bind(uid: str, name: str = "p", **query: str) -> int:
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "uid": uid}}
        return api.send("POST", f"{pods}/{name}/binding", binding | {"target": {"name": "n"}}, **query).status

    assert bind(uid, dryRun="All") == 201
    assert bind("other") == 409
    assert "nodeName" not in api.ok("GET", f"{pods}/p")["spec"]
    assert bind(uid) == 201
    assert api.ok("GET", f"{pods}/p")["spec"]["nodeName"] == "n"
    assert bind(uid) == 409
    pod["metadata"] = {"name": "gated"}
    pod["spec"] = {"containers": containers, "schedulingGates": [{"name": "g"}]}
    assert bind(api.ok("POST", pods, pod)["metadata"]["uid"], "gated") == 409


def test_finalizers_are_kubernetes_own_or_of_a_domain(api: Http) -> None:
    made = api.send("POST", CLASSES, device_class(finalizers=["orphan", "example.com/hold"]))
    assert made.status == 201
    for metadata, code in (({"finalizers": ["mine"]}, 422), ({"finalizers": ["a b"]}, 422)):
        refused = api.send("PATCH", f"{CLASSES}/gpu", {"metadata": metadata}, content=MERGE)
        assert (refused.status, "is neither a standard finalizer name" in refused.message) == (code, True)
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l", "finalizers": ["mine"]}}
    api.ok("POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", lease)  # a real server checks none
