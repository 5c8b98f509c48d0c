"""The rules of roles and their bindings. Source: k8s.io/kubernetes pkg/apis/rbac/validation/validation.go."""

from collections.abc import Mapping
from functools import partial

from controlplane.apiserver.internal_types import internal_form
from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.rules.label_rules import check_selector
from controlplane.apiserver.unstructured_rules import Check
from resourceapi.objects import ErrorList
from resourceapi.objects.field_rules import add_invalid
from resourceapi.objects.json_value import json_equal
from resourceapi.objects.names import dns_subdomain, path_segment
from resourceapi.objects.release import Release

GROUP = "rbac.authorization.k8s.io"
_SUBJECTS = ["ServiceAccount", "User", "Group"]
_ONE_SELECTOR = "at least one clusterRoleSelector required if aggregationRule is non-nil"
_BOTH = "rules cannot apply to both regular resources and non-resource URLs"


def _role(errors: ErrorList, new: Plain, old: Plain | None, *, release: Release, is_namespaced: bool) -> None:
    del old
    for index, rule in enumerate(new.get("rules") or ()):
        _check_rule(errors, rule, f"rules[{index}]", release, is_namespaced=is_namespaced)
    aggregated = new.get("aggregationRule")
    if aggregated is None:
        return
    path, selectors = "aggregationRule.clusterRoleSelectors", aggregated.get("clusterRoleSelectors") or ()
    if not selectors:
        errors.required(path, _ONE_SELECTOR)
    for index, selector in enumerate(selectors):
        found = ErrorList()
        check_selector(found, f"{path}[{index}]", selector)
        errors.extend(found)
        if found:
            errors.invalid(f"{path}[{index}]", None, "invalid label selector.")


def _check_rule(errors: ErrorList, rule: Plain, path: str, release: Release, *, is_namespaced: bool) -> None:
    if not rule.get("verbs"):
        errors.required(f"{path}.verbs", "" if release.has_declared_rules else "verbs must contain at least one value")
    urls = rule.get("nonResourceURLs")
    if urls:
        if is_namespaced:
            why = "namespaced rules cannot apply to non-resource URLs"
            errors.invalid(f"{path}.nonResourceURLs", urls, why)
        if any(rule.get(name) for name in ("apiGroups", "resources", "resourceNames")):
            errors.invalid(f"{path}.nonResourceURLs", urls, _BOTH)
        return
    if not rule.get("apiGroups"):
        errors.required(f"{path}.apiGroups", "resource rules must supply at least one api group")
    if not rule.get("resources"):
        errors.required(f"{path}.resources", "resource rules must supply at least one resource")


def _binding(errors: ErrorList, new: Plain, old: Plain | None, *, kinds: list[str], release: Release) -> None:
    """`kinds` are the kinds of roles to which it can refer; a RoleBinding can refer to two."""
    role = new.get("roleRef") or {}
    if role.get("apiGroup") != GROUP:
        errors.not_supported("roleRef.apiGroup", role.get("apiGroup") or "", [GROUP], is_named=False)
    if role.get("kind") not in kinds:
        errors.not_supported("roleRef.kind", role.get("kind") or "", kinds, is_named=False)
    if not role.get("name"):
        errors.required("roleRef.name")
    else:
        add_invalid(errors, "roleRef.name", role["name"], path_segment(role["name"]))
    for index, subject in enumerate(new.get("subjects") or ()):
        _check_subject(errors, subject, f"subjects[{index}]", is_namespaced=len(kinds) > 1)
    if old is not None and not json_equal(role, old.get("roleRef")):
        why = "field is immutable" if release.has_declared_rules else "cannot change roleRef"
        errors.invalid("roleRef", internal_form("rbac.RoleRef", role), why)


def _check_subject(errors: ErrorList, subject: Plain, path: str, *, is_namespaced: bool) -> None:
    name, kind, group = (subject.get(member) or "" for member in ("name", "kind", "apiGroup"))
    if not name:
        errors.required(f"{path}.name")
    if kind == "ServiceAccount":
        if name:
            add_invalid(errors, f"{path}.name", name, dns_subdomain(name))
        if group:
            errors.not_supported(f"{path}.apiGroup", group, [""], is_named=False)
        if not is_namespaced and not subject.get("namespace"):
            errors.required(f"{path}.namespace")
    elif kind not in _SUBJECTS:
        errors.not_supported(f"{path}.kind", kind, _SUBJECTS, is_named=False)
    elif group != GROUP:
        errors.not_supported(f"{path}.apiGroup", group, [GROUP], is_named=False)


def checks(release: Release) -> Mapping[str, Check]:
    """Return the rules by kind, as a release has them."""
    return {
        "ClusterRole": partial(_role, release=release, is_namespaced=False),
        "ClusterRoleBinding": partial(_binding, release=release, kinds=["ClusterRole"]),
        "Role": partial(_role, release=release, is_namespaced=True),
        "RoleBinding": partial(_binding, release=release, kinds=["Role", "ClusterRole"]),
    }
