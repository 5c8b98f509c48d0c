"""Kubernetes gives the same answers to random expressions and selectors; `upstream.py` runs it for more."""

import pytest

from tests.resourceapi.cel.upstream import KINDS
from tests.upstream import differences


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.seeds])
def test_recorded_kubernetes_answers_to_random_input_are_reproduced(kind: str) -> None:
    assert not differences(KINDS[kind])
