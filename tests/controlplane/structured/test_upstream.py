"""Upstream's allocator gives the same answers to random problems; `upstream.py` asks it for more."""

from tests.controlplane.structured.random_problems import random_problem
from tests.controlplane.structured.upstream import SEEDS, difference, digest, recorded


def test_upstream_says_the_same() -> None:
    differences = []
    for seed, said in zip(SEEDS, recorded(), strict=True):
        problem = random_problem(seed)
        assert said["digest"] == digest(problem), "the problems are others now; have upstream.py record its answers"
        differences.append(difference(problem, said))
    assert not [x for x in differences if x is not None]
