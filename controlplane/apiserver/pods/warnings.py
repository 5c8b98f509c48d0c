"""Warnings for pods and pod templates.

Source: k8s.io/kubernetes pkg/api/pod/warnings.go, pkg/api/node/util.go and the strategies of pkg/registry.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.pods.annotations import SECCOMP, SECCOMP_OF
from controlplane.apiserver.pods.placement import PREFERRED, REQUIRED
from controlplane.apiserver.pods.port_warnings import port_warnings
from controlplane.apiserver.pods.profiles import armor_warning
from controlplane.apiserver.rules.overlaps import overlap_warnings
from controlplane.apiserver.unstructured_rules import Warn
from resourceapi.objects import Quantity, QuantityError, quoted_text
from resourceapi.objects.names import dns_label, label_value

_LABELS = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22; use Taints and Tolerations instead",
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}
_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": 'non-functional in v1.16+; use the "priorityClassName" field instead',
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
_VOLUMES = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
_SHOWN = {"storageos": "storageOS"}
_NO_SECCOMP = 'non-functional in v1.27+; use the "seccompProfile" field instead'
_IN_BYTES = ("memory", "ephemeral-storage")
_NO_POD = "a null labelSelector results in matching no pod"
_ALL_REVISIONS = (
    "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
)
_NAMED = ("CronJob", "Deployment", "Job", "ReplicaSet", "ReplicationController")
_PODS_OF = "Pod names and hostnames"


def pod_warnings(new: Plain, old: Plain | None) -> list[str]:
    """Return the warnings for a new pod; there are none for a changed pod."""
    return [] if old is not None else [*_name(new, "the Pod's hostname"), *_of_pod(new, "")]


def _name(obj: Plain, use: str) -> list[str]:
    """The warning for a name that becomes a host name."""
    why = " ".join(dns_label(obj["metadata"].get("name") or ""))
    text = f"metadata.name: this is used in {use}, which can result in surprising behavior; a DNS label is recommended"
    return [f"{text}: [{why}]"] if why else []


def _workload_warnings(new: Plain, old: Plain | None, *, kind: str) -> list[str]:
    """The warnings for a workload: for a new one's name, and for a new or changed template."""
    found = _name(new, _PODS_OF) if old is None and kind in _NAMED else []
    if kind == "DaemonSet" and old is not None:
        is_other = new["spec"].get("template") != old["spec"].get("template")
    else:
        is_other = old is None or new["metadata"].get("generation") != old["metadata"].get("generation")
    if is_other:
        path, holder = ("", new) if kind == "PodTemplate" else ("spec.", new["spec"])
        if kind == "CronJob":
            path, holder = "spec.jobTemplate.spec.", holder["jobTemplate"]["spec"]
        found += _of_pod(holder.get("template") or {}, f"{path}template.")
    if kind == "StatefulSet":
        for where, claim in _items(new["spec"], "spec", "volumeClaimTemplates"):
            found += claim_warnings(claim.get("spec") or {}, where if old is None else f"{where}.Spec")
        if new["spec"].get("revisionHistoryLimit", 0) < 0:
            found.append(_ALL_REVISIONS)
    return found


def _of_pod(pod: Plain, path: str) -> Iterator[str]:
    """The warnings for a pod, or for a template at a path."""
    spec, annotations = pod.get("spec") or {}, (pod.get("metadata") or {}).get("annotations") or {}
    here = f"{path}spec"
    yield from (
        f"{here}.nodeSelector[{key}]: {_LABELS[key]}" for key in spec.get("nodeSelector") or {} if key in _LABELS
    )
    yield from _of_affinity((spec.get("affinity") or {}).get("nodeAffinity") or {}, f"{here}.affinity.nodeAffinity")
    for where, each in _items(spec, here, "topologySpreadConstraints"):
        if each.get("topologyKey") in _LABELS:
            yield f"{where}.topologyKey: {each['topologyKey']} is {_LABELS[each['topologyKey']]}"
        if each.get("labelSelector") is None:
            yield f"{where}.labelSelector: {_NO_POD}"
    yield from (
        f"{path}metadata.annotations[{key}]: {text}" for key, text in _ANNOTATIONS.items() if key in annotations
    )
    for where, volume in _items(spec, here, "volumes"):
        yield from source_warnings(volume, where)
        claim = ((volume.get("ephemeral") or {}).get("volumeClaimTemplate") or {}).get("spec") or {}
        yield from claim_warnings(claim, f"{where}.ephemeral.volumeClaimTemplate.spec")
    yield from overlap_warnings(spec.get("volumes") or ())
    yield from _duplicate_warnings(spec, here, "hostAliases", "ip")
    yield from _duplicate_warnings(spec, here, "imagePullSecrets", "name")
    for where, secret in _items(spec, here, "imagePullSecrets"):
        if not secret.get("name"):
            yield f'{where}.name: invalid empty name ""'
    yield from _fractional(spec.get("overhead") or {}, f"{here}.overhead", _IN_BYTES)
    if SECCOMP in annotations and not (spec.get("securityContext") or {}).get("seccompProfile"):
        yield f"{path}metadata.annotations[{SECCOMP}]: {_NO_SECCOMP}"
    containers = [
        each for name in ("initContainers", "containers", "ephemeralContainers") for each in _items(spec, here, name)
    ]
    for where, container in containers:
        key = f"{SECCOMP_OF}{container.get('name')}"
        if key in annotations and not (container.get("securityContext") or {}).get("seccompProfile"):
            yield f"{path}metadata.annotations[{key}]: {_NO_SECCOMP}"
        if path and (warning := armor_warning(pod, container)):
            yield f"{path}{warning}"
        yield from _fraction_warnings(container, where, _IN_BYTES, ("limits", "requests"))
        yield from _hidden_variable_warnings(container, where)
    yield from port_warnings([port for where, container in containers for port in _items(container, where, "ports")])
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        why = "must be >= 0; negative values are invalid and will be treated as 1"
        yield f"{here}.terminationGracePeriodSeconds: {why}"
    for way in ("podAffinity", "podAntiAffinity"):
        yield from _of_pod_affinity((spec.get("affinity") or {}).get(way) or {}, f"{here}.affinity.{way}")


def source_warnings(volume: Plain, path: str) -> list[str]:
    """Return the warnings for a volume's source."""
    return [
        f"{path}.{_SHOWN.get(kind, kind)}: {text}" for kind, text in _VOLUMES.items() if volume.get(kind) is not None
    ]


def claim_warnings(spec: Plain, path: str) -> Iterator[str]:
    """Return the warnings for the spec of a storage claim at a path."""
    return _fraction_warnings(spec, path, ("storage",), ("requests", "limits"))


def _items(holder: Plain, path: str, name: str) -> Iterator[tuple[str, Plain]]:
    """The items of a list with their paths."""
    return ((f"{path}.{name}[{index}]", each) for index, each in enumerate(holder.get(name) or ()))


def _of_affinity(affinity: Plain, path: str) -> Iterator[str]:
    for where, term in _items(affinity.get(REQUIRED) or {}, f"{path}.{REQUIRED}", "nodeSelectorTerms"):
        for at, each in _items(term, where, "matchExpressions"):
            yield from _old_label(each, at)
    for where, weighted in _items(affinity, path, PREFERRED):
        for at, each in _items(weighted.get("preference") or {}, f"{where}.preference", "matchExpressions"):
            yield from _old_label(each, at)
            for index, value in enumerate(each.get("values") or ()):
                yield from (f"{at}.values[{index}]: {value} is invalid, {text}" for text in label_value(value))


def _old_label(expression: Plain, path: str) -> Iterator[str]:
    key = expression.get("key")
    if key in _LABELS:
        yield f"{path}.key: {key} is {_LABELS[key]}"


def _of_pod_affinity(affinity: Plain, path: str) -> Iterator[str]:
    weighted = (
        (f"{at}.podAffinityTerm", each.get("podAffinityTerm") or {}) for at, each in _items(affinity, path, PREFERRED)
    )
    for where, term in chain(_items(affinity, path, REQUIRED), weighted):
        if term.get("labelSelector") is None:
            yield f"{where}.labelSelector: {_NO_POD}"


def _duplicate_warnings(spec: Plain, path: str, name: str, key: str) -> Iterator[str]:
    seen: set[str] = set()
    for where, each in _items(spec, path, name):
        value = each.get(key) or ""
        if value in seen:
            yield f"{where}.{key}: duplicate {key} {quoted_text(value)}"
        seen.add(value)


def _fraction_warnings(holder: Plain, path: str, names: tuple[str, ...], members: tuple[str, ...]) -> Iterator[str]:
    """The warnings for fractional amounts of a container or a storage claim."""
    resources = holder.get("resources") or {}
    for name in names:
        for member in members:
            yield from _fractional(resources.get(member) or {}, f"{path}.resources.{member}", (name,))


def _fractional(amounts: Plain, path: str, names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        if name in amounts and _is_fraction(str(amounts[name])):
            shown = quoted_text(str(Quantity.parse(str(amounts[name]))))
            yield f"{path}[{name}]: fractional byte value {shown} is invalid, must be an integer"


def _is_fraction(text: str) -> bool:
    try:
        return Quantity.parse(text).milli_value() % 1000 != 0
    except QuantityError:
        return False


def _hidden_variable_warnings(container: Plain, path: str) -> Iterator[str]:
    """The warnings for variables that replace an earlier one without using its value."""
    seen: set[str] = set()
    for where, variable in _items(container, path, "env"):
        name, value = variable.get("name") or "", variable.get("value") or ""
        reference = f"$({name})"
        is_kept = variable.get("valueFrom") is None and value != reference and reference in value
        if name in seen and not is_kept:
            warning = f"hides previous definition of {quoted_text(name)}, which may be dropped when using apply"
            yield f"{where}: {warning}"
        seen.add(name)


WARNS: Mapping[str, Warn] = {
    kind: partial(_workload_warnings, kind=kind) for kind in (*_NAMED, "DaemonSet", "PodTemplate", "StatefulSet")
}
"""Kind -> function that returns its warnings."""
