"""Why a claim was or was not satisfied, in the prototype's terms: pools, sets of pools, claims.

A pool without a candidate is ignored, for one reason. A set of pools that cannot satisfy the claim is reported with
what it could provide. Source: allocator specification 6.6.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from controlplane.k8srm.amounts import Slot
from controlplane.k8srm.candidates import Requirement
from controlplane.k8srm.feasibility import Deadline, Feasibility, Solution
from controlplane.k8srm.translate import Assignment, Attempt

FULL_SCORE = 100
MATCH_FAILED = "claim MatchAttributes constraint failed"
NEEDED_BY_OTHERS = "the devices are needed by other claims"


class PoolResult(Struct, frozen=True):
    """What a claim gets from a pool, or why it gets nothing."""

    pool_name: str
    device_count: int = 0
    failure_reason: str = ""


class PoolSetResult(Struct, frozen=True):
    """How well a set of pools satisfies a claim."""

    pool_results: tuple[PoolResult, ...]
    score: int
    failure_reason: str = ""


class ClaimResult(Struct, frozen=True):
    """What a node's pools can provide for a claim. `best` is the index of the best set, -1 if there is none."""

    claim_name: str
    best: int = -1
    ignored_pools: tuple[PoolResult, ...] = ()
    pool_set_results: tuple[PoolSetResult, ...] = ()
    reason: str = ""  # why the claim cannot be satisfied


def score_of(solution: Solution, claim: int) -> int:
    """Return the score of a claim: 100, less for every instance that did not get its best alternative."""
    scores = []
    for attempt in solution.attempts:
        if attempt.requirement.id.claim == claim:
            number = attempt.requirement.alternatives
            scores.append(max(FULL_SCORE * (number - attempt.requirement.id.alternative) // number, 1))
    return sum(scores) // len(scores)


def claim_result(
    feasibility: Feasibility, node: str, claim: int, sets: tuple[PoolSetResult, ...], deadline: Deadline
) -> ClaimResult:
    """Return what a node can provide for a claim; `sets` are the sets of pools that were tried. Raises SolveTimeout."""
    requirements = [requirement for requirement in feasibility.requirements.values() if requirement.id.claim == claim]
    usable = feasibility.usable_pools(node, claim)
    ignored = []
    for name in feasibility.visible_pools(node):
        if name not in usable:
            refusals = dict.fromkeys(requirement.fault or requirement.refusals[name] for requirement in requirements)
            ignored.append(PoolResult(name, 0, "; ".join(refusals)))
    best = next((index for index, each in enumerate(sets) if each.score), -1)
    name = feasibility.claims[claim].metadata.name
    if best >= 0:
        return ClaimResult(name, best, tuple(ignored), sets)
    reasons = list(dict.fromkeys(requirement.fault for requirement in requirements if requirement.fault))
    if not all(requirement.fault for requirement in requirements):
        reasons += _reasons(feasibility, node, claim, ignored, deadline)
    return ClaimResult(name, best, tuple(ignored), sets, "; ".join(reasons))


def pool_set_result(
    feasibility: Feasibility, node: str, claim: int, pools: Sequence[str], solution: Solution | None, deadline: Deadline
) -> PoolSetResult:
    """Return what a claim gets from each of these pools; without a solution, what it could get at most."""
    if solution is not None:
        mine = [assignment for assignment in solution.assignments if assignment.requirement.id.claim == claim]
        counts = [PoolResult(pool, sum(assignment.pool == pool for assignment in mine)) for pool in pools]
        return PoolSetResult(tuple(counts), score_of(solution, claim))
    wanted, lacking, allocated = _partial_allocation(
        feasibility, node, claim, frozenset(pools), deadline, with_matches=True
    )
    if not lacking:
        return PoolSetResult(tuple(PoolResult(pool) for pool in pools), 0, NEEDED_BY_OTHERS)
    _, lacking_without_matches, _ = _partial_allocation(
        feasibility, node, claim, frozenset(pools), deadline, with_matches=False
    )
    pool_reason = MATCH_FAILED if lacking_without_matches < lacking else ""
    results = []
    for pool in pools:
        count = sum(assignment.pool == pool for assignment in allocated)
        results.append(PoolResult(pool, count, "" if count else pool_reason))
    return PoolSetResult(tuple(results), 0, f"unable to satisfy {lacking} of {wanted} device requests")


def _reasons(
    feasibility: Feasibility, node: str, claim: int, ignored: Sequence[PoolResult], deadline: Deadline
) -> list[str]:
    """Why all pools of a node together cannot satisfy a claim."""
    reasons = []
    pools = feasibility.usable_pools(node, claim)
    if pools:
        result = pool_set_result(feasibility, node, claim, pools, None, deadline)
        reasons = [result.failure_reason, *sorted({x.failure_reason for x in result.pool_results if x.failure_reason})]
    counts: dict[str, int] = {}
    for each in ignored:
        counts[each.failure_reason] = counts.get(each.failure_reason, 0) + 1
    reasons += [f"{number} pool{'' if number == 1 else 's'}: {reason}" for reason, number in counts.items()]
    return reasons or ["the node has no pools"]


def _partial_allocation(
    feasibility: Feasibility, node: str, claim: int, pools: frozenset[str], deadline: Deadline, *, with_matches: bool
) -> tuple[int, int, list[Assignment]]:
    """How many devices a claim needs at least, how many are missing, and the devices that it could have."""
    wanted = lacking = 0
    attempts: list[Attempt] = []
    allocated: list[Assignment] = []
    for index in range(len(feasibility.claims[claim].spec.claims)):
        alternatives = feasibility.alternatives_of(claim, index)
        needed = max(alternatives[0].demand.minimum, 1)
        wanted += needed
        lacking += needed
        for attempt in (
            attempt
            for requirement in alternatives
            for attempt in _smaller_attempts(feasibility, node, requirement, pools)
        ):
            assignments = feasibility.try_split(node, [*attempts, attempt], deadline, with_matches=with_matches)
            if assignments is not None:
                attempts.append(attempt)
                allocated = assignments
                lacking -= min(
                    needed, max(sum(slot.count for slot in attempt.slots), attempt.requirement.demand.minimum == 0)
                )
                break
    return wanted, lacking, allocated


def _smaller_attempts(
    feasibility: Feasibility, node: str, requirement: Requirement, pools: frozenset[str]
) -> Iterator[Attempt]:
    """Attempts for the whole requirement, then for fewer and fewer devices. Amounts cannot be reduced."""
    yield from feasibility.splits(node, requirement, pools)
    if not requirement.fault and not requirement.takes_amounts:
        for count in range(requirement.demand.minimum - 1, 0, -1):
            yield Attempt(requirement, (Slot(count),), pools)
