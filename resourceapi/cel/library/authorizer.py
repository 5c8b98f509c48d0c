"""Kubernetes' authorizer: authorization requests that an expression builds step by step, and their decisions.

`authorizer.group('').resource('pods').namespace('x').check('get').allowed()`. The caller of the evaluation provides the
variable: an `Authorizer` with a function that decides. Environments for devices do not have the variable, but declare
the functions, which affects error messages. Source: k8s.io/apiserver/pkg/cel/library, authz.go and its selectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from resourceapi.cel.declarations import Function, Overload, group
from resourceapi.cel.errors import CelEvalError
from resourceapi.cel.types import Kind, Type
from resourceapi.cel.values import no_such_overload, register_type
from resourceapi.objects.names import dns_label, dns_subdomain

_PACKAGE = "kubernetes.authorization"
AUTHORIZER = Type(Kind.STRUCT, f"{_PACKAGE}.Authorizer")
RESOURCE_CHECK = Type(Kind.STRUCT, f"{_PACKAGE}.ResourceCheck")


class Question(NamedTuple):
    """An authorization request: whether a verb is allowed on a resource, or on a non-resource `path`.

    `account` is the namespace and name of the service account to check instead of the request's user.
    """

    account: tuple[str, str] | None = None
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    verb: str = ""


class Decision(NamedTuple):
    """The decision, its reason, and the error of the authorization if there was one."""

    is_allowed: bool
    reason: str = ""
    error: str = ""


Decide: TypeAlias = Callable[[Question], Decision]


_NOTHING = Question()


class _Part:
    """An unfinished authorization request, as a value of the language."""

    __slots__ = ("decide", "question")

    def __init__(self, decide: Decide, question: Question = _NOTHING) -> None:
        self.decide, self.question = decide, question


class Authorizer(_Part):
    """The variable `authorizer`."""

    __slots__ = ()


class PathCheck(_Part):
    """A request about a non-resource path."""

    __slots__ = ()


class GroupCheck(_Part):
    """A request about an API group, before its resource is set."""

    __slots__ = ()


class ResourceCheck(_Part):
    """A request about a resource; also the type of the variable `authorizer.requestResource`."""

    __slots__ = ()


for _python in (Authorizer, PathCheck, GroupCheck, ResourceCheck, Decision):
    register_type(_python, f"{_PACKAGE}.{_python.__name__}", f"library.{_python.__name__}", lambda a, b: a is b)


def _asked(part: Any, **more: Any) -> Question:
    if not isinstance(part, _Part):
        raise no_such_overload()
    return part.question._replace(**more)


def _path(of: Any, path: str) -> PathCheck:
    question = _asked(of, path=path)
    if not path:
        raise CelEvalError("path must not be empty")
    return PathCheck(of.decide, question)


def _service_account(of: Any, namespace: str, name: str) -> Authorizer:
    if dns_subdomain(name):
        raise CelEvalError("Invalid service account name")
    if dns_label(namespace):
        raise CelEvalError("Invalid service account namespace")
    return Authorizer(of.decide, _asked(of, account=(namespace, name)))


def _group(of: Any, name: str) -> GroupCheck:
    return GroupCheck(of.decide, _asked(of, group=name))


def _with(field: str) -> Callable[[Any, str], ResourceCheck]:
    return lambda of, text: ResourceCheck(of.decide, _asked(of, **{field: text}))


def _narrowed(of: Any, _selector: str) -> ResourceCheck:
    """Return the request unchanged: RBAC roles do not support selectors."""
    return ResourceCheck(of.decide, _asked(of))


def _check(of: Any, verb: str) -> Decision:
    decision: Decision = of.decide(_asked(of, verb=verb))
    return decision


_BUILDERS: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    ("authorizer_path", "Authorizer.path(string) -> PathCheck", _path),
    ("authorizer_group", "Authorizer.group(string) -> GroupCheck", _group),
    ("authorizer_serviceaccount", "Authorizer.serviceAccount(string, string) -> Authorizer", _service_account),
    ("groupcheck_resource", "GroupCheck.resource(string) -> ResourceCheck", _with("resource")),
    ("resourcecheck_subresource", "ResourceCheck.subresource(string) -> ResourceCheck", _with("subresource")),
    ("resourcecheck_namespace", "ResourceCheck.namespace(string) -> ResourceCheck", _with("namespace")),
    ("resourcecheck_name", "ResourceCheck.name(string) -> ResourceCheck", _with("name")),
    ("pathcheck_check", "PathCheck.check(string) -> Decision", _check),
    ("resourcecheck_check", "ResourceCheck.check(string) -> Decision", _check),
    ("decision_errored", "Decision.errored() -> bool", lambda decision: bool(decision.error)),
    ("decision_error", "Decision.error() -> string", lambda decision: decision.error),
    ("decision_allowed", "Decision.allowed() -> bool", lambda decision: decision.is_allowed),
    ("decision_reason", "Decision.reason() -> string", lambda decision: decision.reason),
)
_SELECTORS = (
    ("authorizer_fieldselector", "ResourceCheck.fieldSelector(string) -> ResourceCheck"),
    ("authorizer_labelselector", "ResourceCheck.labelSelector(string) -> ResourceCheck"),
)


def functions() -> list[Function]:
    """The functions that build an authorization request and read its decision."""
    return group(Overload(id_, signature, run) for id_, signature, run in _BUILDERS)


def selectors() -> list[Function]:
    """The functions that add field and label selectors to an authorization request."""
    return group(Overload(id_, signature, _narrowed) for id_, signature in _SELECTORS)
