"""The objects that a quota selects by its scopes.

Source: kubernetes.io "Resource Quotas"; k8s.io/kubernetes pkg/quota/v1/evaluator/core.
"""

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.labels import is_selected
from controlplane.apiserver.pods.admission import quality_of
from controlplane.apiserver.pods.grace import PODS
from controlplane.apiserver.quota_usage import VOLUME_CLAIMS


def is_in_scope(kind_id: str, quota: Plain, obj: Plain) -> bool:
    """Return whether a quota's scopes select an object."""
    spec = quota["spec"]
    wanted = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    wanted += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return all(_is_selected(kind_id, each, obj) for each in wanted)


def is_terminating(pod: Plain) -> bool:
    """Return whether a pod has a deadline."""
    return (pod["spec"].get("activeDeadlineSeconds") or -1) >= 0


def _is_selected(kind_id: str, wanted: Plain, obj: Plain) -> bool:
    scope, spec = wanted["scopeName"], obj.get("spec") or {}
    if kind_id == VOLUME_CLAIMS and scope == "VolumeAttributesClass":
        return any(_names_class(wanted, name) for name in _attribute_classes(obj) or [""])
    if kind_id != PODS:
        return False
    if scope == "PriorityClass":
        return _names_class(wanted, spec.get("priorityClassName") or "")
    found = {
        "Terminating": is_terminating(obj),
        "BestEffort": quality_of(spec) == "BestEffort",
        "CrossNamespacePodAffinity": _selects_other_namespaces(spec.get("affinity") or {}),
    }
    return not found[scope.removeprefix("Not")] if scope.startswith("Not") else found.get(scope, False)


def _names_class(wanted: Plain, name: str) -> bool:
    expression = {"key": wanted["scopeName"], "operator": wanted["operator"], "values": wanted.get("values")}
    return is_selected({"matchExpressions": [expression]}, {wanted["scopeName"]: name} if name else {})


def _attribute_classes(claim: Plain) -> list[str]:
    spec, status = claim.get("spec") or {}, claim.get("status") or {}
    changing = status.get("modifyVolumeStatus") or {}
    names = (
        spec.get("volumeAttributesClassName"),
        status.get("currentVolumeAttributesClassName"),
        changing.get("targetVolumeAttributesClassName"),
    )
    return [name for name in names if name]


def _selects_other_namespaces(affinity: Plain) -> bool:
    """Return whether a pod's affinity refers to pods of other namespaces."""
    for each in (affinity.get("podAffinity") or {}, affinity.get("podAntiAffinity") or {}):
        preferred = each.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        terms = [
            *(each.get("requiredDuringSchedulingIgnoredDuringExecution") or ()),
            *(weighted.get("podAffinityTerm") or {} for weighted in preferred),
        ]
        if any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms):
            return True
    return False
