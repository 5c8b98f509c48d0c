"""Random problems: all searches find the same devices and the same errors.

NODEPLUG_PROBLEMS is the number of problems (default 500); a long run:
NODEPLUG_PROBLEMS=10000 make test ARGS="tests/controlplane/structured/test_random.py -o timeout=3600"
"""

import os

import pytest

from controlplane.structured import AllocationError, SliceIndex
from controlplane.structured.problem import build_problem
from controlplane.structured.requests import plan
from tests.cases.allocator import Problem, answer, read_problem
from tests.controlplane.structured.naive import NaiveSearch
from tests.controlplane.structured.random_problems import random_problem

PROBLEMS = int(os.environ.get("NODEPLUG_PROBLEMS", "500"))
BATCH = 250
MAX_STEPS = 3_000  # plain recursion needs only a moment for these


@pytest.mark.parametrize("first", range(0, PROBLEMS, BATCH))
def test_pruned_and_naive_searches_find_same_devices(first: int) -> None:
    for seed in range(first, first + BATCH):
        problem = read_problem(random_problem(seed))
        unpruned = answer(problem, prune=False, max_steps=MAX_STEPS)
        if unpruned.error is not None and unpruned.error.startswith("filter operation aborted"):
            continue
        for failures_before_pruning in (0, 5):
            pruned = answer(problem, prune=True, failures_before_pruning=failures_before_pruning)
            assert pruned[:3] == unpruned[:3], f"seed {seed}"
            assert pruned.steps <= unpruned.steps, f"seed {seed}"
        search = _naive(problem)
        if search is not None:
            assert _outcome(search) == _results_or_error(unpruned.results, unpruned.error), f"seed {seed}"
            assert search.steps == unpruned.steps, f"seed {seed}"


def test_cached_slice_index_does_not_change_results() -> None:
    index = SliceIndex()
    for seed in range(100):
        problem = read_problem(random_problem(seed))
        expected = answer(problem, prune=True)
        for _ in range(2):
            assert answer(problem, prune=True, index=index)[:3] == expected[:3], f"seed {seed}"


def _naive(problem: Problem) -> NaiveSearch | None:
    """The naive search, or None if the problem is refused before any search."""
    index = SliceIndex()
    index.update(problem.slices)
    try:
        layout = index.layout(problem.node, problem.features)
        planned = plan(problem.claims, problem.classes, index.selectors, problem.features)
        build_problem(planned, layout, problem.features)
    except AllocationError:
        return None
    return NaiveSearch(planned, list(layout.pools), problem.node, problem.state, problem.features)


def _outcome(search: NaiveSearch) -> object:
    try:
        found = search.run()
    except AllocationError as error:
        return str(error)
    if found is None and any(pool.is_invalid for pool in search.pools):
        return "invalid resource pools were encountered"
    return None if found is None else [[(ref, str(device)) for ref, device in claim] for claim in found]


def _results_or_error(results: list[dict[str, object]] | None, error: str | None) -> object:
    if results is None:
        return error
    return [
        [(x["request"], f"{x['driver']}/{x['pool']}/{x['device']}") for x in result["devices"]["results"]]  # type: ignore[index]
        for result in results
    ]
