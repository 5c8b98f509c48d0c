"""Can these claims be had together on this node?

The structured allocator answers that for one way of asking: one alternative of each instance, with one way to split its
amounts. Here the ways are gone through, the best first. A claim gives way to later ones only if nothing else helps:
first it is tried whether the later one can be served with what the earlier ones left.
"""

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from controlplane.k8srm.amounts import Kind, Slot, splits
from controlplane.k8srm.candidates import Wish, WishID, wishes_of
from controlplane.k8srm.errors import SolveTimeout
from controlplane.k8srm.holdings import Holdings
from controlplane.k8srm.load import Cluster
from controlplane.k8srm.translate import (
    CLASSES,
    Ask,
    Kinds,
    Taken,
    allocation_of,
    claims_of,
    slices_of,
    state_of,
    taken_by,
)
from controlplane.k8srm.types import DeviceClaim
from controlplane.structured import AllocationAborted, AllocationError, Allocator, Cancelled, Features, SliceIndex
from resourceapi.objects import ObjectMeta
from resourceapi.objects.core import Node

_MAX_STEPS = 20_000  # of the allocator, for a question that is about a preference only

PoolSets = Mapping[int, frozenset[str]]
"""The pools that claims, by number, are confined to."""

Alternatives = Mapping[tuple[int, int], int]
"""The alternative that was chosen, by claim and instance."""


class Found(Struct, frozen=True):
    """What was asked in the end, and what came of it."""

    asks: tuple[Ask, ...] = ()
    taken: tuple[Taken, ...] = ()

    @property
    def alternatives(self) -> Alternatives:
        """Which alternative each instance got."""
        return {(ask.wish.id.claim, ask.wish.id.instance): ask.wish.id.alternative for ask in self.asks}


class Deadline:
    """The moment until which answers are of use."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._moment = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds left, at least 0."""
        return max(self._moment - time.monotonic(), 0)


class Questions:
    """Questions about some claims in one cluster; SolveTimeout is raised when the time is up."""

    def __init__(self, claims: Sequence[DeviceClaim], cluster: Cluster) -> None:
        holdings = Holdings(cluster.all_claims)
        self.claims = claims
        self.wishes = wishes_of(claims, cluster, holdings)
        self._pools = list(cluster.pools.values())
        self._visible: dict[str, list[str]] = {}
        self._kinds = Kinds(self.wishes.values())
        self._holdings = holdings
        self._slices = slices_of(self._pools, list(self.wishes.values()), self._kinds)
        self._index = SliceIndex()
        self._with_nothing_kept = self._allocator_for(holdings)

    def find(
        self,
        node: str,
        claims: Sequence[int],
        deadline: Deadline,
        *,
        confined: PoolSets | None = None,
        alternatives: Alternatives | None = None,
        most: int | None = None,
    ) -> Found | None:
        """Devices for all of these claims; after `most` questions to the allocator, None means "not found so far"."""
        instances = [(number, index) for number in claims for index in range(len(self.claims[number].spec.claims))]
        choices: list[tuple[list[Wish], frozenset[str] | None]] = []
        for number, index in instances:
            wishes = self.alternatives_of(number, index)
            if alternatives is not None and (number, index) in alternatives:
                wishes = [wishes[alternatives[number, index]]]
            choices.append((wishes, None if confined is None else confined.get(number)))
        if self._is_hopeless(node, choices):
            return None
        asks: list[Ask] = []
        asked = 0

        def descend(place: int, settled: Sequence[Taken]) -> Found | None:
            """Serve what comes from this place on, when this is what those before it got."""
            nonlocal asked
            if place == len(choices):
                return Found(tuple(asks), tuple(settled))
            wishes, pools = choices[place]
            for wish in wishes:
                others = [taken for taken in settled if taken.wish.id.claim != wish.id.claim]
                for keep in (others, ()) if others else ((),):
                    for way in self.ways(node, wish, pools):
                        if asked == most:
                            return None
                        asked += 1
                        asks.append(way)
                        taken = self.ask(
                            node, asks, deadline, keep=keep, most_steps=None if most is None else _MAX_STEPS
                        )
                        found = None if taken is None else descend(place + 1, taken)
                        if found is not None:
                            return found
                        asks.pop()
            return None

        return descend(0, ())

    def ask(
        self,
        node: str,
        asks: Sequence[Ask],
        deadline: Deadline,
        *,
        keep: Sequence[Taken] = (),
        with_matches: bool = True,
        most_steps: int | None = None,
    ) -> list[Taken] | None:
        """The allocator's answer; None also after `most_steps` of its steps.

        Claims in `keep` have these devices, so that only the others are asked about. Without `with_matches`,
        matchAttributes are left out.
        """
        kept = {taken.wish.id.claim for taken in keep}
        open_asks = [way for way in asks if way.wish.id.claim not in kept]
        steps = itertools.count()
        try:
            allocations = self._allocator(keep).allocate(
                Node(metadata=ObjectMeta(name=node)),
                claims_of(self.claims, open_asks, self._kinds, with_matches=with_matches),
                timeout=deadline.left,
                is_cancelled=None if most_steps is None else lambda: next(steps) > most_steps,
            )
        except AllocationAborted as aborted:
            if isinstance(aborted.__cause__, Cancelled):
                return None
            raise SolveTimeout(f"no answer within {deadline.seconds:g} s") from None
        except AllocationError:  # more devices than a claim can hold, or a pool with two devices of one name
            return None
        return None if allocations is None else [*keep, *taken_by(open_asks, allocations, self._pools)]

    def alternatives_of(self, claim: int, instance: int) -> list[Wish]:
        """The details of an instance, the best first."""
        found: list[Wish] = []
        while (wish := self.wishes.get(WishID(claim, instance, len(found)))) is not None:
            found.append(wish)
        return found

    def ways(self, node: str, wish: Wish, pools: frozenset[str] | None) -> Iterator[Ask]:
        """The ways to ask for a wish that the number of its candidates does not rule out."""
        if wish.fault:
            return
        counts: dict[Kind | None, int] = {}
        for pool in self._scope(node, wish, pools):
            for candidate in wish.candidates[pool].values():
                counts[candidate.kind] = counts.get(candidate.kind, 0) + 1
        if wish.wants_amounts:
            available = {kind: number for kind, number in counts.items() if kind is not None}
            yield from (Ask(wish, slots, pools) for slots in splits(wish.demand, available))
        elif sum(counts.values()) >= wish.demand.least:
            yield Ask(wish, (Slot(wish.demand.least),) if wish.demand.least else (), pools)

    def visible(self, node: str) -> list[str]:
        """The node's pools and those without a node, in order."""
        known = self._visible.get(node)
        if known is None:
            known = [pool.metadata.name for pool in self._pools if (pool.spec.node_name or node) == node]
            self._visible[node] = known
        return known

    def usable(self, node: str, claim: int) -> list[str]:
        """The pools with candidates for a claim, in order."""
        wishes = [wish for wish in self.wishes.values() if wish.id.claim == claim]
        return [name for name in self.visible(node) if any(name in wish.candidates for wish in wishes)]

    def pool_sets(self, node: str, claim: int, least: int = 1) -> Iterator[tuple[str, ...]]:
        """The sets of usable pools of at least that size, the smallest first, then in order."""
        pools = self.usable(node, claim)
        for size in range(least, len(pools) + 1):
            yield from itertools.combinations(pools, size)

    def least_pools(self, node: str, found: Found, claim: int) -> int:
        """A size below which no set of pools has enough devices for what a claim found."""
        most = 1
        for ask in found.asks:
            if ask.wish.id.claim == claim and not ask.wish.wants_amounts:
                left = ask.wish.demand.least
                sizes = sorted(
                    (len(ask.wish.candidates[pool]) for pool in self._scope(node, ask.wish, None)), reverse=True
                )
                pools = 0
                while left > 0:
                    left -= sizes[pools]
                    pools += 1
                most = max(most, pools)
        return most

    def _allocator(self, keep: Sequence[Taken]) -> Allocator:
        if not keep:
            return self._with_nothing_kept
        return self._allocator_for(self._holdings.with_more(allocation_of(taken) for taken in keep))

    def _allocator_for(self, holdings: Holdings) -> Allocator:
        state = state_of(self._pools, holdings)
        return Allocator(Features(), state, CLASSES, self._slices, index=self._index)

    def _scope(self, node: str, wish: Wish, pools: frozenset[str] | None) -> list[str]:
        return [name for name in self.visible(node) if name in wish.candidates and (pools is None or name in pools)]

    def _is_hopeless(self, node: str, choices: Sequence[tuple[list[Wish], frozenset[str] | None]]) -> bool:
        """Whether some pools have too few devices, or too little, for those that must have it from there."""
        certain = [(wishes[0], pools) for wishes, pools in choices if len(wishes) == 1 and not wishes[0].is_admin]
        for scope in {pools for _, pools in certain}:
            supply: dict[tuple[str, str], dict[str, int]] = {}
            count = 0
            wanted: dict[str, int] = {}
            for wish, pools in certain:
                if scope is not None and (pools is None or not pools <= scope):
                    continue
                for pool in self._scope(node, wish, pools):
                    for name, candidate in wish.candidates[pool].items():
                        left = supply.setdefault((pool, name), {})
                        left.update((x.name, x.usable) for x in (candidate.kind.supplies if candidate.kind else ()))
                if wish.wants_amounts:
                    for resource, amount in wish.demand.amounts.items():
                        wanted[resource] = wanted.get(resource, 0) + amount
                else:
                    count += wish.demand.least
            if count > len(supply):
                return True
            for resource, amount in wanted.items():
                if amount > sum(left.get(resource, 0) for left in supply.values()):
                    return True
        return False
