"""The kubelet is answered before observers are notified."""

import asyncio
from collections.abc import Sequence

from checkpoint.lease import Change
from tests.dra_plugin.preparing.world import World, claim, result


async def test_kubelet_is_answered_before_observers_are_notified(world: World) -> None:
    """Observers update lists and events, which can wait; a pod waits for the answer."""
    made = claim(result("misc-fuse"))
    order: list[str] = []
    is_recorded = asyncio.Event()

    def recorded(_: Sequence[Change]) -> None:
        order.append("recorded")
        is_recorded.set()

    world.ledger.observe(lambda _: order.append("shown"))
    world.ledger.observe_commits(recorded)
    await world.prepare(made)
    await is_recorded.wait()
    is_recorded.clear()
    order.clear()
    await world.unprepare(made)
    order.append("answered")
    await is_recorded.wait()
    assert order == ["answered", "shown", "recorded"]
