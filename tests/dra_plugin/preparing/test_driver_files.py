"""A claim's containers get the driver's current files."""

import json
from pathlib import Path

from msgspec.structs import replace

from hostdevices import DriverFiles, DriverMount
from tests.dra_plugin.preparing.world import World, claim, resource, result
from tests.running import until


async def test_claim_spec_has_the_current_driver_files(world: World) -> None:
    world.resources = [resource("fuse", userspace="nvidia"), resource("kvm")]
    world.offers.configure(world.resources)

    def driver(folder: str) -> None:
        files = DriverFiles((DriverMount(folder, "/usr/local/nvidia"),))
        world.scan(**{x: replace(world.made_up.devices()[f"misc-{x}"], driver_files=files) for x in ("fuse", "kvm")})

    def mounted() -> list[tuple[str, str]]:
        specs = [json.loads(path.read_text()) for path in world.cdi.glob("*.json")]
        edits = [x["containerEdits"] for spec in specs for x in spec["devices"]]
        return [
            (y["hostPath"], y["containerPath"])
            for x in edits
            for y in x.get("mounts", ())
            if "nvidia" in y["containerPath"]
        ]

    driver("/old")
    await world.prepare(claim(result("misc-fuse"), result("misc-kvm")))
    assert mounted() == [("/old", "/usr/local/nvidia")]
    driver("/new")
    await until(lambda: mounted() == [("/new", "/usr/local/nvidia")])


async def test_claim_device_is_omitted_while_driver_files_are_missing(tmp_path: Path) -> None:
    """Before the first scan they are unknown, and during an installation they are incomplete."""
    world = World(tmp_path)
    world.resources = [resource("fuse", userspace="nvidia"), resource("kvm")]
    wanted = claim(result("misc-fuse", "gpu"), result("misc-kvm", "other"))
    name = f"nodeplug.dev/claim={wanted.metadata.uid}_gpu_misc-fuse"

    def driver(files: DriverFiles) -> None:
        world.scan(**{x: replace(world.made_up.devices()[f"misc-{x}"], driver_files=files) for x in ("fuse", "kvm")})

    whole = DriverFiles((DriverMount("/old", "/usr/local/nvidia"),))
    async with world:
        driver(whole)
        prepared = await world.prepare(wanted)
        await world.restart()
        assert name not in world.devices()
        assert world.container(prepared, "other").nodes
        driver(whole)
        await until(lambda: name in world.devices())
        driver(DriverFiles(problem="the files of NVIDIA's driver: there are none of 550.54.14"))
        await until(lambda: name not in world.devices())
