"""Built-in kinds without a struct in nodeplug: patched, applied and explained with upstream's types."""

from typing import Any

import pytest

from controlplane.apiserver.message_schemas import kind_schema
from tests.controlplane.apiserver.running import APPLY, Http

STRATEGIC = "application/strategic-merge-patch+json"
DAEMON_SETS = "/apis/apps/v1/namespaces/default/daemonsets"
SERVICES = "/api/v1/namespaces/default/services"


def _daemon_set(*containers: Any, **spec: Any) -> Any:
    labels = {"app": "a"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": list(containers), **spec}}
    body = {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "a"}, "spec": body}


def _containers(obj: Any) -> Any:
    return obj["spec"]["template"]["spec"]["containers"]


def _owned_fields(obj: Any, manager: str) -> Any:
    (fields,) = (each["fieldsV1"] for each in obj["metadata"]["managedFields"] if each["manager"] == manager)
    return fields


def test_strategic_patch_merges_template_containers_by_name(api: Http) -> None:
    one = {"name": "one", "image": "a:1", "env": [{"name": "A", "value": "1"}], "args": ["x", "y"]}
    api.ok("POST", DAEMON_SETS, _daemon_set(one, {"name": "two", "image": "b:1"}))
    change = [{"name": "one", "image": "a:2", "env": [{"name": "B", "value": "2"}], "args": ["z"]}]
    patched = api.ok(
        "PATCH", f"{DAEMON_SETS}/a", {"spec": {"template": {"spec": {"containers": change}}}}, content=STRATEGIC
    )
    first, second = _containers(patched)
    assert (first["image"], first["args"], second["image"]) == ("a:2", ["z"], "b:1")
    assert first["env"] == [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}]
    gone = [{"name": "two", "$patch": "delete"}]
    patched = api.ok(
        "PATCH", f"{DAEMON_SETS}/a", {"spec": {"template": {"spec": {"containers": gone}}}}, content=STRATEGIC
    )
    assert [each["name"] for each in _containers(patched)] == ["one"]


def test_strategic_patch_with_retain_keys_replaces_volume_source(api: Http) -> None:
    volume = {"name": "v", "emptyDir": {}}
    api.ok("POST", DAEMON_SETS, _daemon_set({"name": "one", "image": "a"}, volumes=[volume]))
    change = [{"name": "v", "hostPath": {"path": "/x"}, "$retainKeys": ["name", "hostPath"]}]
    patched = api.ok(
        "PATCH", f"{DAEMON_SETS}/a", {"spec": {"template": {"spec": {"volumes": change}}}}, content=STRATEGIC
    )
    (found,) = patched["spec"]["template"]["spec"]["volumes"]
    assert found.keys() == {"name", "hostPath"}


def test_strategic_patch_replaces_disruption_budget_selector(api: Http) -> None:
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"a": "1"}}}
    api.ok(
        "POST",
        budgets,
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": spec},
    )
    change = {"spec": {"selector": {"matchLabels": {"b": "2"}}}}
    assert api.ok("PATCH", f"{budgets}/b", change, content=STRATEGIC)["spec"]["selector"] == change["spec"]["selector"]


def test_apply_owns_template_containers_by_name(api: Http) -> None:
    base = _daemon_set({"name": "one", "image": "a:1"})
    api.ok("PATCH", f"{DAEMON_SETS}/a", base, content=APPLY, fieldManager="installer")
    both = api.ok(
        "PATCH",
        f"{DAEMON_SETS}/a",
        _daemon_set({"name": "side", "image": "b:1"}),
        content=APPLY,
        fieldManager="injector",
    )
    assert [each["name"] for each in _containers(both)] == ["one", "side"]
    owned = _owned_fields(both, "injector")["f:spec"]["f:template"]["f:spec"]["f:containers"]
    assert owned == {'k:{"name":"side"}': {".": {}, "f:image": {}, "f:name": {}}}
    other = _daemon_set({"name": "one", "image": "a:2"})
    refused = api.send("PATCH", f"{DAEMON_SETS}/a", other, content=APPLY, fieldManager="injector")
    assert refused.status == 409
    assert '.spec.template.spec.containers[name="one"].image' in refused.message
    gone = api.ok("PATCH", f"{DAEMON_SETS}/a", _daemon_set(), content=APPLY, fieldManager="injector")
    assert [each["name"] for each in _containers(gone)] == ["one"]


def test_apply_owns_port_without_protocol_as_tcp(api: Http) -> None:
    ports = [{"name": "u", "port": 53, "protocol": "UDP"}, {"name": "t", "port": 53}]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "dns"}, "spec": {"ports": ports}}
    applied = api.ok("PATCH", f"{SERVICES}/dns", service, content=APPLY, fieldManager="a")
    assert _owned_fields(applied, "a")["f:spec"]["f:ports"].keys() == {
        'k:{"port":53,"protocol":"UDP"}',
        'k:{"port":53,"protocol":"TCP"}',
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"wrong": 1}, '.spec.template.spec.containers[name="one"].wrong: field not declared in schema'),
        ({"env": {"A": "1"}}, '.spec.template.spec.containers[name="one"].env: expected list'),
    ],
)
def test_apply_refuses_undeclared_field_and_wrong_type(api: Http, change: Any, message: str) -> None:
    refused = api.send(
        "PATCH",
        f"{DAEMON_SETS}/a",
        _daemon_set({"name": "one", "image": "a", **change}),
        content=APPLY,
        fieldManager="a",
    )
    assert refused.status == 500
    assert message in refused.message


def test_apply_accepts_free_form_prototype_fields(api: Http) -> None:
    containers = [{"name": "c", "image": "a", "devices": [{"any": 1}]}]
    spec = {"containers": containers, "deviceClaims": [{"name": "x"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    applied = api.ok("PATCH", "/api/v1/namespaces/default/pods/p", pod, content=APPLY, fieldManager="a")
    assert applied["spec"]["deviceClaims"] == spec["deviceClaims"]
    assert applied["spec"]["containers"][0]["devices"] == [{"any": 1}]


@pytest.mark.parametrize("containers", [[], None])
def test_apply_of_pod_without_containers_is_no_server_error(api: Http, containers: Any) -> None:
    spec = {"containers": containers, "initContainers": [], "nodeName": "n"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    assert api.send("PATCH", "/api/v1/namespaces/default/pods/p", pod, content=APPLY, fieldManager="a").status < 500


def test_openapi_document_contains_list_merge_keys(api: Http) -> None:
    document = api.ok("GET", "/openapi/v3/apis/apps/v1")
    spec = document["components"]["schemas"]["io.k8s.api.apps.v1.DaemonSet"]["properties"]["spec"]["properties"]
    containers = spec["template"]["properties"]["spec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["x-kubernetes-list-map-keys"] == ["name"]
    assert containers["items"]["properties"]["ports"]["x-kubernetes-list-map-keys"] == ["containerPort", "protocol"]
    assert spec["selector"]["x-kubernetes-map-type"] == "atomic"


def test_inline_members_are_properties_of_outer_message() -> None:
    volume = kind_schema("v1", "PersistentVolume", "Storage.")["properties"]["spec"]["properties"]
    assert "hostPath" in volume
    assert volume["accessModes"] == {
        "type": "array",
        "items": {"type": "string"},
        "x-kubernetes-list-type": "atomic",
    }
