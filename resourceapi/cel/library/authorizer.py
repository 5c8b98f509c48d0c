"""The functions of Kubernetes' authorizer, as declarations.

No environment for devices has an authorizer, so these never succeed; but their names are known, which shows in
messages, and a call on a value of unknown type is refused when it runs.
"""

from __future__ import annotations

from typing import Any

from resourceapi.cel.declarations import Function, Overload, group
from resourceapi.cel.values import no_such_overload


def _refuse(*_: Any) -> Any:
    raise no_such_overload()


_BUILDERS = (
    ("authorizer_path", "Authorizer.path(string) -> PathCheck"),
    ("authorizer_group", "Authorizer.group(string) -> GroupCheck"),
    ("authorizer_serviceaccount", "Authorizer.serviceAccount(string, string) -> Authorizer"),
    ("groupcheck_resource", "GroupCheck.resource(string) -> ResourceCheck"),
    ("resourcecheck_subresource", "ResourceCheck.subresource(string) -> ResourceCheck"),
    ("resourcecheck_namespace", "ResourceCheck.namespace(string) -> ResourceCheck"),
    ("resourcecheck_name", "ResourceCheck.name(string) -> ResourceCheck"),
    ("pathcheck_check", "PathCheck.check(string) -> Decision"),
    ("resourcecheck_check", "ResourceCheck.check(string) -> Decision"),
    ("decision_errored", "Decision.errored() -> bool"),
    ("decision_error", "Decision.error() -> string"),
    ("decision_allowed", "Decision.allowed() -> bool"),
    ("decision_reason", "Decision.reason() -> string"),
)
_SELECTORS = (
    ("authorizer_fieldselector", "ResourceCheck.fieldSelector(string) -> ResourceCheck"),
    ("authorizer_labelselector", "ResourceCheck.labelSelector(string) -> ResourceCheck"),
)


def functions() -> list[Function]:
    """Building a check and reading its decision."""
    return group(Overload(id_, signature, _refuse) for id_, signature in _BUILDERS)


def selectors() -> list[Function]:
    """Narrowing a check by field and label selectors."""
    return group(Overload(id_, signature, _refuse) for id_, signature in _SELECTORS)
