"""CDI devices of other programs' specs are added to a claim's devices."""

from msgspec.structs import replace

from tests.dra_plugin.preparing.world import World, claim, resource, result


async def test_a_claims_device_brings_the_cdi_devices_that_others_describe(world: World) -> None:
    """They come after ours, and a repeated call returns the same answer."""
    world.resources = [resource("fuse", cdi_devices=("nvidia.com/gpu={name}",))]
    world.offers.configure(world.resources)
    world.scan()
    wanted = claim(result("misc-fuse"))
    (device,) = await world.prepare(wanted)
    assert device.cdi_device_ids[0].startswith("nodeplug.dev/claim=")
    assert device.cdi_device_ids[-1] == "nvidia.com/gpu=fuse"
    assert await world.prepare(wanted) == (device,)


async def test_an_administrator_is_told_what_a_device_lacks_for_its_name(world: World) -> None:
    world.resources = [resource("fuse", cdi_devices=("nvidia.com/gpu={uuid}",))]
    world.offers.configure(world.resources)
    found = world.made_up.devices()["misc-fuse"]
    world.scan(fuse=replace(found, unavailable="it has no uuid"))
    wanted = claim(result("misc-fuse", admin_access=True))
    assert await world.refusal(wanted) == (
        "request gpu: device misc-fuse is unavailable: it has no uuid, which cdiDevices uses"
    )
