"""Details that differed from a real API server under random requests: messages, views, defaults."""

import pytest

from tests.controlplane.apiserver.definitions.test_definitions import DEFINITIONS, DRIVERS, definition
from tests.controlplane.apiserver.running import APPLY, CLAIMS, CLASSES, MERGE, Http, claim, device_class

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
JSON = "application/json"
META_GROUP = "g=meta.k8s.io;v=v1"
HOLDING_FINALIZERS = ["example.com/hold"]


def lease(name: str, **metadata: str) -> dict[str, object]:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, **metadata}}


def test_create_conflict_reports_deletion_of_existing_object(api: Http) -> None:
    """The client learns from the message that it can wait."""
    api.ok("POST", CLASSES, device_class(finalizers=HOLDING_FINALIZERS))
    api.ok("DELETE", f"{CLASSES}/gpu")
    answer = api.send("POST", CLASSES, device_class())
    assert answer.message == 'object is being deleted: deviceclasses.resource.k8s.io "gpu" already exists'


def test_non_string_kind_is_refused_with_start_of_body(api: Http) -> None:
    """The message is Go's and contains the start of the body."""
    answer = api.send("POST", CLASSES, device_class() | {"kind": 3})
    assert answer.status == 400
    assert "json: cannot unmarshal number into Go struct field .kind of type string ({" in answer.message


def test_put_creates_missing_lease_but_no_device_class(api: Http) -> None:
    """A uid requires an existing object. Not all kinds can be created with PUT."""
    assert api.send("PUT", f"{LEASES}/a", lease("a")).status == 201
    assert api.ok("GET", f"{LEASES}/a")["spec"] == {}
    answer = api.send("PUT", f"{LEASES}/b", lease("b", uid="x"))
    assert answer.status == 409
    assert answer.message.endswith("Precondition failed: UID in precondition: x, UID in object meta: ")
    assert api.send("PUT", f"{LEASES}/c", lease("c", resourceVersion="5")).status == 201
    assert api.send("PUT", f"{CLASSES}/gpu", device_class()).status == 404


def test_list_view_of_object_and_object_view_of_list_are_refused(api: Http) -> None:
    """A list view of a single object, and an object view of a list: refused after the operation is done."""
    answer = api.send(
        "POST", CLASSES, device_class(), accept=f"application/json;as=PartialObjectMetadataList;{META_GROUP}"
    )
    assert answer.status == 406
    assert answer.message.endswith("but the requested object is not a list (*resource.DeviceClass)")
    assert api.ok("GET", f"{CLASSES}/gpu")
    answer = api.send("GET", CLASSES, accept=f"application/json;as=PartialObjectMetadata;{META_GROUP}")
    assert answer.message.endswith("but the requested object is a list (*resource.DeviceClassList)")
    assert "stream=watch" in api.send("GET", CLASSES, accept="text/plain").message


@pytest.mark.parametrize("method", ["GET", "PATCH"])
def test_claim_status_has_no_table_view(api: Http, method: str) -> None:
    """Upstream refuses a client that accepts only a table. Other clients get the claim."""
    api.ok("POST", CLAIMS, claim())
    table = f"application/json;as=Table;{META_GROUP}"
    body: dict[str, object] | None = {} if method == "PATCH" else None
    path = f"{CLAIMS}/one/status"
    assert api.send(method, path, body, content=MERGE, accept=table).status == 406
    assert api.ok(method, path, body, content=MERGE, accept=f"{table},application/json")["kind"] == "ResourceClaim"
    assert api.ok(method, f"{CLAIMS}/one", body, content=MERGE, accept=table)["kind"] == "Table"


def test_deprecation_warning_precedes_field_warning(api: Http) -> None:
    """The version's warning is first. Refused bodies are also checked. Unrouted requests have no warnings."""
    older = CLASSES.replace("/v1/", "/v1beta1/")
    body = device_class() | {"apiVersion": "resource.k8s.io/v1beta1", "x": 1}
    for code in (201, 409):
        answer = api.send("POST", older, body)
        assert (answer.status, len(answer.warnings)) == (code, 2)
        assert "is deprecated" in answer.warnings[0]
        assert "unknown field" in answer.warnings[1]
    assert api.send("PUT", older, body).warnings == []


def test_priority_class_and_storage_class_defaults_are_set(api: Http) -> None:
    made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "p"}, "value": 1}
    found = api.ok("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", made)
    assert (found["preemptionPolicy"], found["metadata"]["generation"]) == ("PreemptLowerPriority", 1)
    made = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "s"}, "provisioner": "p"}
    found = api.ok("POST", "/apis/storage.k8s.io/v1/storageclasses", made)
    assert (found["reclaimPolicy"], found["volumeBindingMode"]) == ("Delete", "Immediate")


def test_complete_custom_resource_list_has_empty_continue_token(api: Http) -> None:
    api.ok("POST", DEFINITIONS, definition())
    assert api.ok("GET", DRIVERS)["metadata"]["continue"] == ""


def test_null_in_applied_configuration_counts_as_empty(api: Http) -> None:
    """Values of other managers remain."""
    api.ok("POST", CLASSES, device_class(labels={"x": "1"}))
    applied = device_class() | {"metadata": {"name": "gpu", "labels": None}}
    found = api.ok("PATCH", f"{CLASSES}/gpu", applied, content=APPLY, fieldManager="m")
    assert found["metadata"]["labels"] == {"x": "1"}


def test_lease_update_without_resource_version_is_refused(api: Http) -> None:
    """Leases, budgets and definitions; other kinds accept an update without a version."""
    api.ok("POST", LEASES, lease("a"))
    answer = api.send("PUT", f"{LEASES}/a", lease("a"))
    assert (answer.status, "metadata.resourceVersion: Invalid value" in answer.message) == (422, True)


def test_selected_page_has_continue_token_when_any_object_follows(api: Http) -> None:
    """The page has a continue token even if no later object matches the selector."""
    for name, labels in (("a", {"x": "1"}), ("b", {})):
        api.ok("POST", CLASSES, device_class(name, labels=labels))
    page = api.ok("GET", CLASSES, labelSelector="x=1", limit="1")
    assert [each["metadata"]["name"] for each in page["items"]] == ["a"]
    assert page["metadata"]["continue"]
    assert "remainingItemCount" not in page["metadata"]


def test_delete_accepts_null_body(api: Http) -> None:
    """The same as without a body."""
    api.ok("POST", CLASSES, device_class())
    assert api.send("DELETE", f"{CLASSES}/gpu", b"null").status == 200


def test_delete_query_parameters_are_preconditions(api: Http) -> None:
    """The same holds for a collection, where the version applies to each object."""
    made = api.ok("POST", CLASSES, device_class())
    version = made["metadata"]["resourceVersion"]
    api.ok("PATCH", f"{CLASSES}/gpu", device_class(labels={"x": "1"}), content=APPLY, fieldManager="m", force="true")
    assert api.send("DELETE", CLASSES, resourceVersion=version, resourceVersionMatch="NotOlderThan").status == 409
    assert api.send("DELETE", f"{CLASSES}/gpu", uid="other").status == 409
    assert api.send("DELETE", f"{CLASSES}/gpu", uid=made["metadata"]["uid"]).status == 200


def test_rules_review_without_authorizer_allows_everything(api: Http) -> None:
    """The answer of a real server that has no authorizer."""
    rules = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    status = api.ok("POST", rules, {"spec": {"namespace": "default"}})["status"]
    assert status["resourceRules"] == [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
    assert status["nonResourceRules"] == [{"verbs": ["*"], "nonResourceURLs": ["*"]}]


def test_health_endpoints_name_and_exclude_checks(api: Http) -> None:
    text = api.send("GET", "/readyz", verbose="", exclude="ping").text
    assert text.startswith("[+]ping excluded: ok\n[+]log ok\n[+]etcd ok\n")
    assert text.endswith("\nreadyz check passed\n")
    assert 'cannot be excluded: no matches for "x"' in api.send("GET", "/livez", verbose="", exclude="x").text
    assert api.send("GET", "/readyz/informer-sync").text == api.send("GET", "/livez/log").text == "ok"
    assert api.send("GET", "/livez/informer-sync").status == 404


_PROTOBUF_V2, _PROTOBUF_V3 = (f"application/com.github.proto-openapi.spec.v{number}@v1.0+protobuf" for number in (2, 3))


@pytest.mark.parametrize(
    ("path", "accept", "found"),
    [
        ("/openapi/v2", "*/*", "application/json"),
        ("/openapi/v2", _PROTOBUF_V2, _PROTOBUF_V2.replace("@", ".")),
        ("/openapi/v2", _PROTOBUF_V2.replace("@", "."), _PROTOBUF_V2.replace("@", ".")),
        ("/openapi/v2", "application/yaml", ""),
        ("/openapi/v3", "application/yaml", "text/plain; charset=utf-8"),
        ("/openapi/v3/apis/apps/v1", "application/json", "application/json"),
        ("/openapi/v3/apis/apps/v1", _PROTOBUF_V3, ""),
    ],
)
def test_openapi_media_type_is_negotiated(api: Http, path: str, accept: str, found: str) -> None:
    answer = api.send("GET", path, accept=accept)
    assert answer.status == (200 if found else 406)
    assert dict(answer.headers).get("content-type", "") == found


@pytest.mark.parametrize(
    ("accept", "found"),
    [
        ("{json}{all}", "{json}{all}"),
        ("{protobuf}{all},{json}{all}", "{protobuf}{all}"),
        ("*/*{all}", "{json}{all}"),
        ("{json},{json}{all}", "{json}"),
        ("{json}{old},{json}", "{json}"),
    ],
)
def test_group_discovery_media_type_is_negotiated(api: Http, accept: str, found: str) -> None:
    media_types = {"json": "application/json", "protobuf": "application/vnd.kubernetes.protobuf"}
    media_types["all"] = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    media_types["old"] = media_types["all"].replace("v=v2", "v=v2beta1")
    answer = api.send("GET", "/apis", accept=accept.format(**media_types))
    assert dict(answer.headers)["content-type"] == found.format(**media_types)


def test_unacceptable_media_type_of_discovery_is_refused(api: Http) -> None:
    only = "only the following media types are accepted: application/json,"
    for path in ("/apis", "/apis/apps"):
        assert api.send("GET", path, accept="text/html").message.startswith(only)
    assert api.send("GET", "/apis/apps/v1", accept="text/html").message.startswith("406: Not Acceptable")


def test_deprecated_watch_path_refuses_invalid_requests(api: Http) -> None:
    watches = "/api/v1/watch/namespaces/default/pods"
    assert api.send("POST", watches, {}).status == 405
    assert api.send("GET", f"{watches}/x/status").status == 404
    refused = api.send("GET", watches, accept="application/yaml", resourceVersion="x")
    assert refused.status == 500  # the version is checked before the format
    assert api.send("GET", watches, accept="application/yaml").status == 406


def test_lease_drops_coordinated_election_fields(api: Http) -> None:
    """The feature gate is off in every release."""
    body = lease("a") | {"spec": {"strategy": "OldestEmulationVersion", "preferredHolder": "x", "holderIdentity": "h"}}
    assert api.ok("POST", LEASES, body)["spec"] == {"holderIdentity": "h"}
    assert api.ok("PATCH", f"{LEASES}/a", body, content=MERGE)["spec"] == {"holderIdentity": "h"}


def test_put_to_missing_namespace_reports_the_namespace(api: Http) -> None:
    """The missing namespace is reported, whatever else the object contains."""
    gone = LEASES.replace("default", "gone")
    for metadata in ({"resourceVersion": "5"}, {"uid": "u"}):
        assert api.send("PUT", f"{gone}/a", lease("a", **metadata)).message == 'namespaces "gone" not found'


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_empty_dry_run_value_is_refused(api: Http, method: str) -> None:
    """An empty value is not supported."""
    path = CLASSES if method == "POST" else f"{CLASSES}/gpu"
    answer = api.send(method, path, device_class(), content=MERGE if method == "PATCH" else JSON, dryRun="")
    assert answer.message.endswith('is invalid: dryRun: Unsupported value: [""]: supported values: "All"')


@pytest.mark.parametrize(
    ("member", "why"),
    [
        ({"status": {"capacity": {"cpu": "x"}}}, "quantities must match the regular expression"),
        ({"metadata": {"name": "n", "creationTimestamp": "x"}}, 'parsing time "x" as'),
    ],
)
def test_apply_with_unparsable_value_is_a_conversion_error(api: Http, member: dict[str, object], why: str) -> None:
    """Such values are reported as conversion errors."""
    config = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, **member}
    answer = api.send("PATCH", "/api/v1/nodes/n?fieldManager=m", config, content=APPLY)
    start = "failed to convert new object (/n; /v1, Kind=Node) to proper version: unable to convert unstructured object"
    assert (answer.status, answer.message.startswith(f"{start} to /v1, Kind=Node: {why}")) == (500, True)


def test_event_is_applied_and_owned_with_field_names_of_its_group(api: Http) -> None:
    """Core's group shows them under its own names."""
    path, about = "/apis/events.k8s.io/v1/namespaces/default/events", {"kind": "Pod", "namespace": "default"}
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "eventTime": "2024-01-01T00:00:00.000001Z",
        "reportingController": "x.y/z",
        "reportingInstance": "i",
        "action": "A",
        "reason": "R",
        "regarding": about,
        "type": "Normal",
        "note": "n",
    }
    owned = {f"f:{name}" for name in event} - {"f:apiVersion", "f:kind", "f:metadata"}
    applied = api.send("PATCH", f"{path}/e?fieldManager=m", event, content=APPLY)
    assert (applied.status, applied.warnings, applied.body["note"]) == (201, [], "n")
    made = api.ok("POST", path, event | {"metadata": {"name": "f"}})
    for entry in (*applied.body["metadata"]["managedFields"], *made["metadata"]["managedFields"]):
        assert {*entry["fieldsV1"]} == owned
    found = api.ok("GET", "/api/v1/namespaces/default/events/e")
    assert (found["involvedObject"], found["message"], found["reportingComponent"]) == (about, "n", "x.y/z")
    found = api.ok("POST", "/api/v1/namespaces/default/events", found | {"metadata": {"name": "g"}})
    assert found["reportingComponent"] == "x.y/z"
    stale = {"preconditions": {"uid": "other"}}
    assert api.send("DELETE", f"{path}/e", stale).message.startswith(
        'Operation cannot be fulfilled on Event "e": the UID in the precondition (other) does not match'
    )


def test_empty_reporting_component_is_shown_only_in_core_group(api: Http) -> None:
    """The events.k8s.io group omits it."""
    event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}}
    assert api.ok("POST", "/api/v1/namespaces/default/events", event)["reportingComponent"] == ""
    assert "reportingController" not in api.ok("GET", "/apis/events.k8s.io/v1/namespaces/default/events/e")


@pytest.mark.parametrize(
    ("time", "why"),
    [
        ("2024-01-01T00:00:00Z", 'cannot parse "Z" as ".000000"'),
        ("2024-01-01T00:00:00.123Z", 'cannot parse ".123Z" as ".000000"'),
        ("2024-01-01T00:00:00.1234567Z", 'cannot parse "7Z" as "Z07:00"'),
        ("x", 'cannot parse "x" as "2006"'),
        ("2024-01-01T00:00:00.123456Z", ""),
        ("2024-01-01T00:00:00.123456+01:00", ""),
    ],
)
def test_lease_time_without_microseconds_is_refused(api: Http, time: str, why: str) -> None:
    """Times without microseconds are refused, because Go's layout requires them."""
    made = api.send("POST", LEASES, lease("a") | {"spec": {"renewTime": time}})
    assert made.status == (400 if why else 201)
    if why:
        shown = f'parsing time "{time}" as "2006-01-02T15:04:05.000000Z07:00": {why}'
        assert made.message == f'Lease in version "v1" cannot be handled as a Lease: {shown}'


def test_name_conflict_with_generate_name_asks_to_retry(api: Http) -> None:
    """The answer asks the client to retry."""
    api.ok("POST", CLASSES, device_class(finalizers=HOLDING_FINALIZERS))
    answer = api.send("POST", CLASSES, device_class(generateName="g-"))
    why = "already exists, the server was not able to generate a unique name for the object"
    assert (answer.status, answer.message) == (409, f'deviceclasses.resource.k8s.io "gpu" {why}')
    assert answer.body["details"]["retryAfterSeconds"] == 1
    api.ok("DELETE", f"{CLASSES}/gpu")
    answer = api.send("POST", CLASSES, device_class(generateName="g-"))
    assert answer.message == f'object is being deleted: deviceclasses.resource.k8s.io "gpu" {why}'


@pytest.mark.parametrize(("version", "kind"), [("v1", "Status"), ("v1beta2", "DeviceTaintRule")])
def test_taint_rule_delete_returns_object_only_in_old_version(api: Http, version: str, kind: str) -> None:
    rules = CLASSES.replace("deviceclasses", "devicetaintrules")
    api.ok("POST", rules, {"metadata": {"name": "t"}, "spec": {"taint": {"key": "a", "effect": "NoSchedule"}}})
    assert api.ok("DELETE", f"{rules.replace('v1', version, 1)}/t")["kind"] == kind


@pytest.mark.parametrize(("provider", "way"), [("other", "modified"), (None, "cleared")])
def test_node_provider_id_is_immutable(api: Http, provider: str | None, way: str) -> None:
    api.ok("POST", "/api/v1/nodes", {"metadata": {"name": "n"}, "spec": {"providerID": "one"}})
    refused = api.send("PATCH", "/api/v1/nodes/n", {"spec": {"providerID": provider}}, content=MERGE)
    why = f"spec.providerID: Invalid value: null: field cannot be {way} once set"
    assert refused.message == f'Node "n" is invalid: {why}'
