"""What a pod's spec, or that of a template of pods, must be: containers, volumes, claims, and the words it knows.

Not all that upstream checks: most sources of volumes, sysctls and what is for Windows are taken as they come. Source:
k8s.io/kubernetes pkg/apis/core/validation/validation.go.
"""

import ipaddress
from collections.abc import Sequence
from typing import Any

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.label_rules import check_labels
from controlplane.apiserver.pod_placement import check_affinity, check_aliases, check_names, check_spread
from controlplane.apiserver.pod_probes import check_life, check_no_life
from controlplane.apiserver.pod_resources import check_pod_requests
from controlplane.apiserver.pod_rights import check_pod_rights, check_rights
from controlplane.apiserver.pod_variables import check_variables
from controlplane.apiserver.ports import check_port
from resourceapi.objects import ErrorList, Quantity, QuantityError
from resourceapi.objects.errors import InOrder
from resourceapi.objects.field_rules import complaints, dns_label, label_name
from resourceapi.objects.names import dns_subdomain, is_extended_resource, is_native_resource, label_value

_RESTART = ["Always", "OnFailure", "Never"]
_DNS = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]
NO_NETWORK = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
_DUAL = (2, False, True)
_PULL = ["Always", "IfNotPresent", "Never"]
_MESSAGES = ["File", "FallbackToLogsOnError"]
PROTOCOLS = ["SCTP", "TCP", "UDP"]
_EFFECTS = ["NoSchedule", "PreferNoSchedule", "NoExecute"]
_PATHS = ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"]
_MOST_SECONDS = 2**31 - 1
_OF_CONTAINERS = ("cpu", "memory", "ephemeral-storage")
_WHICH_CLAIM = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
_TWO_CLAIMS = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"


def check_node(errors: ErrorList, new: Plain, old: Plain | None) -> None:
    """A node: its taints, and its ranges of addresses, which stay once it has some."""
    spec, before = new.get("spec") or {}, ((old or {}).get("spec") or {})
    _check_taints(errors, spec.get("taints") or ())
    ranges, path = spec.get("podCIDRs") or [], "spec.podCIDRs"
    for index, text in enumerate(ranges):
        if not is_network(text):
            errors.invalid(f"{path}[{index}]", text, NO_NETWORK)
    if len(ranges) > 1 and all(map(is_network, ranges)) and (len(ranges), *sorted(":" in x for x in ranges)) != _DUAL:
        errors.invalid(path, ranges, "may specify no more than one CIDR for each IP family")
    told = 'node updates may not change podCIDR except from "" to valid'
    was = before.get("podCIDRs") or []
    is_shorter = bool(was) and len(was) != len(ranges)
    for is_other in [True] if is_shorter else [one != other for one, other in zip(was, ranges, strict=False)]:
        if is_other:
            errors.forbidden(path, told)


def is_network(text: str) -> bool:
    """Whether a text is a range of addresses."""
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


def _check_taints(errors: ErrorList, taints: Sequence[Plain]) -> None:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        path, key, effect = f"metadata.taints[{index}]", taint.get("key") or "", taint.get("effect") or ""
        label_name(errors, f"{path}.key", key)
        complaints(errors, f"{path}.value", taint.get("value") or "", label_value(taint.get("value") or ""))
        _known(errors, f"{path}.effect", effect, _EFFECTS)
        if (key, effect) in seen:
            shown = {"Key": key, "Value": taint.get("value") or "", "Effect": effect}
            shown["TimeAdded"] = taint.get("timeAdded")
            found = ErrorList()
            found.duplicate(path, shown)
            errors.append(
                found[0]._replace(message=f"{found[0].message}: taints must be unique by key and effect pair")
            )
        seen.add((key, effect))


def check_pod_spec(errors: ErrorList, spec: Plain, path: str = "spec") -> None:
    """A pod's spec with its defaults, or that of a template at a path."""
    volumes = _volumes(errors, spec.get("volumes") or (), f"{path}.volumes")
    claims = _claims(errors, spec.get("resourceClaims") or (), f"{path}.resourceClaims")
    names: set[str] = set()
    containers = spec.get("containers") or ()
    if not containers:
        errors.required(f"{path}.containers")
    is_host_user, grace = spec.get("hostUsers") is not False, spec.get("terminationGracePeriodSeconds")
    for member, some in (("containers", containers), ("initContainers", spec.get("initContainers") or ())):
        for index, each in enumerate(some):
            here = f"{path}.{member}[{index}]"
            _container(errors, each, here, volumes, claims, is_host_user=is_host_user)
            if each.get("name") and each["name"] in names:
                errors.duplicate(f"{here}.name", each["name"])
            names.add(each.get("name") or "")
            if member == "containers" or each.get("restartPolicy") == "Always":
                check_life(errors, each, here, grace)
            else:
                check_no_life(errors, each, here)
        if member == "containers":
            _unique_host_ports(errors, some, f"{path}.{member}")
    check_pod_requests(errors, spec, path)
    for index, each in enumerate(containers if spec.get("hostNetwork") else ()):
        _host_ports(errors, each, f"{path}.containers[{index}].ports", is_pod=path == "spec")
    _known(errors, f"{path}.restartPolicy", spec.get("restartPolicy"), _RESTART)
    _known(errors, f"{path}.dnsPolicy", spec.get("dnsPolicy"), _DNS)
    check_labels(errors, f"{path}.nodeSelector", spec.get("nodeSelector"))
    check_pod_rights(errors, spec.get("securityContext") or {}, f"{path}.securityContext")
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        why = "ShareProcessNamespace and HostPID cannot both be enabled"
        errors.invalid(f"{path}.shareProcessNamespace", True, why)
    check_affinity(errors, spec.get("affinity") or {}, f"{path}.affinity")
    check_names(errors, spec, path)
    for index, each in enumerate(spec.get("readinessGates") or ()):
        label_name(errors, f"{path}.readinessGates[{index}].conditionType", each.get("conditionType") or "")
    gates: set[str] = set()
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        if gate.get("name") in gates:
            errors.duplicate(f"{path}.schedulingGates[{index}]", gate["name"])
        gates.add(gate.get("name") or "")
    check_spread(errors, spec.get("topologySpreadConstraints") or [], f"{path}.topologySpreadConstraints")
    for member in ("serviceAccountName", "nodeName"):
        if spec.get(member):
            complaints(errors, f"{path}.{member}", spec[member], dns_subdomain(spec[member]))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _MOST_SECONDS:
        errors.invalid(f"{path}.activeDeadlineSeconds", deadline, f"must be between 1 and {_MOST_SECONDS}, inclusive")
    for member in ("hostname", "subdomain"):
        if spec.get(member):
            dns_label(errors, f"{path}.{member}", spec[member])
    for index, each in enumerate(spec.get("tolerations") or ()):
        _toleration(errors, each, f"{path}.tolerations[{index}]")
    check_aliases(errors, spec.get("hostAliases") or [], f"{path}.hostAliases")


def _known(errors: ErrorList, path: str, value: Any, words: list[str]) -> None:
    if not value:
        errors.required(path)
    elif value not in words:
        errors.not_supported(path, value, words)


def _volumes(errors: ErrorList, volumes: Sequence[Plain], path: str) -> set[str]:
    """The names of the volumes that there are."""
    names: set[str] = set()
    for index, volume in enumerate(volumes):
        here, name = f"{path}[{index}]", volume.get("name") or ""
        kinds = [member for member, item in volume.items() if member != "name" and item is not None]
        for member in sorted(kinds)[1:]:
            errors.forbidden(f"{here}.{member}", "may not specify more than 1 volume type")
        for member, needed in (("configMap", "name"), ("secret", "secretName")):
            if kinds == [member] and not volume[member].get(needed):
                errors.required(f"{here}.{member}.{needed}")
        if kinds == ["hostPath"]:
            _host_path(errors, volume["hostPath"], f"{here}.hostPath")
        if not name:
            errors.required(f"{here}.name")
        else:
            dns_label(errors, f"{here}.name", name)
            if name in names:
                errors.duplicate(f"{here}.name", name)
        names.add(name)
    return names


def _host_path(errors: ErrorList, source: Plain, path: str) -> None:
    where, kind = source.get("path") or "", source.get("type") or ""
    if not where:
        errors.required(f"{path}.path")
        return
    if ".." in where.split("/"):
        errors.invalid(f"{path}.path", where, "must not contain '..'")
    if kind not in _PATHS:
        errors.not_supported(f"{path}.type", kind, _PATHS)


def _claims(errors: ErrorList, claims: Sequence[Plain], path: str) -> list[str]:
    """The names by which containers refer to claims."""
    names: list[str] = []
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
                complaints(errors, f"{here}.{member}", value, dns_subdomain(value))
        names.append(name)
    return names


def _container(
    errors: ErrorList, container: Plain, path: str, volumes: set[str], claims: list[str], *, is_host_user: bool
) -> None:
    if container.get("name"):
        dns_label(errors, f"{path}.name", container["name"])
    else:
        errors.required(f"{path}.name")
    if not container.get("image"):
        errors.required(f"{path}.image")
    _known(errors, f"{path}.terminationMessagePolicy", container.get("terminationMessagePolicy"), _MESSAGES)
    _ports(errors, container.get("ports") or (), f"{path}.ports")
    check_variables(errors, container, path)
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        here, name = f"{path}.volumeMounts[{index}]", mount.get("name") or ""
        if not name:
            errors.required(f"{here}.name")
        elif name not in volumes:
            errors.not_found(f"{here}.name", name)
        if not mount.get("mountPath"):
            errors.required(f"{here}.mountPath")
    _known(errors, f"{path}.imagePullPolicy", container.get("imagePullPolicy"), _PULL)
    _resources(errors, container.get("resources") or {}, f"{path}.resources", claims)
    check_rights(errors, container.get("securityContext") or {}, f"{path}.securityContext", is_host_user=is_host_user)


def _ports(errors: ErrorList, ports: Sequence[Plain], path: str) -> None:
    names: set[str] = set()
    for index, port in enumerate(ports):
        here, name = f"{path}[{index}]", port.get("name")
        if name and name in names:
            errors.duplicate(f"{here}.name", name)
        names.add(name or "")
        if not port.get("containerPort"):
            errors.required(f"{here}.containerPort")
        else:
            check_port(errors, f"{here}.containerPort", port["containerPort"])
        if port.get("hostPort"):
            check_port(errors, f"{here}.hostPort", port["hostPort"])
        _known(errors, f"{here}.protocol", port.get("protocol"), PROTOCOLS)


def _unique_host_ports(errors: ErrorList, containers: Sequence[Plain], path: str) -> None:
    seen: set[str] = set()
    for number, container in enumerate(containers):
        for index, port in enumerate(container.get("ports") or ()):
            if port.get("hostPort"):
                shown = f"{port.get('protocol')}/{port.get('hostIP') or ''}/{port['hostPort']}"
                if shown in seen:
                    errors.duplicate(f"{path}[{number}].ports[{index}].hostPort", shown)
                seen.add(shown)


def _host_ports(errors: ErrorList, container: Plain, path: str, *, is_pod: bool) -> None:
    """With the host's network ports are the host's; a template may leave that to the pod."""
    for index, port in enumerate(container.get("ports") or ()):
        is_open = not is_pod and not port.get("hostPort")
        if not is_open and port.get("hostPort") != port.get("containerPort"):
            text = "must match `containerPort` when `hostNetwork` is true"
            errors.invalid(f"{path}[{index}].hostPort", port.get("hostPort", 0), text)


def _resources(errors: ErrorList, resources: Plain, path: str, claims: list[str]) -> None:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for member, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            _amount(errors, f"{path}.{member}[{name}]", name, amount)
    for name, amount in requests.items():
        limit = limits.get(name)
        is_shared = name in _OF_CONTAINERS
        if limit is None:
            if not is_shared:
                errors.required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        elif not is_shared and _quantity(amount) != _quantity(limit):
            errors.invalid(f"{path}.requests", amount, f"must be equal to {name} limit of {limit}")
        elif is_shared and _quantity(amount) > _quantity(limit):
            errors.invalid(f"{path}.requests", amount, f"must be less than or equal to {name} limit of {limit}")
    for index, each in enumerate(resources.get("claims") or ()):
        here, name = f"{path}.claims[{index}]", each.get("name") or ""
        if not name:
            errors.required(here)
        elif name not in claims:
            known = "which is empty" if not claims else f"which are {', '.join(claims)}"
            errors.not_found(here, name, f"must be one of the names in pod.spec.resourceClaims {known}")


def _amount(errors: ErrorList, path: str, name: str, text: Any) -> None:
    if "/" not in name and name not in _OF_CONTAINERS and not name.startswith("hugepages-"):
        errors.invalid(path, name, "must be a standard resource type or fully qualified")
        errors.invalid(path, name, "must be a standard resource for containers")
    amount = _quantity(text)
    if amount < _quantity("0"):
        errors.invalid(path, text, "must be greater than or equal to 0")
    is_whole = is_extended_resource(name) and not is_native_resource(name)
    if is_whole and str(text).endswith(("m", "u", "n")):
        errors.invalid(path, text, "must be an integer")


def _quantity(text: Any) -> Quantity:
    try:
        return Quantity.parse(str(text))
    except QuantityError:  # the types of the object were looked at before
        return Quantity.parse("0")


def _toleration(errors: ErrorList, toleration: Plain, path: str) -> None:
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
        complaints(errors, f"{path}.operator", value, label_value(value))
    elif operator == "Exists":
        if value:
            errors.invalid(f"{path}.operator", value, "value must be empty when `operator` is 'Exists'")
    else:
        errors.not_supported(f"{path}.operator", operator, ["Equal", "Exists"])
    if effect and effect not in _EFFECTS:
        errors.not_supported(f"{path}.effect", effect, _EFFECTS)
