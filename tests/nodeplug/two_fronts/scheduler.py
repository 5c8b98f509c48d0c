"""The scheduler of a life: it gives claims what is published as free, and at times what is not."""

import random
from collections.abc import Sequence

from resourceapi.objects import v1
from tests.nodeplug.two_fronts.cluster import Cluster, result
from tests.nodeplug.two_fronts.daemon import Dra
from tests.nodeplug.two_fronts.host import SHARES, takes

_WRONG = 0.2


def schedule(rng: random.Random, cluster: Cluster, dra: Dra) -> Sequence[v1.DeviceRequestAllocationResult]:
    """Choose one device or two."""
    published = dra.published()
    wrong = rng.random() < _WRONG
    chosen: list[v1.DeviceRequestAllocationResult] = []
    for request in ("first", "second")[: rng.choice((1, 1, 2))]:
        names = [name for name, device in published.items() if wrong or _is_free(name, device, cluster, chosen)]
        if not names:
            break
        device = rng.choice(names)
        if rng.random() < 0.1:
            chosen.append(result(request, device, admin_access=True))
        elif device == "misc-many":
            chosen.append(result(request, device, share_id=f"{cluster.number():08x}-0000-4000-8000-000000000000"))
        else:
            chosen.append(result(request, device))
    return chosen


def _is_free(
    name: str, device: v1.Device, cluster: Cluster, chosen: Sequence[v1.DeviceRequestAllocationResult]
) -> bool:
    if any(taint.effect in (v1.NO_SCHEDULE, v1.NO_EXECUTE) for taint in device.taints):
        return False
    given = [x for claim in cluster.claims if claim.in_api for x in claim.results] + [*chosen]
    taken = [x.device for x in given if not x.admin_access]
    if name == "misc-many":
        return taken.count(name) < SHARES
    return not any(takes(name, "dra").excludes(takes(x, "dra")) for x in taken)
