"""The resources that a pod's containers need in total.

Source: KEP-753 (sidecar containers), "Resource calculation"; KEP-2837 (resources of a pod); KEP-688 (overhead). The
scheduler and the kubelet use the same calculation, each with its own amounts for a container.
"""

from collections.abc import Callable, Mapping

from resourceapi.objects.core import Container, Pod, ResourceRequirements
from resourceapi.objects.quantity import Quantity


def container_limits(container: Container) -> dict[str, int]:
    """Return a container's limits: resource name -> whole units, rounded up."""
    return {name: amount.value() for name, amount in container.resources.limits.items()}


def peak(pod: Pod, needs: Callable[[Container], Mapping[str, int]]) -> dict[str, int]:
    """Return resource name -> the most units needed at any one time; resources with zero units are left out.

    `needs` returns the units that one container needs. A sidecar keeps running while all later containers run. Other
    init containers run one after the other, before the main containers, which run together.
    """
    sidecars: dict[str, int] = {}
    before: dict[str, int] = {}
    for container in pod.spec.init_containers:
        for resource, amount in needs(container).items():
            together = sidecars.get(resource, 0) + amount
            if container.is_sidecar:
                sidecars[resource] = together
            before[resource] = max(before.get(resource, 0), together)
    running = dict(sidecars)
    for container in pod.spec.containers:
        for resource, amount in needs(container).items():
            running[resource] = running.get(resource, 0) + amount
    most = {name: max(running.get(name, 0), before.get(name, 0)) for name in running | before}
    return {name: amount for name, amount in most.items() if amount}


def pod_requests(pod: Pod) -> dict[str, int]:
    """Return what the pod requests of its node: resource name -> thousandths of a cpu, whole units of anything else.

    A limit without a request counts as a request. Requests of the pod as a whole replace those of its containers. The
    overhead of its runtime class is added.
    """
    most = peak(pod, lambda container: units(_requested(container.resources)))
    if pod.spec.resources is not None:
        requests, limits = (
            {name: amount for name, amount in units(amounts).items() if _is_pod_level(name)}
            for amounts in (pod.spec.resources.requests, pod.spec.resources.limits)
        )
        most = limits | most | requests
    for name, amount in units(pod.spec.overhead).items():
        most[name] = most.get(name, 0) + amount
    return most


def units(amounts: Mapping[str, Quantity]) -> dict[str, int]:
    """Return resource name -> thousandths of a cpu, whole units of anything else, rounded up."""
    return {name: amount.milli_value() if name == "cpu" else amount.value() for name, amount in amounts.items()}


def _requested(resources: ResourceRequirements) -> dict[str, Quantity]:
    return {**resources.limits, **resources.requests}


def _is_pod_level(name: str) -> bool:
    return name in ("cpu", "memory") or name.startswith("hugepages-")
