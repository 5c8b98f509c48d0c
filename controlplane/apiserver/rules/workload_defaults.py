"""The defaults of workloads.

Source: k8s.io/kubernetes pkg/apis/apps/v1/defaults.go, batch/v1/defaults.go and core/v1/defaults.go.
"""

from collections.abc import Callable, Mapping
from functools import partial

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.pods.defaults import with_template_defaults
from controlplane.apiserver.pods.features import without_disabled
from controlplane.apiserver.rules.service_defaults import with_availability, with_claim_defaults, with_sources
from controlplane.apiserver.rules.volume_defaults import with_missing
from resourceapi.objects.release import Release

TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
_DIGITS = 19  # of an int64
_ROLLING = "RollingUpdate"
_HISTORY = {"revisionHistoryLimit": 10}
_RETAINED = {"whenDeleted": "Retain", "whenScaled": "Retain"}
_CRON_JOB: Plain = {
    "concurrencyPolicy": "Allow",
    "suspend": False,
    "successfulJobsHistoryLimit": 3,
    "failedJobsHistoryLimit": 1,
}
_JOB: Plain = {
    "backoffLimit": 6,
    "completionMode": "NonIndexed",
    "suspend": False,
    "podReplacementPolicy": "TerminatingOrFailed",
    "manualSelector": False,
}
_NO_LIMIT = 2**31 - 1
NAME_LABELS = ("batch.kubernetes.io/job-name", "job-name")
UID_LABELS = ("batch.kubernetes.io/controller-uid", "controller-uid")
_LABELLED = ("Job", "ReplicationController")  # labels default to those of their pods


def with_template_generation(new: Plain, old: Plain | None) -> Plain:
    """Return a DaemonSet whose annotation counts the changes of its template."""
    count = 1
    if old is not None:
        before = (old["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, "")
        is_count = before.isdecimal() and len(before) < _DIGITS  # a client can have written any text
        count = (int(before) if is_count else 0) + (new["spec"]["template"] != old["spec"]["template"])
    annotations = {**(new["metadata"].get("annotations") or {}), TEMPLATE_GENERATION: str(count)}
    return {**new, "metadata": {**new["metadata"], "annotations": annotations}}


def with_selector(new: Plain, old: Plain | None) -> Plain:
    """Return a Job that selects its pods by its uid, unless it has a manual selector."""
    spec, metadata = new["spec"], new["metadata"]
    if old is not None or spec["manualSelector"]:
        return new
    selector, template = spec.get("selector") or {}, spec["template"]
    uid, of_template = metadata["uid"], template.get("metadata") or {}
    labels = {
        **dict.fromkeys(NAME_LABELS, metadata.get("name", "")),
        **dict.fromkeys(UID_LABELS, uid),
        **(of_template.get("labels") or {}),
    }
    matched = {UID_LABELS[0]: uid, **(selector.get("matchLabels") or {})}
    return {
        **new,
        # If they equal the template's, a real server has one map for both, and changes both.
        "metadata": {**metadata, "labels": labels} if _has_labels_of(template, metadata) else metadata,
        "spec": {
            **spec,
            "selector": {**selector, "matchLabels": matched},
            "template": {**template, "metadata": {**of_template, "labels": labels}},
        },
    }


def _has_labels_of(template: Plain, metadata: Plain) -> bool:
    return (metadata.get("labels") or {}) == ((template.get("metadata") or {}).get("labels") or {})


def with_first_generation(new: Plain, old: Plain | None) -> Plain:
    """Return a new object with generation 1, for kinds whose generation never changes."""
    return new if old is not None else {**new, "metadata": {**new["metadata"], "generation": 1}}


ADVANCES: Mapping[str, Callable[[Plain, Plain | None], Plain]] = {
    "APIService": with_availability,
    "PersistentVolumeClaim": with_sources,
    "PriorityClass": with_first_generation,
    "DaemonSet": with_template_generation,
    "Job": with_selector,
}
"""Kind -> function that sets what the server determines in a new or changed object."""


def _daemon_set(spec: Plain) -> Plain:
    strategy = _strategy(spec.get("updateStrategy"), {"maxUnavailable": 1, "maxSurge": 0})
    if strategy["type"] != _ROLLING and strategy.get("rollingUpdate") is not None:
        strategy["rollingUpdate"] = {"maxUnavailable": 0, "maxSurge": 0, **strategy["rollingUpdate"]}
    return {**_HISTORY, **spec, "updateStrategy": strategy}


def _deployment(spec: Plain) -> Plain:
    strategy = _strategy(spec.get("strategy"), {"maxUnavailable": "25%", "maxSurge": "25%"})
    return {"replicas": 1, "progressDeadlineSeconds": 600, **_HISTORY, **spec, "strategy": strategy}


def _stateful_set(spec: Plain, *, rolling: Plain) -> Plain:
    filled = {"replicas": 1, "podManagementPolicy": "OrderedReady", **_HISTORY, **spec}
    strategy = spec.get("updateStrategy") or {}
    if not strategy.get("type") or strategy.get("rollingUpdate") is not None:  # a type alone gets no other defaults
        filled["updateStrategy"] = _strategy(strategy, rolling)
    retained = spec.get("persistentVolumeClaimRetentionPolicy") or {}
    filled["persistentVolumeClaimRetentionPolicy"] = {**_RETAINED, **retained}
    if spec.get("volumeClaimTemplates"):
        filled["volumeClaimTemplates"] = [
            {"kind": "PersistentVolumeClaim", "apiVersion": "v1", **with_claim_defaults(each)}
            for each in spec["volumeClaimTemplates"]
        ]
    return filled


def _replication_controller(spec: Plain) -> Plain:
    return {"replicas": 1, **({"selector": _labels(spec)} if _labels(spec) else {}), **spec}


def _job(spec: Plain) -> Plain:
    filled = {**_JOB, "parallelism": 1, **spec}
    if "backoffLimit" not in spec and spec.get("backoffLimitPerIndex") is not None:
        filled["backoffLimit"] = _NO_LIMIT
    if "parallelism" not in spec and "completions" not in spec:
        filled["completions"] = 1
    if "podFailurePolicy" in spec:
        filled["podReplacementPolicy"] = spec.get("podReplacementPolicy", "Failed")
        filled = _with_failure_rules(filled)
    return filled


def _with_failure_rules(spec: Plain) -> Plain:
    policy = spec.get("podFailurePolicy") or {}
    if not policy.get("rules"):
        return spec
    return {**spec, "podFailurePolicy": {**policy, "rules": list(map(_failure_rule, policy["rules"]))}}


def _failure_rule(rule: Plain) -> Plain:
    """A Job's rule for failed pods, whose conditions default to True."""
    if not rule.get("onPodConditions"):
        return rule
    return {**rule, "onPodConditions": [with_missing({"status": "True"}, each) for each in rule["onPodConditions"]]}


def _strategy(strategy: Plain | None, rolling: Plain) -> Plain:
    filled = {"type": _ROLLING, **(strategy or {})}
    if filled["type"] == _ROLLING:
        filled["rollingUpdate"] = {**rolling, **(filled.get("rollingUpdate") or {})}
    return filled


_SPECS: Mapping[str, Callable[[Plain], Plain]] = {
    "CronJob": lambda spec: {**_CRON_JOB, **spec},
    "DaemonSet": _daemon_set,
    "Deployment": _deployment,
    "Job": _job,
    "ReplicaSet": lambda spec: {"replicas": 1, **spec},
    "ReplicationController": _replication_controller,
}


def _filled(kind: str, fill: Callable[[Plain], Plain], obj: Plain) -> Plain:
    spec = _with_template(obj["spec"])
    if kind == "CronJob":
        within = spec["jobTemplate"]
        spec["jobTemplate"] = {**within, "spec": _with_failure_rules(_with_template(within["spec"]))}
    metadata = obj["metadata"]
    if kind in _LABELLED and not metadata.get("labels") and (labels := _labels(spec)):
        metadata = {**metadata, "labels": labels}
    if kind == "DaemonSet":
        metadata = {**metadata, "annotations": {TEMPLATE_GENERATION: "1", **(metadata.get("annotations") or {})}}
    return {**obj, "metadata": metadata, "spec": fill(spec)}


def _with_template(holder: Plain) -> Plain:
    """An object with a pod template, with the template's defaults."""
    template = holder.get("template")
    if template is None:
        return dict(holder)
    return {**holder, "template": {**template, "spec": with_template_defaults(template["spec"])}}


def _without_disabled(obj: Plain, *, kind: str, release: Release) -> Plain:
    """A workload whose template lacks the fields that the release does not have."""
    if kind == "PodTemplate":
        return _without_disabled_template_fields(obj, release)
    spec = _without_disabled_template_fields(obj["spec"], release)
    if kind == "CronJob":
        within = spec["jobTemplate"]
        spec = {**spec, "jobTemplate": {**within, "spec": _without_disabled_template_fields(within["spec"], release)}}
    return {**obj, "spec": spec}


def _without_disabled_template_fields(holder: Plain, release: Release) -> Plain:
    template = holder.get("template")
    if template is None or template.get("spec") is None:
        return holder
    return {**holder, "template": {**template, "spec": without_disabled(template["spec"], release)}}


def droppers(release: Release) -> Mapping[str, Callable[[Plain], Plain]]:
    """Return the functions that drop a template's fields that a release does not have, by kind."""
    kinds = (*_SPECS, "StatefulSet", "PodTemplate")
    return {kind: partial(_without_disabled, kind=kind, release=release) for kind in kinds}


def _labels(spec: Plain) -> Plain:
    """The labels of the pods."""
    labels: Plain = (spec.get("template") or {}).get("metadata", {}).get("labels") or {}
    return labels


def defaulters(release: Release) -> Mapping[str, Callable[[Plain], Plain]]:
    """Return the functions that fill in defaults, by kind."""
    rolling = {"partition": 0, **({"maxUnavailable": 1} if release.fills_max_unavailable else {})}
    specs: Mapping[str, Callable[[Plain], Plain]] = {**_SPECS, "StatefulSet": partial(_stateful_set, rolling=rolling)}
    return {**{kind: partial(_filled, kind, fill) for kind, fill in specs.items()}, "PodTemplate": _with_template}
