"""The rules of webhook configurations. This server does not call webhooks.

Source: k8s.io/kubernetes pkg/apis/admissionregistration/validation/validation.go.
"""

from collections.abc import Mapping
from functools import partial

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.rules.choices import check_optional_choice
from controlplane.apiserver.rules.label_rules import check_selector
from controlplane.apiserver.rules.policy_rules import check_conditions, check_rule
from controlplane.apiserver.rules.webhook_clients import REVIEWS, check_client, check_reviews
from controlplane.apiserver.unstructured_rules import Check
from resourceapi.objects import ErrorList
from resourceapi.objects.json_value import canonical
from resourceapi.objects.names import dns_subdomain

_FAILURES, _MATCHES = ["Fail", "Ignore"], ["Equivalent", "Exact"]
_EFFECTS = ["None", "NoneOnDryRun"]
_REINVOCATION_POLICIES = ["IfNeeded", "Never"]
_MAX_WAIT = 30
_NO_REVIEW = f"must specify one of {', '.join(REVIEWS)}"


def _webhooks(errors: ErrorList, new: Plain, old: Plain | None, *, is_mutating: bool) -> None:
    names: set[str] = set()
    before = {canonical(each) for each in (old or {}).get("webhooks") or ()}
    for index, webhook in enumerate(new.get("webhooks") or ()):
        path, name = f"webhooks[{index}]", webhook.get("name") or ""
        _check_name(errors, f"{path}.name", name)
        for number, rule in enumerate(webhook.get("rules") or ()):
            check_rule(errors, rule, f"{path}.rules[{number}]")
        _check_words(errors, webhook, path, is_mutating=is_mutating)
        check_client(errors, f"{path}.clientConfig", webhook.get("clientConfig") or {})
        if canonical(webhook) not in before:
            check_conditions(errors, webhook, f"{path}.matchConditions")
        versions = webhook.get("admissionReviewVersions") or []
        check_reviews(errors, f"{path}.admissionReviewVersions", versions, _NO_REVIEW, "characters")
        if name and name in names:
            errors.duplicate(f"{path}.name", name)
        names.add(name)


def _check_name(errors: ErrorList, path: str, name: str) -> None:
    """Check a domain with at least three parts."""
    if not name:
        errors.required(path)
    elif found := dns_subdomain(name):
        errors.invalid(path, name, ",".join(found))
    elif name.count(".") < 2:
        errors.invalid(path, name, "should be a domain with at least three segments separated by dots")


def _check_words(errors: ErrorList, webhook: Plain, path: str, *, is_mutating: bool) -> None:
    check_optional_choice(errors, f"{path}.failurePolicy", webhook.get("failurePolicy"), _FAILURES)
    check_optional_choice(errors, f"{path}.matchPolicy", webhook.get("matchPolicy"), _MATCHES)
    if webhook.get("sideEffects") is None:
        errors.required(f"{path}.sideEffects", f"must specify one of {', '.join(_EFFECTS)}")
    check_optional_choice(errors, f"{path}.sideEffects", webhook.get("sideEffects"), _EFFECTS)
    seconds = webhook.get("timeoutSeconds")
    if seconds is not None and not 1 <= seconds <= _MAX_WAIT:
        why = f"the timeout value must be between 1 and {_MAX_WAIT} seconds"
        errors.invalid(f"{path}.timeoutSeconds", seconds, why)
    for member in ("namespaceSelector", "objectSelector"):
        check_selector(errors, f"{path}.{member}", webhook.get(member))
    if is_mutating:
        check_optional_choice(
            errors, f"{path}.reinvocationPolicy", webhook.get("reinvocationPolicy"), _REINVOCATION_POLICIES
        )


CHECKS: Mapping[str, Check] = {
    "MutatingWebhookConfiguration": partial(_webhooks, is_mutating=True),
    "ValidatingWebhookConfiguration": partial(_webhooks, is_mutating=False),
}
"""Kind -> rules."""
