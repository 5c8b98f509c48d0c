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


def given(made_up: MadeUpHost, folder: str) -> tuple[Device, ...]:
    files = DriverFiles((DriverMount(folder, "/usr/local/nvidia"),))
    return tuple(replace(x, driver_files=files) for x in made_up.devices().values())


def mounted(folder: Path) -> dict[str, list[tuple[str, str, list[str]]]]:
    """What a runtime mounts, by device."""
    found = {}
    for path in folder.glob("*.json"):
        with suppress(FileNotFoundError):  # the plugin removes one that it needs no longer, also once it is listed here
            for x in json.loads(path.read_text())["devices"]:
                mounts = x["containerEdits"].get("mounts", ())
                found[x["name"]] = [(y["hostPath"], y["containerPath"], y["options"]) for y in mounts]
    return found


async def test_a_container_that_starts_again_has_the_driver_of_now(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost
) -> None:
    """The kubelet stores only the CDI name. If the resource is removed, a pod keeps its files."""
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start([WITH_DRIVER])
        side.plugins.update({NAME: given(made_up, "/old")})
        side.presence.update({x.id: x for x in given(made_up, "/old")}, given(made_up, "/old"))
        await until_listed(kubelet, {"misc-fuse": "Healthy", "misc-kvm": "Healthy"})
        response = await allocate(kubelet, "misc-fuse")
        assert ([x.name for x in response.cdi_devices], list(response.mounts)) == (["example.com/misc=misc-fuse"], [])
        options = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
        assert mounted(paths.cdi)["misc-fuse"] == [("/old", "/usr/local/nvidia", options)]
        side.presence.update({x.id: x for x in given(made_up, "/new")}, ())
        side.plugins.update({NAME: given(made_up, "/new")})
        await until(lambda: mounted(paths.cdi)["misc-fuse"] == [("/new", "/usr/local/nvidia", options)])
        side.plugins.configure([])
        side.plugins.update({})
        await until(lambda: mounted(paths.cdi) == {"misc-fuse": [("/new", "/usr/local/nvidia", options)]})


async def test_who_does_not_ask_for_the_driver_does_not_get_it(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost
) -> None:
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start([Resource(NAME, Kinds(("misc",)))])
        side.plugins.update({NAME: given(made_up, "/old")})
        await until_listed(kubelet, {"misc-fuse": "Healthy", "misc-kvm": "Healthy"})
        await until(lambda: mounted(paths.cdi) == {"misc-fuse": [], "misc-kvm": []})


async def test_no_container_starts_without_the_drivers_files(
    start: StartPlugins, paths: Paths, made_up: MadeUpHost
) -> None:
    """A pod's device stays healthy for the kubelet, because no other pod can get it."""
    async with kubelet_end(paths.device_plugins) as kubelet:
        side = await start([WITH_DRIVER])
        whole = given(made_up, "/old")
        side.plugins.update({NAME: whole})
        side.presence.update({x.id: x for x in whole}, whole)
        await until_listed(kubelet, {"misc-fuse": "Healthy", "misc-kvm": "Healthy"})
        await allocate(kubelet, "misc-fuse")
        half = DriverFiles(problem="it is half installed")
        lacking = tuple(replace(x, driver_files=half, unavailable=half.problem) for x in whole)
        side.presence.update({x.id: x for x in lacking}, lacking)
        side.plugins.update({NAME: lacking})
        await until_listed(kubelet, {"misc-fuse": "Healthy", "misc-kvm": "Unhealthy"})
        await until(lambda: mounted(paths.cdi) == {})
