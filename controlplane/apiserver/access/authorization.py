"""Authorization: the attributes of a request, and RBAC, which decides by roles and their bindings.

Source: kubernetes.io "Using RBAC Authorization", "Authorization" (request attributes); the texts are upstream's.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, Protocol

from controlplane.apiserver.access.identity import AUTHENTICATED, MASTERS, UNAUTHENTICATED, User
from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.status import ApiError, forbidden
from controlplane.apiserver.store import Store

_GROUP = "rbac.authorization.k8s.io"
VERBS: Mapping[str, str] = {
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
    "GET": "get",
    "HEAD": "get",
}
"""HTTP method -> verb."""
_NAMED = re.compile(r"(?:\A|,)metadata\.name=([^,]+)(?:,|\Z)")


AuthorizationMode = Literal["AlwaysAllow", "RBAC"]


class Attributes(NamedTuple):
    """What a request wants to do: a verb on a resource, or on a `path` that is no resource."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


class Decision(NamedTuple):
    """Whether a request is allowed, and the reason."""

    is_allowed: bool
    reason: str = ""


class Authorizer(Protocol):
    """Decides whether a user can do something."""

    def decide(self, user: User, attributes: Attributes) -> Decision:
        """Return the decision for a user and the attributes of a request."""

    def rules(self, user: User, namespace: str) -> tuple[list[Plain], str]:
        """Return all rules that apply to a user in a namespace, and the errors in the roles; empty if none."""


class AlwaysAllow(Authorizer):
    """Allows everything."""

    def decide(self, user: User, attributes: Attributes) -> Decision:
        del user, attributes
        return Decision(is_allowed=True)

    def rules(self, user: User, namespace: str) -> tuple[list[Plain], str]:
        del user, namespace
        return _allow_all_rules(), ""


class Rbac(Authorizer):
    """Decides by the stored roles and bindings. Only system:masters is allowed everything without a role."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def decide(self, user: User, attributes: Attributes) -> Decision:
        """Return the decision. The reason of a refusal names missing roles to which bindings refer."""
        if MASTERS in user.groups:
            return Decision(is_allowed=True)
        missing: list[str] = []
        for rule in self._rules(user, attributes.namespace, missing):
            if _allows(rule, attributes):
                return Decision(is_allowed=True)
        return Decision(is_allowed=False, reason=f"RBAC: {_joined_errors(missing)}" if missing else "")

    def rules(self, user: User, namespace: str) -> tuple[list[Plain], str]:
        """Return the rules of all roles that are bound to the user, unchanged."""
        missing: list[str] = []
        return list(self._rules(user, namespace, missing)), _joined_errors(missing) if missing else ""

    def _rules(self, user: User, namespace: str, missing: list[str]) -> Iterator[Plain]:
        for binding in self._store.objects(f"clusterrolebindings.{_GROUP}"):
            if _is_subject(user, binding, ""):
                yield from self._rules_of(binding.get("roleRef") or {}, "", missing)
        if not namespace:
            return
        for binding in self._store.objects(f"rolebindings.{_GROUP}"):
            if binding["metadata"].get("namespace") == namespace and _is_subject(user, binding, namespace):
                yield from self._rules_of(binding.get("roleRef") or {}, namespace, missing)

    def _rules_of(self, reference: Plain, namespace: str, missing: list[str]) -> list[Plain]:
        kind, name = reference.get("kind"), str(reference.get("name"))
        if kind == "Role" and namespace:
            found = self._store.get(f"roles.{_GROUP}", (namespace, name))
        else:
            found = self._store.get(f"clusterroles.{_GROUP}", ("", name)) if kind == "ClusterRole" else None
        if found is None:
            missing.append(f'{str(kind).lower()}.{_GROUP} "{name}" not found')
            return []
        return [rule for rule in found.get("rules") or () if isinstance(rule, dict)]


def attributes_of(method: str, steps: list[str], query: Mapping[str, str]) -> Attributes:
    """Return the attributes of a request, from the steps of its path and its query."""
    path, verb = "/" + "/".join(steps), VERBS.get(method, method.lower())
    if steps[:1] == ["api"]:
        group, rest = "", steps[2:]
    elif steps[:1] == ["apis"]:
        group, rest = (steps[1] if len(steps) > 1 else ""), steps[3:]
    else:
        rest, group = [], ""
    if not rest:
        return Attributes(method.lower(), path=path)
    is_watch, namespace = query.get("watch") in ("1", "true"), ""
    if rest[0] == "watch" and len(rest) > 1:
        is_watch, rest = True, rest[1:]
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    resource, name, subresource = (*rest[:3], "", "")[:3]
    if rest[0] == "namespaces" and name:
        namespace = name
    if method in ("GET", "HEAD") and is_watch:
        verb = "watch"
    elif not name and verb in ("get", "delete"):
        verb = "list" if verb == "get" else "deletecollection"
    if verb in ("list", "watch", "deletecollection") and not name:
        named = _NAMED.search(query.get("fieldSelector", ""))
        name = named[1] if named else ""
    return Attributes(verb, group, resource, subresource, namespace, name)


def refusal(user: User, attributes: Attributes, reason: str) -> ApiError:
    """Return the error 403 for something that a user cannot do."""
    text = denial_text(user, attributes, reason)
    if attributes.path:
        return ApiError(403, f"forbidden: {text}", "Forbidden", {})
    if not attributes.name:
        resource = f"{attributes.resource}.{attributes.group}" if attributes.group else attributes.resource
        details = {"group": attributes.group, "kind": attributes.resource}
        known = {key: value for key, value in details.items() if value}
        return ApiError(403, f"{resource} is forbidden: {text}", "Forbidden", known)
    return forbidden(attributes.group, attributes.resource, attributes.name, text)


def denial_text(user: User, attributes: Attributes, reason: str = "") -> str:
    """Return upstream's text about what a user cannot do."""
    if attributes.path:
        text = f'User "{user.name}" cannot {attributes.verb} path "{attributes.path}"'
    else:
        resource = f"{attributes.resource}/{attributes.subresource}" if attributes.subresource else attributes.resource
        where = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
        what = f'resource "{resource}" in API group "{attributes.group}"'
        text = f'User "{user.name}" cannot {attributes.verb} {what} {where}'
    return f"{text}: {reason}" if reason else text


def first_roles() -> list[Plain]:
    """Return the roles and bindings of a new cluster: for administrators, and for what every user can request."""
    return [
        _cluster_role("cluster-admin", _allow_all_rules()),
        _cluster_role_binding("cluster-admin", MASTERS),
        _cluster_role(
            "system:basic-user",
            [
                _rule(["authorization.k8s.io"], ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], ["create"]),
                _rule(["authentication.k8s.io"], ["selfsubjectreviews"], ["create"]),
            ],
        ),
        _cluster_role_binding("system:basic-user", AUTHENTICATED),
        _cluster_role("system:discovery", [{"nonResourceURLs": list(_DISCOVERY), "verbs": ["get"]}]),
        _cluster_role_binding("system:discovery", AUTHENTICATED),
        _cluster_role("system:public-info-viewer", [{"nonResourceURLs": list(_PUBLIC), "verbs": ["get"]}]),
        _cluster_role_binding("system:public-info-viewer", AUTHENTICATED, UNAUTHENTICATED),
    ]


_DISCOVERY = (
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
)


_PUBLIC = ("/healthz", "/livez", "/readyz", "/version", "/version/")


def _rule(groups: list[str], resources: list[str], verbs: list[str]) -> Plain:
    return {"apiGroups": groups, "resources": resources, "verbs": verbs}


def _cluster_role(name: str, rules: list[Plain]) -> Plain:
    return {"apiVersion": f"{_GROUP}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}


def _cluster_role_binding(name: str, *groups: str) -> Plain:
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": _GROUP, "kind": "Group", "name": group} for group in groups],
    }


def _allow_all_rules() -> list[Plain]:
    return [_rule(["*"], ["*"], ["*"]), {"nonResourceURLs": ["*"], "verbs": ["*"]}]


def _is_subject(user: User, binding: Plain, namespace: str) -> bool:
    for subject in binding.get("subjects") or ():
        kind, name = subject.get("kind"), subject.get("name")
        if kind == "User" and name == user.name:
            return True
        if kind == "Group" and name in user.groups:
            return True
        where = subject.get("namespace") or namespace
        if kind == "ServiceAccount" and user.name == f"system:serviceaccount:{where}:{name}":
            return True
    return False


def _allows(rule: Plain, attributes: Attributes) -> bool:
    if not _has(rule, "verbs", attributes.verb):
        return False
    if attributes.path:
        urls = rule.get("nonResourceURLs") or ()
        return any(
            url == attributes.path or (url.endswith("*") and attributes.path.startswith(url[:-1])) for url in urls
        )
    resources = rule.get("resources") or ()
    resource = f"{attributes.resource}/{attributes.subresource}" if attributes.subresource else attributes.resource
    is_resource_matched = "*" in resources or resource in resources
    if attributes.subresource and f"*/{attributes.subresource}" in resources:
        is_resource_matched = True
    named = rule.get("resourceNames") or ()
    return is_resource_matched and _has(rule, "apiGroups", attributes.group) and (not named or attributes.name in named)


def _has(rule: Plain, member: str, value: str) -> bool:
    found: Any = rule.get(member) or ()
    return "*" in found or value in found


def _joined_errors(texts: list[str]) -> str:
    once = list(dict.fromkeys(texts))
    return once[0] if len(once) == 1 else f"[{', '.join(once)}]"
