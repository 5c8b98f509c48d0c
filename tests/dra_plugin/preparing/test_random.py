"""Random histories of a node: after any sequence of events, each device has one holder and each file has a lease."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from checkpoint import LeaseRefused
from dra_plugin.driver import ClaimFailed, PreparedDevice
from tests.checkpoint.build import lease
from tests.dra_plugin.preparing.world import World, claim, ref, resource, result, uid

NAMES = ("one", "two", "many")
CLAIMS = [
    claim(result("misc-one"), name="c0", uid=uid(0)),
    claim(result("misc-one", "a"), result("misc-two", "b"), name="c1", uid=uid(1)),
    claim(result("misc-two"), name="c2", uid=uid(2)),
    claim(result("misc-many", share_id="s3"), result("misc-one", "b"), name="c3", uid=uid(3)),
    claim(result("misc-many", share_id="s4"), name="c4", uid=uid(4)),
    claim(result("misc-one", admin_access=True), result("misc-many", "b", admin_access=True), name="c5", uid=uid(5)),
]


class CheckedNode:
    """A node and its invariants."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.answers: dict[str, tuple[PreparedDevice, ...]] = {}
        self.plugged = set(NAMES)
        self.boots = 0

    async def prepare(self, number: int) -> None:
        wanted = CLAIMS[number]
        answer = (await self.world.outcomes(wanted))[wanted.metadata.uid]
        known = self.answers.get(wanted.metadata.uid)
        if not isinstance(answer, ClaimFailed):
            assert known in (None, answer)
            self.answers[wanted.metadata.uid] = answer

    async def unprepare(self, number: int) -> None:
        wanted = CLAIMS[number]
        assert await self.world.failures(ref(wanted)) == {wanted.metadata.uid: None}
        self.answers.pop(wanted.metadata.uid, None)

    async def crash(self, turns: int, numbers: Sequence[int], reboot: bool) -> None:
        """Stop in the middle of calls, and start again."""
        calls = [
            asyncio.ensure_future(self.world.outcomes(CLAIMS[n]) if n % 2 else self.world.failures(ref(CLAIMS[n])))
            for n in numbers
        ]
        for _ in range(turns):
            await asyncio.sleep(0)
        await self.world.end(grace=0.0)
        await asyncio.gather(*calls, return_exceptions=True)
        for number in numbers:  # their results are unknown, and the kubelet would repeat them
            self.answers.pop(CLAIMS[number].metadata.uid, None)
        self.boots += reboot
        if reboot:
            for path in self.world.cdi.glob("*"):
                path.unlink()
        await self.world.begin(f"boot-{self.boots}")
        self.scan()

    async def grant_to_plugin(self, name: str) -> None:
        unit = f"misc-{name}"
        try:
            await self.world.ledger.grant([lease(unit, "example.com/other", holder="pod/default/a/c")])
        except LeaseRefused:
            assert any(unit in x.devices for x in self.world.ledger.leases())

    async def end_plugin_leases(self) -> None:
        await self.world.ledger.end(x for x in self.world.ledger.leases() if x.api == "device-plugin")

    def replug(self, name: str) -> None:
        if name in self.plugged:
            self.plugged.remove(name)
            self.world.made_up.remove_node(name)
        else:
            self.plugged.add(name)
            self.world.made_up.renumber(name, NAMES.index(name))
        self.scan()

    def scan(self) -> None:
        self.world.scan()

    def check(self) -> None:
        leases = self.world.ledger.leases()
        assert {lease.phase for lease in leases} <= {"done"}
        for name in NAMES:
            whole = {lease.owner for lease in leases if f"misc-{name}" in lease.exclusive}
            parts = {lease.owner for lease in leases if f"misc-{name}" in lease.shared}
            assert len(whole) <= 1
            assert not whole or parts <= whole
        holders = {lease.owner.removeprefix("claim/") for lease in leases if lease.api == "dra"}
        assert self.answers.keys() <= holders  # each prepared claim has a lease
        files = {path.name.rpartition("~")[2].removesuffix(".json") for path in self.world.cdi.glob("[!.]*")}
        metadata = {path.name.partition("~")[0] for path in self.world.metadata.glob("*")}
        assert files == holders  # no file is stale or missing
        assert metadata == holders


numbers = st.integers(0, len(CLAIMS) - 1)
steps = st.one_of(
    st.tuples(st.just("prepare"), numbers),
    st.tuples(st.just("prepare"), numbers),
    st.tuples(st.just("unprepare"), numbers),
    st.tuples(st.just("together"), st.lists(numbers, min_size=2, max_size=6)),
    st.tuples(st.just("crash"), st.integers(0, 30), st.lists(numbers, unique=True, max_size=3), st.booleans()),
    st.tuples(st.just("grant_to_plugin"), st.sampled_from(NAMES)),
    st.tuples(st.just("end_plugin_leases")),
    st.tuples(st.just("replug"), st.sampled_from(NAMES)),
)


async def play(plan: Sequence[tuple[object, ...]], folder: Path) -> None:
    world = World(folder, *NAMES)
    world.resources = [resource("one"), resource("two"), resource("many", shares=3)]
    async with world:
        checked = CheckedNode(world)
        for name, *arguments in plan:
            if name == "together":
                (together,) = arguments
                assert isinstance(together, list)
                await asyncio.gather(*(checked.prepare(n) for n in together), world.preparer.repair())
            elif name == "replug":
                checked.replug(str(arguments[0]))
            else:
                await getattr(checked, str(name))(*arguments)
            checked.check()


@given(plan=st.lists(steps, max_size=12))
def test_invariants_hold_after_any_sequence_of_events(plan: list[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(plan, Path(folder)))
