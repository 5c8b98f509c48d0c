"""Validation of policies, their bindings and role bindings, with a real server's messages in its order."""

from typing import Any

import pytest

from tests.controlplane.apiserver.mutated_objects import objects
from tests.controlplane.apiserver.running import Http

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
POLICIES, BINDINGS = (f"{REGISTRATION}/validatingadmissionpolic{each}" for each in ("ies", "ybindings"))
RULE: Any = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
POLICY: Any = {"matchConstraints": {"resourceRules": [RULE]}, "validations": [{"expression": "true"}]}
BINDING: Any = {"policyName": "p", "validationActions": ["Deny"]}
RIGHTS = "/apis/rbac.authorization.k8s.io/v1"
ROLE = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"}


def rules(**rule: Any) -> Any:
    return {"matchConstraints": {"resourceRules": [{**RULE, **rule}]}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"failurePolicy": ""}, 'spec.failurePolicy: Unsupported value: "": supported values: "Fail", "Ignore"'),
        ({"matchConstraints": None}, "spec.matchConstraints: Required value"),
        ({"matchConstraints": {}}, "spec.matchConstraints.resourceRules: Required value"),
        (
            {"paramKind": {"apiVersion": "a/b/c"}},
            '[spec.paramKind.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c,'
            " spec.paramKind.kind: Required value]",
        ),
        (
            rules(operations=["*", "GET"]),
            '[spec.matchConstraints.resourceRules[0].operations: Invalid value: ["*","GET"]: if \'*\' is present, must'
            " not specify other operations, spec.matchConstraints.resourceRules[0].operations[1]: Unsupported value:"
            ' "GET": supported values: "*", "CONNECT", "CREATE", "DELETE", "UPDATE"]',
        ),
        (
            rules(resources=["pods/*", "pods/log"]),
            "spec.matchConstraints.resourceRules[0].resources[1]: Invalid value: \"pods/log\": if 'pods/*' is present,"
            " must not specify pods/log",
        ),
        (
            rules(resourceNames=["a", "a"]),
            'spec.matchConstraints.resourceRules[0].resourceNames[1]: Duplicate value: "a"',
        ),
        (
            {"variables": [{"name": "in", "expression": "1"}]},
            'spec.variables[0].name: Invalid value: "in": must be a valid CEL identifier',
        ),
        ({"matchConditions": [{"name": "a"}]}, "spec.matchConditions[0].expression: Required value"),
        (
            {"validations": [{"expression": "true", "message": "a\nb"}]},
            'spec.validations[0].message: Invalid value: "a\\nb": must not contain line breaks',
        ),
        (
            {"validations": [{"expression": "'x'"}]},
            "spec.validations[0].expression: Invalid value: \"'x'\": must evaluate to bool but got string",
        ),
        (
            {"auditAnnotations": [{"key": "k", "valueExpression": "1"}]},
            'spec.auditAnnotations[0].valueExpression: Invalid value: "1": must evaluate to one of [string null_type]'
            " but got int",
        ),
    ],
)
def test_invalid_admission_policy_is_refused(api: Http, spec: Any, expected: str) -> None:
    answer = api.send("POST", POLICIES, {"metadata": {"name": "p"}, "spec": POLICY | spec})
    kind = "ValidatingAdmissionPolicy.admissionregistration.k8s.io"
    assert (answer.status, answer.message) == (422, f'{kind} "p" is invalid: {expected}')


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"policyName": ""}, "spec.policyName: Required value"),
        ({"validationActions": []}, "spec.validationActions: Required value"),
        (
            {"validationActions": ["Deny", "Deny", "x"]},
            '[spec.validationActions[1]: Duplicate value: "Deny", spec.validationActions[2]: Unsupported value: "x":'
            ' supported values: "Audit", "Deny", "Warn"]',
        ),
        (
            {"paramRef": {"name": "n", "selector": {}}},
            "[spec.paramRef.name: Forbidden: name and selector are mutually exclusive, spec.paramRef.selector:"
            " Forbidden: name and selector are mutually exclusive, spec.paramRef.parameterNotFoundAction: Required"
            " value]",
        ),
    ],
)
def test_invalid_admission_policy_binding_is_refused(api: Http, spec: Any, expected: str) -> None:
    answer = api.send("POST", BINDINGS, {"metadata": {"name": "b"}, "spec": BINDING | spec})
    kind = "ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io"
    assert (answer.status, answer.message) == (422, f'{kind} "b" is invalid: {expected}')


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"roleRef": {**ROLE, "name": ".."}}, "roleRef.name: Invalid value: \"..\": may not be '..'"),
        (
            {"roleRef": {**ROLE, "apiGroup": "x"}},
            'roleRef.apiGroup: Unsupported value: "x": supported values: "rbac.authorization.k8s.io"',
        ),
        (
            {"subjects": [{"kind": "ServiceAccount", "name": "a", "apiGroup": "x"}]},
            '[subjects[0].apiGroup: Unsupported value: "x": supported values: "", subjects[0].namespace: Required'
            " value]",
        ),
        (
            {"subjects": [{"kind": "Robot", "name": "a"}]},
            'subjects[0].kind: Unsupported value: "Robot": supported values: "ServiceAccount", "User", "Group"',
        ),
    ],
)
def test_invalid_role_binding_is_refused(api: Http, members: Any, expected: str) -> None:
    binding = {"metadata": {"name": "b"}, "roleRef": ROLE, **members}
    answer = api.send("POST", f"{RIGHTS}/clusterrolebindings", binding)
    kind = "ClusterRoleBinding.rbac.authorization.k8s.io"
    assert (answer.status, answer.message) == (422, f'{kind} "b" is invalid: {expected}')


def test_role_reference_of_a_binding_is_immutable(api: Http) -> None:
    api.ok("POST", f"{RIGHTS}/clusterrolebindings", {"metadata": {"name": "b"}, "roleRef": ROLE})
    other = {"metadata": {"name": "b"}, "roleRef": {**ROLE, "name": "s"}}
    answer = api.send("PUT", f"{RIGHTS}/clusterrolebindings/b", other)
    assert answer.message == (
        'ClusterRoleBinding.rbac.authorization.k8s.io "b" is invalid: roleRef: Invalid value:'
        ' {"APIGroup":"rbac.authorization.k8s.io","Kind":"ClusterRole","Name":"s"}: field is immutable'
    )


@pytest.mark.parametrize(
    ("kind", "rule", "expected"),
    [
        (
            "Role",
            {"verbs": ["get"], "nonResourceURLs": ["/x"]},
            'rules[0].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs',
        ),
        (
            "ClusterRole",
            {"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["pods"]},
            'rules[0].nonResourceURLs: Invalid value: ["/x"]: rules cannot apply to both regular resources and'
            " non-resource URLs",
        ),
    ],
)
def test_invalid_role_rule_is_refused(api: Http, kind: str, rule: Any, expected: str) -> None:
    space = "namespaces/default/" if kind == "Role" else ""
    path = f"{RIGHTS}/{space}{kind.lower()}s"
    answer = api.send("POST", path, {"metadata": {"name": "r"}, "rules": [rule]})
    assert answer.message == f'{kind}.rbac.authorization.k8s.io "r" is invalid: {expected}'


def test_mutations_can_read_fields_of_patches(api: Http) -> None:
    policy = next(each for each in objects() if each["kind"] == "MutatingAdmissionPolicy")
    expressions = ("Object{a: Object{b: 1}.b.c}", "Object{a: has(Object.spec{}.x)}", "Object{a: JSONPatch{}.op}")
    policy["spec"]["mutations"] = [
        {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": each}} for each in expressions
    ]
    api.ok("POST", f"{REGISTRATION}/mutatingadmissionpolicies", policy)
