"""A GPU's driver files reach a container by the device's CDI name, and only for resources that ask for them."""

import json
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from deviceplugin import Paths
from hostdevices import Device, DriverFiles, DriverMount
from resources.resource import Resource
from resources.selector import Kinds
from tests.deviceplugin.conftest import StartPlugins
from tests.deviceplugin.host import MadeUpHost
from tests.deviceplugin.kubelet_end import allocate, kubelet_end, until_listed
from tests.running import until

NAME = "example.com/misc"
WITH_DRIVER = Resource(NAME, Kinds(("misc",)), userspace="nvidia")


def with_driver_files(made_up: MadeUpHost, folder: str) -> tuple[Device, ...]:
    files = DriverFiles((DriverMount(folder, "/usr/local/nvidia"),))
    return tuple(replace(x, driver_files=files) for x in made_up.devices().values())


def mounts_in_specs(folder: Path) -> dict[str, list[tuple[str, str, list[str]]]]:
    """What a runtime mounts, by device."""
    found = {}
    for path in folder.glob("*.json"):
        with suppress(FileNotFoundError):  # the plugin removes one that it needs no longer, also once it is listed here
            for x in json.loads(path.read_text())["devices"]:
                mounts = x["containerEdits"].get("mounts", ())
                found[x["name"]] = [(y["hostPath"], y["containerPath"], y["options"]) for y in mounts]
    return found


async def test_restarted_container_gets_the_current_driver_files(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost
) -> None:
    """The kubelet stores only the CDI name. If the resource is removed, a pod keeps its files."""
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start([WITH_DRIVER])
        side.plugins.update({NAME: with_driver_files(made_up, "/old")})
        side.presence.update({x.id: x for x in with_driver_files(made_up, "/old")}, with_driver_files(made_up, "/old"))
        await until_listed(kubelet, {"misc-fuse": "Healthy", "misc-kvm": "Healthy"})
        response = await allocate(kubelet, "misc-fuse")
        assert ([x.name for x in response.cdi_devices], list(response.mounts)) == (["example.com/misc=misc-fuse"], [])
        options = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
        assert mounts_in_specs(paths.cdi)["misc-fuse"] == [("/old", "/usr/local/nvidia", options)]
        side.presence.update({x.id: x for x in with_driver_files(made_up, "/new")}, ())
        side.plugins.update({NAME: with_driver_files(made_up, "/new")})
        await until(lambda: mounts_in_specs(paths.cdi)["misc-fuse"] == [("/new", "/usr/local/nvidia", options)])
        side.plugins.configure([])
        side.plugins.update({})
        await until(lambda: mounts_in_specs(paths.cdi) == {"misc-fuse": [("/new", "/usr/local/nvidia", options)]})


async def test_resource_without_userspace_gets_no_driver_files(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost
) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start([Resource(NAME, Kinds(("misc",)))])
        side.plugins.update({NAME: with_driver_files(made_up, "/old")})
        await until_listed(kubelet, {"misc-fuse": "Healthy", "misc-kvm": "Healthy"})
        await until(lambda: mounts_in_specs(paths.cdi) == {"misc-fuse": [], "misc-kvm": []})


async def test_spec_is_removed_while_driver_files_are_incomplete(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost
) -> None:
    """A pod's device stays healthy for the kubelet, because no other pod can get it."""
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start([WITH_DRIVER])
        whole = with_driver_files(made_up, "/old")
        side.plugins.update({NAME: whole})
        side.presence.update({x.id: x for x in whole}, whole)
        await until_listed(kubelet, {"misc-fuse": "Healthy", "misc-kvm": "Healthy"})
        await allocate(kubelet, "misc-fuse")
        half = DriverFiles(problem="it is half installed")
        lacking = tuple(replace(x, driver_files=half, unavailable=half.problem) for x in whole)
        side.presence.update({x.id: x for x in lacking}, lacking)
        side.plugins.update({NAME: lacking})
        await until_listed(kubelet, {"misc-fuse": "Healthy", "misc-kvm": "Unhealthy"})
        await until(lambda: mounts_in_specs(paths.cdi) == {})
