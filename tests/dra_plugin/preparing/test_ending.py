"""Ending a claim for the reconciler, whose evidence can be outdated."""

import asyncio

from checkpoint.holdings import ClaimName
from tests.dra_plugin.kubelet_end import TIMEOUT
from tests.dra_plugin.preparing.world import UID, World, claim, config, result
from tests.running import until

NAME = ClaimName("default", "mine", UID)


async def test_claim_with_a_running_call_is_not_ended(world: World) -> None:
    """The call can be waiting for the very pass that would end the claim."""
    pipe = world.hold_reset("fuse")
    call = asyncio.create_task(world.prepare(claim(result("misc-fuse"), configs=[config(reset=True)])))
    await until(world.units)
    try:
        async with asyncio.timeout(TIMEOUT):
            await world.preparer.end(NAME, asyncio.get_running_loop().time() + 3600)
    finally:
        await asyncio.to_thread(pipe.read_bytes)
        await call
    assert [lease.phase for lease in world.ledger.leases()] == ["done"]


async def test_claim_answered_after_the_evidence_is_not_ended(world: World) -> None:
    await world.prepare(claim(result("misc-fuse")))
    evidence_time = asyncio.get_running_loop().time()
    await world.prepare(claim(result("misc-fuse")))
    await world.preparer.end(NAME, evidence_time)
    assert world.units() == ["misc-fuse"]
    await world.preparer.end(NAME, asyncio.get_running_loop().time() + 1)
    assert (world.units(), world.files()) == ([], [])
