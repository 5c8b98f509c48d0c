"""What a pod asks for as a whole, where its author says what it may have at most as a whole.

Source: k8s.io/kubernetes pkg/apis/core/v1/defaults.go, KEP-2837 (pod level resources).
"""

from collections.abc import Iterable
from typing import Any

from controlplane.apiserver.kinds import Plain
from resourceapi.objects import ErrorList, Quantity, QuantityError

_OF_PODS = ("cpu", "memory")
_HUGE_PAGES = "hugepages-"
Amounts = dict[str, Quantity]


def with_pod_requests(spec: Plain) -> Plain:
    """A spec whose containers have their requests, with those of the pod: what they need together, or the limit."""
    resources: Plain = spec.get("resources") or {}
    limits = resources.get("limits") or {}
    if not limits:
        return spec
    try:
        together = _together(spec)
    except QuantityError:  # told when the types of the spec are looked at
        return spec
    requests = {name: str(amount) for name, amount in together.items() if name in _OF_PODS}
    requests |= {
        name: amount
        for name, amount in limits.items()
        if name not in requests and (name in _OF_PODS or name.startswith(_HUGE_PAGES))
    }
    requests |= resources.get("requests") or {}
    return {**spec, "resources": {**resources, "requests": requests}} if requests else spec


def check_pod_requests(errors: ErrorList, spec: Plain, path: str) -> None:
    """That a pod asks for no less as a whole than its containers do together."""
    requests = (spec.get("resources") or {}).get("requests") or {}
    together = _together(spec) if requests else {}
    for name, amount in requests.items():
        if name in together and together[name] > Quantity.parse(str(amount)):
            text = f"must be greater than or equal to aggregate container requests of {together[name]}"
            errors.invalid(f"{path}.resources.requests[{name}]", str(amount), text)


def _together(spec: Plain) -> Amounts:
    """What containers need at one time at the most, the initial ones among them."""
    sidecars: Amounts = {}
    most: Amounts = {}
    for each in _containers(spec, "initContainers"):
        needed = _sum(sidecars, _requests(each))
        if each.get("restartPolicy") == "Always":
            sidecars = needed
        most = _greatest(most, needed)
    running = sidecars
    for each in _containers(spec, "containers"):
        running = _sum(running, _requests(each))
    return _greatest(running, most)


def _containers(spec: Plain, member: str) -> Iterable[Plain]:
    return (each for each in spec.get(member) or () if isinstance(each, dict))


def _requests(container: Plain) -> Amounts:
    found: Any = (container.get("resources") or {}).get("requests") or {}
    return {name: Quantity.parse(str(amount)) for name, amount in found.items()}


def _sum(one: Amounts, other: Amounts) -> Amounts:
    return {**one, **{name: one[name] + amount if name in one else amount for name, amount in other.items()}}


def _greatest(one: Amounts, other: Amounts) -> Amounts:
    return {**one, **{name: max(one.get(name, amount), amount) for name, amount in other.items()}}
