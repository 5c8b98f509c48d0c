"""What the containers of a pod need together.

Source: KEP-753 (sidecar containers), "Resource calculation"; the scheduler and the kubelet compute the same.
"""

from collections.abc import Iterable, Mapping


def peak(init: Iterable[tuple[bool, Mapping[str, int]]], containers: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Resource -> the most units that are needed at one time; resources of which none are needed are left out.

    `init` are the init containers in order, each with whether it is a sidecar: those run on beside all that come
    after them; the others run one after the other, before `containers`, which run together.
    """
    sidecars: dict[str, int] = {}
    before: dict[str, int] = {}
    for is_sidecar, amounts in init:
        for resource, amount in amounts.items():
            together = sidecars.get(resource, 0) + amount
            if is_sidecar:
                sidecars[resource] = together
            before[resource] = max(before.get(resource, 0), together)
    running = dict(sidecars)
    for amounts in containers:
        for resource, amount in amounts.items():
            running[resource] = running.get(resource, 0) + amount
    most = {name: max(running.get(name, 0), before.get(name, 0)) for name in running | before}
    return {name: amount for name, amount in most.items() if amount}
