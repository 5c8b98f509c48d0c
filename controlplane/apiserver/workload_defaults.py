"""What kinds that make pods say where their author did not.

Source: k8s.io/kubernetes pkg/apis/apps/v1/defaults.go, batch/v1/defaults.go and core/v1/defaults.go.
"""

from collections.abc import Callable, Mapping
from functools import partial

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.pod_defaults import with_template_defaults
from controlplane.apiserver.service_defaults import with_claim_defaults

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
_LABELLED = ("Job", "ReplicationController")  # as their pods, if nobody says otherwise


def with_template_generation(new: Plain, old: Plain | None) -> Plain:
    """A DaemonSet whose annotation counts the changes of its template."""
    count = 1
    if old is not None:
        before = (old["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, "")
        is_count = before.isdecimal() and len(before) < _DIGITS  # who writes the status may have written anything
        count = (int(before) if is_count else 0) + (new["spec"]["template"] != old["spec"]["template"])
    annotations = {**(new["metadata"].get("annotations") or {}), TEMPLATE_GENERATION: str(count)}
    return {**new, "metadata": {**new["metadata"], "annotations": annotations}}


def _daemon_set(spec: Plain) -> Plain:
    strategy = _strategy(spec.get("updateStrategy"), {"maxUnavailable": 1, "maxSurge": 0})
    return {**_HISTORY, **spec, "updateStrategy": strategy}


def _deployment(spec: Plain) -> Plain:
    strategy = _strategy(spec.get("strategy"), {"maxUnavailable": "25%", "maxSurge": "25%"})
    return {"replicas": 1, "progressDeadlineSeconds": 600, **_HISTORY, **spec, "strategy": strategy}


def _stateful_set(spec: Plain) -> Plain:
    filled = {"replicas": 1, "podManagementPolicy": "OrderedReady", **_HISTORY, **spec}
    filled["updateStrategy"] = _strategy(spec.get("updateStrategy"), {"partition": 0})
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
    if "parallelism" not in spec and "completions" not in spec:
        filled["completions"] = 1
    if "podFailurePolicy" in spec:
        filled["podReplacementPolicy"] = spec.get("podReplacementPolicy", "Failed")
    return filled


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
    "StatefulSet": _stateful_set,
}


def _filled(kind: str, obj: Plain) -> Plain:
    spec = _with_template(obj["spec"])
    if kind == "CronJob":
        within = spec["jobTemplate"]
        spec["jobTemplate"] = {**within, "spec": _with_template(within["spec"])}
    metadata = obj["metadata"]
    if kind in _LABELLED and not metadata.get("labels") and (labels := _labels(spec)):
        metadata = {**metadata, "labels": labels}
    if kind == "DaemonSet":
        metadata = {**metadata, "annotations": {TEMPLATE_GENERATION: "1", **(metadata.get("annotations") or {})}}
    return {**obj, "metadata": metadata, "spec": _SPECS[kind](spec)}


def _with_template(holder: Plain) -> Plain:
    """What holds a template of pods, with the defaults of that."""
    template = holder.get("template")
    if template is None:
        return dict(holder)
    return {**holder, "template": {**template, "spec": with_template_defaults(template["spec"])}}


def _labels(spec: Plain) -> Plain:
    """Those of the pods."""
    labels: Plain = (spec.get("template") or {}).get("metadata", {}).get("labels") or {}
    return labels


FILLS: Mapping[str, Callable[[Plain], Plain]] = {
    **{kind: partial(_filled, kind) for kind in _SPECS},
    "PodTemplate": _with_template,
}
"""By kind."""
