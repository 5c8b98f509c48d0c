"""Topology hints: the sets of NUMA nodes that could serve a request. Pure.

Source: device manager specification, section 8.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence

from kubelet.devicemanager.device import Device
from kubelet.topology import Hint


def generate(
    numa_nodes: Sequence[int],
    devices: Mapping[str, Device],
    available: Iterable[str],
    reusable: Iterable[str],
    request: int,
) -> list[Hint]:
    """Return a hint for every set of nodes that has `request` devices of `available`, and all of `reusable`.

    Preferred are the sets of the smallest size that could serve the request if no device were in use. Devices without a
    node never count.
    """
    on_nodes = [frozenset(device.nodes) for device in devices.values() if device.nodes]
    free_on = [frozenset(devices[id_].nodes) for id_ in available if id_ in devices]
    reused_on = [
        frozenset(devices[id_].nodes) for id_ in reusable if id_ in devices and devices[id_].topology is not None
    ]
    smallest = len(numa_nodes)
    found: list[frozenset[int]] = []
    for size in range(1, len(numa_nodes) + 1):
        for mask in map(frozenset, itertools.combinations(numa_nodes, size)):
            if size < smallest and _count(on_nodes, mask) >= request:
                smallest = size
            if _count(reused_on, mask) < len(reused_on):
                continue
            if len(reused_on) + _count(free_on, mask) >= request:
                found.append(mask)
    return [Hint(mask, len(mask) == smallest) for mask in found]


def _count(devices: Sequence[frozenset[int]], mask: frozenset[int]) -> int:
    return sum(not nodes.isdisjoint(mask) for nodes in devices)
