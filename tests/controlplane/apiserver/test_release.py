"""Differences between Kubernetes releases. The shared server has the newest release."""

from collections.abc import Iterator

import pytest

from resourceapi.objects.release import RELEASES
from tests.controlplane.apiserver.definitions.test_definitions import definition, driver
from tests.controlplane.apiserver.running import CLAIMS, MERGE, Http, Plain, Running, claim
from tests.controlplane.scheduler.kit import slice_

RULES = "/apis/resource.k8s.io/{}/devicetaintrules"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
RULE = {
    "metadata": {"name": "r"},
    "spec": {"deviceSelector": {"driver": "d.example.com"}, "taint": {"key": "example.com/t", "effect": "NoSchedule"}},
}


@pytest.fixture(scope="module")
def api_1_36() -> Iterator[Http]:
    with Running(release=RELEASES["1.36"]) as server, server.http() as http:
        yield http


@pytest.fixture(scope="module")
def api_1_34() -> Iterator[Http]:
    with Running(release=RELEASES["1.34"]) as server, server.http() as http:
        yield http


@pytest.fixture(scope="module")
def api_1_35() -> Iterator[Http]:
    with Running(release=RELEASES["1.35"]) as server, server.http() as http:
        yield http


def test_taint_rules_are_served_in_v1_since_1_37(api: Http, api_1_36: Http) -> None:
    made = api.ok("POST", RULES.format("v1"), RULE)
    assert made["apiVersion"] == "resource.k8s.io/v1"
    older = api.ok("GET", f"{RULES.format('v1beta2')}/r")
    assert older["spec"] == made["spec"]
    assert api_1_36.send("GET", RULES.format("v1")).status == 404


def test_taint_rule_update_in_v1_requires_resource_version(api: Http) -> None:
    named = {**RULE, "metadata": {"name": "u"}}
    api.ok("POST", RULES.format("v1"), named)
    refused = api.send("PUT", f"{RULES.format('v1')}/u", named)
    assert refused.status == 422
    assert refused.message.endswith("metadata.resourceVersion: Invalid value: 0: must be specified for an update")
    api.ok("PUT", f"{RULES.format('v1beta2')}/u", named)


def test_slices_are_selectable_by_pool_name_since_1_37(api: Http, api_1_36: Http) -> None:
    api.ok("POST", SLICES, slice_("n1", "gpu-0"))
    pool = slice_("n1")["spec"]["pool"]["name"]
    assert len(api.ok("GET", SLICES, fieldSelector=f"spec.pool.name={pool}")["items"]) == 1
    assert api.ok("GET", SLICES, fieldSelector="spec.pool.name=other")["items"] == []
    assert api_1_36.send("GET", SLICES, fieldSelector=f"spec.pool.name={pool}").status == 400


def test_duplicate_request_message_depends_on_release(api: Http, api_1_36: Http) -> None:
    request = {"name": "r", "deviceClassName": "c"}
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request, request]}}}
    path = "/apis/resource.k8s.io/v1beta1/namespaces/default/resourceclaims"
    assert api_1_36.send("POST", path, claim).message.endswith('requests[1]: Duplicate value: "r"')
    shown = '{"name":"r","deviceClassName":"c","allocationMode":"ExactCount","count":1}'
    assert api.send("POST", path, claim).message.endswith(f"requests[1]: Duplicate value: {shown}")


def test_binding_target_name_is_validated_since_1_37(api: Http, api_1_36: Http) -> None:
    path, binding = "/api/v1/namespaces/default/pods", {"metadata": {"name": "bound"}, "target": {"name": "A_"}}
    for each in (api, api_1_36):
        each.ok("POST", path, {"metadata": {"name": "bound"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    assert api.send("POST", f"{path}/bound/binding", binding).message.startswith('target.name: Invalid value: "A_": ')
    assert api_1_36.send("POST", f"{path}/bound/binding", binding).status == 201


@pytest.mark.parametrize("version", ["1.34", "1.35"])
def test_fields_of_disabled_features_are_not_stored(version: str, api_1_34: Http, api_1_35: Http) -> None:
    older = {"1.34": api_1_34, "1.35": api_1_35}[version]
    made = slice_("n1", "gpu-0")
    made["spec"]["devices"][0]["taints"] = [{"key": "example.com/t", "effect": "NoSchedule"}]
    stored = older.ok("POST", SLICES, made)
    assert "taints" not in stored["spec"]["devices"][0]
    patch = {"spec": {"devices": made["spec"]["devices"]}}
    name = stored["metadata"]["name"]
    again = older.ok("PATCH", f"{SLICES}/{name}", patch, content="application/merge-patch+json")
    assert again["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]
    assert older.send("GET", RULES.format("v1beta2")).status == 404
    assert older.ok("GET", RULES.format("v1alpha3"))["items"] == []


@pytest.mark.parametrize("version", RELEASES)
def test_server_reports_its_release(version: str, api_1_34: Http, api_1_35: Http, api_1_36: Http, api: Http) -> None:
    server = {"1.34": api_1_34, "1.35": api_1_35, "1.36": api_1_36, "1.37": api}[version]
    info = server.ok("GET", "/version")
    assert f"{info['major']}.{info['minor']}" == version
    assert server.ok("GET", "/openapi/v2")["info"]["version"] == info["gitVersion"]


def test_error_texts_and_warnings_before_1_36(api_1_34: Http, api_1_35: Http, api_1_36: Http) -> None:
    path, level = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations", {"metadata": {"name": "l"}}
    known = 'Unsupported value: "": supported values: "Exempt", "Limited"'
    services = "/api/v1/namespaces/default/services"
    service: Plain = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}], "externalIPs": ["1.2.3.4"]}}
    service["spec"]["trafficDistribution"] = "PreferClose"
    for server, why, count in ((api_1_34, known, 0), (api_1_35, known, 1), (api_1_36, "Required value", 2)):
        assert server.send("POST", path, {**level, "spec": {}}).message.endswith(f"spec.type: {why}")
        assert len(server.send("POST", services, service, dryRun="All").warnings) == count
    storage = "/apis/storage.k8s.io/v1/storageclasses"
    api_1_34.ok("POST", storage, {"metadata": {"name": "c"}, "provisioner": "a.dev"})
    change = api_1_34.send("PATCH", f"{storage}/c", {"provisioner": "b.dev"}, content=MERGE)
    assert change.message.endswith("provisioner: Forbidden: updates to provisioner are forbidden.")


def test_deprecation_warnings_depend_on_release(api_1_34: Http, api_1_36: Http) -> None:
    for version, warned in (("v1beta1", [0, 1]), ("v1beta2", [0, 1]), ("v1", [0, 0])):
        path = f"/apis/resource.k8s.io/{version}/resourceslices"
        assert [len(http.send("GET", path).warnings) for http in (api_1_34, api_1_36)] == warned
    rules = "/apis/resource.k8s.io/v1alpha3/devicetaintrules"
    (warning,) = api_1_36.send("GET", rules).warnings
    assert "DeviceTaintRule is deprecated in v1.36+, unavailable in v1.39+" in warning
    assert not api_1_36.send("GET", rules.replace("v1alpha3", "v1beta2")).warnings
    assert not api_1_34.send("GET", rules).warnings


def test_1_34_adds_a_driver_error_and_answers_500_to_invalid_delete_body(
    api: Http, api_1_34: Http, api_1_35: Http
) -> None:
    nameless = {"metadata": {"name": "e"}, "spec": {"driver": "", "pool": {"resourceSliceCount": 1}, "allNodes": True}}
    for http, causes, code in ((api, 2, 400), (api_1_35, 2, 400), (api_1_34, 3, 500)):
        refused = http.send("POST", SLICES, nameless)
        assert len(refused.body["details"]["causes"]) == causes, refused.message
        assert http.send("DELETE", f"{SLICES}/e", [1]).status == code


def test_status_update_owns_metadata_in_1_34(api: Http, api_1_34: Http, api_1_35: Http) -> None:
    """Labels in a status request are not stored, but 1.34 records their owner."""
    by_1_34: list[Plain] = [{"f:metadata": {"f:labels": {".": {}, "f:x": {}}}}]
    for http, entries in ((api, by_1_34[:0]), (api_1_35, by_1_34[:0]), (api_1_34, by_1_34)):
        made = http.ok("POST", CLAIMS, claim("owned"))
        labelled = {**made, "metadata": {**made["metadata"], "labels": {"x": "1"}}}
        after = http.ok("PUT", f"{CLAIMS}/owned/status", labelled, fieldManager="m")["metadata"]
        assert "labels" not in after
        by_status = [entry for entry in after["managedFields"] if entry.get("subresource") == "status"]
        assert [entry["fieldsV1"] for entry in by_status] == entries
        assert (after["resourceVersion"] == made["metadata"]["resourceVersion"]) is not bool(entries)


def test_custom_resource_status_updates_and_lists_before_1_36(api_1_34: Http, api_1_35: Http, api_1_36: Http) -> None:
    """A status update also owns the metadata in the request. List options are checked before the format."""
    drivers = "/apis/example.com/v1alpha1/namespaces/default/drivers"
    for http, is_older in ((api_1_34, True), (api_1_35, True), (api_1_36, False)):
        http.ok("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition())
        made = http.ok("POST", drivers, driver("owned", {"type": "x"}))
        labelled = {**made, "metadata": {**made["metadata"], "labels": {"x": "1"}}}
        after = http.ok("PUT", f"{drivers}/owned/status", labelled, fieldManager="m")["metadata"]
        assert "labels" not in after
        assert any(entry["manager"] == "m" for entry in after["managedFields"]) is is_older
        refused = http.send("GET", drivers, accept="text/html", fieldSelector="x")
        assert refused.status == (400 if is_older else 406)


def test_defaults_and_generations_added_in_1_37(api: Http, api_1_36: Http) -> None:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
    stateful = {"selector": {"matchLabels": {"app": "a"}}, "template": template}
    scaled = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}, "maxReplicas": 2}

    def made(http: Http, path: str, spec: Plain) -> Plain:
        created: Plain = http.ok("POST", path, {"metadata": {"name": "x"}, "spec": spec})
        return created

    def found(http: Http) -> list[object]:
        rolling = made(http, "/apis/apps/v1/namespaces/default/statefulsets", stateful)["spec"]["updateStrategy"]
        driver = made(http, "/apis/storage.k8s.io/v1/csidrivers", {})["spec"]
        scaler = made(http, "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", scaled)["metadata"]
        return [rolling["rollingUpdate"], driver.get("preventPodSchedulingIfMissing"), scaler.get("generation")]

    assert found(api_1_36) == [{"partition": 0}, None, None]
    assert found(api) == [{"partition": 0, "maxUnavailable": 1}, False, 1]
