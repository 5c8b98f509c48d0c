"""Two rounds and an update, to check that the command works."""

import pytest

from tests.soak.growth import Slope
from tests.soak.life import Life


async def test_two_rounds_and_an_update_leave_nothing_behind() -> None:
    async with Life(seed=1, allocations=10) as life:
        await life.round()
        first = life.measure()
        await life.round()
        await life.wait_for_descriptors(first.descriptors + 2)
        await life.update()
        assert life.left_behind() == []
    assert life.counts["kubelet restarts"] == life.counts["claims"] == 2


def test_slope_is_fitted_with_its_error() -> None:
    slope = Slope.of([1.0, 2.0, 3.0, 4.0])
    assert (slope.slope, slope.error, slope.most) == pytest.approx((1.0, 0.0, 4.0))
    assert Slope.of([0.0, 1.0, 0.0, 1.0]).error == pytest.approx(0.2828, abs=1e-3)
