"""Admission policies: what expressions can read, the results, and their effect on writes."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.controlplane.apiserver.running import APPLY, CLASSES, MERGE, Answer, Http, Running

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
POLICIES = f"{REGISTRATION}/validatingadmissionpolicies"
MAPS = "/api/v1/namespaces/default/configmaps"


def policy(name: str, **spec: Any) -> dict[str, Any]:
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}]
    return {"metadata": {"name": name}, "spec": {"matchConstraints": {"resourceRules": rules}, **spec}}


def use(api: Http, name: str, bound_by: dict[str, Any], **spec: Any) -> None:
    api.ok("POST", POLICIES, policy(name, **spec))
    binding = {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"], **bound_by}}
    api.ok("POST", f"{REGISTRATION}/validatingadmissionpolicybindings", binding)


def write(api: Http, name: str, data: dict[str, str], labels: dict[str, str] | None = None) -> Answer:
    return api.send("POST", MAPS, {"metadata": {"name": name, "labels": labels}, "data": data})


def test_policies_have_variables_conditions_reasons_and_messages(api: Http) -> None:
    use(
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
    refused = write(api, "two", {"a": "1", "b": "2"})
    assert (refused.status, refused.body["reason"]) == (403, "Forbidden")
    assert refused.message.endswith("denied request: too many")
    assert write(api, "one", {"a": "1"}).status == 201
    api.ok("PATCH", f"{MAPS}/one", {"data": {"b": "2", "c": "3"}}, content=MERGE)
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "1", "b": "2"}}
    assert api.send("PATCH", f"{MAPS}/x?fieldManager=me", applied, content=APPLY).status == 403
    assert api.send("POST", f"{MAPS}?dryRun=All", {"metadata": {"name": "y"}, "data": {"a": "", "b": ""}}).status == 403


def test_free_values_are_of_the_types_that_expressions_know(api: Http) -> None:
    """Decoded bodies use a dict type that records repeated members. CEL must still treat free-form fields as maps."""
    rules = [{"apiGroups": ["resource.k8s.io"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["*"]}]
    of_map = "object.spec.config.all(c, type(c.opaque.parameters) == map && type(c.opaque.parameters.inner) == map)"
    use(
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


def test_what_fails_to_run_is_refused_unless_the_policy_ignores_it(api: Http) -> None:
    use(api, "strict", {}, validations=[{"expression": "object.nothing.there == 1"}])
    refused = write(api, "a", {"a": "1"})
    assert refused.status == 422
    assert "expression 'object.nothing.there == 1' resulted in error: no such key: nothing" in refused.message
    api.ok("PATCH", f"{POLICIES}/strict", {"spec": {"failurePolicy": "Ignore"}}, content=MERGE)
    assert write(api, "a", {"a": "1"}).status == 201


def test_a_binding_may_warn_and_may_be_about_a_part(api: Http) -> None:
    never = [{"expression": "false", "messageExpression": "'no ' + object.metadata.name"}]
    use(api, "warns", {"validationActions": ["Warn"]}, validations=never)
    response = write(api, "a", {"a": "1"})
    assert response.status == 201
    warning = "Validation failed for ValidatingAdmissionPolicy 'warns' with binding 'warns': no a"
    assert response.warnings == [f'299 - "{warning}"']
    part = {"matchResources": {"objectSelector": {"matchLabels": {"guarded": "yes"}}}}
    use(api, "part", part, validations=never)
    assert write(api, "b", {"a": "1"}).status == 201
    assert write(api, "c", {"a": "1"}, {"guarded": "yes"}).status == 422


def test_a_policy_takes_parameters(api: Http) -> None:
    use(
        api,
        "limits",
        {"paramRef": {"name": "limit", "namespace": "kube-system", "parameterNotFoundAction": "Deny"}},
        paramKind={"apiVersion": "v1", "kind": "Secret"},
        validations=[{"expression": "string(size(object.data)) <= params.type"}],
    )
    assert "no params found for policy binding with `Deny`" in write(api, "a", {"a": "1"}).message
    limit = {"metadata": {"name": "limit"}, "type": "1"}
    api.ok("POST", "/api/v1/namespaces/kube-system/secrets", limit)
    assert write(api, "a", {"a": "1"}).status == 201
    assert write(api, "b", {"a": "1", "b": "2"}).status == 422


def test_deletes_show_what_was_there(api: Http) -> None:
    use(api, "keep", {}, validations=[{"expression": "request.operation != 'DELETE' || oldObject.data.a != 'keep'"}])
    for name in ("keep", "lose"):
        assert write(api, name, {"a": name}).status == 201
    assert api.send("DELETE", f"{MAPS}/keep").status == 422
    api.ok("DELETE", f"{MAPS}/lose")


def test_what_goes_before_a_refused_one_of_a_collection_is_shown_to_watchers() -> None:
    with Running(collect_after=None) as running, running.http() as api, running.http() as watcher:
        use(api, "keep", {}, validations=[{"expression": "request.operation != 'DELETE' || oldObject.data.a != 'b'"}])
        for name in "ab":
            made = write(api, name, {"a": name}).body["metadata"]
        with watcher.watch(MAPS, resourceVersion=made["resourceVersion"], timeoutSeconds="5") as events:
            assert api.send("DELETE", MAPS).status == 422
            assert [(each["type"], each["object"]["metadata"]["name"]) for each in events] == [("DELETED", "a")]


def test_collections_that_are_deleted_twice_at_once(api: Http, server: Running) -> None:
    """An object that another request deleted first counts as deleted."""
    use(api, "any", {}, validations=[{"expression": "request.operation != 'DELETE' || oldObject.data.a == 'x'"}])
    for number in range(40):
        assert write(api, f"m{number}", {"a": "x"}).status == 201

    def clear(_: int) -> int:
        with server.http() as http:
            return http.send("DELETE", MAPS).status

    with ThreadPoolExecutor() as pool:
        assert set(pool.map(clear, range(4))) == {200}
    assert api.ok("GET", MAPS)["items"] == []


def test_expressions_are_compiled_when_they_are_written(api: Http) -> None:
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


def test_expressions_may_ask_what_somebody_may_do() -> None:
    """About the writing user, a service account, a path and the written resource. Message expressions cannot."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    asked = {
        "may": "authorizer.group('').resource('pods').subresource('status').namespace('x').name('p').check('patch')",
        "account": "authorizer.serviceAccount('default', 'robot').group('').resource('pods').check('list').allowed()",
        "path": "authorizer.path('/healthz').check('get').allowed()",
        "here": "authorizer.requestResource.check('create').allowed()",
        "other": "authorizer.requestResource.fieldSelector('a=b').check('escalate').allowed()",
    }
    all_of_them = " && ".join(
        ("variables.may.allowed() && !variables.may.errored()", *(f"variables.{name}" for name in list(asked)[1:]))
    )
    with Running(authorization="RBAC", collect_after=None) as server, server.http() as api:
        rules = [{"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}]
        api.ok("POST", f"{rbac}/clusterroles", {"metadata": {"name": "lister"}, "rules": rules})
        robot = {"kind": "ServiceAccount", "namespace": "default", "name": "robot"}
        bound = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "lister"}}
        api.ok("POST", f"{rbac}/clusterrolebindings", {"metadata": {"name": "x"}, "subjects": [robot], **bound})
        variables = [{"name": name, "expression": text} for name, text in asked.items()]
        message = "string(variables.path)"  # fails: message expressions have no authorizer
        validations = [{"expression": all_of_them}, {"expression": "false", "messageExpression": message}]
        use(api, "asks", {}, variables=variables, validations=validations)
        assert write(api, "a", {}).message.endswith("denied request: failed expression: false")
        api.ok("DELETE", f"{POLICIES}/asks")
        rule = "!authorizer.group('').resource('secrets').namespace('default').check('get').allowed()"
        use(api, "strangers", {}, validations=[{"expression": rule}])
        assert write(api, "b", {}).status == 422
        empty = {"expression": "authorizer.path('').check('get').allowed()"}
        told_wrongly = {
            "expression": "true",
            "messageExpression": "string(authorizer.path('/x').check('get').allowed())",
        }
        api.ok("DELETE", f"{POLICIES}/strangers")
        use(api, "paths", {}, validations=[empty])
        assert "resulted in error: path must not be empty" in write(api, "c", {}).message
        assert api.send("POST", POLICIES, policy("tells", validations=[told_wrongly])).status == 422
