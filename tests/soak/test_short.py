"""Two rounds and an update, to check that the command works."""

import pytest

from tests.soak.growth import Slope
from tests.soak.loaded_node import LoadedNode


async def test_two_rounds_and_an_update_leave_nothing_behind() -> None:
    async with LoadedNode(seed=1, allocations=10) as node:
        await node.round()
        first = node.measure()
        await node.round()
        await node.wait_for_descriptors(first.descriptors + 2)
        await node.update()
        assert node.left_behind() == []
    assert node.counts["kubelet restarts"] == node.counts["claims"] == 2


def test_slope_is_fitted_with_its_error() -> None:
    slope = Slope.of([1.0, 2.0, 3.0, 4.0])
    assert (slope.slope, slope.error, slope.most) == pytest.approx((1.0, 0.0, 4.0))
    assert Slope.of([0.0, 1.0, 0.0, 1.0]).error == pytest.approx(0.2828, abs=1e-3)
