"""The rules of workloads: the selector has to match the labels of the template, and is immutable.

Source: k8s.io/kubernetes pkg/apis/apps/validation, batch/validation and the strategies of pkg/registry/apps.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from controlplane.apiserver.go_values import in_order
from controlplane.apiserver.internal_types import internal_form, published
from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.labels import is_selected
from controlplane.apiserver.pods.templates import check_pod_template
from controlplane.apiserver.rules.auxiliary_rules import int_or_percent, not_above_all, not_negative, percent
from controlplane.apiserver.rules.claim_rules import check_claim_spec
from controlplane.apiserver.rules.cron_schedules import schedule_fault, zone_fault
from controlplane.apiserver.rules.job_rules import check_job_change, check_job_spec, check_names_of_pods
from controlplane.apiserver.rules.label_rules import check_selector
from controlplane.apiserver.rules.workload_defaults import NAME_LABELS, UID_LABELS
from controlplane.apiserver.unstructured_rules import Check
from resourceapi.objects import ErrorList
from resourceapi.objects.errors import InOrder
from resourceapi.objects.field_rules import add_invalid
from resourceapi.objects.json_value import json_equal
from resourceapi.objects.names import dns_label
from resourceapi.objects.release import Release

_ALWAYS = "Always"
_IMMUTABLE = "field is immutable"
_NO_MATCH = "`selector` does not match template `labels`"
_FREE_OF_SETS = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)
_FIXED_SET = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy',"
    " 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)
_MAX_CRON_JOB_NAME = 52  # characters of a name, to which its jobs' names add eleven
_ORDERS = ("OrderedReady", "Parallel")


def _replicated(errors: ErrorList, new: Plain, old: Plain | None, *, kind: str) -> None:
    """Check a Deployment or a ReplicaSet."""
    spec, is_deployment = new["spec"], kind == "Deployment"
    not_negative(errors, "spec.replicas", spec.get("replicas"))
    not_negative(errors, "spec.minReadySeconds", spec.get("minReadySeconds"))
    _check_own_selector(errors, spec, "deployment")  # upstream has this text for replica sets too
    _check_template(errors, spec, "ReplicaSet")
    if is_deployment:
        not_negative(errors, "spec.revisionHistoryLimit", spec.get("revisionHistoryLimit"))
        _check_strategy(errors, spec.get("strategy") or {})
        deadline = spec.get("progressDeadlineSeconds", 0)
        not_negative(errors, "spec.progressDeadlineSeconds", deadline)
        if isinstance(deadline, int) and deadline <= spec.get("minReadySeconds", 0):
            errors.invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")
    if old is not None:
        _check_unchanged(errors, "spec.selector", spec.get("selector"), old["spec"].get("selector"))


def _stateful_set(errors: ErrorList, new: Plain, old: Plain | None, *, names_fields: bool) -> None:
    """`names_fields`: the error names each immutable field that changed, not the fields that can change."""
    spec, before = new["spec"], (old or {}).get("spec") or {}
    if spec.get("podManagementPolicy") not in _ORDERS:
        policy = spec.get("podManagementPolicy") or ""
        errors.invalid("spec.podManagementPolicy", policy, f"must be '{_ORDERS[0]}' or '{_ORDERS[1]}'")
    _check_sets_strategy(errors, spec.get("updateStrategy") or {}, "spec.updateStrategy")
    for name, policy in (spec.get("persistentVolumeClaimRetentionPolicy") or {}).items():
        if policy not in ("Retain", "Delete"):
            errors.not_supported(f"spec.persistentVolumeClaimRetentionPolicy.{name}", policy, ["Retain", "Delete"])
    for index, claim in enumerate(spec.get("volumeClaimTemplates") or () if old is None else ()):
        check_claim_spec(errors, claim.get("spec") or {}, f"spec.volumeClaimTemplates[{index}].spec")
    not_negative(errors, "spec.replicas", spec.get("replicas"))
    not_negative(errors, "spec.minReadySeconds", spec.get("minReadySeconds"))
    not_negative(errors, "spec.ordinals.start", (spec.get("ordinals") or {}).get("start"))
    if old is None and spec.get("serviceName"):
        add_invalid(errors, "spec.serviceName", spec["serviceName"], dns_label(spec["serviceName"]))
    _check_own_selector(errors, spec, "statefulset")
    _check_template(errors, _with_claims(spec), "StatefulSet")
    if old is not None:
        fixed = sorted({*spec, *before} - {*_FREE_OF_SETS})
        changed = [name for name in fixed if not json_equal(spec.get(name), before.get(name))]
        shown = internal_form("apps.StatefulSetSpec", spec)
        for name in changed if names_fields else ():
            errors.invalid(f"spec.{name}", InOrder(shown[name[0].upper() + name[1:]]), _IMMUTABLE)
        if changed and not names_fields:
            errors.forbidden("spec", _FIXED_SET)


def _check_sets_strategy(errors: ErrorList, strategy: Plain, path: str) -> None:
    """Check the update strategy of a StatefulSet."""
    kind, rolling, here = strategy.get("type"), strategy.get("rollingUpdate"), f"{path}.rollingUpdate"
    if not kind:
        errors.required(path)
    elif kind == "OnDelete":
        if rolling is not None:
            shown = internal_form("apps.RollingUpdateStatefulSetStrategy", rolling)
            errors.invalid(here, shown, "only allowed for updateStrategy 'RollingUpdate'")
    elif kind != "RollingUpdate":
        shown = internal_form("apps.StatefulSetUpdateStrategy", strategy)
        errors.invalid(path, shown, "must be 'RollingUpdate' or 'OnDelete'")
    elif rolling is not None:
        not_negative(errors, f"{here}.partition", rolling.get("partition"))
        away = rolling.get("maxUnavailable")
        if away is not None:
            int_or_percent(errors, f"{here}.maxUnavailable", away)
            if not percent(away):
                errors.invalid(f"{here}.maxUnavailable", away, "cannot be 0")
            not_above_all(errors, f"{here}.maxUnavailable", away)


def _with_claims(spec: Plain) -> Plain:
    """A StatefulSet with the claims' volumes that its controller adds to the pods, without the pods' own host names."""
    template = spec.get("template") or {}
    pod = {name: item for name, item in (template.get("spec") or {}).items() if name not in ("hostname", "subdomain")}
    names = [(claim.get("metadata") or {}).get("name") or "" for claim in spec.get("volumeClaimTemplates") or ()]
    if names:
        claims = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in dict.fromkeys(names)]
        pod["volumes"] = claims + [each for each in pod.get("volumes") or () if each.get("name") not in names]
    return {**spec, "template": {**template, "spec": pod}}


def _check_own_selector(errors: ErrorList, spec: Plain, kind: str) -> None:
    selector = spec.get("selector")
    if selector is None:
        errors.required("spec.selector")
        return
    check_selector(errors, "spec.selector", selector)
    if not (selector.get("matchLabels") or selector.get("matchExpressions")):
        errors.invalid("spec.selector", published(selector), f"empty selector is invalid for {kind}")


def _check_strategy(errors: ErrorList, strategy: Plain) -> None:
    """Check the strategy of a Deployment."""
    kind, rolling, path = strategy.get("type"), strategy.get("rollingUpdate"), "spec.strategy"
    if kind == "Recreate":
        if rolling is not None:
            errors.forbidden(f"{path}.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'")
    elif kind != "RollingUpdate":
        shown = internal_form("apps.DeploymentStrategy", strategy)
        errors.not_supported(path, shown, ["Recreate", "RollingUpdate"])
    elif rolling:
        away, more = rolling.get("maxUnavailable"), rolling.get("maxSurge")
        path = f"{path}.rollingUpdate"
        int_or_percent(errors, f"{path}.maxUnavailable", away)
        int_or_percent(errors, f"{path}.maxSurge", more)
        if not percent(away) and not percent(more):
            errors.invalid(f"{path}.maxUnavailable", away, "may not be 0 when `maxSurge` is 0")
        not_above_all(errors, f"{path}.maxUnavailable", away)


def _daemon_set(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    spec, selector = new["spec"], new["spec"].get("selector")
    if old is not None:
        _check_unchanged(errors, "spec.selector", selector, old["spec"].get("selector"))
    check_selector(errors, "spec.selector", selector)
    _check_template(errors, spec, "DaemonSet")
    if selector is not None and not (selector.get("matchLabels") or selector.get("matchExpressions")):
        errors.invalid("spec.selector", published(selector), "empty selector is invalid for daemonset")
    not_negative(errors, "spec.minReadySeconds", spec.get("minReadySeconds"))
    _check_daemon_set_strategy(errors, spec.get("updateStrategy") or {})
    not_negative(errors, "spec.revisionHistoryLimit", spec.get("revisionHistoryLimit"))


def _check_daemon_set_strategy(errors: ErrorList, strategy: Plain) -> None:
    """Check the update strategy of a DaemonSet."""
    kind, rolling, path = strategy.get("type"), strategy.get("rollingUpdate"), "spec.updateStrategy"
    if kind == "RollingUpdate":
        away, more = ((rolling or {}).get(name) for name in ("maxUnavailable", "maxSurge"))
        path = f"{path}.rollingUpdate"
        for check in (int_or_percent, not_above_all):
            check(errors, f"{path}.maxUnavailable", away)
            check(errors, f"{path}.maxSurge", more)
        if percent(away) and percent(more):
            errors.invalid(f"{path}.maxSurge", more, "may not be set when maxUnavailable is non-zero")
        elif not percent(away) and not percent(more):
            errors.required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0")
    elif kind != "OnDelete":
        shown = internal_form("apps.DaemonSetUpdateStrategy", strategy)
        errors.not_supported(path, shown, ["RollingUpdate", "OnDelete"])


def _check_template(errors: ErrorList, spec: Plain, kind: str) -> None:
    template, selector = spec.get("template") or {}, spec.get("selector")
    labels = (template.get("metadata") or {}).get("labels")
    if kind == "DaemonSet" or _is_valid_selector(selector):
        if _is_valid_selector(selector) and (selector is None or not is_selected(selector, labels or {})):
            errors.invalid("spec.template.metadata.labels", labels, _NO_MATCH)  # a missing selector selects nothing
        check_pod_template(errors, template, "spec.template")
    elif kind == "StatefulSet":
        errors.invalid("spec.selector", selector, "")
    else:
        errors.invalid("spec.selector", selector, "invalid label selector")
        return  # its match with the labels is not checked
    pod = template.get("spec") or {}
    policy = pod.get("restartPolicy", _ALWAYS)
    if policy != _ALWAYS:
        errors.not_supported("spec.template.spec.restartPolicy", policy, [_ALWAYS])
    if pod.get("activeDeadlineSeconds") is not None:
        why = f"activeDeadlineSeconds in {kind} is not Supported"
        errors.forbidden("spec.template.spec.activeDeadlineSeconds", why)


def _replication_controller(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    del old
    spec = new["spec"]
    selector, template, path = spec.get("selector") or {}, spec.get("template"), "spec.template"
    not_negative(errors, "spec.minReadySeconds", spec.get("minReadySeconds"))
    if not selector:
        errors.required("spec.selector")
    not_negative(errors, "spec.replicas", spec.get("replicas"))
    if template is None:
        errors.required(path)
        return
    labels, pod = (template.get("metadata") or {}).get("labels"), template.get("spec") or {}
    if any((labels or {}).get(name) != value for name, value in selector.items()):
        errors.invalid(f"{path}.metadata.labels", labels, _NO_MATCH)
    check_pod_template(errors, template, path)
    policy = pod.get("restartPolicy", _ALWAYS)
    if policy != _ALWAYS:
        errors.not_supported(f"{path}.spec.restartPolicy", policy, [_ALWAYS])
    if pod.get("activeDeadlineSeconds") is not None:
        why = "activeDeadlineSeconds in ReplicationController is not Supported"
        errors.forbidden(f"{path}.spec.activeDeadlineSeconds", why)


def _pod_template(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    del old
    check_pod_template(errors, new.get("template") or {}, "template")


def _is_valid_selector(selector: Plain | None) -> bool:
    """Return whether Go accepts the selector."""
    found = ErrorList()
    check_selector(found, "", selector)
    return not found


def _job(errors: ErrorList, new: Plain, old: Plain | None, *, release: Release) -> None:
    spec, metadata = new["spec"], new["metadata"]
    is_generated = spec.get("selector") is not None and not spec.get("manualSelector")
    if is_generated and (old is None or not release.has_declared_rules):
        _check_generated(errors, spec, metadata)
    check_job_spec(errors, spec, "spec", release)
    check_names_of_pods(errors, metadata.get("name", ""), spec)
    selector = spec.get("selector")
    labels = (spec["template"].get("metadata") or {}).get("labels")
    if selector is None:
        errors.required("spec.selector")
    else:
        check_selector(errors, "spec.selector", selector)
    if selector is None or not is_selected(selector, labels or {}):
        errors.invalid("spec.template.metadata.labels", labels, _NO_MATCH)
    if old is not None:
        before = old["spec"]
        _check_unchanged(errors, "spec.selector", selector, before.get("selector"))
        check_job_change(errors, spec, before, release)
        if not before.get("suspend") and not json_equal(spec["template"], before["template"]):
            shown = internal_form("core.PodTemplateSpec", spec["template"], release)
            errors.invalid("spec.template", shown, _IMMUTABLE)


def _cron_job(errors: ErrorList, new: Plain, old: Plain | None, *, release: Release) -> None:
    spec, before = new["spec"], (old or {}).get("spec") or {}
    _check_schedule(errors, spec, before)
    not_negative(errors, "spec.startingDeadlineSeconds", spec.get("startingDeadlineSeconds"))
    zone = spec.get("timeZone")
    if zone is not None and zone != before.get("timeZone"):
        add_invalid(errors, "spec.timeZone", zone, zone_fault(zone))
    policies = ["Allow", "Forbid", "Replace"]
    if spec.get("concurrencyPolicy") not in policies:
        errors.not_supported("spec.concurrencyPolicy", spec.get("concurrencyPolicy") or "", policies)
    check_job_spec(errors, spec["jobTemplate"]["spec"], "spec.jobTemplate.spec", release)
    for name in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        not_negative(errors, f"spec.{name}", spec.get(name))
    name = new["metadata"].get("name", "")
    if old is None and len(name) > _MAX_CRON_JOB_NAME:
        errors.invalid("metadata.name", name, f"must be no more than {_MAX_CRON_JOB_NAME} characters")


def _check_schedule(errors: ErrorList, spec: Plain, before: Plain) -> None:
    schedule, path = spec.get("schedule") or "", "spec.schedule"
    if not schedule:
        errors.required(path)
        return
    if why := schedule_fault(schedule):
        errors.invalid(path, schedule, why)
    if "TZ" in schedule:
        if "TZ" not in (before.get("schedule") or ""):
            errors.invalid(path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
        elif spec.get("timeZone") is not None:
            errors.invalid(path, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule")


def _check_generated(errors: ErrorList, spec: Plain, metadata: Plain) -> None:
    """Check that the labels and the selector that the server generates are unchanged."""
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    uid, name_of_job = str(metadata["uid"]), str(metadata.get("name", ""))
    expected = {UID_LABELS[0]: uid, UID_LABELS[1]: uid, NAME_LABELS[0]: name_of_job, NAME_LABELS[1]: name_of_job}
    for name in (UID_LABELS[1], NAME_LABELS[1], UID_LABELS[0], NAME_LABELS[0]):
        if labels.get(name) != expected[name]:
            text, path = f"must be '{expected[name]}'", f"spec.template.metadata.labels[{name}]"
            if name in labels:
                errors.invalid(path, in_order(labels), text)
            else:
                errors.required(path, text)
    if not is_selected(spec.get("selector") or {}, expected):
        errors.invalid("spec.selector", in_order(spec.get("selector")), "`selector` not auto-generated")


def _check_unchanged(errors: ErrorList, path: str, new: Any, old: Any) -> None:
    if not json_equal(published(new), published(old)):
        errors.invalid(path, published(new), _IMMUTABLE)


def checks(release: Release) -> Mapping[str, Check]:
    """Return the rules by kind, as a release has them."""
    return {
        "CronJob": partial(_cron_job, release=release),
        "DaemonSet": _daemon_set,
        "Deployment": partial(_replicated, kind="Deployment"),
        "Job": partial(_job, release=release),
        "PodTemplate": _pod_template,
        "ReplicaSet": partial(_replicated, kind="ReplicaSet"),
        "ReplicationController": _replication_controller,
        "StatefulSet": partial(_stateful_set, names_fields=release.has_declared_rules),
    }
