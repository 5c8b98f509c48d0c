"""The stand-in kubelet's scenarios on the real kubelet, with the same expected observations."""

from collections.abc import Iterator

import msgspec
import pytest
from click.testing import CliRunner

from kubelet.devicemanager import Device
from kubelet.pods import container, pod
from nodeplug.commands.kubelet import kubelet
from resourceapi.client import from_kubeconfig
from resourceapi.client.blocking import Client
from tests.e2e.realnode import HOME, RealNode
from tests.kubelet.both.claims_fixture import ClaimsFixture
from tests.kubelet.both.real import Real
from tests.kubelet.both.scenarios import SCENARIOS
from tests.kubelet.both.world import ScenarioFixture

pytestmark = pytest.mark.e2e
KUBELET = "https://127.0.0.1:11250"


@pytest.fixture(scope="module")
def world(node: RealNode) -> Iterator[Real]:
    """The real node, as seen by an administrator."""
    administrator = from_kubeconfig(HOME / "run/conf/admin.kubeconfig")
    kubelet = msgspec.structs.replace(administrator(), server=KUBELET, ca="", is_insecure=True)
    client = Client(administrator)
    yield Real(node, client, kubelet)
    client.close()


async def test_checkpoint_of_the_real_kubelet_is_readable(node: RealNode, world: Real) -> None:
    fixture = ScenarioFixture(world, "checkpoint")
    try:
        await fixture.offering([Device("a", topology=(0,))])
        view = await fixture.run(pod("checkpoint", container("c", {fixture.resource: 1})))
        file = node.kubelet_dir / "device-plugins" / "kubelet_internal_checkpoint"
        shown = CliRunner().invoke(kubelet, ["checkpoint", str(file), "-o", "wide"])
        assert shown.exit_code == 0, shown.output
        for part in (view.uid, fixture.resource, "env DEVICES=a", "checksum: good"):
            assert part in shown.output
    finally:
        await fixture.close()


@pytest.mark.parametrize("name", SCENARIOS)
async def test_scenario_passes_on_the_real_kubelet(name: str, world: Real) -> None:
    scenario = SCENARIOS[name]
    if reason := scenario.reason_unsupported(world.release):
        pytest.skip(reason)
    fixture = ClaimsFixture(world, name)
    try:
        await scenario.run(fixture)
    finally:
        await fixture.close()
