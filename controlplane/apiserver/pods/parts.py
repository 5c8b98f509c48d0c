"""Parts of a pod's spec with their own subresource: ephemeral containers, and the resources of containers.

Other changes in such a write are ignored. Source: k8s.io/kubernetes pkg/registry/core/pod/strategy.go,
pkg/apis/core/validation/validation.go (ValidatePodEphemeralContainersUpdate, ValidatePodResize).
"""

from collections.abc import Mapping
from typing import Any

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.pods.admission import quality_of
from controlplane.apiserver.pods.annotations import MIRROR
from controlplane.apiserver.pods.changes import check_whole_pod
from controlplane.apiserver.unstructured_rules import Part
from resourceapi.objects import ErrorList, quoted_text
from resourceapi.objects.json_value import json_equal

_EPHEMERAL, _RESIZED = "ephemeralContainers", ("resources", "resizePolicy")
_MUTABLE = ("cpu", "memory")
_ONLY = "only cpu and memory resources are mutable"


def _with_ephemeral_containers(new: Plain, old: Plain) -> Plain:
    spec = {name: item for name, item in (old.get("spec") or {}).items() if name != _EPHEMERAL}
    added = (new.get("spec") or {}).get(_EPHEMERAL)
    return {**old, "spec": {**spec, **({_EPHEMERAL: added} if added else {})}}


def _check_ephemeral_containers(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    check_whole_pod(errors, new)
    if _is_static(errors, old, "static pods do not support ephemeral containers"):
        return
    now = {each.get("name"): each for each in (new["spec"].get(_EPHEMERAL) or ())}
    for each in ((old or {}).get("spec") or {}).get(_EPHEMERAL) or ():
        name = quoted_text(each.get("name") or "")
        if each.get("name") not in now:
            errors.forbidden(f"spec.{_EPHEMERAL}", f"existing ephemeral containers {name} may not be removed\n")
        elif not json_equal(each, now[each.get("name")]):
            errors.forbidden(f"spec.{_EPHEMERAL}", f"existing ephemeral containers {name} may not be changed")


def _is_static(errors: ErrorList, old: Plain | None, why: str) -> bool:
    """Return whether a pod is a static pod; if so, that is its only error."""
    if MIRROR not in ((old or {}).get("metadata") or {}).get("annotations", {}):
        return False
    errors.clear()
    errors.forbidden("", why)
    return True


def _with_resources(new: Plain, old: Plain) -> Plain:
    """The old pod with new resources. If the containers differ, the new spec is returned, and the rules refuse it."""
    spec, sent = {**(old.get("spec") or {})}, new.get("spec") or {}
    for member in ("containers", "initContainers"):
        before, after = spec.get(member) or [], sent.get(member) or []
        if [each.get("name") for each in before] != [each.get("name") for each in after]:
            return {**old, "spec": sent}
        if before:
            spec[member] = [_resized(*each) for each in zip(after, before, strict=True)]
    if sent.get("resources") is not None:
        spec["resources"] = sent["resources"]
    return {**old, "spec": spec}


def _resized(container: Plain, before: Plain) -> Plain:
    kept = {name: item for name, item in before.items() if name not in _RESIZED}
    return kept | {name: container[name] for name in _RESIZED if name in container}


def _check_resources(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    check_whole_pod(errors, new)
    spec, before = new["spec"], (old or {}).get("spec") or {}
    if _is_static(errors, old, "static pods cannot be resized"):
        return
    if (before.get("os") or {}).get("name") == "windows":
        errors.clear()
        errors.forbidden("", "windows pods cannot be resized")
        return
    quality = ((old or {}).get("status") or {}).get("qosClass")
    if quality_of(spec) != quality:
        errors.invalid("spec", quality, "Pod QOS Class may not change as a result of resizing")
    if not _is_supported((old or {}).get("status") or {}):
        errors.forbidden("spec", "Pod running on node without support for resize")
    whole = before.get("resources")
    if whole is not None:
        _check_no_amount_is_removed(errors, spec.get("resources") or {}, whole, "spec.resources", "pod-level resource")
    if not json_equal(_fixed(spec.get("resources") or {}), _fixed(whole or {})):
        errors.forbidden("spec", f"{_ONLY} at pod-level")
    if not _check_order(errors, spec, before):
        return
    for member in ("initContainers", "containers"):
        for index, (now, was) in enumerate(zip(spec.get(member) or (), before.get(member) or (), strict=True)):
            here, after, had = f"spec.{member}[{index}]", now.get("resources") or {}, was.get("resources") or {}
            _check_no_amount_is_removed(errors, after, had, f"{here}.resources", "resource")
            if not json_equal(_fixed(after), _fixed(had)):
                if member == "containers":
                    errors.forbidden("spec", _ONLY)
                else:
                    errors.forbidden(here, "only cpu and memory resources for init or sidecar containers are mutable")


def _check_no_amount_is_removed(errors: ErrorList, after: Plain, before: Plain, path: str, what: str) -> None:
    for member in ("requests", "limits"):
        if not (before.get(member) or {}).keys() <= (after.get(member) or {}).keys():
            errors.forbidden(f"{path}.{member}", f"{what} {member} cannot be removed")


def _check_order(errors: ErrorList, spec: Plain, before: Plain) -> bool:
    """Check that the containers are the same as before. Return whether they are."""
    count = len(errors)
    for member in ("containers", "initContainers"):
        now, was = spec.get(member) or [], before.get(member) or []
        if len(now) != len(was):
            errors.forbidden(f"spec.{member}", f"{member} may not be added or removed on resize")
            continue
        for index, (one, other) in enumerate(zip(now, was, strict=True)):
            if one.get("name") != other.get("name"):
                why = "containers may not be renamed or reordered on resize"
                why = why if member == "containers" else f"initC{why[1:]}"
                errors.forbidden(f"spec.{member}[{index}].name", why)
    return len(errors) == count


def _is_supported(status: Plain) -> bool:
    """Return whether the first running container's status has resources, as those of nodes that can resize have."""
    running = [x for x in status.get("containerStatuses") or () if (x.get("state") or {}).get("running") is not None]
    return not running or running[0].get("resources") is not None


def _fixed(resources: Plain) -> dict[str, Any]:
    """Resources without the amounts that can change."""
    fixed = {name: item for name, item in resources.items() if name not in ("requests", "limits") and item}
    for member in ("requests", "limits"):
        amounts = resources.get(member) or {}
        fixed[member] = {name: amount for name, amount in amounts.items() if name not in _MUTABLE}
    return fixed


PARTS: Mapping[str, Part] = {
    "ephemeralcontainers": Part(_with_ephemeral_containers, _check_ephemeral_containers),
    "resize": Part(_with_resources, _check_resources),
}
"""Subresource -> part."""
