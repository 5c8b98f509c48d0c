"""The rules of the spec of a pod or a pod template: containers, volumes, claims, and enumerated values.

Source: k8s.io/kubernetes pkg/apis/core/validation/validation.go (ValidatePodSpec).
"""

import ipaddress
from collections.abc import Sequence

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.pods.containers import check_containers, containers_of
from controlplane.apiserver.pods.operating_systems import check_host_processes, check_host_users, check_operating_system
from controlplane.apiserver.pods.placement import check_affinity, check_aliases, check_names, check_spread
from controlplane.apiserver.pods.resources import check_pod_requests
from controlplane.apiserver.pods.security_contexts import check_pod_security_context
from controlplane.apiserver.pods.variables import check_files_of_variables
from controlplane.apiserver.pods.volumes import check_volumes
from controlplane.apiserver.rules.choices import check_choice
from controlplane.apiserver.rules.label_rules import check_labels
from controlplane.apiserver.rules.resource_rules import check_amount, check_requirements
from resourceapi.objects import ErrorList
from resourceapi.objects.errors import InOrder
from resourceapi.objects.field_rules import add_invalid, dns_label, label_name
from resourceapi.objects.names import dns_subdomain, label_value
from resourceapi.objects.release import Release

_RESTART = ["Always", "OnFailure", "Never"]
_DNS = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]
_PREEMPTION = ["PreemptLowerPriority", "Never"]
NO_NETWORK = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
_DUAL = (2, False, True)
_EFFECTS = ["NoSchedule", "PreferNoSchedule", "NoExecute"]
_COMPARED = ["Lt", "Gt"]
_MAX_SECONDS = 2**31 - 1
_MAX_HOST_NAME_LENGTH = 64
_WHICH_CLAIM = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
_TWO_CLAIMS = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"


def check_node(errors: ErrorList, new: Plain, old: Plain | None, *, release: Release) -> None:
    """Check a node: its taints, its amounts, and its address ranges, which are immutable once they are set."""
    spec, before = new.get("spec") or {}, ((old or {}).get("spec") or {})
    _check_taints(errors, spec.get("taints") or ())
    _check_node_status(errors, new.get("status") or {}, is_new=old is None)
    ranges, path = spec.get("podCIDRs") or [], "spec.podCIDRs"
    for index, text in enumerate(ranges):
        if not is_network(text):
            errors.invalid(f"{path}[{index}]", text, NO_NETWORK)
    if len(ranges) > 1 and all(map(is_network, ranges)) and (len(ranges), *sorted(":" in x for x in ranges)) != _DUAL:
        errors.invalid(path, ranges, "may specify no more than one CIDR for each IP family")
    message = 'node updates may not change podCIDR except from "" to valid'
    was = before.get("podCIDRs") or []
    is_shorter = bool(was) and len(was) != len(ranges)
    for is_other in [True] if is_shorter else [one != other for one, other in zip(was, ranges, strict=False)]:
        if is_other:
            errors.forbidden(path, message)
    provider = spec.get("providerID")
    if before.get("providerID") and provider != before["providerID"]:
        if release.has_declared_rules:
            errors.invalid("spec.providerID", None, f"field cannot be {'modified' if provider else 'cleared'} once set")
        else:
            errors.forbidden("spec.providerID", 'node updates may not change providerID except from "" to valid')


def is_network(text: str) -> bool:
    """Return whether a text is an address range."""
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


def _check_node_status(errors: ErrorList, status: Plain, *, is_new: bool) -> None:
    for member in ("capacity", "allocatable"):
        for name, amount in (status.get(member) or {}).items():
            check_amount(errors, f"status.{member}.{name}", name, amount)
    seen: list[Plain] = []
    for index, address in enumerate(() if is_new else status.get("addresses") or ()):
        shown = {"Type": address.get("type") or "", "Address": address.get("address") or ""}
        if shown in seen:
            errors.duplicate(f"status.addresses[{index}]", shown)
        seen.append(shown)


def _check_taints(errors: ErrorList, taints: Sequence[Plain]) -> None:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        path, key, effect = f"metadata.taints[{index}]", taint.get("key") or "", taint.get("effect") or ""
        label_name(errors, f"{path}.key", key)
        add_invalid(errors, f"{path}.value", taint.get("value") or "", label_value(taint.get("value") or ""))
        check_choice(errors, f"{path}.effect", effect, _EFFECTS)
        if (key, effect) in seen:
            shown = {"Key": key, "Value": taint.get("value") or "", "Effect": effect}
            shown["TimeAdded"] = taint.get("timeAdded")
            found = ErrorList()
            found.duplicate(path, shown)
            errors.append(
                found[0]._replace(message=f"{found[0].message}: taints must be unique by key and effect pair")
            )
        seen.add((key, effect))


def check_pod_spec(errors: ErrorList, spec: Plain, path: str = "spec", *, pod: str = "") -> None:
    """Check a pod's spec with its defaults, or that of a template at a path; `pod` is the name of the pod."""
    volumes = check_volumes(errors, spec.get("volumes") or (), f"{path}.volumes", pod)
    claims = _claims(errors, spec.get("resourceClaims") or (), f"{path}.resourceClaims")
    check_containers(errors, spec, path, volumes, claims)
    check_pod_requests(errors, spec, path)
    for index, each in enumerate(spec.get("containers") or () if spec.get("hostNetwork") else ()):
        _host_ports(errors, each, f"{path}.containers[{index}].ports", is_pod=path == "spec")
    check_choice(errors, f"{path}.restartPolicy", spec.get("restartPolicy"), _RESTART)
    check_choice(errors, f"{path}.dnsPolicy", spec.get("dnsPolicy"), _DNS)
    check_labels(errors, f"{path}.nodeSelector", spec.get("nodeSelector"))
    check_pod_security_context(errors, spec, f"{path}.securityContext")
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        why = "ShareProcessNamespace and HostPID cannot both be enabled"
        errors.invalid(f"{path}.shareProcessNamespace", True, why)
    check_affinity(errors, spec.get("affinity") or {}, f"{path}.affinity")
    check_names(errors, spec, path)
    _gates(errors, spec, path)
    check_spread(errors, spec.get("topologySpreadConstraints") or [], f"{path}.topologySpreadConstraints")
    check_host_processes(errors, spec, path)
    check_host_users(errors, spec, path)
    _host_name(errors, spec, f"{path}.hostnameOverride")
    for member in ("serviceAccountName", "nodeName"):
        if spec.get(member):
            add_invalid(errors, f"{path}.{member}", spec[member], dns_subdomain(spec[member]))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _MAX_SECONDS:
        errors.invalid(f"{path}.activeDeadlineSeconds", deadline, f"must be between 1 and {_MAX_SECONDS}, inclusive")
    for member in ("hostname", "subdomain"):
        if spec.get(member):
            dns_label(errors, f"{path}.{member}", spec[member])
    for index, each in enumerate(spec.get("tolerations") or ()):
        check_toleration(errors, each, f"{path}.tolerations[{index}]")
    check_aliases(errors, spec.get("hostAliases") or [], f"{path}.hostAliases")
    for member in ("priorityClassName", "runtimeClassName"):
        if spec.get(member) or (member == "runtimeClassName" and spec.get(member) is not None):
            add_invalid(errors, f"{path}.{member}", spec[member], dns_subdomain(spec[member]))
    if spec.get("preemptionPolicy") is not None:
        check_choice(errors, f"{path}.preemptionPolicy", spec["preemptionPolicy"], _PREEMPTION)
    if spec.get("overhead") is not None:
        check_requirements(errors, {"limits": spec["overhead"]}, f"{path}.overhead", frozenset())
    check_operating_system(errors, spec, path)
    by_name = {each.get("name") or "": each for each in spec.get("volumes") or ()}
    for where, each in containers_of(spec, path):
        check_files_of_variables(errors, each, where, by_name)


def _gates(errors: ErrorList, spec: Plain, path: str) -> None:
    """Check the readiness gates and the scheduling gates."""
    for index, each in enumerate(spec.get("readinessGates") or ()):
        label_name(errors, f"{path}.readinessGates[{index}].conditionType", each.get("conditionType") or "")
    seen: set[str] = set()
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        name, here = gate.get("name") or "", f"{path}.schedulingGates[{index}]"
        label_name(errors, here, name)
        if name in seen:
            errors.duplicate(here, name)
        seen.add(name)


def _host_name(errors: ErrorList, spec: Plain, path: str) -> None:
    """Check the host name override."""
    name = spec.get("hostnameOverride")
    if name is None:
        return
    for member in ("setHostnameAsFQDN", "hostNetwork"):
        if spec.get(member):
            errors.forbidden(path, f"may not be specified when {member} is true")
    if len(name) > _MAX_HOST_NAME_LENGTH:
        errors.too_long(path, _MAX_HOST_NAME_LENGTH)
    add_invalid(errors, path, name, dns_subdomain(name))


def _claims(errors: ErrorList, claims: Sequence[Plain], path: str) -> set[str]:
    """Check the claims. Return the names by which containers refer to them."""
    names: set[str] = set()
    for index, each in enumerate(claims):
        here, name = f"{path}[{index}]", each.get("name") or ""
        claim, template = each.get("resourceClaimName"), each.get("resourceClaimTemplateName")
        shown = InOrder({"Name": name, "ResourceClaimName": claim, "ResourceClaimTemplateName": template})
        if not name:
            errors.required(f"{here}.name")
        elif name in names:
            errors.duplicate(f"{here}.name", name)
        else:
            dns_label(errors, f"{here}.name", name)
        if claim is not None and template is not None:
            errors.invalid(here, shown, _TWO_CLAIMS)
        elif claim is None and template is None:
            errors.invalid(here, shown, _WHICH_CLAIM)
        for member, value in (("resourceClaimName", claim), ("resourceClaimTemplateName", template)):
            if value is not None:
                add_invalid(errors, f"{here}.{member}", value, dns_subdomain(value))
        names.add(name)
    return names - {""}


def _host_ports(errors: ErrorList, container: Plain, path: str, *, is_pod: bool) -> None:
    """Check that in the host's network host ports equal container ports. A template can leave them out."""
    for index, port in enumerate(container.get("ports") or ()):
        is_open = not is_pod and not port.get("hostPort")
        if not is_open and port.get("hostPort") != port.get("containerPort"):
            text = "must match `containerPort` when `hostNetwork` is true"
            errors.invalid(f"{path}[{index}].hostPort", port.get("hostPort", 0), text)


def check_toleration(errors: ErrorList, toleration: Plain, path: str) -> None:
    """Check a toleration."""
    key, operator = toleration.get("key") or "", toleration.get("operator") or ""
    value, effect = toleration.get("value") or "", toleration.get("effect") or ""
    if key:
        label_name(errors, f"{path}.key", key)
    elif operator != "Exists":
        text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        errors.invalid(f"{path}.operator", operator, text)
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        errors.invalid(f"{path}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
    if operator in ("", "Equal"):
        add_invalid(errors, f"{path}.operator", value, label_value(value))
    elif operator == "Exists":
        if value:
            errors.invalid(f"{path}.operator", value, "value must be empty when `operator` is 'Exists'")
    else:
        more = _COMPARED if operator in _COMPARED else []  # known to Go, but disabled
        errors.not_supported(f"{path}.operator", operator, ["Equal", "Exists", *more])
    if effect and effect not in _EFFECTS:
        errors.not_supported(f"{path}.effect", effect, _EFFECTS)
