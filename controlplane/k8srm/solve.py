"""Which node can serve claims, with which devices.

Every question "can these be had together" goes to the structured allocator; here is only decided what to ask. For a
node, in this order: each instance gets its best alternative that leaves something for all that come after it; then each
claim gets the fewest pools, the first such set in the order of the pools; then the fewest devices with the wanted
amounts. A set of pools scores 100 or 0, a node the average of its claims or 0, and the first best node is taken.
Source: allocator specification 6.3, 6.6.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice

from msgspec import Struct

from controlplane.k8srm.amounts import Kind, Slot, splits
from controlplane.k8srm.candidates import Wish, WishID, wishes_of
from controlplane.k8srm.errors import SolveTimeout
from controlplane.k8srm.holdings import Holdings
from controlplane.k8srm.load import Cluster
from controlplane.k8srm.translate import CLASSES, Ask, Kinds, Taken, claims_of, slices_of, state_of, taken_by
from controlplane.k8srm.types import DeviceClaim
from controlplane.structured import AllocationAborted, AllocationError, Allocator, Features, SliceIndex
from resourceapi.objects import ObjectMeta
from resourceapi.objects.core import Node

FULL_SCORE = 100
MATCH_FAILED = "claim MatchAttributes constraint failed"
_OTHERS_NEED = "the devices are needed by other claims"

_MAX_SETS = 10_000  # sets of pools that are tried for one claim before any that works will do
_MAX_LISTED = 256  # sets of pools that are told about for one claim

PoolSets = Mapping[int, frozenset[str]]
"""The pools that the claims, by number, are confined to."""


class PoolResult(Struct, frozen=True):
    """What a claim gets from a pool, or why it gets nothing."""

    pool_name: str
    device_count: int = 0
    failure_reason: str = ""


class PoolSetResult(Struct, frozen=True):
    """How well a set of pools serves a claim."""

    pool_results: tuple[PoolResult, ...]
    score: int
    failure_reason: str = ""


class ClaimResult(Struct, frozen=True):
    """What a node's pools can do for a claim; `best` is the index of the best set, -1 if there is none."""

    claim_name: str
    score: int
    best: int = -1
    ignored_pools: tuple[PoolResult, ...] = ()
    pool_set_results: tuple[PoolSetResult, ...] = ()
    reason: str = ""  # why the claim cannot be served


class NodeResult(Struct, frozen=True):
    """What a node can do for the claims; `claims` is only filled in where it was asked for."""

    node: str
    score: int
    unsatisfied: tuple[str, ...] = ()
    claims: tuple[ClaimResult, ...] = ()


class Outcome(Struct, frozen=True):
    """The node that was chosen, if any, and what each claim gets there; and what all nodes had to say."""

    node: str | None
    taken: tuple[tuple[Taken, ...], ...]  # by claim
    results: tuple[NodeResult, ...]


def select_node(
    claims: Sequence[DeviceClaim],
    cluster: Cluster,
    nodes: Sequence[str] | None = None,
    *,
    verbose: bool = False,
    timeout: float = 10.0,
) -> Outcome:
    """The first best node for the claims among these (default: all), with its devices.

    With `verbose`, each node tells how it fared with each set of pools; without, only those that failed say why.
    `timeout` is in seconds for each node. Raises SolveTimeout.
    """
    solver = Solver(claims, cluster, timeout=timeout)
    results = [solver.node_result(node, verbose=verbose) for node in (cluster.node_names if nodes is None else nodes)]
    best = max(results, key=lambda result: result.score, default=None)
    if best is None or best.score == 0:
        return Outcome(None, (), tuple(results))
    return Outcome(best.node, solver.allocate(best.node), tuple(results))


class _Found(Struct, frozen=True):
    """A solution: what was asked in the end, and what came of it."""

    asks: tuple[Ask, ...]
    taken: tuple[Taken, ...]


class Solver:
    """Questions about some claims in one cluster."""

    def __init__(self, claims: Sequence[DeviceClaim], cluster: Cluster, *, timeout: float = 10.0) -> None:
        """`timeout` is in seconds for each of the public methods."""
        holdings = Holdings(cluster.all_claims)
        self._claims = claims
        self._cluster = cluster
        self._timeout = timeout
        self._deadline = 0.0
        self._wishes = wishes_of(claims, cluster, holdings)
        self._kinds = Kinds(self._wishes.values())
        self._allocator = Allocator(
            Features(),
            state_of(cluster.pools.values(), holdings),
            CLASSES,
            slices_of(cluster.pools.values(), list(self._wishes.values()), self._kinds),
            index=SliceIndex(),
        )

    def allocate(self, node: str) -> tuple[tuple[Taken, ...], ...]:
        """The devices of each claim, from the fewest pools; nothing if the node cannot serve them all."""
        self._start()
        everybody = range(len(self._claims))
        found = self._find(node, everybody)
        if found is None:
            return ()
        alternatives = _alternatives(found)
        confined: dict[int, frozenset[str]] = {}
        for number in everybody:
            for pools in islice(self._pool_sets(node, number), _MAX_SETS):
                better = self._find(node, everybody, {**confined, number: frozenset(pools)}, alternatives)
                if better is not None:
                    found = better
                    confined[number] = frozenset(pools)
                    break
        return tuple(tuple(x for x in found.taken if x.wish.id.claim == number) for number in everybody)

    def node_result(self, node: str, *, verbose: bool = False) -> NodeResult:
        """What the node can do for the claims."""
        self._start()
        everybody = list(range(len(self._claims)))
        found = self._find(node, everybody)
        satisfied = everybody
        if found is None:
            satisfied = []
            for number in everybody:
                if self._find(node, [*satisfied, number]) is not None:
                    satisfied.append(number)
        unsatisfied = [number for number in everybody if number not in satisfied]
        results: list[ClaimResult] = []
        if verbose:
            results = self._told(node, satisfied, found)
        else:
            results = [self._claim_result(node, number, ()) for number in unsatisfied]
        names = tuple(self._claims[number].metadata.name for number in unsatisfied)
        return NodeResult(node, 0 if names else FULL_SCORE, names, tuple(results))

    # What can be had

    def _find(
        self,
        node: str,
        claims: Sequence[int],
        confined: PoolSets | None = None,
        alternatives: Mapping[tuple[int, int], int] | None = None,
    ) -> _Found | None:
        """Devices for all of these claims: the first choice of each instance with which all others get theirs."""
        instances = [(number, index) for number in claims for index in range(len(self._claims[number].spec.claims))]
        asks: list[Ask] = []

        def descend(place: int) -> _Found | None:
            if place == len(instances):
                return _Found((), ())
            number, index = instances[place]
            pools = None if confined is None else confined.get(number)
            for wish in self._alternatives_of(number, index):
                if alternatives is not None and alternatives[number, index] != wish.id.alternative:
                    continue
                for slots in self._options(node, wish, pools):
                    asks.append(Ask(wish, slots, pools))
                    taken = self._search(node, asks)
                    if taken is not None:
                        is_last = place + 1 == len(instances)
                        deeper = _Found(tuple(asks), tuple(taken)) if is_last else descend(place + 1)
                        if deeper is not None:
                            return deeper
                    asks.pop()
            return None

        return descend(0)

    def _search(self, node: str, asks: Sequence[Ask], *, with_matches: bool = True) -> list[Taken] | None:
        """Ask the allocator; None if the node does not have it."""
        left = self._deadline - time.monotonic()
        try:
            allocations = self._allocator.allocate(
                Node(metadata=ObjectMeta(name=node)),
                claims_of(self._claims, asks, self._kinds, with_matches=with_matches),
                timeout=max(left, 0),
            )
        except AllocationAborted:
            raise SolveTimeout(f"node {node}: no answer within {self._timeout:g} s; allow more time") from None
        except AllocationError:  # more devices than a claim can hold, or a pool with two devices of one name
            return None
        return None if allocations is None else taken_by(asks, allocations)

    def _start(self) -> None:
        self._deadline = time.monotonic() + self._timeout

    def _alternatives_of(self, claim: int, instance: int) -> Iterator[Wish]:
        alternative = 0
        while (wish := self._wishes.get(WishID(claim, instance, alternative))) is not None:
            yield wish
            alternative += 1

    def _options(self, node: str, wish: Wish, pools: frozenset[str] | None) -> Iterator[tuple[Slot, ...]]:
        """The ways to satisfy a wish that the number of its candidates does not rule out."""
        if wish.fault:
            return
        counts: dict[Kind | None, int] = {}
        for pool in self._pools_for(node, wish):
            if pools is None or pool in pools:
                for candidate in wish.candidates[pool].values():
                    counts[candidate.kind] = counts.get(candidate.kind, 0) + 1
        if wish.demand.least == 0 and not wish.demand.amounts:
            yield ()
        elif wish.is_admin or not wish.demand.amounts:
            if sum(counts.values()) >= wish.demand.least:
                yield (Slot(wish.demand.least),)
        else:
            yield from splits(wish.demand, {kind: number for kind, number in counts.items() if kind is not None})

    def _pools_for(self, node: str, wish: Wish) -> list[str]:
        """The node's pools with candidates, in their order."""
        return [name for name in self._visible(node) if name in wish.candidates]

    def _visible(self, node: str) -> list[str]:
        return [name for name, pool in self._cluster.pools.items() if (pool.spec.node_name or node) == node]

    def _pool_sets(self, node: str, claim: int) -> Iterator[tuple[str, ...]]:
        """The sets of pools with candidates for a claim, the smallest first, then in order."""
        wishes = [wish for wish in self._wishes.values() if wish.id.claim == claim]
        pools = [name for name in self._visible(node) if any(name in wish.candidates for wish in wishes)]
        for size in range(1, len(pools) + 1):
            yield from combinations(pools, size)

    # What is told

    def _told(self, node: str, satisfied: Sequence[int], found: _Found | None) -> list[ClaimResult]:
        """The result of every claim, each one confined to the best pools before it is the next one's turn."""
        alternatives = None if found is None else _alternatives(found)
        confined: dict[int, frozenset[str]] = {}
        results = []
        for number in range(len(self._claims)):
            sets: list[PoolSetResult] = []
            others = satisfied if number in satisfied else [*satisfied, number]
            for pools in islice(self._pool_sets(node, number), _MAX_LISTED):
                best_size = next((len(each.pool_results) for each in sets if each.score), len(pools))
                if len(pools) > best_size:
                    break
                attempt = {**confined, number: frozenset(pools)}
                sets.append(self._pool_set_result(node, number, pools, self._find(node, others, attempt, alternatives)))
            result = self._claim_result(node, number, tuple(sets))
            if result.best >= 0:
                confined[number] = frozenset(pool.pool_name for pool in sets[result.best].pool_results)
            results.append(result)
        return results

    def _claim_result(self, node: str, claim: int, sets: tuple[PoolSetResult, ...]) -> ClaimResult:
        wishes = [wish for wish in self._wishes.values() if wish.id.claim == claim]
        ignored = []
        for name in self._visible(node):
            if not any(name in wish.candidates for wish in wishes):
                reasons = dict.fromkeys(wish.fault or wish.refusals[name] for wish in wishes)
                ignored.append(PoolResult(name, 0, "; ".join(reasons)))
        best = next((index for index, each in enumerate(sets) if each.score), -1)
        name = self._claims[claim].metadata.name
        if best >= 0:
            return ClaimResult(name, FULL_SCORE, best, tuple(ignored), sets)
        return ClaimResult(name, 0, best, tuple(ignored), sets, self._reason(node, claim, ignored))

    def _reason(self, node: str, claim: int, ignored: Sequence[PoolResult]) -> str:
        """Why a claim cannot be served by all pools of a node together."""
        faults = dict.fromkeys(wish.fault for wish in self._wishes.values() if wish.id.claim == claim and wish.fault)
        if faults:
            return "; ".join(faults)
        pools = tuple(name for name in self._visible(node) if name not in {each.pool_name for each in ignored})
        told = []
        if pools:
            result = self._pool_set_result(node, claim, pools, None)
            matches = {each.failure_reason for each in result.pool_results if each.failure_reason}
            told = [result.failure_reason, *sorted(matches)]
        counts: dict[str, int] = {}
        for each in ignored:
            counts[each.failure_reason] = counts.get(each.failure_reason, 0) + 1
        told += [f"{number} pool{'' if number == 1 else 's'}: {reason}" for reason, number in counts.items()]
        return "; ".join(told) or "the node has no pools"

    def _pool_set_result(self, node: str, claim: int, pools: Sequence[str], found: _Found | None) -> PoolSetResult:
        """What the claim got from each of these pools; if it did not get everything, what it could have got."""
        if found is not None:
            mine = [taken for taken in found.taken if taken.wish.id.claim == claim]
            counts = [PoolResult(pool, sum(taken.pool == pool for taken in mine)) for pool in pools]
            return PoolSetResult(tuple(counts), FULL_SCORE)
        wanted, got = self._partly(node, claim, frozenset(pools), with_matches=True)
        if len(got) >= wanted:
            return PoolSetResult(tuple(PoolResult(pool) for pool in pools), 0, _OTHERS_NEED)
        _, without_matches = self._partly(node, claim, frozenset(pools), with_matches=False)
        stopped = MATCH_FAILED if len(without_matches) > len(got) else ""
        results = []
        for pool in pools:
            count = sum(taken.pool == pool for taken in got)
            results.append(PoolResult(pool, count, "" if count else stopped))
        return PoolSetResult(tuple(results), 0, f"unable to satisfy {wanted - len(got)} of {wanted} device requests")

    def _partly(self, node: str, claim: int, pools: frozenset[str], *, with_matches: bool) -> tuple[int, list[Taken]]:
        """How many devices a claim wants at least, and what it could have if it were content with less."""
        wanted = 0
        asks: list[Ask] = []
        got: list[Taken] = []
        for index in range(len(self._claims[claim].spec.claims)):
            wishes = list(self._alternatives_of(claim, index))
            wanted += wishes[0].demand.least
            for ask in (ask for wish in wishes for ask in self._modest(node, wish, pools)):
                taken = self._search(node, [*asks, ask], with_matches=with_matches)
                if taken is not None:
                    asks.append(ask)
                    got = taken
                    break
        return wanted, got

    def _modest(self, node: str, wish: Wish, pools: frozenset[str]) -> Iterator[Ask]:
        """The wish, and then less and less of it; what is wanted in amounts cannot be less."""
        for slots in self._options(node, wish, pools):
            yield Ask(wish, slots, pools)
        if not wish.fault and (wish.is_admin or not wish.demand.amounts):
            for count in range(wish.demand.least - 1, 0, -1):
                yield Ask(wish, (Slot(count),), pools)


def _alternatives(found: _Found) -> dict[tuple[int, int], int]:
    return {(ask.wish.id.claim, ask.wish.id.instance): ask.wish.id.alternative for ask in found.asks}
