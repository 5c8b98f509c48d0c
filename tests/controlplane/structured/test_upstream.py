"""Upstream's allocator gives the same answers to random problems; `upstream.py` asks it for more."""

import pytest

from tests.controlplane.structured.upstream import KINDS, difference, digest, recorded


@pytest.mark.parametrize("kind", KINDS)
def test_upstream_says_the_same(kind: str) -> None:
    differences = []
    for problem, said in recorded(kind):
        assert said["digest"] == digest(problem), "the problems are others now; have upstream.py record its answers"
        differences.append(difference(problem, said))
    assert not [x for x in differences if x is not None]
