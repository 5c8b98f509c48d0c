"""The rules of ValidatingAdmissionPolicies and their bindings.

Source: k8s.io/kubernetes pkg/apis/admissionregistration/validation/validation.go.
"""

import re

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.policies import compiled_as, environment_of
from controlplane.apiserver.rules.label_rules import check_selector
from controlplane.apiserver.unstructured_rules import Check
from resourceapi.cel import CelError, Environment
from resourceapi.cel.types import BOOL, DYN, NULL, STRING, Type
from resourceapi.objects import ErrorList
from resourceapi.objects.errors import Token
from resourceapi.objects.field_rules import add_invalid, label_name
from resourceapi.objects.json_value import json_equal
from resourceapi.objects.names import dns_1035_label, dns_subdomain, path_segment
from resourceapi.objects.release import Release

_FAILURES = ["Fail", "Ignore"]
_MATCHES = ["Equivalent", "Exact"]
_OPERATIONS = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"]
_SCOPES = ["*", "Cluster", "Namespaced"]
_REASONS = ["Forbidden", "Invalid", "RequestEntityTooLarge"]
_ACTIONS = ["Audit", "Deny", "Warn"]
_MAX_CONDITIONS, _MAX_ANNOTATIONS = 64, 20
_MAX_ANNOTATION_LENGTH = 5 * 1024
_ONE_AT_LEAST = "validations or auditAnnotations must contain at least one item"
_DENY_AND_WARN = (
    "must not contain both Deny and Warn (repeating the same validation failure information in the API response and"
    " headers serves no purpose)"
)
_NAME_AND_SELECTOR = "name and selector are mutually exclusive"
_IDENTIFIER = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")
_RESERVED = (
    *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import"),
    *("let", "loop", "package", "namespace", "return", "var", "void", "while"),
)


def check_policy(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    """Check a policy, whose expressions must compile."""
    spec, path = new["spec"], "spec"
    known = check_policy_matching(errors, new, old)
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        errors.required(f"{path}.validations", _ONE_AT_LEAST)
        errors.required(f"{path}.auditAnnotations", _ONE_AT_LEAST)
        return
    has_params, has_variables = spec.get("paramKind") is not None, bool(spec.get("variables"))
    environment = environment_of(known, has_params=has_params, has_variables=has_variables)
    message_environment = environment_of(
        known, has_params=has_params, has_authorizer=False, has_variables=has_variables
    )
    for index, each in enumerate(spec.get("validations") or ()):
        _check_validation(errors, each, f"{path}.validations[{index}]", environment, message_environment)
    _check_annotations(errors, new, f"{path}.auditAnnotations", environment)


def check_policy_matching(
    errors: ErrorList,
    new: Plain,
    old: Plain | None,
    *,
    check_more: Check | None = None,
) -> dict[str, Type]:
    """Check what policies of both types have: parameters, match rules and variables. Returns the variables' types.

    `check_more` checks the match constraints further.
    """
    spec, path = new["spec"], "spec"
    if spec.get("failurePolicy") not in _FAILURES:
        errors.not_supported(f"{path}.failurePolicy", spec.get("failurePolicy") or "", _FAILURES)
    if spec.get("paramKind") is not None:
        _check_param_kind(errors, spec["paramKind"], f"{path}.paramKind")
    matched = spec.get("matchConstraints")
    if matched is None:
        errors.required(f"{path}.matchConstraints")
    else:
        _check_matched(errors, matched, f"{path}.matchConstraints")
        if not matched.get("resourceRules"):
            errors.required(f"{path}.matchConstraints.resourceRules")
        if check_more is not None:
            check_more(errors, new, old)
    if old is None or not json_equal(spec, old["spec"]):
        check_conditions(errors, spec, f"{path}.matchConditions")
    return _check_variables(errors, spec, f"{path}.variables")


def check_binding(errors: ErrorList, new: Plain, old: Plain | None, *, release: Release) -> None:
    """Check a policy's binding."""
    check_binding_target(errors, new, old)
    actions, path = new["spec"].get("validationActions") or [], "spec.validationActions"
    _check_actions(errors, actions, path)
    if not actions:
        errors.required(path, "" if release.has_declared_rules else "at least one validation action is required")


def check_binding_target(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    """Check what bindings of both types have: the policy, its parameters and the matching resources."""
    del old
    spec, path = new["spec"], "spec"
    name = spec.get("policyName") or ""
    if name:
        add_invalid(errors, f"{path}.policyName", name, dns_subdomain(name))
    else:
        errors.required(f"{path}.policyName")
    if spec.get("paramRef") is not None:
        _check_param_ref(errors, spec["paramRef"], f"{path}.paramRef")
    if spec.get("matchResources") is not None:
        _check_matched(errors, spec["matchResources"], f"{path}.matchResources")


def _check_param_kind(errors: ErrorList, kind: Plain, path: str) -> None:
    version, name = kind.get("apiVersion") or "", kind.get("kind") or ""
    if not version:
        errors.required(f"{path}.apiVersion")
    elif version.count("/") > 1:
        errors.invalid(f"{path}.apiVersion", version, f"unexpected GroupVersion string: {version}")
    else:
        group, _, short = version.rpartition("/")
        if group and (found := dns_subdomain(group)):
            errors.invalid(f"{path}.apiVersion", group, ",".join(found))
        if not short:
            errors.invalid(f"{path}.apiVersion", version, "version must be specified")
        elif found := dns_1035_label(short):
            errors.invalid(f"{path}.apiVersion", short, ",".join(found))
    if not name:
        errors.required(f"{path}.kind")
    elif found := dns_1035_label(name.lower()):
        errors.invalid(f"{path}.kind", name, f"may have mixed case, but should otherwise match: {','.join(found)}")


def _check_matched(errors: ErrorList, matched: Plain, path: str) -> None:
    """Check the match constraints of a policy or the match resources of a binding."""
    if matched.get("matchPolicy") not in _MATCHES:
        errors.not_supported(f"{path}.matchPolicy", matched.get("matchPolicy") or "", _MATCHES)
    for member in ("namespaceSelector", "objectSelector"):
        check_selector(errors, f"{path}.{member}", matched.get(member))
    for member in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(matched.get(member) or ()):
            check_rule(errors, rule, f"{path}.{member}[{index}]")


def check_rule(errors: ErrorList, rule: Plain, path: str) -> None:
    """Check a rule that selects requests."""
    names: set[str] = set()
    for index, name in enumerate(rule.get("resourceNames") or ()):
        add_invalid(errors, f"{path}.resourceNames[{index}]", name, path_segment(name))
        if name in names:
            errors.duplicate(f"{path}.resourceNames[{index}]", name)
        names.add(name)
    operations = rule.get("operations") or []
    _check_all(errors, operations, f"{path}.operations", "operations")
    for index, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            errors.not_supported(f"{path}.operations[{index}]", operation, _OPERATIONS)
    _check_all(errors, rule.get("apiGroups") or [], f"{path}.apiGroups", "API groups")
    versions = rule.get("apiVersions") or []
    _check_all(errors, versions, f"{path}.apiVersions", "API versions")
    for index, version in enumerate(versions):
        if not version:
            errors.required(f"{path}.apiVersions[{index}]")
    _check_resources(errors, rule.get("resources") or [], f"{path}.resources")
    if rule.get("scope") is not None and rule["scope"] not in _SCOPES:
        errors.not_supported(f"{path}.scope", rule["scope"], _SCOPES)


def _check_all(errors: ErrorList, values: list[str], path: str, what: str) -> None:
    """Check a list in which `*` excludes other values."""
    if not values:
        errors.required(path)
    if len(values) > 1 and "*" in values:
        errors.invalid(path, values, f"if '*' is present, must not specify other {what}")


def _check_resources(errors: ErrorList, resources: list[str], path: str) -> None:
    if not resources:
        errors.required(path)
    whole, everywhere, is_plain = set[str](), set[str](), False
    for index, text in enumerate(resources):
        here = f"{path}[{index}]"
        if not text:
            errors.required(here)
            continue
        resource, slash, part = text.partition("/")
        if not slash:
            is_plain = text != "*"
            continue
        if resource in whole:
            errors.invalid(here, text, f"if '{resource}/*' is present, must not specify {text}")
        if part in everywhere:
            errors.invalid(here, text, f"if '*/{part}' is present, must not specify {text}")
        if part == "*":
            whole.add(resource)
        if resource == "*":
            everywhere.add(part)
    if len(resources) > 1 and "*/*" in resources:
        errors.invalid(path, resources, "if '*/*' is present, must not specify other resources")
    if "*" in resources and is_plain:
        errors.invalid(path, resources, "if '*' is present, must not specify other resources without subresources")


def check_conditions(errors: ErrorList, spec: Plain, path: str) -> None:
    """Check the match conditions, which all have to be true for a request."""
    conditions, seen = spec.get("matchConditions") or (), set[str]()
    if len(conditions) > _MAX_CONDITIONS:
        errors.too_many(path, len(conditions), _MAX_CONDITIONS)
    environment = environment_of({}, has_params=spec.get("paramKind") is not None)
    for index, each in enumerate(conditions):
        here, name, source = f"{path}[{index}]", each.get("name") or "", (each.get("expression") or "").strip()
        if source:
            check_expression(errors, f"{here}.expression", source, environment, BOOL)
        else:
            errors.required(f"{here}.expression")
        if name:
            label_name(errors, f"{here}.name", name)
        else:
            errors.required(f"{here}.name")
        if name and name in seen:
            errors.duplicate(f"{here}.name", name)
        seen.add(name)


def _check_variables(errors: ErrorList, spec: Plain, path: str) -> dict[str, Type]:
    """Check the variables; return their types. Each variable can use those before it, and none can write patches."""
    known: dict[str, Type] = {}
    for index, each in enumerate(spec.get("variables") or ()):
        here, name, source = f"{path}[{index}]", each.get("name") or "", each.get("expression") or ""
        if not name.strip():
            errors.required(f"{here}.name", "name is not specified")
        elif not _IDENTIFIER.fullmatch(name) or name in _RESERVED:
            errors.invalid(f"{here}.name", name, "must be a valid CEL identifier")
        if not source.strip():
            errors.required(f"{here}.expression", "expression is not specified")
            continue
        environment = environment_of(known, has_params=spec.get("paramKind") is not None, has_variables=True)
        known[name] = check_expression(errors, f"{here}.expression", source, environment)
    return known


def _check_validation(
    errors: ErrorList, validation: Plain, path: str, environment: Environment, message_environment: Environment
) -> None:
    source, message_expression = (validation.get(name) or "" for name in ("expression", "messageExpression"))
    if source.strip():
        check_expression(errors, f"{path}.expression", source, environment, BOOL)
    else:
        errors.required(f"{path}.expression", "expression is not specified")
    if message_expression.strip():
        check_expression(errors, f"{path}.messageExpression", message_expression, message_environment, STRING)
    elif message_expression:
        errors.invalid(f"{path}.messageExpression", message_expression, "must be non-empty if specified")
    message = validation.get("message") or ""
    if message and not message.strip():
        errors.invalid(f"{path}.message", message, "must be non-empty if specified")
    elif re.search(r"[\n\r]", message.strip()):
        errors.invalid(f"{path}.message", message, "must not contain line breaks")
    if validation.get("reason") is not None and validation["reason"] not in _REASONS:
        errors.not_supported(f"{path}.reason", validation["reason"], _REASONS)


def _check_annotations(errors: ErrorList, policy: Plain, path: str, environment: Environment) -> None:
    annotations, name, seen = policy["spec"].get("auditAnnotations") or [], policy["metadata"].get("name"), set[str]()
    if len(annotations) > _MAX_ANNOTATIONS:
        shown = [
            {"Key": each.get("key", ""), "ValueExpression": each.get("valueExpression", "")} for each in annotations
        ]
        errors.invalid(path, shown, f"must not have more than {_MAX_ANNOTATIONS} auditAnnotations")
    for index, each in enumerate(annotations):
        here, key, source = f"{path}[{index}]", each.get("key") or "", (each.get("valueExpression") or "").strip()
        if name:
            label_name(errors, f"{here}.key", f"{name}/{key}")
        else:
            errors.invalid(f"{here}.key", key, "requires metadata.name be non-empty")
        if not source:
            errors.required(f"{here}.valueExpression", "valueExpression is not specified")
        elif len(source.encode()) > _MAX_ANNOTATION_LENGTH:
            why = f"must not exceed {_MAX_ANNOTATION_LENGTH} bytes in length"
            errors.required(f"{here}.valueExpression", why)
        else:
            check_expression(errors, f"{here}.valueExpression", source, environment, STRING, NULL)
        if key in seen:
            errors.duplicate(f"{here}.key", key)
        seen.add(key)


def _check_param_ref(errors: ErrorList, reference: Plain, path: str) -> None:
    name, selector, action = (reference.get(member) for member in ("name", "selector", "parameterNotFoundAction"))
    if name:
        add_invalid(errors, f"{path}.name", name, path_segment(name))
        if selector is not None:
            errors.forbidden(f"{path}.name", _NAME_AND_SELECTOR)
    if selector is not None:
        check_selector(errors, f"{path}.selector", selector)
        if name:
            errors.forbidden(f"{path}.selector", _NAME_AND_SELECTOR)
    if not name and selector is None:
        errors.required(path, "one of name or selector must be specified")
    if not action:
        errors.required(f"{path}.parameterNotFoundAction")
    elif action not in ("Deny", "Allow"):
        errors.not_supported(f"{path}.parameterNotFoundAction", action, ["Deny", "Allow"])


def _check_actions(errors: ErrorList, actions: list[str], path: str) -> None:
    seen: set[str] = set()
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            errors.not_supported(f"{path}[{index}]", action, _ACTIONS)
        if action in seen:
            errors.duplicate(f"{path}[{index}]", Token(action))
        seen.add(action)
    if "Deny" in actions and "Warn" in actions:
        errors.invalid(path, actions, _DENY_AND_WARN)


def check_expression(errors: ErrorList, path: str, source: str, environment: Environment, *wanted: Type) -> Type:
    """Check an expression. Returns its type."""
    try:
        return compiled_as(source, environment, *wanted).type
    except CelError as error:
        errors.invalid(path, source, str(error))
        return DYN
