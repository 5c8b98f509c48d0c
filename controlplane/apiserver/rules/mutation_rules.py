"""The rules of MutatingAdmissionPolicies and their bindings.

Source: k8s.io/kubernetes pkg/apis/admissionregistration/validation/validation.go.
"""

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.policies import environment_of
from controlplane.apiserver.rules.policy_rules import check_binding_target, check_expression, check_policy_matching
from resourceapi.cel import Environment
from resourceapi.cel.library.patches import JSON_PATCH, OBJECT
from resourceapi.cel.types import list_of
from resourceapi.objects import ErrorList

_PATCHES = {"JSONPatch": "jsonPatch", "ApplyConfiguration": "applyConfiguration"}
_OPERATIONS = ["*", "CONNECT", "CREATE", "UPDATE"]
_REINVOCATIONS = ["IfNeeded", "Never"]


def check_mutating_policy(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    """Check a policy, whose expressions must compile."""
    spec, path = new["spec"], "spec"
    known = check_policy_matching(errors, new, old, check_more=_check_constraints)
    mutations = spec.get("mutations") or []
    if not mutations:
        errors.required(f"{path}.mutations", "mutations must contain at least one item")
    environment = environment_of(
        known,
        has_params=spec.get("paramKind") is not None,
        has_variables=True,
        has_patches=True,
    )
    for index, mutation in enumerate(mutations):
        _check_mutation(errors, mutation, f"{path}.mutations[{index}]", environment)
    policy = spec.get("reinvocationPolicy") or ""
    if not policy:
        errors.required(f"{path}.reinvocationPolicy")
    elif policy not in _REINVOCATIONS:
        errors.not_supported(f"{path}.reinvocationPolicy", policy, _REINVOCATIONS)


def check_mutating_binding(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    """Check the binding of such a policy."""
    check_binding_target(errors, new, old)
    _check_operations(errors, new["spec"].get("matchResources") or {}, "spec.matchResources")


def _check_constraints(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    del old
    _check_operations(errors, new["spec"]["matchConstraints"], "spec.matchConstraints")


def _check_operations(errors: ErrorList, matched: Plain, path: str) -> None:
    """Check that only requests with an object are changed."""
    for rule in matched.get("resourceRules") or ():
        for operation in rule.get("operations") or ():
            if operation not in _OPERATIONS:
                errors.not_supported(f"{path}.resourceRules.operations", operation, _OPERATIONS)


def _check_mutation(errors: ErrorList, mutation: Plain, path: str, environment: Environment) -> None:
    kind = mutation.get("patchType") or ""
    if not kind:
        errors.required(f"{path}.patchType")
        return
    if kind not in _PATCHES:
        errors.not_supported(f"{path}.patchType", kind, sorted(_PATCHES))
        return
    for name, member in sorted(_PATCHES.items(), key=lambda each: each[0] != kind):
        here, patch = f"{path}.{member}", mutation.get(member)
        if name != kind:
            if patch is not None:
                errors.invalid(here, f"{{{member}}}", f"must not be specified when patchType is {kind}")
        elif patch is None:
            errors.required(here, f"must be specified when patchType is {kind}")
        else:
            _check_patch(errors, patch, here, environment, is_list=kind == "JSONPatch")


def _check_patch(errors: ErrorList, patch: Plain, path: str, environment: Environment, *, is_list: bool) -> None:
    source = (patch.get("expression") or "").strip()
    if source:
        check_expression(errors, f"{path}.expression", source, environment, list_of(JSON_PATCH) if is_list else OBJECT)
    else:
        errors.required(f"{path}.expression")
