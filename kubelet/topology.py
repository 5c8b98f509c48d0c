"""The topology manager: decides from which NUMA nodes a container's devices should come, and refuses pods by policy.

Hint providers return for each resource the sets of nodes that could serve it; the merged hint is the narrowest set that
satisfies all of them. Source: device manager specification, sections 4.8 and 8; the merge follows the kubelet's
documented policies.
"""

import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from kubelet.errors import KubeletError
from resourceapi.objects.core import Container, Pod

Policy = Literal["none", "best-effort", "restricted", "single-numa-node"]
Scope = Literal["container", "pod"]


class TopologyAffinityError(KubeletError):
    """The policy refuses the pod."""


class Hint(Struct, frozen=True):
    """A set of NUMA nodes (None: any), and whether it is the best that the machine allows."""

    affinity: frozenset[int] | None
    preferred: bool


class HintProvider(Protocol):
    """A manager that knows the NUMA nodes of resources. Values: None = anywhere, empty = cannot be satisfied."""

    def get_topology_hints(self, pod: Pod, container: Container) -> Mapping[str, Sequence[Hint] | None]:
        """Return the hints for one container, by resource."""
        ...

    def get_pod_topology_hints(self, pod: Pod) -> Mapping[str, Sequence[Hint] | None]:
        """Return the hints for the pod as a whole, by resource."""
        ...


ANYWHERE = Hint(None, True)
_NO_AFFINITY = Hint(None, False)


class TopologyManager:
    """Keeps the affinity of each container, and admits or refuses pods."""

    def __init__(self, numa_nodes: Sequence[int], policy: Policy = "none", scope: Scope = "container") -> None:
        """`numa_nodes` are the machine's. With the scope `pod`, the containers of a pod share their nodes."""
        self._policy = policy
        self._scope = scope
        self._all = frozenset(numa_nodes)
        self._providers: list[HintProvider] = []
        self._affinity: dict[tuple[str, str], Hint] = {}

    def add_hint_provider(self, provider: HintProvider) -> None:
        """Add a hint provider."""
        self._providers.append(provider)

    def get_affinity(self, pod_uid: str, container: str) -> Hint:
        """Return the NUMA nodes from which the container's devices should come."""
        return self._affinity.get((pod_uid, container), _NO_AFFINITY)

    def forget(self, pod_uid: str) -> None:
        """Drop the affinity of a pod that is gone."""
        self._affinity = {key: hint for key, hint in self._affinity.items() if key[0] != pod_uid}

    async def admit(self, pod: Pod, allocate: Callable[[Pod, Container], Awaitable[None]]) -> None:
        """Allocate for each container in order. Raises `TopologyAffinityError`, or what `allocate` raises."""
        if self._policy != "none" and self._scope == "pod":
            hint = self._best_hint([provider.get_pod_topology_hints(pod) for provider in self._providers])
            self._affinity |= {(pod.uid, container.name): hint for container in pod.all_containers}
        for container in pod.all_containers:
            if self._policy != "none" and self._scope == "container":
                hints = [provider.get_topology_hints(pod, container) for provider in self._providers]
                self._affinity[pod.uid, container.name] = self._best_hint(hints)
            await allocate(pod, container)

    def merge(self, provided: Sequence[Mapping[str, Sequence[Hint] | None]]) -> Hint:
        """Return the best hint that satisfies all providers."""
        choices = [list(each) for each in _choices(provided)]
        if self._policy == "single-numa-node":
            choices = [[hint for hint in hints if _is_single(hint)] for hints in choices]
        sizes = [[len(hint.affinity) for hint in hints if hint.affinity is not None] for hints in choices]
        closest = max((min(each) for each in sizes if each), default=0)
        best: Hint | None = None
        for combination in itertools.product(*choices):
            best = _better_hint(best, self._combine(combination), closest)
        if best is None:
            best = Hint(self._all, False)
        if self._policy == "single-numa-node" and best.affinity == self._all:
            return Hint(None, best.preferred)
        return best

    def _best_hint(self, provided: Sequence[Mapping[str, Sequence[Hint] | None]]) -> Hint:
        hint = self.merge(provided)
        if self._policy in ("restricted", "single-numa-node") and not hint.preferred:
            raise TopologyAffinityError("Resources cannot be allocated with Topology locality")
        return hint

    def _combine(self, combination: Sequence[Hint]) -> Hint:
        sets = [hint.affinity for hint in combination if hint.affinity is not None]
        preferred = all(hint.preferred for hint in combination) and len(set(sets)) <= 1
        return Hint(self._all.intersection(*sets), preferred)


def _choices(provided: Sequence[Mapping[str, Sequence[Hint] | None]]) -> list[Sequence[Hint]]:
    """Return a list of choices per resource: None becomes `ANYWHERE`, an empty list becomes `_NO_AFFINITY`."""
    choices: list[Sequence[Hint]] = []
    for hints_of in provided:
        if not hints_of:
            choices.append([ANYWHERE])
        choices += [[ANYWHERE] if hints is None else hints or [_NO_AFFINITY] for hints in hints_of.values()]
    return choices


def _is_single(hint: Hint) -> bool:
    return hint.preferred and (hint.affinity is None or len(hint.affinity) == 1)


def _better_hint(best: Hint | None, candidate: Hint, closest: int) -> Hint | None:
    """Return the better hint. Of two that are not preferred, that is the one whose size is nearer to `closest`."""
    if not candidate.affinity:
        return best
    if best is None or best.affinity is None:
        return candidate
    if best.preferred != candidate.preferred:
        return best if best.preferred else candidate
    narrower_hint = _narrower_hint(best, candidate)
    size, other = len(best.affinity), len(candidate.affinity)
    if best.preferred or size == other or size > closest:
        return narrower_hint
    if size == closest or other > closest:
        return best
    return candidate if other > size else best


def _narrower_hint(one: Hint, other: Hint) -> Hint:
    return min(
        (one, other), key=lambda hint: (len(hint.affinity or ()), sum(1 << node for node in hint.affinity or ()))
    )
