"""CDI devices of other programs' specs, over the wire."""

import json

import pytest

from checkpoint import Ledger
from deviceplugin import Paths, container_record
from resources.resource import CdiPolicy, Resource
from resources.selector import Kinds
from tests.deviceplugin.conftest import StartPlugins
from tests.deviceplugin.host import MadeUpHost
from tests.deviceplugin.kubelet_end import allocate, kubelet_end, until_listed


@pytest.mark.parametrize(("policy", "own"), [(False, 0), ("auto", 2), (True, 2)])
async def test_response_has_the_configured_cdi_devices_of_other_vendors(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost, ledger: Ledger, policy: CdiPolicy, own: int
) -> None:
    """With our own CDI name or without. Common ones are listed once, and need no spec of ours."""
    names = ("nvidia.com/gpu={name}", "nvidia.com/all=all")
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([Resource("example.com/misc", Kinds(("misc",)), cdi=policy, cdi_devices=names)])
        await until_listed(kubelet, {"misc-fuse": "Healthy", "misc-kvm": "Healthy"})
        response = await allocate(kubelet, "misc-fuse", "misc-kvm")
        found = [x.name for x in response.cdi_devices]
        assert found[own:] == ["nvidia.com/gpu=fuse", "nvidia.com/all=all", "nvidia.com/gpu=kvm"]
        assert all(name.startswith("example.com/misc=") for name in found[:own])
        described = [json.loads(path.read_text())["kind"] for path in paths.cdi.glob("*.json")]
        assert described == ["example.com/misc"] * bool(own)
        records = map(container_record.decode, {lease.record for lease in ledger.leases()})
        assert [record is not None and record.is_named for record in records] == [bool(own)]
