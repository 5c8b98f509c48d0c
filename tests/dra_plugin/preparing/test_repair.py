"""Repairing while the kubelet calls, as once a lost ledger is restored: nobody's work is undone."""

import asyncio
from pathlib import Path

from dra_plugin.driver import ClaimFailed
from tests.dra_plugin.preparing.world import World, claim, config, ref, result, uid
from tests.running import until

MANY = 20


async def test_what_is_being_prepared_is_not_half_prepared(world: World) -> None:
    pipe = world.hold_reset("fuse")
    wanted = claim(result("misc-fuse"), configs=[config(reset=True)])
    call = asyncio.create_task(world.prepare(wanted))
    await until(world.units)
    assert [lease.phase for lease in world.ledger.leases()] == ["intended"]
    repairing = asyncio.create_task(world.preparer.repair())
    await asyncio.to_thread(pipe.read_bytes)
    await call
    await repairing
    assert [lease.phase for lease in world.ledger.leases()] == ["done"]
    assert len(world.files()) == 3


async def test_files_are_those_of_leases_whoever_comes_and_goes_meanwhile(tmp_path: Path) -> None:
    names = [f"m{n}" for n in range(MANY)]
    claims = [claim(result(f"misc-{name}"), name=name, uid=uid(n)) for n, name in enumerate(names)]
    async with World(tmp_path, *names) as world:
        for _ in range(5):
            outcomes, _ = await asyncio.gather(world.outcomes(*claims), world.preparer.repair())
            assert not [x for x in outcomes.values() if isinstance(x, ClaimFailed)]
            assert len(world.files()) == 3 * MANY
            await asyncio.gather(world.failures(*map(ref, claims)), world.preparer.repair())
            assert (world.units(), world.files()) == ([], [])
