"""Ending a claim for the reconciler, whose evidence can be outdated."""

import asyncio

from checkpoint.holdings import ClaimName
from tests.dra_plugin.kubelet_end import PATIENCE
from tests.dra_plugin.preparing.world import UID, World, claim, config, result
from tests.running import until

NAME = ClaimName("default", "mine", UID)


async def test_a_claim_that_somebody_works_for_is_left_alone_and_not_waited_for(world: World) -> None:
    """The call can be waiting for the very pass that would end the claim."""
    pipe = world.hold_reset("fuse")
    call = asyncio.create_task(world.prepare(claim(result("misc-fuse"), configs=[config(reset=True)])))
    await until(world.units)
    try:
        async with asyncio.timeout(PATIENCE):
            await world.preparer.end(NAME, asyncio.get_running_loop().time() + 3600)
    finally:
        await asyncio.to_thread(pipe.read_bytes)
        await call
    assert [lease.phase for lease in world.ledger.leases()] == ["done"]


async def test_a_claim_that_was_answered_for_since_it_was_judged_stays(world: World) -> None:
    await world.prepare(claim(result("misc-fuse")))
    judged = asyncio.get_running_loop().time()
    await world.prepare(claim(result("misc-fuse")))
    await world.preparer.end(NAME, judged)
    assert world.units() == ["misc-fuse"]
    await world.preparer.end(NAME, asyncio.get_running_loop().time() + 1)
    assert (world.units(), world.files()) == ([], [])
