"""The stand-in's scenarios on the real kubelet: what is observed there must be observed here."""

import pytest

from tests.e2e.realnode import RealNode
from tests.kubelet.both.real import Real
from tests.kubelet.both.scenarios import SCENARIOS
from tests.kubelet.both.world import Stage

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("name", SCENARIOS)
async def test_the_real_kubelet_plays(name: str, node: RealNode) -> None:
    stage = Stage(Real(node), name)
    try:
        await SCENARIOS[name](stage)
    finally:
        await stage.close()
