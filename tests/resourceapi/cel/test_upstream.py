"""Kubernetes gives the same answers to random expressions and selectors; `upstream.py` runs it for more."""

import pytest

from tests.resourceapi.cel.upstream import KINDS
from tests.upstream import differences


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.seeds])
def test_kubernetes_says_the_same(kind: str) -> None:
    assert not differences(KINDS[kind])
