"""The scenarios with the stand-in, for each release."""

from pathlib import Path

import pytest

from kubelet import RELEASES, Version
from tests.kubelet.both.claims_fixture import ClaimsFixture
from tests.kubelet.both.scenarios import SCENARIOS
from tests.kubelet.both.standin import StandIn


@pytest.mark.parametrize("kubernetes", RELEASES)
@pytest.mark.parametrize("name", SCENARIOS)
async def test_stand_in_passes_scenario(name: str, kubernetes: Version, folder: Path) -> None:
    scenario = SCENARIOS[name]
    if reason := scenario.reason_unsupported(RELEASES[kubernetes]):
        pytest.skip(reason)
    async with StandIn(folder, kubernetes) as world:
        fixture = ClaimsFixture(world, name)
        try:
            await scenario.run(fixture)
        finally:
            await fixture.close()


def test_scenario_count_is_at_least_75() -> None:
    assert len(SCENARIOS) >= 75
