"""The rules of a pod's containers: ordinary, init and ephemeral containers.

Source: k8s.io/kubernetes pkg/apis/core/validation/validation.go (validateContainerCommon and its callers).
"""

from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.pods.probes import check_hooks_and_probes, check_no_hooks_or_probes
from controlplane.apiserver.pods.security_contexts import check_security_context
from controlplane.apiserver.pods.variables import check_variables
from controlplane.apiserver.pods.volumes import Volumes, check_mounts
from controlplane.apiserver.rules.choices import check_choice
from controlplane.apiserver.rules.ports import check_port, port_name
from controlplane.apiserver.rules.resource_rules import check_requirements
from resourceapi.objects import ErrorList
from resourceapi.objects.field_rules import add_invalid, dns_label

PROTOCOLS = ["SCTP", "TCP", "UDP"]
_PULL = ["Always", "IfNotPresent", "Never"]
_MESSAGES = ["File", "FallbackToLogsOnError"]
_RESIZED = ["cpu", "memory"]
_RESIZE = ["NotRequired", "RestartContainer"]
_RESTART = ["Always", "Never", "OnFailure"]
_ACTIONS = ["Restart", "RestartAllContainers"]
_OPERATORS = ["In", "NotIn"]
_MAX_RULES, _MAX_CODES = 20, 255
_NOT_IN_EPHEMERAL = ("ports", "resources", "resizePolicy", "restartPolicy", "restartPolicyRules")
_NO_PROBES_IN_EPHEMERAL = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle")
_NOT_FOR_EPHEMERAL = "cannot be set for an Ephemeral Container"


def containers_of(spec: Plain, path: str) -> Iterator[tuple[str, Plain]]:
    """Return all containers of a pod with their paths, in upstream's order."""
    for member in ("initContainers", "containers", "ephemeralContainers"):
        for index, each in enumerate(spec.get(member) or ()):
            yield f"{path}.{member}[{index}]", each


def check_containers(errors: ErrorList, spec: Plain, path: str, volumes: Volumes, claims: Set[str]) -> None:
    """Check all containers of a pod. `claims` are the names of its claims in `spec.resourceClaims`."""
    around, here = _PodContext(spec, volumes, claims), f"{path}.containers"
    ordinary = spec.get("containers") or ()
    if not ordinary:
        errors.required(here)
    names: set[str] = set()
    for index, each in enumerate(ordinary):
        _check_common(errors, each, f"{here}[{index}]", around)
        _check_unique_name(errors, each, f"{here}[{index}]", names)
        check_hooks_and_probes(errors, each, f"{here}[{index}]", spec.get("terminationGracePeriodSeconds"))
        _check_restart(errors, each, f"{here}[{index}]")
    _check_host_ports(errors, ordinary, here)
    here = f"{path}.initContainers"
    for index, each in enumerate(spec.get("initContainers") or ()):
        _check_init_container(errors, each, f"{here}[{index}]", around, names)
        _check_host_ports(errors, [each], here)  # they run one by one; upstream has the index of the first
    others = {*names}
    for index, each in enumerate(spec.get("ephemeralContainers") or ()):
        _check_ephemeral_container(errors, each, f"{path}.ephemeralContainers[{index}]", around, names, others)


def check_images(errors: ErrorList, spec: Plain, path: str) -> None:
    """Check the images of a pod, with rules that do not apply to a template."""
    for member in ("containers", "initContainers"):
        for index, each in enumerate(spec.get(member) or ()):
            _check_image(errors, each, f"{path}.{member}[{index}]")


class _PodContext(NamedTuple):
    """What a container is checked against: its pod's spec, volumes and claims."""

    spec: Plain
    volumes: Volumes
    claims: Set[str]


def _check_image(errors: ErrorList, container: Plain, path: str) -> None:
    image = container.get("image") or ""
    if image != image.strip():
        errors.invalid(f"{path}.image", image, "must not have leading or trailing whitespace")


def _check_unique_name(errors: ErrorList, container: Plain, path: str, names: set[str]) -> None:
    name = container.get("name") or ""
    if name in names:
        errors.duplicate(f"{path}.name", name)
    names.add(name)


def _check_init_container(errors: ErrorList, container: Plain, path: str, around: _PodContext, names: set[str]) -> None:
    """Check an init container, which runs before the ordinary ones, or, as a sidecar, beside them."""
    _check_common(errors, container, path, around)
    is_beside = container.get("restartPolicy") == "Always"
    _check_restart(errors, container, path)
    _check_unique_name(errors, container, path, names)
    if is_beside:
        check_hooks_and_probes(errors, container, path, around.spec.get("terminationGracePeriodSeconds"))
    else:
        check_no_hooks_or_probes(errors, container, path)
        for index, each in enumerate(container.get("resizePolicy") or ()):
            if each.get("restartPolicy") == "RestartContainer":
                why = "must not be set to 'RestartContainer' for non-sidecar initContainers"
                errors.invalid(f"{path}.resizePolicy[{index}].restartPolicy", "RestartContainer", why)


def _check_ephemeral_container(
    errors: ErrorList, container: Plain, path: str, around: _PodContext, names: set[str], others: set[str]
) -> None:
    """Check an ephemeral container; `others` are the containers that it can target."""
    _check_common(errors, container, path, around)
    _check_image(errors, container, path)
    _check_unique_name(errors, container, path, names)
    target = container.get("targetContainerName") or ""
    if target and target not in others:
        errors.not_found(f"{path}.targetContainerName", target)
    for member in (*_NOT_IN_EPHEMERAL, *_NO_PROBES_IN_EPHEMERAL):
        if container.get(member):
            errors.forbidden(f"{path}.{member}", _NOT_FOR_EPHEMERAL)
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        for member in ("subPath", "subPathExpr"):
            if mount.get(member):
                errors.forbidden(f"{path}.volumeMounts[{index}].{member}", _NOT_FOR_EPHEMERAL)


def _check_common(errors: ErrorList, container: Plain, path: str, around: _PodContext) -> None:
    spec, context = around.spec, container.get("securityContext") or {}
    if container.get("name"):
        dns_label(errors, f"{path}.name", container["name"])
    else:
        errors.required(f"{path}.name")
    if not container.get("image"):
        errors.required(f"{path}.image")
    check_choice(errors, f"{path}.terminationMessagePolicy", container.get("terminationMessagePolicy"), _MESSAGES)
    _check_ports(errors, container.get("ports") or (), f"{path}.ports")
    check_variables(errors, container, path)
    check_mounts(errors, container, path, around.volumes)
    check_choice(errors, f"{path}.imagePullPolicy", container.get("imagePullPolicy"), _PULL)
    check_requirements(errors, container.get("resources") or {}, f"{path}.resources", around.claims)
    _check_resizing(errors, container, f"{path}.resizePolicy", is_final=spec.get("restartPolicy") == "Never")
    check_security_context(errors, context, f"{path}.securityContext", is_host_user=spec.get("hostUsers") is not False)


def _check_ports(errors: ErrorList, ports: Sequence[Plain], path: str) -> None:
    names: set[str] = set()
    for index, port in enumerate(ports):
        here, name = f"{path}[{index}]", port.get("name") or ""
        problems = port_name(name) if name else []
        add_invalid(errors, f"{here}.name", name, problems)
        if not problems and name and name in names:
            errors.duplicate(f"{here}.name", name)
        names.add(name)
        if not port.get("containerPort"):
            errors.required(f"{here}.containerPort")
        else:
            check_port(errors, f"{here}.containerPort", port["containerPort"])
        if port.get("hostPort"):
            check_port(errors, f"{here}.hostPort", port["hostPort"])
        check_choice(errors, f"{here}.protocol", port.get("protocol"), PROTOCOLS)


def _check_host_ports(errors: ErrorList, containers: Sequence[Plain], path: str) -> None:
    """Check the host ports; each can be used by one container only."""
    seen: set[str] = set()
    for number, container in enumerate(containers):
        for index, port in enumerate(container.get("ports") or ()):
            if port.get("hostPort"):
                shown = f"{port.get('protocol')}/{port.get('hostIP') or ''}/{port['hostPort']}"
                if shown in seen:
                    errors.duplicate(f"{path}[{number}].ports[{index}].hostPort", shown)
                seen.add(shown)


def _check_resizing(errors: ErrorList, container: Plain, path: str, *, is_final: bool) -> None:
    """Check the resize policy; `is_final`: the pod's containers never restart."""
    seen: set[str] = set()
    for index, each in enumerate(container.get("resizePolicy") or ()):
        name, policy = each.get("resourceName") or "", each.get("restartPolicy") or ""
        if name in seen:
            errors.duplicate(f"{path}[{index}]", name)
        seen.add(name)
        check_choice(errors, path, name, _RESIZED)
        check_choice(errors, path, policy, _RESIZE)
        if is_final and policy != "NotRequired":
            errors.invalid(path, policy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'")


def _check_restart(errors: ErrorList, container: Plain, path: str) -> None:
    """Check the restart policy and the restart rules of a container."""
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or ()
    if policy is None:
        if rules:
            errors.required(f"{path}.restartPolicy", "must specify restartPolicy when restart rules are used")
    elif policy not in _RESTART:
        errors.not_supported(f"{path}.restartPolicy", policy, _RESTART)
    if len(rules) > _MAX_RULES:
        errors.too_many(f"{path}.restartPolicyRules", len(rules), _MAX_RULES)
    for index, rule in enumerate(rules):
        here, codes = f"{path}.restartPolicyRules[{index}]", rule.get("exitCodes")
        if rule.get("action") not in _ACTIONS:
            errors.not_supported(f"{here}.action", rule.get("action") or "", _ACTIONS)
        if codes is None:
            errors.required(f"{here}.exitCodes", "must be specified")
            continue
        if codes.get("operator") not in _OPERATORS:
            errors.not_supported(f"{here}.exitCodes.operator", codes.get("operator") or "", _OPERATORS)
        if len(codes.get("values") or ()) > _MAX_CODES:
            errors.too_many(f"{here}.exitCodes.values", len(codes["values"]), _MAX_CODES)
