"""The resources of a pod as a whole: the requests, if only limits are set.

Source: k8s.io/kubernetes pkg/apis/core/v1/defaults.go, KEP-2837 (pod level resources).
"""

from collections.abc import Iterable
from typing import Any

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.rules.resource_rules import HUGE_PAGES, check_requirements, pod_resource, quantity
from resourceapi.objects import ErrorList, Quantity, QuantityError

_OF_PODS = ("cpu", "memory")
Amounts = dict[str, Quantity]


def with_pod_requests(spec: Plain) -> Plain:
    """Return a spec with missing requests of the pod: what its containers need together, or the pod's limit."""
    resources: Plain = spec.get("resources") or {}
    limits = resources.get("limits") or {}
    if not limits:
        return spec
    try:
        needed = peak_amounts(spec)
    except QuantityError:  # reported when the types are checked
        return spec
    requests = {name: str(amount) for name, amount in needed.items() if name in _OF_PODS}
    requests |= {name: amount for name, amount in limits.items() if name not in requests and _is_of_pods(name)}
    requests |= resources.get("requests") or {}
    return {**spec, "resources": {**resources, "requests": requests}} if requests else spec


def with_whole_resources(spec: Plain) -> Plain:
    """Return a new pod's spec with missing limits of the pod, if all its containers have limits.

    The limit is the pod's request, or what its containers can use together. Raises QuantityError.
    """
    resources: Plain = spec.get("resources") or {}
    requests, limits = (dict(resources.get(member) or {}) for member in ("requests", "limits"))
    if not requests and not limits:
        return spec
    asked, limited = (peak_amounts(spec, member) for member in ("requests", "limits"))
    for name, amount in limited.items():
        if name.startswith(HUGE_PAGES) and name not in requests:
            limits.setdefault(name, str(amount))
    for name, amount in asked.items():
        if name in _OF_PODS:
            requests.setdefault(name, str(amount))
    for name, amount in limits.items():
        if _is_of_pods(name):
            requests.setdefault(name, amount)
    containers = [*_containers(spec, "initContainers"), *_containers(spec, "containers")]
    for name in filter(_is_of_pods, requests.keys() - limits.keys()):
        if all(name in _amounts(each, "limits") for each in containers):
            limits[name] = str(max(limited[name], quantity(requests[name])))
    filled = {"requests": requests, "limits": limits}
    return {**spec, "resources": {**resources, **{name: amounts for name, amounts in filled.items() if amounts}}}


def check_pod_requests(errors: ErrorList, spec: Plain, path: str) -> None:
    """Check a pod's resources: requests cover those of all containers together, limits those of each container."""
    resources, here = spec.get("resources"), f"{path}.resources"
    if resources is None:
        return
    if (spec.get("os") or {}).get("name") == "windows":
        errors.forbidden(here, "may not be set for a windows pod")
        return
    if resources.get("claims") is not None:
        errors.forbidden(f"{here}.claims", "claims may not be set for Resources at pod-level")
    names = [each.get("name") or "" for each in spec.get("resourceClaims") or ()]
    check_requirements(errors, resources, here, {name for name in names if name}, pod_resource)
    for member in ("requests", "limits"):
        whole = resources.get(member) or {}
        for name, amount in peak_amounts(spec, member).items():
            is_compared = name in whole and (member == "requests" or name.startswith(HUGE_PAGES))
            if is_compared and amount > quantity(whole[name]):
                text = f"must be greater than or equal to aggregate container {member} of {amount}"
                errors.invalid(f"{here}.{member}[{name}]", str(whole[name]), text)
    limits = resources.get("limits") or {}
    for index, container in enumerate(spec.get("containers") or ()):
        for name, limit in ((container.get("resources") or {}).get("limits") or {}).items():
            if name in limits and quantity(limit) > quantity(limits[name]):
                text = f"must be less than or equal to pod limits of {limits[name]}"
                errors.invalid(f"{here}.containers[{index}][{name}].limits", str(limit), text)


def amounts_of_pod(pod: Plain, member: str) -> Amounts:
    """Return the requests or limits of a pod, with its overhead. Raises QuantityError.

    Resources of the pod as a whole take precedence over those of its containers.
    """
    spec = pod["spec"]
    whole = _amounts(spec, member).items()
    found = peak_amounts(spec, member) | {name: amount for name, amount in whole if _is_of_pods(name)}
    overhead = {name: Quantity.parse(str(amount)) for name, amount in (spec.get("overhead") or {}).items()}
    return sum_amounts(
        found, {name: amount for name, amount in overhead.items() if member == "requests" or name in found}
    )


def _is_of_pods(name: str) -> bool:
    """Whether a pod can ask for a resource as a whole."""
    return name in _OF_PODS or name.startswith(HUGE_PAGES)


def sum_amounts(one: Amounts, other: Amounts) -> Amounts:
    """Return the sum of amounts, by resource."""
    return {**one, **{name: one[name] + amount if name in one else amount for name, amount in other.items()}}


def peak_amounts(spec: Plain, member: str = "requests") -> Amounts:
    """Return the most that the containers need at one time, including the init containers."""
    sidecars: Amounts = {}
    most: Amounts = {}
    for each in _containers(spec, "initContainers"):
        needed = sum_amounts(sidecars, _amounts(each, member))
        if each.get("restartPolicy") == "Always":
            sidecars = needed
        most = _maximum(most, needed)
    running = sidecars
    for each in _containers(spec, "containers"):
        running = sum_amounts(running, _amounts(each, member))
    return _maximum(running, most)


def _containers(spec: Plain, member: str) -> Iterable[Plain]:
    return (each for each in spec.get(member) or () if isinstance(each, dict))


def _amounts(container: Plain, member: str) -> Amounts:
    found: Any = (container.get("resources") or {}).get(member) or {}
    return {name: Quantity.parse(str(amount)) for name, amount in found.items()}


def _maximum(one: Amounts, other: Amounts) -> Amounts:
    return {**one, **{name: max(one.get(name, amount), amount) for name, amount in other.items()}}
