"""How a node fared with claims, told in the prototype's terms: pools, sets of pools, claims.

A pool without a candidate is ignored, for one reason; a set of pools that does not do tells what it could have given.
Source: allocator specification 6.6.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from controlplane.k8srm.amounts import Slot
from controlplane.k8srm.candidates import Wish
from controlplane.k8srm.questions import Deadline, Found, Questions
from controlplane.k8srm.translate import Ask, Taken

FULL_SCORE = 100
MATCH_FAILED = "claim MatchAttributes constraint failed"
NEEDED_BY_OTHERS = "the devices are needed by other claims"


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


def score_of(found: Found, claim: int) -> int:
    """How well a claim is served: 100, less for every instance that did not get its best alternative."""
    scores = []
    for ask in found.asks:
        if ask.wish.id.claim == claim:
            number = ask.wish.alternatives
            scores.append(max(FULL_SCORE * (number - ask.wish.id.alternative) // number, 1))
    return sum(scores) // len(scores)


def claim_result(
    questions: Questions, node: str, claim: int, sets: tuple[PoolSetResult, ...], deadline: Deadline
) -> ClaimResult:
    """What is to be told of a claim, given the sets of pools that were tried; raises SolveTimeout."""
    wishes = [wish for wish in questions.wishes.values() if wish.id.claim == claim]
    usable = questions.usable(node, claim)
    ignored = []
    for name in questions.visible(node):
        if name not in usable:
            reasons = dict.fromkeys(wish.fault or wish.refusals[name] for wish in wishes)
            ignored.append(PoolResult(name, 0, "; ".join(reasons)))
    best = next((index for index, each in enumerate(sets) if each.score), -1)
    name = questions.claims[claim].metadata.name
    if best >= 0:
        return ClaimResult(name, best, tuple(ignored), sets)
    told = list(dict.fromkeys(wish.fault for wish in wishes if wish.fault))
    if not all(wish.fault for wish in wishes):
        told += _reasons(questions, node, claim, ignored, deadline)
    return ClaimResult(name, best, tuple(ignored), sets, "; ".join(told))


def pool_set_result(
    questions: Questions, node: str, claim: int, pools: Sequence[str], found: Found | None, deadline: Deadline
) -> PoolSetResult:
    """What a claim got from each of these pools; if it did not get everything, what it could have got."""
    if found is not None:
        mine = [taken for taken in found.taken if taken.wish.id.claim == claim]
        counts = [PoolResult(pool, sum(taken.pool == pool for taken in mine)) for pool in pools]
        return PoolSetResult(tuple(counts), score_of(found, claim))
    wanted, lacking, got = _partly(questions, node, claim, frozenset(pools), deadline, with_matches=True)
    if not lacking:
        return PoolSetResult(tuple(PoolResult(pool) for pool in pools), 0, NEEDED_BY_OTHERS)
    _, lacking_anyway, _ = _partly(questions, node, claim, frozenset(pools), deadline, with_matches=False)
    stopped = MATCH_FAILED if lacking_anyway < lacking else ""
    results = []
    for pool in pools:
        count = sum(taken.pool == pool for taken in got)
        results.append(PoolResult(pool, count, "" if count else stopped))
    return PoolSetResult(tuple(results), 0, f"unable to satisfy {lacking} of {wanted} device requests")


def _reasons(
    questions: Questions, node: str, claim: int, ignored: Sequence[PoolResult], deadline: Deadline
) -> list[str]:
    """Why a claim cannot be served by all pools of a node together."""
    told = []
    pools = questions.usable(node, claim)
    if pools:
        result = pool_set_result(questions, node, claim, pools, None, deadline)
        told = [result.failure_reason, *sorted({x.failure_reason for x in result.pool_results if x.failure_reason})]
    counts: dict[str, int] = {}
    for each in ignored:
        counts[each.failure_reason] = counts.get(each.failure_reason, 0) + 1
    told += [f"{number} pool{'' if number == 1 else 's'}: {reason}" for reason, number in counts.items()]
    return told or ["the node has no pools"]


def _partly(
    questions: Questions, node: str, claim: int, pools: frozenset[str], deadline: Deadline, *, with_matches: bool
) -> tuple[int, int, list[Taken]]:
    """How many devices a claim wants at least, how many it lacks, and what it could have if it took less."""
    wanted = lacking = 0
    asks: list[Ask] = []
    got: list[Taken] = []
    for index in range(len(questions.claims[claim].spec.claims)):
        alternatives = questions.alternatives_of(claim, index)
        least = max(alternatives[0].demand.least, 1)
        wanted += least
        lacking += least
        for ask in (ask for wish in alternatives for ask in _modest(questions, node, wish, pools)):
            taken = questions.ask(node, [*asks, ask], deadline, with_matches=with_matches)
            if taken is not None:
                asks.append(ask)
                got = taken
                lacking -= min(least, max(sum(slot.count for slot in ask.slots), ask.wish.demand.least == 0))
                break
    return wanted, lacking, got


def _modest(questions: Questions, node: str, wish: Wish, pools: frozenset[str]) -> Iterator[Ask]:
    """The wish, and then less and less of it; what is wanted in amounts cannot be less."""
    yield from questions.ways(node, wish, pools)
    if not wish.fault and not wish.wants_amounts:
        for count in range(wish.demand.least - 1, 0, -1):
            yield Ask(wish, (Slot(count),), pools)
