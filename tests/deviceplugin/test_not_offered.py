"""Units that pods hold and that are no longer offered: their log lines and metrics."""

import pytest

from deviceplugin import Paths
from tests.deviceplugin.conftest import StartPlugins, resource
from tests.deviceplugin.host import MadeUpHost
from tests.deviceplugin.kubelet_end import allocate, kubelet_end, until_listed


@pytest.mark.parametrize("is_unplugged", [False, True], ids=["not offered", "unplugged"])
async def test_held_unoffered_device_counts_as_in_use_unless_unplugged(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost, is_unplugged: bool
) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start([resource("fuse")])
        await until_listed(kubelet, {"misc-fuse": "Healthy"})
        await allocate(kubelet, "misc-fuse")
        if is_unplugged:
            made_up.unplug("fuse")
        side.update({"example.com/fuse": ()})
        await until_listed(kubelet, {"misc-fuse": "Unhealthy"})
        (status,) = side.plugins.status()
        assert (status.healthy, status.in_use) == (0, 0 if is_unplugged else 1)
        (device,) = side.plugins.devices()["example.com/fuse"]
        assert (device.health, device.reason) == (
            ("unhealthy", "it is gone, and a pod has it")
            if is_unplugged
            else ("unavailable", "it is not offered any more, and a pod has it")
        )
