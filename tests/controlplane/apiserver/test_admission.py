"""Admission policies: what expressions can read, the results, and their effect on writes."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.controlplane.apiserver.running import APPLY, CLASSES, MERGE, Answer, Http, Running

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
POLICIES = f"{REGISTRATION}/validatingadmissionpolicies"
MAPS = "/api/v1/namespaces/default/configmaps"


def policy(name: str, **spec: Any) -> dict[str, Any]:
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}]
    return {"metadata": {"name": name}, "spec": {"matchConstraints": {"resourceRules": rules}, **spec}}


def create_policy(api: Http, name: str, binding_spec: dict[str, Any], **spec: Any) -> None:
    api.ok("POST", POLICIES, policy(name, **spec))
    binding = {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"], **binding_spec}}
    api.ok("POST", f"{REGISTRATION}/validatingadmissionpolicybindings", binding)


def create_config_map(api: Http, name: str, data: dict[str, str], labels: dict[str, str] | None = None) -> Answer:
    return api.send("POST", MAPS, {"metadata": {"name": name, "labels": labels}, "data": data})


def test_policy_applies_conditions_variables_reasons_and_messages(api: Http) -> None:
    create_policy(
        api,
        "sizes",
        {},
        matchConditions=[{"name": "new", "expression": "request.operation == 'CREATE'"}],
        variables=[
            {"name": "count", "expression": "size(object.data)"},
            {"name": "unread", "expression": "object.nothing.there == 1"},
        ],
        validations=[
            {"expression": "variables.count < 2", "reason": "Forbidden", "message": "too many"},
            {"expression": "variables.count != 0"},
        ],
    )
    refused = create_config_map(api, "two", {"a": "1", "b": "2"})
    assert (refused.status, refused.body["reason"]) == (403, "Forbidden")
    assert refused.message.endswith("denied request: too many")
    assert create_config_map(api, "one", {"a": "1"}).status == 201
    api.ok("PATCH", f"{MAPS}/one", {"data": {"b": "2", "c": "3"}}, content=MERGE)
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "1", "b": "2"}}
    assert api.send("PATCH", f"{MAPS}/x?fieldManager=me", applied, content=APPLY).status == 403
    assert api.send("POST", f"{MAPS}?dryRun=All", {"metadata": {"name": "y"}, "data": {"a": "", "b": ""}}).status == 403


def test_free_form_fields_are_maps_in_expressions(api: Http) -> None:
    """Decoded bodies use a dict type that records repeated members. CEL must still treat free-form fields as maps."""
    rules = [{"apiGroups": ["resource.k8s.io"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["*"]}]
    of_map = "object.spec.config.all(c, type(c.opaque.parameters) == map && type(c.opaque.parameters.inner) == map)"
    create_policy(
        api,
        "types",
        {},
        matchConstraints={"resourceRules": rules},
        validations=[{"expression": of_map, "message": "no map"}],
    )
    for value, status in (({"a": 1}, 201), ([{"a": 1}], 422)):
        config = [{"opaque": {"driver": "gpu.example.com", "parameters": {"inner": value}}}]
        assert (
            api.send("POST", f"{CLASSES}?dryRun=All", {"metadata": {"name": "a"}, "spec": {"config": config}}).status
            == status
        )


def test_expression_error_refuses_write_unless_policy_ignores_failures(api: Http) -> None:
    create_policy(api, "strict", {}, validations=[{"expression": "object.nothing.there == 1"}])
    refused = create_config_map(api, "a", {"a": "1"})
    assert refused.status == 422
    assert "expression 'object.nothing.there == 1' resulted in error: no such key: nothing" in refused.message
    api.ok("PATCH", f"{POLICIES}/strict", {"spec": {"failurePolicy": "Ignore"}}, content=MERGE)
    assert create_config_map(api, "a", {"a": "1"}).status == 201


def test_binding_can_warn_and_can_select_objects_by_label(api: Http) -> None:
    never = [{"expression": "false", "messageExpression": "'no ' + object.metadata.name"}]
    create_policy(api, "warns", {"validationActions": ["Warn"]}, validations=never)
    response = create_config_map(api, "a", {"a": "1"})
    assert response.status == 201
    warning = "Validation failed for ValidatingAdmissionPolicy 'warns' with binding 'warns': no a"
    assert response.warnings == [f'299 - "{warning}"']
    part = {"matchResources": {"objectSelector": {"matchLabels": {"guarded": "yes"}}}}
    create_policy(api, "part", part, validations=never)
    assert create_config_map(api, "b", {"a": "1"}).status == 201
    assert create_config_map(api, "c", {"a": "1"}, {"guarded": "yes"}).status == 422


def test_policy_reads_parameter_object(api: Http) -> None:
    create_policy(
        api,
        "limits",
        {"paramRef": {"name": "limit", "namespace": "kube-system", "parameterNotFoundAction": "Deny"}},
        paramKind={"apiVersion": "v1", "kind": "Secret"},
        validations=[{"expression": "string(size(object.data)) <= params.type"}],
    )
    assert "no params found for policy binding with `Deny`" in create_config_map(api, "a", {"a": "1"}).message
    limit = {"metadata": {"name": "limit"}, "type": "1"}
    api.ok("POST", "/api/v1/namespaces/kube-system/secrets", limit)
    assert create_config_map(api, "a", {"a": "1"}).status == 201
    assert create_config_map(api, "b", {"a": "1", "b": "2"}).status == 422


def test_delete_passes_old_object_to_policy(api: Http) -> None:
    create_policy(
        api, "keep", {}, validations=[{"expression": "request.operation != 'DELETE' || oldObject.data.a != 'keep'"}]
    )
    for name in ("keep", "lose"):
        assert create_config_map(api, name, {"a": name}).status == 201
    assert api.send("DELETE", f"{MAPS}/keep").status == 422
    api.ok("DELETE", f"{MAPS}/lose")


def test_refused_collection_delete_shows_earlier_deletions_to_watch() -> None:
    with Running(collect_after=None) as running, running.http() as api, running.http() as watcher:
        create_policy(
            api, "keep", {}, validations=[{"expression": "request.operation != 'DELETE' || oldObject.data.a != 'b'"}]
        )
        for name in "ab":
            made = create_config_map(api, name, {"a": name}).body["metadata"]
        with watcher.watch(MAPS, resourceVersion=made["resourceVersion"], timeoutSeconds="30") as events:
            assert api.send("DELETE", MAPS).status == 422
            create_config_map(api, "last", {"a": "c"})
            found = [(each["type"], each["object"]["metadata"]["name"]) for each in itertools.islice(events, 2)]
        assert found == [("DELETED", "a"), ("ADDED", "last")]


def test_policy_judges_bindings_and_evictions_by_the_resource_of_the_request(api: Http) -> None:
    """Expected messages are those of kube-apiserver 1.37.1."""
    pods, pod = "/api/v1/namespaces/default/pods", {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    for name in ("a", "b"):
        api.ok("POST", pods, {"metadata": {"name": name}, **pod})
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/*", "bindings"]}
    shown = (
        "request.resource.group + '/' + request.resource.resource + ' ' + request.kind.group + '/' + request.kind.kind"
        " + ' ' + request.options.kind + ' ' + string(has(request.options.dryRun)) + ' ' + request.name"
    )
    create_policy(
        api,
        "shows",
        {},
        matchConstraints={"resourceRules": [rule]},
        validations=[{"expression": "false", "messageExpression": shown}],
    )
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "a"},
        "target": {"kind": "Node", "name": "n"},
    }
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    for path, body, text in (
        (f"{pods}/a/binding", binding, "/pods /Binding CreateOptions false a"),
        ("/api/v1/namespaces/default/bindings?dryRun=All", binding, "/bindings /Binding CreateOptions true a"),
        (f"{pods}/a/eviction?dryRun=All", eviction, "/pods policy/Eviction CreateOptions true a"),
        (pods, {"metadata": {"name": "c"}, **pod}, "/pods /Pod CreateOptions false c"),
    ):
        refused = api.send("POST", path, body)
        assert (refused.status, refused.message.endswith(f"denied request: {text}")) == (422, True), refused
    assert api.send("POST", "/api/v1/namespaces/default/bindings", binding).message.startswith(
        'bindings "a" is forbidden'
    )


def test_policy_sees_no_name_when_a_collection_is_deleted(api: Http) -> None:
    api.ok("POST", MAPS, {"metadata": {"name": "a"}})
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["configmaps"]}]
    create_policy(
        api, "keeps", {}, matchConstraints={"resourceRules": rules}, validations=[{"expression": "has(request.name)"}]
    )
    assert 'configmaps "Unknown" is forbidden' in api.send("DELETE", MAPS).message
    api.ok("DELETE", f"{MAPS}/a")


def test_concurrent_collection_deletes_all_succeed(api: Http, server: Running) -> None:
    """An object that another request deleted first counts as deleted."""
    create_policy(
        api, "any", {}, validations=[{"expression": "request.operation != 'DELETE' || oldObject.data.a == 'x'"}]
    )
    for number in range(40):
        assert create_config_map(api, f"m{number}", {"a": "x"}).status == 201

    def clear(_: int) -> int:
        with server.http() as http:
            return http.send("DELETE", MAPS).status

    with ThreadPoolExecutor() as pool:
        assert set(pool.map(clear, range(4))) == {200}
    assert api.ok("GET", MAPS)["items"] == []


def test_policy_with_invalid_expressions_is_refused(api: Http) -> None:
    sources = ("object.spec +", "1", "request.who == ''", "variables.none == 1")
    refused = api.send("POST", POLICIES, policy("bad", validations=[{"expression": each} for each in sources]))
    assert refused.status == 422
    assert 'spec.validations[0].expression: Invalid value: "object.spec +": compilation failed: ' in refused.message
    assert 'spec.validations[1].expression: Invalid value: "1": must evaluate to bool' in refused.message
    assert "undefined field 'who'" in refused.message
    assert "undeclared reference to 'variables'" in refused.message
    named = [{"name": "some", "expression": "1"}]
    refused = api.send("POST", POLICIES, policy("bad", variables=named, validations=[{"expression": sources[-1]}]))
    assert "undefined field 'none'" in refused.message
    nothing = api.send("POST", POLICIES, policy("empty"))
    assert "validations or auditAnnotations must contain at least one item" in nothing.message


def test_validations_can_query_authorizer_but_message_expressions_cannot() -> None:
    """About the writing user, a service account, a path and the written resource. Message expressions cannot."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    authorizer_checks = {
        "may": "authorizer.group('').resource('pods').subresource('status').namespace('x').name('p').check('patch')",
        "account": "authorizer.serviceAccount('default', 'robot').group('').resource('pods').check('list').allowed()",
        "path": "authorizer.path('/healthz').check('get').allowed()",
        "here": "authorizer.requestResource.check('create').allowed()",
        "other": "authorizer.requestResource.fieldSelector('a=b').check('escalate').allowed()",
    }
    all_checks = " && ".join(
        (
            "variables.may.allowed() && !variables.may.errored()",
            *(f"variables.{name}" for name in list(authorizer_checks)[1:]),
        )
    )
    with Running(authorization="RBAC", collect_after=None) as server, server.http() as api:
        rules = [{"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}]
        api.ok("POST", f"{rbac}/clusterroles", {"metadata": {"name": "lister"}, "rules": rules})
        robot = {"kind": "ServiceAccount", "namespace": "default", "name": "robot"}
        bound = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "lister"}}
        api.ok("POST", f"{rbac}/clusterrolebindings", {"metadata": {"name": "x"}, "subjects": [robot], **bound})
        variables = [{"name": name, "expression": text} for name, text in authorizer_checks.items()]
        message = "string(variables.path)"  # fails: message expressions have no authorizer
        validations = [{"expression": all_checks}, {"expression": "false", "messageExpression": message}]
        create_policy(api, "asks", {}, variables=variables, validations=validations)
        assert create_config_map(api, "a", {}).message.endswith("denied request: failed expression: false")
        api.ok("DELETE", f"{POLICIES}/asks")
        rule = "!authorizer.group('').resource('secrets').namespace('default').check('get').allowed()"
        create_policy(api, "strangers", {}, validations=[{"expression": rule}])
        assert create_config_map(api, "b", {}).status == 422
        empty = {"expression": "authorizer.path('').check('get').allowed()"}
        message_with_authorizer = {
            "expression": "true",
            "messageExpression": "string(authorizer.path('/x').check('get').allowed())",
        }
        api.ok("DELETE", f"{POLICIES}/strangers")
        create_policy(api, "paths", {}, validations=[empty])
        assert "resulted in error: path must not be empty" in create_config_map(api, "c", {}).message
        assert api.send("POST", POLICIES, policy("tells", validations=[message_with_authorizer])).status == 422
