"""The scenarios on the stand-in."""

from pathlib import Path

import pytest

from tests.kubelet.both.claims_stage import ClaimsStage
from tests.kubelet.both.scenarios import SCENARIOS
from tests.kubelet.both.standin import StandIn


@pytest.mark.parametrize("name", SCENARIOS)
async def test_the_stand_in_plays(name: str, folder: Path) -> None:
    async with StandIn(folder) as world:
        stage = ClaimsStage(world, name)
        try:
            await SCENARIOS[name](stage)
        finally:
            await stage.close()


def test_there_are_enough_of_them() -> None:
    assert len(SCENARIOS) >= 75
