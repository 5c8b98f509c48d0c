"""Upstream's allocator gives the same answers to random problems; `upstream.py` runs it for more."""

import pytest

from tests.controlplane.structured.upstream import KINDS
from tests.upstream import differences


@pytest.mark.parametrize("kind", KINDS)
def test_recorded_upstream_answers_to_random_problems_are_reproduced(kind: str) -> None:
    assert not differences(KINDS[kind])
