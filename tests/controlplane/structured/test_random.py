"""Random problems: the same devices, the same errors, whoever searches.

NODEPLUG_PROBLEMS is how many (default 500); a long run:
NODEPLUG_PROBLEMS=10000 make test ARGS="tests/controlplane/structured/test_random.py -o timeout=3600"
"""

import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from controlplane.structured import AllocationError, SliceIndex
from controlplane.structured.problem import pose
from controlplane.structured.requests import plan
from tests.cases import Mismatch
from tests.cases.allocator import Problem, answer, compare, read_problem
from tests.cases.documents import CHECKOUT
from tests.controlplane.structured.naive import NaiveSearch
from tests.controlplane.structured.random_problems import random_problem

PROBLEMS = int(os.environ.get("NODEPLUG_PROBLEMS", "500"))
BATCH = 250
MAX_STEPS = 3_000  # what plain recursion does in a moment

BUILT = Path.home() / ".cache/nodeplug-oracle"
ORACLE = Path(os.environ.get("NODEPLUG_ORACLE", CHECKOUT.parent / "shared" / "oracle")) / "allocator"


@pytest.mark.parametrize("first", range(0, PROBLEMS, BATCH))
def test_a_search_without_cleverness_finds_the_same(first: int) -> None:
    for seed in range(first, first + BATCH):
        problem = read_problem(random_problem(seed))
        unpruned = answer(problem, prune=False, max_steps=MAX_STEPS)
        if unpruned.error is not None and unpruned.error.startswith("filter operation aborted"):
            continue
        for patience in (0, 5):
            pruned = answer(problem, prune=True, patience=patience)
            assert pruned[:3] == unpruned[:3], f"seed {seed}"
            assert pruned.steps <= unpruned.steps, f"seed {seed}"
        search = _naive(problem)
        if search is not None:
            assert _outcome(search) == _said(unpruned.results, unpruned.error), f"seed {seed}"
            assert search.steps == unpruned.steps, f"seed {seed}"


def test_knowledge_of_slices_changes_no_answer() -> None:
    index = SliceIndex()
    for seed in range(100):
        problem = read_problem(random_problem(seed))
        expected = answer(problem, prune=True)
        for _ in range(2):
            assert answer(problem, prune=True, index=index)[:3] == expected[:3], f"seed {seed}"


@pytest.fixture(scope="module")
def oracle() -> Path:
    """Upstream's allocator as a program, built once for all workers and runs."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        pytest.skip("Go is not installed")
    if not ORACLE.is_dir():
        pytest.skip(f"no oracle in {ORACLE}; set NODEPLUG_ORACLE")
    BUILT.mkdir(parents=True, exist_ok=True)
    binary = BUILT / "oracle"
    with (BUILT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists() or binary.stat().st_mtime < max(x.stat().st_mtime for x in ORACLE.rglob("*")):
            build = [go, "build", "-buildvcs=false", "-o", str(binary), "."]
            done = subprocess.run(build, cwd=ORACLE, capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"the oracle cannot be built here: {done.stderr.strip()[-200:]}")
    return binary


@pytest.mark.timeout(300)  # building the oracle takes a minute where nothing is cached
@pytest.mark.parametrize("first", range(100_000, 100_000 + 2 * PROBLEMS, BATCH))
def test_upstream_says_the_same(oracle: Path, first: int) -> None:
    problems = [random_problem(seed) for seed in range(first, first + BATCH)]
    command = [str(oracle), "-allocators", "experimental", "-timeout", "1s"]
    lines = "\n".join(map(json.dumps, problems))
    answers = subprocess.run(command, input=lines, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(answers) == len(problems)
    differences = []
    for problem, line in zip(problems, answers, strict=True):
        said = json.loads(line)
        if said.get("panic") or said.get("timedOut"):
            continue
        try:
            compare(problem, said, said["numAllocateOneInvocations"])
        except Mismatch as mismatch:
            differences.append(f"{problem['name']}: {mismatch}")
    assert not differences


def _naive(problem: Problem) -> NaiveSearch | None:
    """The plain search, or None where the problem is refused before any search."""
    index = SliceIndex()
    index.update(problem.slices)
    try:
        layout = index.layout(problem.node, problem.features)
        planned = plan(problem.claims, problem.classes, index.selectors, problem.features)
        pose(planned, layout, problem.features)
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


def _is_about_results(error: str | None) -> bool:
    """Whether an error came after the search, from what it found."""
    return error is not None and error.startswith("create NodeSelector")


def _said(results: list[dict[str, object]] | None, error: str | None) -> object:
    if results is None:
        return error
    return [
        [(x["request"], f"{x['driver']}/{x['pool']}/{x['device']}") for x in result["devices"]["results"]]  # type: ignore[index]
        for result in results
    ]
