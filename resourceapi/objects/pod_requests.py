"""What the containers of a pod need together.

Source: KEP-753 (sidecar containers), "Resource calculation"; the scheduler and the kubelet compute the same, of what
each of them counts for a container.
"""

from collections.abc import Callable, Mapping

from resourceapi.objects.core import Container, Pod


def container_limits(container: Container) -> dict[str, int]:
    """Resource -> whole units, rounded up."""
    return {name: amount.value() for name, amount in container.resources.limits.items()}


def peak(pod: Pod, needs: Callable[[Container], Mapping[str, int]]) -> dict[str, int]:
    """Resource -> the most units that are needed at one time; resources of which none are needed are left out.

    `needs` says what one container needs. Sidecars run on beside all that come after them; other init containers run
    one after the other, before the containers, which run together.
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
