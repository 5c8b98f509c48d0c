"""The rules of a pod's status, and of its changes.

Source: k8s.io/kubernetes pkg/apis/core/validation/validation.go (ValidatePodStatusUpdate),
pkg/registry/core/pod/strategy.go.
"""

import ipaddress
from collections.abc import Sequence
from functools import partial
from typing import Any

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.pods.annotations import check_annotations, check_changed_annotations
from controlplane.apiserver.pods.health_rules import check_health
from controlplane.apiserver.pods.placement import check_address
from controlplane.apiserver.unstructured_rules import Part
from resourceapi.objects import ErrorList
from resourceapi.objects.field_rules import add_invalid, dns_label, label_name
from resourceapi.objects.names import dns_subdomain
from resourceapi.objects.release import Release

_EXTENDED = "extendedResourceClaimStatus"
_OF_CLAIMS = ("resourceClaimStatuses", _EXTENDED, "nodeAllocatableResourceClaimStatuses")
_KUBELET_CONDITIONS = ("PodScheduled", "Ready", "Initialized")
_ENDED = "may not be transitioned to non-terminated state"
_MAX_ADDRESSES = 2
_FAMILIES = "may specify no more than one IP for each IP family"
_MAPPED = ("containerName", "resourceName", "requestName")
_NO_REQUEST = (
    "must match the extended resource name of an entry in spec.initContainers.resources.requests or"
    " spec.containers.resources.requests"
)
_NO_CONTAINER = "must match the name of an entry in spec.initContainers.name or spec.containers.name"


def _with_release_fields(new: Plain, old: Plain, release: Release) -> Plain:
    """A status that keeps fields that older kubelets leave out, without fields that the release does not have."""
    before, status = old.get("status") or {}, {**(new.get("status") or {})}
    if not release.has_all_fields:
        status.pop(_EXTENDED, None)
    if not status.get("qosClass") and before.get("qosClass"):
        status["qosClass"] = before["qosClass"]
    for name in _OF_CLAIMS if release.keeps_claims_of_pods else ():
        if status.get(name) is None and before.get(name) is not None:
            status[name] = before[name]
    return {**new, "status": status}


def _check_status(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    spec, status = new.get("spec") or {}, new.get("status") or {}
    before = (old or {}).get("status") or {}
    check_changed_annotations(errors, new, old or new)
    check_annotations(errors, new, "metadata.annotations")
    for index, each in enumerate(status.get("conditions") or ()):
        here, generation = f"status.conditions[{index}]", each.get("observedGeneration") or 0
        if generation < 0:
            errors.invalid(f"{here}.observedGeneration", generation, "must be a non-negative integer")
        if each.get("type") not in _KUBELET_CONDITIONS:
            label_name(errors, f"{here}.Type", each.get("type") or "")
    node = status.get("nominatedNodeName") or ""
    if node and node != before.get("nominatedNodeName"):
        add_invalid(errors, "status.nominatedNodeName", node, dns_subdomain(node))
        if spec.get("nodeName"):
            why = "may not be set on pods that are already bound to a node"
            errors.forbidden("status.nominatedNodeName", why)
    if (status.get("observedGeneration") or 0) < 0:
        errors.invalid("status.observedGeneration", status["observedGeneration"], "must be a non-negative integer")
    if status.get("qosClass") != before.get("qosClass"):
        errors.invalid("status.qosClass", status.get("qosClass") or "", "field is immutable")
    _check_ends(errors, spec, status, before)
    _check_claims(errors, spec, status.get("resourceClaimStatuses") or ())
    _check_extended(errors, spec, status.get(_EXTENDED), f"status.{_EXTENDED}")
    _check_addresses(errors, status, "podIP", has_both=True)
    _check_addresses(errors, status, "hostIP", has_both=False)
    check_health(errors, spec, status)


def _check_ends(errors: ErrorList, spec: Plain, status: Plain, before: Plain) -> None:
    """Check that an ended container only runs again if its restart policy allows it."""
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    rules = [rule.get("action") for each in containers for rule in each.get("restartPolicyRules") or ()]
    for member, of in (
        ("containerStatuses", "containers"),
        ("initContainerStatuses", "initContainers"),
        ("ephemeralContainerStatuses", ""),
    ):
        if of and "RestartAllContainers" in rules:
            continue
        known = {each.get("name"): each for each in spec.get(of) or ()} if of else {}
        now = {each.get("name"): (each.get("state") or {}) for each in status.get(member) or ()}
        for index, each in enumerate(before.get(member) or ()):
            name, ended = each.get("name"), (each.get("state") or {}).get("terminated")
            if ended is None or name not in now or now[name].get("terminated") is not None:
                continue
            if not (name in known and _restarts(known[name], spec, ended.get("exitCode") or 0)):
                errors.forbidden(f"status.{member}[{index}].state", _ENDED)


def _restarts(container: Plain, spec: Plain, code: int) -> bool:
    """Return whether a container restarts after it has ended with an exit code."""
    for rule in container.get("restartPolicyRules") or ():
        codes = rule.get("exitCodes") or {}
        is_listed = code in (codes.get("values") or ())
        if rule.get("action") == "Restart" and is_listed == (codes.get("operator") == "In"):
            return True
    policy = container.get("restartPolicy") or spec.get("restartPolicy")
    return policy == "Always" or (policy == "OnFailure" and code != 0)


def _check_claims(errors: ErrorList, spec: Plain, statuses: Sequence[Plain]) -> None:
    """Check the claims that were made for a pod, by the pod's names for them."""
    known = {each.get("name") for each in spec.get("resourceClaims") or ()}
    seen: set[str] = set()
    for index, each in enumerate(statuses):
        here, name = f"status.resourceClaimStatuses[{index}]", each.get("name") or ""
        claim = each.get("resourceClaimName")
        if name not in known:
            errors.invalid(f"{here}.name", name, "must match the name of an entry in `spec.resourceClaims`")
        if name in seen:
            errors.duplicate(f"{here}.name", name)
        seen.add(name)
        if claim is not None:
            add_invalid(errors, f"{here}.resourceClaimName", claim, dns_subdomain(claim))


def _check_extended(errors: ErrorList, spec: Plain, status: Plain | None, path: str) -> None:
    """Check the claim that was made for a pod's extended resources."""
    if status is None:
        return
    mappings, claim = status.get("requestMappings") or (), status.get("resourceClaimName") or ""
    if not mappings:
        errors.required(f"{path}.requestMappings", "at least one request mapping is required")
    containers = {x.get("name"): x for name in ("initContainers", "containers") for x in spec.get(name) or ()}
    seen: set[Any] = set()
    for index, each in enumerate(mappings):
        here = f"{path}.requestMappings[{index}]"
        name, resource, request = (each.get(member) or "" for member in _MAPPED)
        if name not in containers:
            errors.invalid(f"{here}.containerName", name, _NO_CONTAINER)
        elif resource not in ((containers[name].get("resources") or {}).get("requests") or {}):
            errors.invalid(f"{here}.resourceName", resource, _NO_REQUEST)
        dns_label(errors, f"{path}.requestName", request)
        if (name, resource, request) in seen:
            for member in _MAPPED:
                errors.duplicate(f"{here}.{member}", each.get(member) or "")
        seen.add((name, resource, request))
    if claim:
        add_invalid(errors, f"{path}.resourceClaimName", claim, dns_subdomain(claim))
    else:
        errors.required(f"{path}.resourceClaimName")


def _check_addresses(errors: ErrorList, status: Plain, member: str, *, has_both: bool) -> None:
    """Check that the single address is the first of the list; `has_both`: neither can be missing."""
    one, path = status.get(member) or "", f"status.{member}s"
    several = [each.get("ip") or "" for each in status.get(f"{member}s") or ()]
    if not has_both and several and one != several[0]:
        errors.invalid(f"{path}[0].ip", several[0], f"must be equal to `{member}`")
    for index, text in enumerate(several):
        check_address(errors, f"{path}[{index}]", text)
    if len(several) > 1 and (len(several) > _MAX_ADDRESSES or not _is_dual(several)):
        errors.invalid(path, [{"IP": text} for text in several], _FAMILIES)
    if has_both and bool(one) != bool(several):
        shown = [{"IP": text} for text in several] or None
        errors.invalid(path, shown, "podIP and podIPs must either both be set or both be unset")
    elif has_both and several and one != several[0]:
        errors.invalid(f"{path}[0].ip", several[0], f"must be equal to `{member}`")


def _is_dual(texts: Sequence[str]) -> bool:
    try:
        return len({ipaddress.ip_address(text).version for text in texts}) == _MAX_ADDRESSES
    except ValueError:
        return False


def status_part(release: Release) -> Part:
    """Return how the status is written."""
    return Part(partial(_with_release_fields, release=release), _check_status)
