"""The scheduler of a simulation: it allocates published free devices to claims, and sometimes others."""

import random
from collections.abc import Callable, Mapping, Sequence

from resourceapi.objects import v1
from tests.nodeplug.simulation.cluster import Cluster, result
from tests.nodeplug.simulation.host import SimulatedHost

_WRONG = 0.2


def schedule(
    rng: random.Random,
    cluster: Cluster,
    host: SimulatedHost,
    published: Mapping[str, v1.Device],
    shares: Callable[[str], int],
) -> Sequence[v1.DeviceRequestAllocationResult]:
    """Choose one or two published devices; `shares` returns how many claims can have a device at the same time."""
    wrong = rng.random() < _WRONG
    chosen: list[v1.DeviceRequestAllocationResult] = []
    for request in ("first", "second")[: rng.choice((1, 1, 2))]:
        names = [x for x, device in published.items() if wrong or _is_free(x, device, cluster, host, chosen, shares)]
        if not names:
            break
        device = rng.choice(names)
        if rng.random() < 0.1:
            chosen.append(result(request, device, admin_access=True))
        elif published[device].allow_multiple_allocations:
            chosen.append(result(request, device, share_id=cluster.uid()))
        else:
            chosen.append(result(request, device))
    return chosen


def _is_free(
    name: str,
    device: v1.Device,
    cluster: Cluster,
    host: SimulatedHost,
    chosen: Sequence[v1.DeviceRequestAllocationResult],
    shares: Callable[[str], int],
) -> bool:
    if any(taint.effect in (v1.NO_SCHEDULE, v1.NO_EXECUTE) for taint in device.taints):
        return False
    results = [x for claim in cluster.claims if claim.in_api for x in claim.results] + [*chosen]
    taken = [x.device for x in results if not x.admin_access]
    if device.allow_multiple_allocations:
        return taken.count(name) < shares(name)
    return not any(host.takes(name, "dra").excludes(host.takes(x, "dra")) for x in taken)
