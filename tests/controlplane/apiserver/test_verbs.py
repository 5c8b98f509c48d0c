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
    Answer,
    Http,
    Running,
    claim,
    device_class,
    wait_until_deleted,
)

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def test_create_adds_identity_defaults_and_managed_fields(api: Http) -> None:
    """Identity, defaults, and field ownership."""
    made = api.ok("POST", CLAIMS, claim(), fieldManager="me")
    metadata = made["metadata"]
    assert metadata["namespace"] == "default"
    assert len(metadata["uid"]) == 36
    assert made["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
    assert metadata["managedFields"][0]["manager"] == "me"
    assert metadata["managedFields"][0]["fieldsV1"] == {"f:spec": {"f:devices": {"f:requests": {}}}}
    assert made["status"] == {}


def test_create_overrides_client_identity_and_drops_status(api: Http) -> None:
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


def test_generate_name_gets_five_random_characters(api: Http) -> None:
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
    ids=["name", "version", "kind", "no kind", "truncated", "empty", "null", "namespace", "no namespace"],
)
def test_invalid_create_is_refused_with_status_and_message(
    api: Http, path: str, value: Any, code: int, message: str
) -> None:
    """Status code and message."""
    answer = api.send("POST", path, value)
    assert answer.status == code
    assert message in answer.message


def test_update_increases_generation_for_spec_changes_and_checks_version(api: Http) -> None:
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
    assert api.send("PUT", f"{CLASSES}/nope", device_class("nope")).status == 404


@pytest.mark.parametrize("way", ["put", "merge-patch", "json-patch", "apply"])
@pytest.mark.parametrize(("before", "after"), [("1", "true"), ("true", "1"), ("0", "false"), ("1", '"1"')])
def test_changed_json_type_of_value_is_a_change(api: Http, way: str, before: str, after: str) -> None:
    """Python's `==` treats the two as equal, but a driver's parameters must distinguish them."""

    def configured(value: str) -> Any:
        parameters = {"n": json.loads(value), "in": [{"n": json.loads(value)}]}
        config = [{"opaque": {"driver": "gpu.example.com", "parameters": parameters}}]
        return {"spec": {"config": config}}

    path = f"{CLASSES}/gpu"
    made = api.ok("POST", CLASSES, device_class() | configured(before))
    if way == "put":
        changed = api.ok("PUT", path, device_class() | configured(after))
    elif way == "merge-patch":
        changed = api.ok("PATCH", path, configured(after), content=MERGE)
    elif way == "apply":
        for value in (before, after):
            changed = api.ok(
                "PATCH", path, device_class() | configured(value), content=APPLY, fieldManager="me", force="true"
            )
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


def test_claim_spec_is_immutable_and_status_has_its_subresource(api: Http) -> None:
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


def test_field_validation_refuses_warns_of_or_ignores_unknown_fields(api: Http) -> None:
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


def test_number_of_field_errors_and_size_of_warnings_are_limited(api: Http) -> None:
    """At most 100 errors and 4,096 characters of warnings. Above that total, each warning is cut to 256 characters."""
    longest = {f"{'x' * 300}": 1}
    value = device_class() | longest | {f"{number:03}{'y' * 80}": 1 for number in range(150)}
    strict = api.send("POST", CLASSES, value, fieldValidation="Strict")
    assert strict.message.count("unknown field") == 100
    sent_warnings = api.send("POST", CLASSES, value, dryRun="All").warnings
    assert len(sent_warnings[0]) == len('299 - ""') + 256 + 1  # a quote is escaped
    assert sum(len(text.replace("\\", "")) - len('299 - ""') for text in sent_warnings[:-1]) < 4096
    assert len(sent_warnings) == 1 + 39
    exact = device_class() | {f"{number:03}{'y' * 109}": 1 for number in range(40)}  # 32 of 128 characters are all
    assert len(api.send("POST", CLASSES, exact, dryRun="All").warnings) == 33
    api.ok("POST", CLASSES, device_class())
    merged = api.send("PATCH", f"{CLASSES}/gpu", value, content=MERGE, fieldValidation="Strict")
    assert merged.message.count("unknown field") == 100


def test_finalizer_delays_deletion(api: Http) -> None:
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


def test_delete_with_wrong_precondition_is_refused(api: Http) -> None:
    """A delete of one object only."""
    made = api.ok("POST", CLASSES, device_class())["metadata"]
    wrong_uid = api.send("DELETE", f"{CLASSES}/gpu", {"preconditions": {"uid": "x"}})
    assert "the UID in the precondition (x) does not match the UID in record" in wrong_uid.message
    wrong = api.send("DELETE", f"{CLASSES}/gpu", {"preconditions": {"resourceVersion": "1"}})
    assert "the ResourceVersion in the precondition (1) does not match" in wrong.message
    right = {"uid": made["uid"], "resourceVersion": made["resourceVersion"]}
    assert api.send("DELETE", f"{CLASSES}/gpu", {"preconditions": right}).status == 200


def test_delete_collection_deletes_only_selected_objects(api: Http) -> None:
    """Only objects that match the selector."""
    for name, tier in (("a", "x"), ("b", "y"), ("c", "x")):
        api.ok("POST", CLASSES, device_class(name, labels={"tier": tier}))
    gone = api.ok("DELETE", CLASSES, labelSelector="tier=x")
    assert [item["metadata"]["name"] for item in gone["items"]] == ["a", "c"]
    assert [item["metadata"]["name"] for item in api.ok("GET", CLASSES)["items"]] == ["b"]


def _dependent(name: str, owner: dict[str, Any], **more: Any) -> dict[str, Any]:
    reference = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"}
    reference |= {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]} | more
    return device_class(name, ownerReferences=[reference])


def test_dependents_are_deleted_with_their_owner(api: Http) -> None:
    """Dependents are deleted in the background, or before the owner with foreground deletion."""
    owner = api.ok("POST", CLASSES, device_class("owner"))
    api.ok("POST", CLASSES, _dependent("child", owner))
    api.ok("DELETE", f"{CLASSES}/owner")
    wait_until_deleted(api, "child")
    owner = api.ok("POST", CLASSES, device_class("owner"))
    api.ok("POST", CLASSES, _dependent("child", owner, blockOwnerDeletion=True))
    marked = api.ok("DELETE", f"{CLASSES}/owner", propagationPolicy="Foreground")
    assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]
    wait_until_deleted(api, "owner")
    assert api.send("GET", f"{CLASSES}/child").status == 404


def test_orphan_policy_keeps_dependent_without_owner_reference(api: Http) -> None:
    """The server removes the reference."""
    owner = api.ok("POST", CLASSES, device_class("owner"))
    api.ok("POST", CLASSES, _dependent("child", owner))
    api.ok("DELETE", f"{CLASSES}/owner", propagationPolicy="Orphan")
    wait_until_deleted(api, "owner")
    assert "ownerReferences" not in api.ok("GET", f"{CLASSES}/child")["metadata"]


def test_dependent_of_two_orphaning_owners_stays() -> None:
    """The dependent loses both references, in any order of deletion."""
    with Running(collect_after=0.5) as running, running.http() as api:
        owners = [api.ok("POST", CLASSES, device_class(name)) for name in ("a", "b")]
        references = [
            each["metadata"]["ownerReferences"][0] for each in (_dependent("child", owner) for owner in owners)
        ]
        api.ok("POST", CLASSES, device_class("child", ownerReferences=references))
        for name in "ab":
            api.ok("DELETE", f"{CLASSES}/{name}", propagationPolicy="Orphan")
        for name in "ab":
            wait_until_deleted(api, name)
        child = api.ok("GET", f"{CLASSES}/child")
        assert "ownerReferences" not in child["metadata"]


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_namespace_deletion_deletes_its_objects_first(api: Http, policy: str) -> None:
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
def test_unknown_path_or_method_is_refused(api: Http, method: str, path: str, code: int) -> None:
    """Plain text outside the API groups, otherwise a Status."""
    answer = api.send(method, path, {})
    assert answer.status == code
    if path in ("/nope", "/apis/nope"):
        assert answer.text == "404 page not found\n"
    else:
        assert answer.body["reason"] == ("NotFound" if code == 404 else "MethodNotAllowed")


def test_zero_step_of_capacity_range_is_refused(api: Http) -> None:
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


def test_admin_access_needs_namespace_label(api: Http) -> None:
    """The label belongs on the claim's namespace."""
    value = claim()
    value["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = True
    refused = api.send("POST", CLAIMS, value)
    assert "label on the containing namespace" in refused.message
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    api.ok("PATCH", "/api/v1/namespaces/default", label, content=MERGE)
    assert api.send("POST", CLAIMS, value).status == 201


def test_connection_stays_open_after_refused_body(server: Running) -> None:
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


def test_warning_with_newline_is_omitted(api: Http) -> None:
    """Such a warning is omitted. Others are sent, including those with non-ASCII characters."""
    spoilt = device_class("a") | {"b\n": 1, 'ä"': 1}
    assert api.send("POST", CLASSES, spoilt).warnings == ['299 - "unknown field \\"ä\\"\\""'.encode().decode("latin-1")]


@pytest.mark.parametrize("field", ["data", "stringData"])
def test_non_string_data_value_is_refused(api: Http, field: str) -> None:
    """In config maps and secrets."""
    kind, plural = ("ConfigMap", "configmaps") if field == "data" else ("Secret", "secrets")
    value = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}, field: {"a": True}}
    answer = api.send("POST", f"/api/v1/namespaces/default/{plural}", value)
    assert (answer.status, answer.message) == (
        400,
        f'{kind} in version "v1" cannot be handled as a {kind}:'
        f" json: cannot unmarshal bool into Go struct field {kind}.{field} of type string",
    )


def test_delete_options_of_wrong_media_type_delete_nothing(api: Http) -> None:
    """The request is refused, and nothing is deleted."""
    api.ok("POST", CLASSES, device_class())
    assert api.send("DELETE", f"{CLASSES}/gpu", {}, content=MERGE).status == 415
    assert api.ok("GET", f"{CLASSES}/gpu")


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
def test_delete_options_with_wrong_field_types_delete_nothing(api: Http, options: dict[str, Any]) -> None:
    api.ok("POST", CLASSES, device_class())
    refused = api.send("DELETE", f"{CLASSES}/gpu", options)
    assert refused.status == 400
    assert "cannot unmarshal" in refused.message
    assert api.send("GET", f"{CLASSES}/gpu").status == 200


def test_binding_sets_node_once_and_refuses_wrong_uid_or_gated_pod(api: Http) -> None:
    """A dry run does not bind the pod."""
    pods = "/api/v1/namespaces/default/pods"
    containers = [{"name": "c", "image": "i"}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers}}
    uid = api.ok("POST", pods, pod)["metadata"]["uid"]

    def bind(uid: str, name: str = "p", **query: str) -> Answer:
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "uid": uid}}
        target = {"kind": "Node", "name": "n"}
        return api.send("POST", f"{pods}/{name}/binding", binding | {"target": target}, **query)

    assert bind(uid, dryRun="All").status == 201
    assert bind("other").status == 409
    assert "nodeName" not in api.ok("GET", f"{pods}/p")["spec"]
    assert bind(uid).status == 201
    assert api.ok("GET", f"{pods}/p")["spec"]["nodeName"] == "n"
    again = bind(uid)
    assert (again.status, "already assigned to node" in again.message) == (409, True)
    pod["metadata"] = {"name": "gated"}
    pod["spec"] = {"containers": containers, "schedulingGates": [{"name": "g"}]}
    assert bind(api.ok("POST", pods, pod)["metadata"]["uid"], "gated").status == 409


def test_finalizer_must_be_standard_or_domain_qualified(api: Http) -> None:
    made = api.send("POST", CLASSES, device_class(finalizers=["orphan", "example.com/hold"]))
    assert made.status == 201
    for metadata, code in (({"finalizers": ["mine"]}, 422), ({"finalizers": ["a b"]}, 422)):
        refused = api.send("PATCH", f"{CLASSES}/gpu", {"metadata": metadata}, content=MERGE)
        assert (refused.status, "is neither a standard finalizer name" in refused.message) == (code, True)
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l", "finalizers": ["mine"]}}
    api.ok("POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", lease)  # a real server checks none
