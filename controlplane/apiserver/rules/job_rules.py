"""The rules of Jobs, including those in CronJobs.

Source: k8s.io/kubernetes pkg/apis/batch/validation/validation.go.
"""

from collections.abc import Set
from typing import Any

from controlplane.apiserver.internal_types import internal_form
from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.pods.templates import check_pod_template
from controlplane.apiserver.rules.auxiliary_rules import not_negative
from controlplane.apiserver.rules.choices import check_optional_choice
from controlplane.apiserver.rules.prefixed_paths import check_prefixed
from resourceapi.objects import ErrorList, quoted_text
from resourceapi.objects.errors import OMITTED, Token
from resourceapi.objects.field_rules import add_invalid
from resourceapi.objects.json_value import json_equal
from resourceapi.objects.names import dns_label, label_key
from resourceapi.objects.release import Release

_ALWAYS, _ON_FAILURE, _NEVER = "Always", "OnFailure", "Never"
_COUNTS = (
    *("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"),
    *("backoffLimitPerIndex", "maxFailedIndexes"),
)
_ACTIONS = ["Count", "FailIndex", "FailJob", "Ignore"]
_STATUSES = ["False", "True", "Unknown"]
_REPLACEMENTS = ["Failed", "TerminatingOrFailed"]
_MAX_RULES, _MAX_CODES, _MAX_PATTERNS, _MAX_MANAGER_LENGTH = 20, 255, 20, 63
_MAX_PARALLELISM, _MANY_COMPLETIONS, _MAX_IF_MANY_COMPLETIONS = 100_000, 100_000, 10_000
"""Most parallel pods of an indexed Job; completions that count as many; limit of other values with that many."""
_IF_MANY_COMPLETIONS = f"when completions are above {_MANY_COMPLETIONS} and used with backoff limit per index"
_FIXED = ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy")


def check_job_spec(errors: ErrorList, spec: Plain, path: str, release: Release) -> None:
    """Check the spec of a Job: its counts, its policies for failed pods, and its pod template."""
    for name in _COUNTS:
        not_negative(errors, f"{path}.{name}", spec.get(name))
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        errors.required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    manager = spec.get("managedBy")
    if manager is not None:
        check_prefixed(errors, f"{path}.managedBy", manager)
        if len(manager.encode()) > _MAX_MANAGER_LENGTH:
            errors.too_long(f"{path}.managedBy", _MAX_MANAGER_LENGTH)
    mode = spec.get("completionMode")
    check_optional_choice(errors, f"{path}.completionMode", mode, ["NonIndexed", "Indexed"])
    if mode == "Indexed":
        _check_indexed(errors, spec, path)
    for name in ("backoffLimitPerIndex", "maxFailedIndexes") if mode in (None, "NonIndexed") else ():
        if spec.get(name) is not None:
            errors.invalid(f"{path}.{name}", spec[name], "requires indexed completion mode")
    if spec.get("podFailurePolicy") is not None:
        _check_failures(errors, spec, f"{path}.podFailurePolicy.rules")
    success = spec.get("successPolicy")
    if success is not None and mode != "Indexed":
        shown = internal_form("batch.SuccessPolicy", success, release)
        errors.invalid(f"{path}.successPolicy", shown, "requires indexed completion mode")
    elif success is not None:
        _check_success(errors, success.get("rules") or [], spec.get("completions") or 0, f"{path}.successPolicy.rules")
    known = _REPLACEMENTS if spec.get("podFailurePolicy") is None else _REPLACEMENTS[:1]
    check_optional_choice(errors, f"{path}.podReplacementPolicy", spec.get("podReplacementPolicy"), known)
    _check_pod(errors, spec, f"{path}.template")


def check_names_of_pods(errors: ErrorList, name: str, spec: Plain) -> None:
    """Check that the last pod of an indexed Job can have a valid name."""
    completions = spec.get("completions") or 0
    last = f"{name}-{completions - 1}"
    if spec.get("completionMode") == "Indexed" and completions > 0 and dns_label(last):
        errors.invalid("metadata.name", name, f"will not able to create pod with invalid DNS label: {last}")


def check_job_status(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    """Check the status of a Job. Its succeeded count can only decrease if it is indexed and can shrink."""
    spec, status, before = new["spec"], new["status"], (old or {}).get("status") or {}
    for name in ("active", "succeeded", "failed", "ready", "terminating"):
        not_negative(errors, f"status.{name}", status.get(name))
    if (status.get("ready") or 0) > (status.get("active") or 0) and status.get("ready") != before.get("ready"):
        errors.invalid("status.ready", status["ready"], "cannot set more ready pods than active")
    shrinks = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    for name in ("failed",) if shrinks else ("failed", "succeeded"):
        if (status.get(name) or 0) < (before.get(name) or 0):
            errors.invalid(f"status.{name}", status.get(name) or 0, f"cannot decrease the {name} counter")


def _check_indexed(errors: ErrorList, spec: Plain, path: str) -> None:
    at_once, completions, failed = (spec.get(name) for name in ("parallelism", "completions", "maxFailedIndexes"))
    if completions is None:
        errors.required(f"{path}.completions", "when completion mode is Indexed")
    if at_once is not None and at_once > _MAX_PARALLELISM:
        why = f"must be less than or equal to {_MAX_PARALLELISM} when completion mode is Indexed"
        errors.invalid(f"{path}.parallelism", at_once, why)
    if failed is not None and completions is not None and failed > completions:
        errors.invalid(f"{path}.maxFailedIndexes", failed, "must be less than or equal to completions")
    if failed is not None and failed > _MAX_PARALLELISM:
        errors.invalid(f"{path}.maxFailedIndexes", failed, f"must be less than or equal to {_MAX_PARALLELISM}")
    if completions is None or completions <= _MANY_COMPLETIONS or spec.get("backoffLimitPerIndex") is None:
        return
    if failed is None:
        errors.required(f"{path}.maxFailedIndexes", f"must be specified when completions is above {_MANY_COMPLETIONS}")
    for name, value in (("parallelism", at_once), ("maxFailedIndexes", failed)):
        if value is not None and value > _MAX_IF_MANY_COMPLETIONS:
            errors.invalid(
                f"{path}.{name}",
                value,
                f"must be less than or equal to {_MAX_IF_MANY_COMPLETIONS} {_IF_MANY_COMPLETIONS}",
            )


def _check_failures(errors: ErrorList, spec: Plain, path: str) -> None:
    rules, pod = spec["podFailurePolicy"].get("rules") or [], spec["template"].get("spec") or {}
    if len(rules) > _MAX_RULES:
        errors.too_many(path, len(rules), _MAX_RULES)
    names = {each.get("name") for member in ("containers", "initContainers") for each in pod.get(member) or ()}
    for index, rule in enumerate(rules):
        here, action = f"{path}[{index}]", rule.get("action") or ""
        if not action:
            errors.required(f"{here}.action", f"valid values: {_listed(_ACTIONS)}")
        elif action == "FailIndex":
            if spec.get("backoffLimitPerIndex") is None:
                errors.invalid(f"{here}.action", action, "requires the backoffLimitPerIndex to be set")
        elif action not in _ACTIONS:
            errors.not_supported(f"{here}.action", action, _ACTIONS)
        codes, patterns = rule.get("onExitCodes"), rule.get("onPodConditions") or []
        if codes is not None:
            _check_codes(errors, codes, f"{here}.onExitCodes", names)
        _check_patterns(errors, patterns, f"{here}.onPodConditions")
        if codes is not None and patterns:
            errors.invalid(here, OMITTED, "specifying both OnExitCodes and OnPodConditions is not supported")
        if codes is None and not patterns:
            errors.invalid(here, OMITTED, "specifying one of OnExitCodes and OnPodConditions is required")


def _listed(words: list[str]) -> str:
    """Words as Go prints a list."""
    return f"[{' '.join(map(quoted_text, words))}]"


def _check_codes(errors: ErrorList, codes: Plain, path: str, names: Set[Any]) -> None:
    operator, values = codes.get("operator") or "", codes.get("values") or []
    if not operator:
        errors.required(f"{path}.operator", f"valid values: {_listed(['In', 'NotIn'])}")
    elif operator not in ("In", "NotIn"):
        errors.not_supported(f"{path}.operator", operator, ["In", "NotIn"])
    if codes.get("containerName") is not None and codes["containerName"] not in names:
        why = "must be one of the container or initContainer names in the pod template"
        errors.invalid(f"{path}.containerName", codes["containerName"], why)
    if not values:
        errors.invalid(f"{path}.values", codes.get("values"), "at least one value is required")
    elif len(values) > _MAX_CODES:
        errors.too_many(f"{path}.values", len(values), _MAX_CODES)
    seen: set[int] = set()
    for index, value in enumerate(values):
        if operator == "In" and value == 0:
            errors.invalid(f"{path}.values[{index}]", value, "must not be 0 for the In operator")
        if value in seen:
            errors.duplicate(f"{path}.values[{index}]", value)
        seen.add(value)
    if values != sorted(values):
        errors.invalid(f"{path}.values", values, "must be ordered")


def _check_patterns(errors: ErrorList, patterns: list[Plain], path: str) -> None:
    if len(patterns) > _MAX_PATTERNS:
        errors.too_many(path, len(patterns), _MAX_PATTERNS)
    for index, pattern in enumerate(patterns):
        kind, status, here = pattern.get("type") or "", pattern.get("status") or "", f"{path}[{index}]"
        add_invalid(errors, f"{here}.type", kind, label_key(kind))
        if not status:
            errors.required(f"{here}.status", f"valid values: {_listed(_STATUSES)}")
        elif status not in _STATUSES:
            errors.not_supported(f"{here}.status", status, _STATUSES)


def _check_success(errors: ErrorList, rules: list[Plain], completions: int, path: str) -> None:
    if not rules:
        errors.required(path, "at least one rules must be specified when the successPolicy is specified")
    if len(rules) > _MAX_RULES:
        errors.too_many(path, len(rules), _MAX_RULES)
    for index, rule in enumerate(rules):
        here, count = f"{path}[{index}]", rule.get("succeededCount")
        if count is None and rule.get("succeededIndexes") is None:
            errors.required(here, "at least one of succeededCount or succeededIndexes must be specified")
        not_negative(errors, f"{here}.succeededCount", count)
        if count is not None and count > completions:
            why = f"must be less than or equal to {completions} (the number of specified completions)"
            errors.invalid(f"{here}.succeededCount", count, why)


def _check_pod(errors: ErrorList, spec: Plain, path: str) -> None:
    """Check the pod template, whose pods have to end."""
    template = spec.get("template") or {}
    check_pod_template(errors, template, path)
    policy, here = (template.get("spec") or {}).get("restartPolicy", _ALWAYS), f"{path}.spec.restartPolicy"
    if policy in (_ALWAYS, ""):
        errors.required(here, f'valid values: "{_ON_FAILURE}", "{_NEVER}"')
    elif policy not in (_ON_FAILURE, _NEVER):
        errors.not_supported(here, policy, [_ON_FAILURE, _NEVER])
    elif spec.get("podFailurePolicy") is not None and policy != _NEVER:
        errors.invalid(here, policy, f'only "{_NEVER}" is supported when podFailurePolicy is specified')


def check_job_change(errors: ErrorList, new: Plain, old: Plain, release: Release) -> None:
    """Check the immutable fields of a Job. Completions of an indexed Job can change together with its parallelism."""
    shown = internal_form("batch.JobSpec", new, release)
    completions, before = new.get("completions"), old.get("completions")
    is_changed = completions != before
    if is_changed and new.get("completionMode") != "Indexed":
        errors.invalid("spec.completions", completions, "field is immutable")
    elif is_changed and completions is not None and new.get("parallelism") != completions:
        errors.invalid("spec.completions", completions, "can only be modified in tandem with spec.parallelism")
    for name in _FIXED:
        if not json_equal(new.get(name), old.get(name)):
            value = shown[name[0].upper() + name[1:]]
            errors.invalid(f"spec.{name}", Token(value) if name == "completionMode" else value, "field is immutable")
