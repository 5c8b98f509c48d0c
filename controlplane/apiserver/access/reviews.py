"""Reviews, which are created but never stored: who am I, whose token is this, who can do what.

Source: k8s.io/api authentication/v1 and authorization/v1.
"""

from datetime import datetime

from controlplane.apiserver.access.authorization import Attributes, Authorizer
from controlplane.apiserver.access.identity import User
from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.status import bad_request
from resourceapi.objects import format_time

_AUTHENTICATION, _AUTHORIZATION = "authentication.k8s.io", "authorization.k8s.io"
REVIEWS = {
    _AUTHENTICATION: {
        "v1": [("selfsubjectreviews", "SelfSubjectReview"), ("tokenreviews", "TokenReview")],
    },
    _AUTHORIZATION: {
        "v1": [
            ("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
            ("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
            ("subjectaccessreviews", "SubjectAccessReview"),
        ]
    },
}
"""The reviews by group and version: resource and kind."""


def kind_of_review(group: str, version: str, resource: str) -> str:
    """Return the kind of a path's review; empty if it is none."""
    return dict(REVIEWS.get(group, {}).get(version, ())).get(resource, "")


def access_review(kind: str, question: Plain, requester: User, authorizer: Authorizer) -> Plain:
    """Return an access review with its answer. Raises ApiError."""
    spec = question.get("spec") or {}
    user = requester if kind == "SelfSubjectAccessReview" else _user_of(spec)
    decision = authorizer.decide(user, _attributes(spec))
    status: Plain = {"allowed": decision.is_allowed}
    if decision.reason:
        status["reason"] = decision.reason
    return _answer(_AUTHORIZATION, kind) | {"spec": spec, "status": status}


def rules_review(question: Plain, requester: User, authorizer: Authorizer) -> Plain:
    """Return a rules review with all that the asker can do in a namespace. Raises ApiError."""
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
