"""Which node can serve claims, with which devices.

The structured allocator says what can be had together (`feasibility`); here is only decided what is preferred. For a
node, in this order: each instance gets its best alternative that leaves something for all that come after it; then each
claim gets the fewest pools, the first such set in the order of the pools; then the fewest devices with the wanted
amounts. A claim scores 100, less where it got a lesser alternative, or 0; a node the average of its claims, or 0 if
there is one that it cannot serve. The first best node is taken.
Source: allocator specification 6.3, 6.6.
"""

from collections.abc import Sequence
from itertools import islice

from msgspec import Struct

from controlplane.k8srm.errors import SolveTimeout
from controlplane.k8srm.explanation import (
    FULL_SCORE,
    ClaimResult,
    PoolSetResult,
    claim_result,
    pool_set_result,
    score_of,
)
from controlplane.k8srm.feasibility import Deadline, Feasibility, Solution
from controlplane.k8srm.load import ClusterObjects
from controlplane.k8srm.translate import Assignment
from controlplane.k8srm.types import DeviceClaim

_MAX_SETS = 1000  # sets of pools that are tried for one claim before any that works will do
_MAX_TRIES = 100  # for each of them
_MAX_LISTED = 256  # sets of pools that are reported for one claim


class NodeResult(Struct, frozen=True):
    """What a node can do for the claims; `claims` is only filled in where it was asked for."""

    node: str
    score: int
    unsatisfied: tuple[str, ...] = ()
    claims: tuple[ClaimResult, ...] = ()


class Outcome(Struct, frozen=True):
    """The node that was chosen, if any, and what each claim gets there; and what all nodes had to say."""

    node: str | None
    assignments: tuple[tuple[Assignment, ...], ...]  # by claim
    results: tuple[NodeResult, ...]


def select_node(
    claims: Sequence[DeviceClaim],
    cluster: ClusterObjects,
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


class Solver:
    """Chooses devices for some claims in one cluster."""

    def __init__(self, claims: Sequence[DeviceClaim], cluster: ClusterObjects, *, timeout: float = 10.0) -> None:
        """`timeout` is in seconds for each of the public methods."""
        self._feasibility = Feasibility(claims, cluster)
        self._everybody = list(range(len(claims)))
        self._timeout = timeout

    def allocate(self, node: str) -> tuple[tuple[Assignment, ...], ...]:
        """The devices of each claim, from the fewest pools; nothing if the node cannot serve them all.

        Raises SolveTimeout if not even one solution was found in time.
        """
        deadline = Deadline(self._timeout)
        solution = self._feasibility.search(node, self._everybody, deadline)
        if solution is None:
            return ()
        confined: dict[int, frozenset[str]] = {}
        try:
            for number in self._everybody:
                least = self._feasibility.least_pools(node, solution, number)
                used = frozenset(x.pool for x in solution.assignments if x.requirement.id.claim == number)
                if len(used) <= least:
                    confined[number] = used
                    continue
                for pools in islice(self._feasibility.pool_sets(node, number, least), _MAX_SETS):
                    attempt = {**confined, number: frozenset(pools)}
                    better = self._confined(node, self._everybody, attempt, solution, deadline)
                    if better is not None:
                        solution, confined = better, attempt
                        break
        except SolveTimeout:
            pass  # more pools than necessary, perhaps, but a solution
        return tuple(
            tuple(x for x in solution.assignments if x.requirement.id.claim == number) for number in self._everybody
        )

    def node_result(self, node: str, *, verbose: bool = False) -> NodeResult:
        """What the node can do for the claims; a node that does not know in time can do nothing."""
        claims = self._feasibility.claims
        try:
            return self._node_result(node, Deadline(self._timeout), verbose=verbose)
        except SolveTimeout as error:
            names = tuple(claim.metadata.name for claim in claims)
            return NodeResult(node, 0, names, tuple(ClaimResult(name, reason=str(error)) for name in names))

    def _node_result(self, node: str, deadline: Deadline, *, verbose: bool) -> NodeResult:
        solution = self._feasibility.search(node, self._everybody, deadline)
        satisfied, score = self._everybody, 0
        if solution is not None:
            scores = [score_of(solution, number) for number in self._everybody]
            score = sum(scores) // len(scores) if scores else FULL_SCORE
        else:
            satisfied, solution = [], Solution()
            for number in self._everybody:
                more = self._feasibility.search(node, [*satisfied, number], deadline)
                if more is not None:
                    satisfied, solution = [*satisfied, number], more
        unsatisfied = [number for number in self._everybody if number not in satisfied]
        if verbose:
            results = self._all_results(node, satisfied, solution)
        else:
            results = [claim_result(self._feasibility, node, number, (), deadline) for number in unsatisfied]
        names = tuple(self._feasibility.claims[number].metadata.name for number in unsatisfied)
        return NodeResult(node, score, names, tuple(results))

    def _all_results(self, node: str, satisfied: Sequence[int], solution: Solution) -> list[ClaimResult]:
        """The result of every claim, each one confined to its best pools before it is the next one's turn.

        Telling has time of its own for each claim: what is known of the node does not depend on it.
        """
        confined: dict[int, frozenset[str]] = {}
        results = []
        for number in self._everybody:
            deadline = Deadline(self._timeout)
            try:
                sets = self._tried(node, number, satisfied, solution, confined, deadline)
                result = claim_result(self._feasibility, node, number, tuple(sets), deadline)
            except SolveTimeout as error:
                result = ClaimResult(self._feasibility.claims[number].metadata.name, reason=str(error))
            if result.best >= 0:
                confined[number] = frozenset(
                    pool.pool_name for pool in result.pool_set_results[result.best].pool_results
                )
            results.append(result)
        return results

    def _tried(
        self,
        node: str,
        claim: int,
        satisfied: Sequence[int],
        solution: Solution,
        confined: dict[int, frozenset[str]],
        deadline: Deadline,
    ) -> list[PoolSetResult]:
        """The sets of pools up to the size that serves a claim; of very many the first, and the one found anyway."""
        sets: list[PoolSetResult] = []
        best_size = None
        claims = satisfied if claim in satisfied else [*satisfied, claim]
        for pools in islice(self._feasibility.pool_sets(node, claim), _MAX_LISTED):
            if best_size is not None and len(pools) > best_size:
                break
            better = self._confined(node, claims, {**confined, claim: frozenset(pools)}, solution, deadline)
            sets.append(pool_set_result(self._feasibility, node, claim, pools, better, deadline))
            best_size = len(pools) if better is not None else best_size
        if best_size is None and claim in satisfied:
            used = {assignment.pool for assignment in solution.assignments if assignment.requirement.id.claim == claim}
            pools = tuple(pool for pool in self._feasibility.usable(node, claim) if pool in used)
            sets.append(pool_set_result(self._feasibility, node, claim, pools, solution, deadline))
        return sets

    def _confined(
        self,
        node: str,
        claims: Sequence[int],
        confined: dict[int, frozenset[str]],
        solution: Solution,
        deadline: Deadline,
    ) -> Solution | None:
        """The claims with their pools confined, and the alternatives that were found without."""
        return self._feasibility.search(
            node, claims, deadline, confined=confined, alternatives=solution.alternatives, max_tries=_MAX_TRIES
        )
