"""Whether claims can be satisfied together on a node.

The structured allocator decides this for one attempt: one alternative of each instance, with one split of its amounts.
This module makes the attempts, the best first. Devices of a claim are moved for a later one only if necessary: first it
tries to satisfy the later claim with what the earlier ones left.
"""

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from controlplane.k8srm.amounts import DeviceShape, Slot, splits
from controlplane.k8srm.candidates import Requirement, RequirementID, requirements_of
from controlplane.k8srm.errors import SolveTimeout
from controlplane.k8srm.holdings import Holdings
from controlplane.k8srm.load import ClusterObjects
from controlplane.k8srm.translate import (
    CLASSES,
    Assignment,
    Attempt,
    ShapeIds,
    allocation_of,
    assignments_of,
    claims_of,
    slices_of,
    state_of,
)
from controlplane.k8srm.types import DeviceClaim
from controlplane.structured import AllocationAborted, AllocationError, Allocator, Cancelled, Features, SliceIndex
from resourceapi.objects import ObjectMeta
from resourceapi.objects.core import Node

_MAX_ALLOCATOR_STEPS = 20_000  # for a question that affects a preference only

PoolSets = Mapping[int, frozenset[str]]
"""By claim number: the pools that the claim can use."""

Alternatives = Mapping[tuple[int, int], int]
"""The alternative that was chosen, by claim and instance."""


class Solution(Struct, frozen=True):
    """The attempts that succeeded, and the devices that they got."""

    attempts: tuple[Attempt, ...] = ()
    assignments: tuple[Assignment, ...] = ()

    @property
    def alternatives(self) -> Alternatives:
        """The alternative that each instance got."""
        return {
            (attempt.requirement.id.claim, attempt.requirement.id.instance): attempt.requirement.id.alternative
            for attempt in self.attempts
        }


class Deadline:
    """The end of the time for a search."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def remaining(self) -> float:
        """The remaining time in seconds, at least 0."""
        return max(self._end - time.monotonic(), 0)


class Feasibility:
    """Decides whether claims of one cluster can be satisfied together. Raises SolveTimeout when the time is up."""

    def __init__(self, claims: Sequence[DeviceClaim], cluster: ClusterObjects) -> None:
        holdings = Holdings(cluster.all_claims)
        self.claims = claims
        self.requirements = requirements_of(claims, cluster, holdings)
        self._pools = list(cluster.pools.values())
        self._visible_pools: dict[str, list[str]] = {}
        self._shape_ids = ShapeIds(self.requirements.values())
        self._holdings = holdings
        self._slices = slices_of(self._pools, list(self.requirements.values()), self._shape_ids)
        self._index = SliceIndex()
        self._base_allocator = self._allocator_for(holdings)

    def search(
        self,
        node: str,
        claims: Sequence[int],
        deadline: Deadline,
        *,
        confined: PoolSets | None = None,
        alternatives: Alternatives | None = None,
        max_tries: int | None = None,
    ) -> Solution | None:
        """Find devices for all of these claims. With `max_tries`, None can also mean that the limit was reached."""
        instances = [(number, index) for number in claims for index in range(len(self.claims[number].spec.claims))]
        choices: list[tuple[list[Requirement], frozenset[str] | None]] = []
        for number, index in instances:
            requirements = self.alternatives_of(number, index)
            if alternatives is not None and (number, index) in alternatives:
                requirements = [requirements[alternatives[number, index]]]
            choices.append((requirements, None if confined is None else confined.get(number)))
        if self._is_infeasible(node, choices):
            return None
        attempts: list[Attempt] = []
        tries = 0

        def descend(place: int, assigned: Sequence[Assignment]) -> Solution | None:
            """Satisfy the choices from this place on; `assigned` is what the earlier ones got."""
            nonlocal tries
            if place == len(choices):
                return Solution(tuple(attempts), tuple(assigned))
            requirements, pools = choices[place]
            for requirement in requirements:
                others = [
                    assignment for assignment in assigned if assignment.requirement.id.claim != requirement.id.claim
                ]
                for keep in (others, ()) if others else ((),):
                    for attempt in self.splits(node, requirement, pools):
                        if tries == max_tries:
                            return None
                        tries += 1
                        attempts.append(attempt)
                        assignments = self.try_split(
                            node,
                            attempts,
                            deadline,
                            keep=keep,
                            max_steps=None if max_tries is None else _MAX_ALLOCATOR_STEPS,
                        )
                        found = None if assignments is None else descend(place + 1, assignments)
                        if found is not None:
                            return found
                        attempts.pop()
            return None

        return descend(0, ())

    def try_split(
        self,
        node: str,
        attempts: Sequence[Attempt],
        deadline: Deadline,
        *,
        keep: Sequence[Assignment] = (),
        with_matches: bool = True,
        max_steps: int | None = None,
    ) -> list[Assignment] | None:
        """Return the devices for these attempts; None if there are none, or after `max_steps` search steps.

        Claims in `keep` keep these devices, and only the others are searched. Without `with_matches`, matchAttributes
        are ignored.
        """
        kept = {assignment.requirement.id.claim for assignment in keep}
        open_attempts = [attempt for attempt in attempts if attempt.requirement.id.claim not in kept]
        steps = itertools.count()
        try:
            allocations = self._allocator(keep).allocate(
                Node(metadata=ObjectMeta(name=node)),
                claims_of(self.claims, open_attempts, self._shape_ids, with_matches=with_matches),
                timeout=deadline.remaining,
                is_cancelled=None if max_steps is None else lambda: next(steps) > max_steps,
            )
        except AllocationAborted as aborted:
            if isinstance(aborted.__cause__, Cancelled):
                return None
            raise SolveTimeout(f"no answer within {deadline.seconds:g} s") from None
        except AllocationError:  # more devices than a claim can hold, or a pool with two devices of one name
            return None
        return None if allocations is None else [*keep, *assignments_of(open_attempts, allocations, self._pools)]

    def alternatives_of(self, claim: int, instance: int) -> list[Requirement]:
        """Return the details of an instance, the best first."""
        found: list[Requirement] = []
        while (requirement := self.requirements.get(RequirementID(claim, instance, len(found)))) is not None:
            found.append(requirement)
        return found

    def splits(self, node: str, requirement: Requirement, pools: frozenset[str] | None) -> Iterator[Attempt]:
        """Return the ways to split a requirement for which there are enough candidates."""
        if requirement.fault:
            return
        counts: dict[DeviceShape | None, int] = {}
        for pool in self._candidate_pools(node, requirement, pools):
            for candidate in requirement.candidates[pool].values():
                counts[candidate.shape] = counts.get(candidate.shape, 0) + 1
        if requirement.takes_amounts:
            available = {shape: number for shape, number in counts.items() if shape is not None}
            yield from (Attempt(requirement, slots, pools) for slots in splits(requirement.demand, available))
        elif sum(counts.values()) >= requirement.demand.minimum:
            yield Attempt(requirement, (Slot(requirement.demand.minimum),) if requirement.demand.minimum else (), pools)

    def visible_pools(self, node: str) -> list[str]:
        """Return the node's pools and those without a node, in order."""
        known = self._visible_pools.get(node)
        if known is None:
            known = [pool.metadata.name for pool in self._pools if (pool.spec.node_name or node) == node]
            self._visible_pools[node] = known
        return known

    def usable_pools(self, node: str, claim: int) -> list[str]:
        """Return the pools with candidates for a claim, in order."""
        requirements = [requirement for requirement in self.requirements.values() if requirement.id.claim == claim]
        return [
            name
            for name in self.visible_pools(node)
            if any(name in requirement.candidates for requirement in requirements)
        ]

    def pool_sets(self, node: str, claim: int, min_size: int = 1) -> Iterator[tuple[str, ...]]:
        """Return the sets of at least `min_size` usable pools, the smallest first, then in order."""
        pools = self.usable_pools(node, claim)
        for size in range(min_size, len(pools) + 1):
            yield from itertools.combinations(pools, size)

    def minimum_pools(self, node: str, solution: Solution, claim: int) -> int:
        """Return a lower bound of the number of pools that can provide the devices that a claim found."""
        bound = 1
        for attempt in solution.attempts:
            if attempt.requirement.id.claim == claim and not attempt.requirement.takes_amounts:
                left = attempt.requirement.demand.minimum
                sizes = sorted(
                    (
                        len(attempt.requirement.candidates[pool])
                        for pool in self._candidate_pools(node, attempt.requirement, None)
                    ),
                    reverse=True,
                )
                pools = 0
                while left > 0:
                    left -= sizes[pools]
                    pools += 1
                bound = max(bound, pools)
        return bound

    def _allocator(self, keep: Sequence[Assignment]) -> Allocator:
        if not keep:
            return self._base_allocator
        return self._allocator_for(self._holdings.with_allocations(allocation_of(assignment) for assignment in keep))

    def _allocator_for(self, holdings: Holdings) -> Allocator:
        state = state_of(self._pools, holdings)
        return Allocator(Features(), state, CLASSES, self._slices, index=self._index)

    def _candidate_pools(self, node: str, requirement: Requirement, pools: frozenset[str] | None) -> list[str]:
        return [
            name
            for name in self.visible_pools(node)
            if name in requirement.candidates and (pools is None or name in pools)
        ]

    def _is_infeasible(self, node: str, choices: Sequence[tuple[list[Requirement], frozenset[str] | None]]) -> bool:
        """Return whether some pools have too few devices, or too small amounts, for the choices confined to them."""
        mandatory = [
            (requirements[0], pools)
            for requirements, pools in choices
            if len(requirements) == 1 and not requirements[0].is_admin
        ]
        for scope in {pools for _, pools in mandatory}:
            supply: dict[tuple[str, str], dict[str, int]] = {}
            count = 0
            wanted: dict[str, int] = {}
            for requirement, pools in mandatory:
                if scope is not None and (pools is None or not pools <= scope):
                    continue
                for pool in self._candidate_pools(node, requirement, pools):
                    for name, candidate in requirement.candidates[pool].items():
                        left = supply.setdefault((pool, name), {})
                        left.update((x.name, x.usable) for x in (candidate.shape.supplies if candidate.shape else ()))
                if requirement.takes_amounts:
                    for resource, amount in requirement.demand.amounts.items():
                        wanted[resource] = wanted.get(resource, 0) + amount
                else:
                    count += requirement.demand.minimum
            if count > len(supply):
                return True
            for resource, amount in wanted.items():
                if amount > sum(left.get(resource, 0) for left in supply.values()):
                    return True
        return False
