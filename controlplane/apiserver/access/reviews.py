"""Reviews, which are created but never stored: who am I, whose token is this, who can do what.

Source: k8s.io/api authentication/v1 and authorization/v1.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from controlplane.apiserver.access.authorization import Attributes, Authorizer
from controlplane.apiserver.access.identity import User
from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.status import bad_request, invalid
from resourceapi.objects import ErrorList, format_time

_LOCAL = "LocalSubjectAccessReview"
_AUTHENTICATION, _AUTHORIZATION = "authentication.k8s.io", "authorization.k8s.io"


class Unstored(NamedTuple):
    """A resource whose objects are created but never stored."""

    plural: str
    kind: str
    is_namespaced: bool = False


REVIEWS: Mapping[str, Mapping[str, tuple[Unstored, ...]]] = {
    _AUTHENTICATION: {
        "v1": (Unstored("selfsubjectreviews", "SelfSubjectReview"), Unstored("tokenreviews", "TokenReview")),
    },
    _AUTHORIZATION: {
        "v1": (
            Unstored("localsubjectaccessreviews", _LOCAL, is_namespaced=True),
            Unstored("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
            Unstored("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
            Unstored("subjectaccessreviews", "SubjectAccessReview"),
        )
    },
}
"""The reviews by group and version."""


def kind_of_review(group: str, version: str, resource: str, *, is_namespaced: bool) -> str:
    """Return the kind of a path's review; empty if it is none."""
    found = REVIEWS.get(group, {}).get(version, ())
    return next((each.kind for each in found if (each.plural, each.is_namespaced) == (resource, is_namespaced)), "")


def access_review(kind: str, question: Plain, requester: User, authorizer: Authorizer, namespace: str = "") -> Plain:
    """Return an access review with its answer. `namespace` is that of a local one. Raises ApiError."""
    spec = question.get("spec") or {}
    if kind == _LOCAL:
        _check_local(question, namespace)
    user = requester if kind == "SelfSubjectAccessReview" else _user_of(spec)
    decision = authorizer.decide(user, _attributes(spec))
    status: Plain = {"allowed": decision.is_allowed}
    if decision.reason:
        status["reason"] = decision.reason
    answer = _answer(_AUTHORIZATION, kind) | {"spec": spec, "status": status}
    return answer | ({"metadata": {"namespace": namespace}} if kind == _LOCAL else {})


def _check_local(question: Plain, namespace: str) -> None:
    """Check that a review is about one namespace. Raises ApiError."""
    spec, metadata, errors = question.get("spec") or {}, question.get("metadata") or {}, ErrorList()
    wanted, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    shown = None if other is None else {"Path": other.get("path") or "", "Verb": other.get("verb") or ""}
    if (wanted is None) == (other is None):
        errors.invalid("spec", shown, "exactly one of nonResourceAttributes or resourceAttributes must be specified")
    if not spec.get("user") and not spec.get("groups"):
        errors.invalid("spec.user", "", "at least one of user or group must be specified")
    own = metadata.get("namespace") or namespace
    if wanted is not None and (wanted.get("namespace") or "") != own:
        errors.invalid(
            "spec.resourceAttributes.namespace", wanted.get("namespace") or "", "must match metadata.namespace"
        )
    if other is not None:
        errors.invalid("spec.nonResourceAttributes", shown, "disallowed on this kind of request")
    if errors:
        raise invalid(_AUTHORIZATION, "", "", errors)  # a real server names no kind
    if own != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def rules_review(question: Plain, requester: User, authorizer: Authorizer) -> Plain:
    """Return a rules review with all that the requester can do in a namespace. Raises ApiError."""
    namespace = (question.get("spec") or {}).get("namespace")
    if not namespace:
        raise bad_request("no namespace on request")
    rules, missing = authorizer.rules(requester, namespace)
    found: Plain = {"resourceRules": [], "nonResourceRules": []}
    for rule in rules:
        if rule.get("nonResourceURLs"):
            found["nonResourceRules"].append(_only(rule, "verbs", "nonResourceURLs"))
        else:
            found["resourceRules"].append(_only(rule, "verbs", "apiGroups", "resources", "resourceNames"))
    status = found | {"incomplete": bool(missing)} | ({"evaluationError": missing} if missing else {})
    return _answer(_AUTHORIZATION, "SelfSubjectRulesReview") | {"spec": {}, "status": status}


def _only(rule: Plain, *members: str) -> Plain:
    return {name: rule[name] for name in members if rule.get(name)}


def subject_review(user: User, now: datetime) -> Plain:
    """Return a SelfSubjectReview with the user."""
    answer = _answer(_AUTHENTICATION, "SelfSubjectReview") | {"status": {"userInfo": _info(user)}}
    return answer | {"metadata": {"creationTimestamp": format_time(now)}}


def token_review(question: Plain, user: User | None, audience: str) -> Plain:
    """Return a TokenReview with the token's user."""
    status: Plain = {"authenticated": user is not None}
    if user is not None:
        status |= {"user": _info(user), "audiences": [audience]}
    else:
        status["error"] = "[invalid bearer token]"
    return _answer(_AUTHENTICATION, "TokenReview") | {"spec": question.get("spec") or {}, "status": status}


def _answer(group: str, kind: str) -> Plain:
    return {"kind": kind, "apiVersion": f"{group}/v1", "metadata": {}}


def _info(user: User) -> Plain:
    info: Plain = {"username": user.name, "uid": user.uid, "groups": list(user.groups)}
    info["extra"] = {key: list(values) for key, values in user.extra.items()}
    return {name: item for name, item in info.items() if item}


def _user_of(spec: Plain) -> User:
    extra = {key: tuple(values or ()) for key, values in (spec.get("extra") or {}).items()}
    return User(spec.get("user") or "", tuple(spec.get("groups") or ()), spec.get("uid") or "", extra)


def _attributes(spec: Plain) -> Attributes:
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None:
        names = ("verb", "group", "resource", "subresource", "namespace", "name")
        return Attributes(*(resource.get(name) or "" for name in names))
    if other is not None:
        return Attributes(other.get("verb") or "", path=other.get("path") or "")
    raise bad_request("exactly one of nonResourceAttributes or resourceAttributes must be specified")
