"""PreStartContainer: the devices are looked at again and reset where the resource asks for it."""

import grpc
import pytest
from msgspec.structs import replace

from deviceplugin import Paths
from kubeletapi.deviceplugin.v1beta1 import api_pb2 as api
from tests.deviceplugin.conftest import StartPlugins, resource
from tests.deviceplugin.host import MadeUpHost
from tests.deviceplugin.kubelet_end import KubeletEnd, kubelet_end

BUS_ID = "resource.kubernetes.io/pciBusID"


async def pre_start(kubelet: KubeletEnd, *unit_ids: str) -> None:
    await kubelet.call("PreStartContainer", api.PreStartContainerRequest(devices_ids=unit_ids))


def make_resettable(made_up: MadeUpHost, address: str) -> None:
    function = made_up.root / "sys/devices/pci0000:00" / address
    function.mkdir(parents=True)
    (function / "reset").write_text("")
    bus = made_up.root / "sys/bus/pci/devices"
    bus.mkdir(parents=True)
    (bus / address).symlink_to(f"../../../devices/pci0000:00/{address}")


async def test_it_is_announced_only_where_something_is_reset(start: StartPlugins, paths: Paths) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource("fuse"), resource("kvm", reset=True)])
        flags = {}
        for _ in range(2):
            request = await kubelet.requests.get()
            flags[request.resource_name] = request.options.pre_start_required
        assert flags == {"example.com/fuse": False, "example.com/kvm": True}


async def test_a_pci_device_is_reset_through_sysfs(start: StartPlugins, paths: Paths, made_up: MadeUpHost) -> None:
    make_resettable(made_up, "0000:00:05.0")
    async with kubelet_end(paths.device_plugins) as kubelet:
        plugins = await start([resource(reset=True)])
        await kubelet.lists.get()
        device = replace(made_up.devices()["misc-fuse"], attributes={BUS_ID: "0000:00:05.0"})
        await plugins.update({"example.com/fuse": (device,)})
        await pre_start(kubelet, "misc-fuse")
        assert (made_up.root / "sys/devices/pci0000:00/0000:00:05.0/reset").read_text() == "1"


@pytest.mark.parametrize(
    ("address", "words"),
    [("", "is not on a PCI bus and cannot be reset"), ("0000:00:06.0", "reset of 0000:00:06.0 failed: No such file")],
)
async def test_what_cannot_be_reset_does_not_start(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost, address: str, words: str
) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        plugins = await start([resource(reset=True)])
        await kubelet.lists.get()
        device = replace(made_up.devices()["misc-fuse"], attributes={BUS_ID: address} if address else {})
        await plugins.update({"example.com/fuse": (device,)})
        with pytest.raises(grpc.aio.AioRpcError, match=words) as error:
            await pre_start(kubelet, "misc-fuse")
        assert error.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_a_device_that_changed_meanwhile_does_not_start(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost
) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        await start([resource(reset=True)])
        await kubelet.lists.get()
        made_up.remove_node("fuse")
        with pytest.raises(grpc.aio.AioRpcError, match="/dev/fuse is gone now"):
            await pre_start(kubelet, "misc-fuse")
