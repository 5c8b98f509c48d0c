"""Claims that no API server should send: refused with a reason or prepared correctly, and nothing is left behind."""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from dra_plugin.driver import ClaimFailed
from resourceapi.objects import Quantity, v1
from tests.dra_plugin.preparing.world import CONFIG, DRIVER, NODE, World, claim, ref, resource

HOSTILE = (
    "",
    ".",
    "..",
    "../../etc",
    "/etc",
    "a/b",
    "a/../b",
    "a//b",
    "x" * 300,
    "x\0y",
    "a b",
    "é",
    "a\nb",
    "=",
    "a:b",
    "a@b",
)
hostile = st.sampled_from(HOSTILE) | st.text(max_size=20)


def usually(*sound: str) -> st.SearchStrategy[str]:
    """Mostly valid values, so that the checks of other fields are reached."""
    return st.sampled_from(sound) | st.sampled_from(sound) | hostile


results = st.builds(
    v1.DeviceRequestAllocationResult,
    request=usually("gpu", "gpu/large"),
    driver=st.sampled_from((DRIVER, DRIVER, DRIVER, "other.example.com")),
    pool=usually(NODE, NODE, NODE),
    device=usually("misc-fuse", "misc-kvm"),
    share_id=st.none() | usually("s1", "s2"),
    admin_access=st.none() | st.booleans(),
    consumed_capacity=st.dictionaries(usually("shares"), st.integers(-2, 9).map(Quantity.of), max_size=2),
)
configs = st.builds(
    v1.DeviceAllocationConfiguration,
    source=st.sampled_from((v1.FROM_CLASS, v1.FROM_CLAIM, "FromNobody")),
    requests=st.lists(usually("gpu"), max_size=2).map(tuple),
    opaque=st.none()
    | st.builds(
        v1.OpaqueDeviceConfiguration,
        driver=st.sampled_from((DRIVER, "other.example.com")),
        parameters=st.sampled_from((None, [], "x", {}, CONFIG, CONFIG | {"env": {"A": "{model}"}}, CONFIG | {"x": 1})),
    ),
)


@given(
    st.lists(results, min_size=1, max_size=4),
    st.lists(configs, max_size=2),
    st.none() | hostile,
)
def test_malformed_claim_leaves_nothing_behind(
    got: list[v1.DeviceRequestAllocationResult],
    configured: list[v1.DeviceAllocationConfiguration],
    pod_claim: str | None,
) -> None:
    annotations = {} if pod_claim is None else {"resource.kubernetes.io/pod-claim-name": pod_claim}
    names = [x.device for x in got if x.driver == DRIVER]
    asyncio.run(prepare_and_unprepare(claim(*got, configs=configured, annotations=annotations), names))


async def prepare_and_unprepare(wanted: v1.ResourceClaim, names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        world.resources = [resource("fuse"), resource("kvm", shares=4)]
        async with world:
            before = all_files(world)
            outcome = (await world.outcomes(wanted))[wanted.metadata.uid]
            if isinstance(outcome, ClaimFailed):
                assert outcome.reason
                assert "nodeplug failed" not in outcome.reason
                assert (world.units(), world.files()) == ([], [])
            else:
                assert [x.device for x in outcome] == names
                world.specs()
            assert await world.failures(ref(wanted)) == {wanted.metadata.uid: None}
            assert (world.units(), world.files()) == ([], [])
            assert all_files(world) == before


def all_files(world: World) -> set[Path]:
    """All files except the ledger's."""
    return {x for x in world.folder.rglob("*") if x.is_file() and world.state not in x.parents}
