"""The rules of pods, and what can change in a pod.

Source: k8s.io/kubernetes pkg/apis/core/validation/validation.go (ValidatePodCreate, ValidatePodUpdate).
"""

from typing import Any

from controlplane.apiserver.internal_types import difference, internal_form
from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.pods.annotations import check_annotations, check_changed_annotations
from controlplane.apiserver.pods.containers import check_images
from controlplane.apiserver.pods.placement import REQUIRED
from controlplane.apiserver.pods.profiles import check_profiles
from controlplane.apiserver.pods.spec_rules import check_pod_spec
from resourceapi.objects import ErrorList, from_dict
from resourceapi.objects.core import NodeSelector
from resourceapi.objects.json_value import json_equal
from resourceapi.objects.release import Release

_FIXED = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_CHANGEABLE = ("activeDeadlineSeconds", "tolerations", "schedulingGates")
_MAX_SECONDS = 2**31 - 1
_ONLY_MORE = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
_NO_OTHER_TERMS = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"


def check_whole_pod(errors: ErrorList, pod: Plain) -> None:
    """Check a pod without regard to its old state."""
    check_annotations(errors, pod, "metadata.annotations")
    check_pod_spec(errors, pod["spec"], pod=pod["metadata"].get("name") or "")
    check_images(errors, pod["spec"], "spec")


def check_pod(errors: ErrorList, new: Plain, old: Plain | None, *, release: Release) -> None:
    """Check a new or changed pod."""
    after, before = new.get("spec") or {}, (old or {}).get("spec") or {}
    if old is None or not json_equal(after, before):
        check_whole_pod(errors, new)
    else:
        check_annotations(errors, new, "metadata.annotations")
    if old is None:
        if after.get("ephemeralContainers"):
            errors.forbidden("spec.ephemeralContainers", "cannot be set on create")
        if after.get("nodeName") and after.get("schedulingGates"):
            errors.forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")
        check_profiles(errors, new)
        return
    check_changed_annotations(errors, new, old)
    for name in ("containers", "initContainers"):
        if len(after.get(name) or ()) != len(before.get(name) or ()):
            errors.forbidden(f"spec.{name}", "pod updates may not add or remove containers")
            return
    if not _check_deadline(errors, after, before):
        return
    _check_tolerations(errors, after, before)
    known = {gate.get("name") for gate in before.get("schedulingGates") or ()}
    for index, gate in enumerate(after.get("schedulingGates") or ()):
        name = gate.get("name") or ""
        if name not in known:
            why = f"only deletion is allowed, but found new scheduling gate '{name}'"
            errors.forbidden(f"spec.schedulingGates[{index}].name", why)
    if known:
        _check_placement(errors, after, before)
    fixed = _with_old_values(after, before)
    if json_equal(fixed, before):
        return
    was, now = (internal_form("core.PodSpec", spec, release) for spec in (before, fixed))
    if not json_equal(now, was):
        errors.forbidden("spec", f"{_FIXED}\n{difference(was, now)}")


def _check_deadline(errors: ErrorList, after: Plain, before: Plain) -> bool:
    """Check the deadline, which can only become shorter. Return whether the other fields are checked too."""
    was, now, path = before.get("activeDeadlineSeconds"), after.get("activeDeadlineSeconds"), "activeDeadlineSeconds"
    if now is None:
        if was is not None:
            errors.invalid(f"spec.{path}", None, "must not update from a positive integer to nil value")
        return True
    if not 0 <= now <= _MAX_SECONDS:
        errors.invalid(f"spec.{path}", now, f"must be between 0 and {_MAX_SECONDS}, inclusive")
        return False
    if was is not None and now > was:
        errors.invalid(f"spec.{path}", now, "must be less than or equal to previous value")
        return False
    return True


def _check_tolerations(errors: ErrorList, after: Plain, before: Plain) -> None:
    """Check that the old tolerations still exist, with any duration."""
    now, was = ({*map(_without_time, spec.get("tolerations") or ())} for spec in (after, before))
    if was - now:
        why = "existing toleration can not be modified except its tolerationSeconds"
        errors.forbidden("spec.tolerations", why)


def _without_time(toleration: Plain) -> frozenset[tuple[str, Any]]:
    return frozenset((name, item) for name, item in toleration.items() if name != "tolerationSeconds" and item != "")


def _check_placement(errors: ErrorList, after: Plain, before: Plain) -> None:
    """Check that a pod with scheduling gates only gets more requirements of nodes, not fewer."""
    selector, was = after.get("nodeSelector") or {}, before.get("nodeSelector") or {}
    if any(selector.get(key) != value for key, value in was.items()):
        errors.invalid("spec.nodeSelector", selector, _ONLY_MORE)
    terms, had = _terms(after), _terms(before)
    path = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
    if had and len(terms) != len(had):
        errors.invalid(path, _as_structs(terms) or None, _NO_OTHER_TERMS)
        return
    for index, (one, other) in enumerate(zip(terms, had, strict=False)):
        if not _is_extended(one, other):
            (shown,) = _as_structs([one])
            errors.invalid(f"{path}[{index}]", shown, "only additions are allowed (no mutations or deletions)")


def _terms(spec: Plain) -> list[Plain]:
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED) or {}
    return required.get("nodeSelectorTerms") or []


def _as_structs(terms: list[Plain]) -> tuple[Any, ...]:
    return from_dict(NodeSelector, {"nodeSelectorTerms": terms}).node_selector_terms


def _is_extended(term: Plain, before: Plain) -> bool:
    members = ("matchExpressions", "matchFields")
    if not any(before.get(name) for name in members):  # it selected nothing
        return not any(term.get(name) for name in members)
    pairs = [(term.get(name) or [], before.get(name) or []) for name in members]
    return all(json_equal(now[: len(was)], was) for now, was in pairs)


def _with_old_values(spec: Plain, before: Plain) -> Plain:
    """A spec with the old values of everything that an update can change."""
    free = {*_CHANGEABLE}
    if (before.get("terminationGracePeriodSeconds") or 0) < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        free.add("terminationGracePeriodSeconds")
    if before.get("schedulingGates"):
        free.add("nodeSelector")
        spec = {**spec, "affinity": _with_old_node_affinity(spec.get("affinity"), before.get("affinity"))}
    fixed = {name: item for name, item in spec.items() if name not in free}
    fixed |= {name: before[name] for name in free if name in before}
    for name in ("containers", "initContainers"):
        pairs = zip(fixed.get(name) or (), before.get(name) or (), strict=True)
        if name in fixed:
            fixed[name] = [{**now, "image": was.get("image")} for now, was in pairs]
    return fixed


def _with_old_node_affinity(affinity: Plain | None, before: Plain | None) -> Plain | None:
    """The affinity with its old node rules."""
    rules, was = ((each or {}).get("nodeAffinity") for each in (affinity, before))
    if json_equal(rules, was):
        return affinity
    others = {name: item for name, item in (affinity or {}).items() if name != "nodeAffinity"}
    if before is None and not others:
        return None
    return others if was is None else {**others, "nodeAffinity": was}
