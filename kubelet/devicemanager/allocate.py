"""Chooses devices for a container, and calls Allocate of their plugin.

The chosen devices are reserved, so that no other container gets them during the call. They are freed if the plugin
refuses. If the call was never made, or its response was empty, the devices stay in use, as in the kubelet, until the
next recount: when a pod is gone or a plugin refuses. The state can change during every call to a plugin, and is read
again after it.
Source: device manager specification, section 4.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from kubelet.devicemanager.endpoint import Endpoint
from kubelet.devicemanager.state import DeviceState, Ids
from kubelet.errors import AllocationError, PluginCallError
from kubelet.metrics import KubeletMetrics
from kubelet.topology import Hint
from resourceapi.objects.core import Container, Pod


class AffinityStore(Protocol):
    """Provides the NUMA affinity of containers."""

    def get_affinity(self, pod_uid: str, container: str) -> Hint:
        """Return the container's affinity."""
        ...


class Allocator:
    """Allocates devices to containers."""

    def __init__(
        self,
        state: DeviceState,
        affinity: AffinityStore | None,
        is_restored: Callable[[Pod, Container], bool],
        metrics: KubeletMetrics,
        shuffle: random.Random | None = None,
    ) -> None:
        """`is_restored` returns whether the container kept running while the kubelet restarted.

        `shuffle` chooses devices at random, like the kubelet; without it, in the order of the plugin's list.
        """
        self._state = state
        self._affinity = affinity
        self._is_restored = is_restored
        self._metrics = metrics
        self._shuffle = shuffle

    async def allocate(self, pod: Pod, container: Container, resource: str, required: int, reusable: Ids) -> bool:
        """Allocate `required` devices to the container; return False if it needs none or has them already.

        Raises `AllocationError` with the kubelet's text, and `PluginCallError` with the plugin's.
        """
        owner = (pod.uid, container.name, resource)
        state = self._state
        needed = self._check(pod, container, resource, required)
        if needed == 0:
            return False
        if not state.records.reserve(*owner):
            raise AllocationError(
                f"an allocation of {resource} for pod {pod.uid}, container {container.name} is in progress"
            )
        frees = False
        try:
            chosen = await self._choose(owner, required, reusable)
            frees = True
            endpoint = state.endpoints.get(resource)
            if endpoint is None:
                raise AllocationError(f"unknown Device Plugin {resource}")
            with self._metrics.measure_allocation(resource):
                response = await endpoint.allocate(chosen)
            if not response.container_responses:
                frees = False
                raise AllocationError(f"no containers return in allocation response {response}")
            by_node = state.group_by_node(resource, chosen)
            state.records.commit(*owner, by_node, response.container_responses[0])
        except BaseException:
            state.records.roll_back(*owner, frees=frees)
            raise
        return True

    def _check(self, pod: Pod, container: Container, resource: str, required: int) -> int:
        """Return how many devices are missing. The checks, also for a container that has all, are the kubelet's."""
        state = self._state
        held = state.records.container_devices(pod.uid, container.name, resource)
        needed = required - len(held or ())
        if held is not None and needed != 0:
            raise AllocationError(
                f'pod "{pod.uid}" container "{container.name}" changed request for resource "{resource}"'
                f" from {len(held)} to {required}"
            )
        if self._is_restored(pod, container):
            return 0
        healthy = state.healthy.get(resource)
        if healthy is None:
            raise AllocationError(f"cannot allocate unregistered device {resource}")
        if not healthy:
            raise AllocationError(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        if held and not held.keys() <= healthy.keys():
            raise AllocationError(
                f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
            )
        return needed

    async def _choose(self, owner: tuple[str, str, str], required: int, reusable: Ids) -> list[str]:
        """Choose `required` devices: first those of finished init containers, then NUMA-aligned ones, then others."""
        resource = owner[2]
        choice = _Choice(self._state, owner, required)
        if choice.take(reusable, reused=True):
            return choice.taken
        allocated = self._state.allocated.get(resource, frozenset())
        healthy = self._state.healthy.get(resource, {})
        free = len(healthy) - sum(id_ in healthy for id_ in allocated)
        if free < choice.needed:
            raise AllocationError(
                f"requested number of devices unavailable for {resource}. Requested: {choice.needed}, Available: {free}"
            )
        if self._can_take_any(*owner):
            choice.take(healthy)
            return choice.taken
        available = [id_ for id_ in healthy if id_ not in allocated]
        if self._shuffle is not None:
            self._shuffle.shuffle(available)
        aligned, unaligned, without_node = self.filter_by_affinity(owner[0], owner[1], resource, available)
        if choice.needed < len(aligned):
            preferred = await self._plugin_preference(choice, aligned, required)
            is_complete = choice.take(preferred) or choice.take(aligned)
        else:
            is_complete = choice.take(aligned)
            if not is_complete:
                preferred = await self._plugin_preference(choice, available, required)
                is_complete = choice.take(preferred) or choice.take(unaligned) or choice.take(without_node)
        if not is_complete:
            raise AllocationError(
                f"unexpectedly allocated less resources than required. Requested: {required}, Got: {len(choice.taken)}"
            )
        return choice.taken

    def _can_take_any(self, pod_uid: str, container: str, resource: str) -> bool:
        """Return whether any devices will do, so that the first free ones can be taken without a full scan."""
        endpoint = self._state.endpoints.get(resource)
        return (
            self._shuffle is None
            and self._affinity_nodes(pod_uid, container, resource) is None
            and endpoint is not None
            and not _wants_preference(endpoint)
        )

    def _affinity_nodes(self, pod_uid: str, container: str, resource: str) -> frozenset[int] | None:
        """Return the NUMA nodes from which the devices should come; None for any."""
        if self._affinity is None or not self._state.has_alignment(resource):
            return None
        return self._affinity.get_affinity(pod_uid, container).affinity

    def filter_by_affinity(
        self, pod_uid: str, container: str, resource: str, available: Sequence[str]
    ) -> tuple[list[str], list[str], list[str]]:
        """Split `available` into devices within the container's affinity, outside of it, and without a NUMA node."""
        affinity_nodes = self._affinity_nodes(pod_uid, container, resource)
        if affinity_nodes is None:
            return [], [], list(available)
        known = self._state.all[resource]
        aligned: list[tuple[int, str]] = []
        unaligned: list[tuple[int, str]] = []
        without_node: list[str] = []
        population: dict[int, int] = {}
        for id_ in available:
            for node in known[id_].nodes:
                population[node] = population.get(node, 0) + 1
        order = sorted(population, key=lambda node: (node not in affinity_nodes, population[node]))
        rank = {node: index for index, node in enumerate(order)}
        for id_ in available:
            nodes = known[id_].nodes
            if not nodes:
                without_node.append(id_)
                continue
            first = min(nodes, key=rank.__getitem__)
            (aligned if first in affinity_nodes else unaligned).append((rank[first], id_))
        # sorted is stable: nodes with the fewest devices first, the order of `available` within a node
        return [i for _, i in sorted(aligned, key=_rank)], [i for _, i in sorted(unaligned, key=_rank)], without_node

    async def _plugin_preference(self, choice: "_Choice", available: Sequence[str], size: int) -> list[str]:
        """Return the devices of `available` that the plugin prefers; empty if it has no preference."""
        resource = choice.resource
        endpoint = self._state.endpoints.get(resource)
        if endpoint is None:
            raise AllocationError(f"endpoint not found in cache for a registered resource: {resource}")
        if not _wants_preference(endpoint):
            return []
        try:
            # devices that are chosen already must be in both lists
            offered = dict.fromkeys([*available, *choice.taken])
            response = await endpoint.preferred_allocation(offered, choice.taken, size)
        except PluginCallError as error:
            raise AllocationError(f"device plugin GetPreferredAllocation rpc failed with err: {error}") from error
        if not response.container_responses:
            return []
        free = set(available)
        return [id_ for id_ in response.container_responses[0].deviceIDs if id_ in free]


class _Choice:
    """The devices chosen so far; each is reserved as soon as it is taken."""

    def __init__(self, state: DeviceState, owner: tuple[str, str, str], required: int) -> None:
        self._state = state
        self._owner = owner
        self.resource = owner[2]
        self.needed = required
        self.taken: list[str] = []

    def take(self, ids: Iterable[str], *, reused: bool = False) -> bool:
        """Take devices from `ids` until no more are needed; return whether that is reached.

        Ids that were allocated meanwhile are skipped, unless the pod reuses its own (`reused`).
        """
        allocated = self._state.allocated.get(self.resource, frozenset())
        added: dict[str, None] = {}
        for id_ in ids:
            if len(added) == self.needed:
                break
            if id_ not in self.taken and (reused or id_ not in allocated):
                added[id_] = None
        self.taken.extend(added)
        self.needed -= len(added)
        self._state.records.add_to_reservation(*self._owner, added)
        return self.needed == 0


def _wants_preference(endpoint: Endpoint) -> bool:
    return endpoint.options is not None and endpoint.options.get_preferred_allocation_available


def _rank(ranked: tuple[int, str]) -> int:
    return ranked[0]
