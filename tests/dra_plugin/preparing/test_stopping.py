"""A stop while the driver works for the kubelet: running calls are finished and answered."""

import asyncio

import pytest

from dra_plugin.driver import ClaimFailed
from dra_plugin.serving import kubelet_plugin
from dra_plugin.serving.sockets import registration_socket
from tests.checkpoint.build import opened
from tests.dra_plugin.preparing.cluster import Cluster
from tests.dra_plugin.preparing.node import Node
from tests.dra_plugin.preparing.world import DRIVER, config, result
from tests.running import until


@pytest.mark.parametrize("disk", ["works", "refuses"])
async def test_running_preparation_is_completed_or_undone_before_the_stop(
    node: Node, cluster: Cluster, disk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubelet_plugin, "GRACE", 60.0)  # seconds; a busy machine can need more than the default
    pipe = node.hold_reset("fuse")
    wanted = await cluster.allocate("mine", result("misc-fuse"), configs=(config(reset=True),))
    call = asyncio.create_task(node.outcomes(wanted))
    await until(node.units)
    if disk == "refuses":
        node.cdi.write_text("no folder can be made here")
    stopping = asyncio.create_task(node.stop())
    await until(lambda: not registration_socket(node.folders.registry, DRIVER).exists())
    await asyncio.to_thread(pipe.read_bytes)
    outcome = (await call)[wanted.metadata.uid]
    await stopping
    await node.end()
    ledger = await opened(node.state)
    phases = [lease.phase for lease in ledger.leases()]
    await ledger.close()
    if disk == "refuses":
        assert isinstance(outcome, ClaimFailed)
        assert "File exists" in outcome.reason
        assert phases == []
        node.cdi.unlink()
    else:
        assert not isinstance(outcome, ClaimFailed)
        assert phases == ["done"]
    await node.begin()
