"""Which node can satisfy claims, with which devices.

The structured allocator decides what is possible (`feasibility`); this module decides what is preferred. For a node, in
this order: each instance gets its best alternative with which all later ones are still possible; then each claim gets
the fewest pools, the first such set in the order of the pools; then the fewest devices with the requested amounts. A
claim scores 100, less for each lesser alternative, or 0. A node scores the average of its claims, or 0 if one of them
cannot be satisfied. The first node with the best score is chosen.

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

_MAX_TRIED_SETS = 1000  # sets of pools that are tried for one claim before any possible set is accepted
_MAX_TRIES_PER_SET = 100  # for each of these sets
_MAX_REPORTED_SETS = 256  # sets of pools that are reported for one claim


class NodeResult(Struct, frozen=True):
    """What a node can provide for the claims. `claims` has the claims that failed, or, with `verbose`, all."""

    node: str
    score: int
    unsatisfied: tuple[str, ...] = ()
    claims: tuple[ClaimResult, ...] = ()


class Outcome(Struct, frozen=True):
    """The chosen node, if any, the devices of each claim there, and the results of all nodes."""

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
    """Return the first node with the best score for the claims (`nodes`: by default all), with the devices.

    With `verbose`, each node's result has all claims and the sets of pools that were tried; otherwise only the claims
    that failed, with the reason. `timeout` is in seconds for each node. SolveTimeout is raised only for the chosen
    node.
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
        """`timeout` is in seconds for each call of a public method."""
        self._feasibility = Feasibility(claims, cluster)
        self._claim_numbers = list(range(len(claims)))
        self._timeout = timeout

    def allocate(self, node: str) -> tuple[tuple[Assignment, ...], ...]:
        """Return the devices of each claim, from the fewest pools; empty if the node cannot satisfy them all.

        Raises SolveTimeout if not even one solution was found in time.
        """
        deadline = Deadline(self._timeout)
        solution = self._feasibility.search(node, self._claim_numbers, deadline)
        if solution is None:
            return ()
        confined: dict[int, frozenset[str]] = {}
        try:
            for number in self._claim_numbers:
                min_size = self._feasibility.minimum_pools(node, solution, number)
                used = frozenset(x.pool for x in solution.assignments if x.requirement.id.claim == number)
                if len(used) <= min_size:
                    confined[number] = used
                    continue
                for pools in islice(self._feasibility.pool_sets(node, number, min_size), _MAX_TRIED_SETS):
                    attempt = {**confined, number: frozenset(pools)}
                    better = self._search_confined(node, self._claim_numbers, attempt, solution, deadline)
                    if better is not None:
                        solution, confined = better, attempt
                        break
        except SolveTimeout:
            pass  # perhaps with more pools than necessary, but a solution
        return tuple(
            tuple(x for x in solution.assignments if x.requirement.id.claim == number) for number in self._claim_numbers
        )

    def node_result(self, node: str, *, verbose: bool = False) -> NodeResult:
        """Return what the node can provide for the claims. If the time is not enough, that is nothing."""
        claims = self._feasibility.claims
        try:
            return self._node_result(node, Deadline(self._timeout), verbose=verbose)
        except SolveTimeout as error:
            names = tuple(claim.metadata.name for claim in claims)
            return NodeResult(node, 0, names, tuple(ClaimResult(name, reason=str(error)) for name in names))

    def _node_result(self, node: str, deadline: Deadline, *, verbose: bool) -> NodeResult:
        solution = self._feasibility.search(node, self._claim_numbers, deadline)
        satisfied, score = self._claim_numbers, 0
        if solution is not None:
            scores = [score_of(solution, number) for number in self._claim_numbers]
            score = sum(scores) // len(scores) if scores else FULL_SCORE
        else:
            satisfied, solution = [], Solution()
            for number in self._claim_numbers:
                more = self._feasibility.search(node, [*satisfied, number], deadline)
                if more is not None:
                    satisfied, solution = [*satisfied, number], more
        unsatisfied = [number for number in self._claim_numbers if number not in satisfied]
        if verbose:
            results = self._all_results(node, satisfied, solution)
        else:
            results = [claim_result(self._feasibility, node, number, (), deadline) for number in unsatisfied]
        names = tuple(self._feasibility.claims[number].metadata.name for number in unsatisfied)
        return NodeResult(node, score, names, tuple(results))

    def _all_results(self, node: str, satisfied: Sequence[int], solution: Solution) -> list[ClaimResult]:
        """The result of every claim. Each claim is confined to its best pools before the next one is examined.

        Each claim has its own time limit here; the node's score is known already and does not depend on it.
        """
        confined: dict[int, frozenset[str]] = {}
        results = []
        for number in self._claim_numbers:
            deadline = Deadline(self._timeout)
            try:
                sets = self._pool_set_results(node, number, satisfied, solution, confined, deadline)
                result = claim_result(self._feasibility, node, number, tuple(sets), deadline)
            except SolveTimeout as error:
                result = ClaimResult(self._feasibility.claims[number].metadata.name, reason=str(error))
            if result.best >= 0:
                confined[number] = frozenset(
                    pool.pool_name for pool in result.pool_set_results[result.best].pool_results
                )
            results.append(result)
        return results

    def _pool_set_results(
        self,
        node: str,
        claim: int,
        satisfied: Sequence[int],
        solution: Solution,
        confined: dict[int, frozenset[str]],
        deadline: Deadline,
    ) -> list[PoolSetResult]:
        """The sets of pools up to the size that satisfies a claim. If too many: the first, and that of `solution`."""
        sets: list[PoolSetResult] = []
        best_size = None
        claims = satisfied if claim in satisfied else [*satisfied, claim]
        for pools in islice(self._feasibility.pool_sets(node, claim), _MAX_REPORTED_SETS):
            if best_size is not None and len(pools) > best_size:
                break
            better = self._search_confined(node, claims, {**confined, claim: frozenset(pools)}, solution, deadline)
            sets.append(pool_set_result(self._feasibility, node, claim, pools, better, deadline))
            best_size = len(pools) if better is not None else best_size
        if best_size is None and claim in satisfied:
            used = {assignment.pool for assignment in solution.assignments if assignment.requirement.id.claim == claim}
            pools = tuple(pool for pool in self._feasibility.usable_pools(node, claim) if pool in used)
            sets.append(pool_set_result(self._feasibility, node, claim, pools, solution, deadline))
        return sets

    def _search_confined(
        self,
        node: str,
        claims: Sequence[int],
        confined: dict[int, frozenset[str]],
        solution: Solution,
        deadline: Deadline,
    ) -> Solution | None:
        """Search again with the claims' pools confined, and with the alternatives of `solution`."""
        return self._feasibility.search(
            node, claims, deadline, confined=confined, alternatives=solution.alternatives, max_tries=_MAX_TRIES_PER_SET
        )
